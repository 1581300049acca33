package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
)

// The window counts the records of both inputs; each of a's is also a large output for a topic
// of another group, so that few go into a step.
const heldUp = `
operator: held
time: {event: at, unit: s, idle_after: 1s, max_future: 0s}
limits: {batch: 100, batch_bytes: 4KiB, in_flight: 1}
inputs: [{name: a, topic: A}, {name: b, topic: B}]
steps:
  - {name: large, from: a, map: {at: at, pad: "'PAD'"}}
  - {name: all, union: [a, b]}
  - key: k
  - window: {tumble: 1m}
  - {name: n, aggregate: {n: count()}}
outputs:
  - {topic: OUT, subject: 'out.{k}', from: n}
  - {topic: FAR, subject: far.x, from: large}
`

// An operator that is held up for longer than inputs are waited for, with records of one input
// read and not yet taken, doesn't take another input for idle whose records have come
// meanwhile: they would be late.
func TestAnInputWhoseRecordsCameWhileItWasHeldUpIsNotIdle(t *testing.T) {
	t.Parallel()
	t.Run("here", func(t *testing.T) {
		t.Parallel()
		p := openWith(t, t.TempDir(), nil, compile, groupsOf(3, 1))
		defer p.close()
		p.spread(1, 1, 1, 1)
		holdUp(t, p, p, p, "IN", "BIG")
	})
	// Input b is on another node than the primary, and so is what holds it up.
	t.Run("elsewhere", func(t *testing.T) {
		t.Parallel()
		f, _, home, others := withFarInputs(t, 0, func(_ *state.Options, oo *Options) { oo.OutboxBytes = 1 })
		for _, c := range []topics.Config{conf(3, "BIG", "big.>"), conf(1, "FAR", "far.>")} {
			f.any().topic(c)
		}
		out, _ := f.nodes[home].Topic("A", "OUT")
		wait(t, "another node to lead", func() (bool, string) {
			if l := f.leader(); l != nil && l.net.Name() == others[0] {
				return true, ""
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			return false, fmt.Sprint(out.Group().Transfer(ctx, others[0]))
		})
		var far *place
		wait(t, "all know the topics", func() (bool, string) {
			far = nil
			for name, p := range f.nodes {
				big, _ := p.Topic("A", "BIG")
				there, _ := p.Topic("A", "FAR")
				if big == nil || big.Data() == nil || there == nil {
					return false, name
				}
				if there.Data() != nil {
					far = p
				}
			}
			return far != nil, "FAR"
		})
		holdUp(t, f.nodes[others[0]], f.nodes[home], far, "BIG", "IN")
	})
}

// holdUp has an operator with inputs a and b run on a node, b read on another, and the topic
// FAR, which holds it up, be on a third.
func holdUp(t *testing.T, p, atB, atFar *place, a, b string) {
	t.Helper()
	send := func(p *place, topic, body string) {
		t.Helper()
		top, _ := p.Topic("A", topic)
		wait(t, "a leader of "+topic, func() (bool, string) { return top.Group().Leader() != "" || p.net == nil, "" })
		_, before := top.Data().Bounds()
		top.Group().Capture([]front.Captured{{Topic: top.ID(), Subject: []byte(strings.ToLower(topic) + ".x"), Payload: []byte(body), Account: &front.Account{}}})
		wait(t, "the record in "+topic, func() (bool, string) {
			_, last := top.Data().Bounds()
			return last > before, fmt.Sprint(last)
		})
	}
	limit := func(n int64) {
		t.Helper()
		far, _ := atFar.Topic("A", "FAR")
		cfg := *far.Config()
		cfg.MaxMsgs, cfg.Discard = n, topics.DiscardNew
		if _, err := p.UpdateTopic(t.Context(), "A", cfg); err != nil {
			t.Fatal(err)
		}
	}
	limit(1)
	send(atFar, "FAR", "what keeps it full")
	send(atB, b, `{"k":"k","at":1000}`)
	for range 20 {
		send(p, a, `{"k":"k","at":2000}`)
	}
	o := p.deploy(strings.NewReplacer("PAD", strings.Repeat("x", 3000), "topic: A}", "topic: "+a+"}", "topic: B}", "topic: "+b+"}").Replace(heldUp))
	u := p.ops.unit(unitKey{id: o.ID}, nil)
	wait(t, "it is held up, in front of some of them", func() (bool, string) {
		r := u.report()
		return r.Leads && strings.Contains(r.Blocked, "the outbox is full") && r.Stats.In > 1 && r.Stats.In < 21, fmt.Sprintf("%+v", r)
	})
	since := p.Now()
	send(atB, b, `{"k":"k","at":1001}`) // in time: b has come to 1000
	wait(t, "longer than an input is waited for", func() (bool, string) { return p.Now() > since+topics.Nanos(2*time.Second), "" })
	limit(-1)
	wait(t, "the first window, with both records of b", func() (bool, string) {
		out := p.output()
		for _, c := range u.report().Counts {
			if c.Name == "late" {
				t.Fatalf("%d records were late: %v", c.N, out)
			}
		}
		return slices.ContainsFunc(out, func(line string) bool { return strings.HasSuffix(line, `"n":2}`) }), fmt.Sprint(out)
	})
}
