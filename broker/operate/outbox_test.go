package operate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

const spreading = `
operator: spread
standby: %s
inputs: [{topic: IN}]
steps:
  - key: k
  - name: sums
    aggregate: { n: count(), total: sum(v) }
  - name: big
    from: IN
    filter: v > 6
outputs:
  - {topic: OUT, from: sums, subject: 'out.{k}'}
  - {topic: FAR, from: sums, subject: 'far.{k}'}
  - {topic: BIG, from: big, subject: 'big.x'}
`

// groupsOf makes a node have several groups.
func groupsOf(n int, outbox int64) func(*state.Options, *Options) {
	return func(o *state.Options, oo *Options) { o.Groups, oo.OutboxBytes = n, outbox }
}

func (p *place) topic(c topics.Config) *state.Topic {
	p.Helper()
	t, _, err := p.CreateTopic(p.Context(), "A", c)
	if err != nil {
		p.Fatalf("create %s: %v", c.Name, err)
	}
	return t
}

func (p *place) spread(replicas ...int) {
	p.Helper()
	for i, name := range []string{"IN", "OUT", "FAR", "BIG"} {
		p.topic(conf(replicas[i], name, strings.ToLower(name)+".>"))
	}
}

// whole waits until the outputs are those of the batch, and nothing waits to be sent.
func (p *place) whole(text string, bodies []string, outputs ...string) {
	p.Helper()
	for _, topic := range outputs {
		want := batchOf(p, text, topic, bodies)
		wait(p, "the output "+topic, func() (bool, string) { return same(p.outputOf(topic), want) })
		if len(want) == 0 {
			p.Errorf("nothing is wanted of %s", topic)
		}
	}
	wait(p, "the outbox is empty", func() (bool, string) {
		for _, u := range p.ops.all() {
			if u.group.IsLeader() {
				for _, l := range u.report().Outbox {
					if l.Parcels > 0 {
						return false, fmt.Sprintf("%+v", l)
					}
				}
			}
		}
		return true, ""
	})
}

func TestOutputsOfSeveralGroupsAreThoseOfTheBatchOverRestarts(t *testing.T) {
	for _, standby := range []string{"delta", "replay"} {
		t.Run(standby, func(t *testing.T) {
			text := fmt.Sprintf(spreading, standby)
			dir := t.TempDir()
			start := func() *place { return openWith(t, dir, nil, compile, groupsOf(3, 0)) }
			p := start()
			defer func() { p.close() }()
			p.spread(1, 1, 1, 1)
			groups := map[topics.GroupID]bool{}
			for _, name := range []string{"OUT", "FAR", "BIG"} {
				top, _ := p.Topic("A", name)
				groups[top.Group().ID()] = true
			}
			if len(groups) < 2 {
				t.Fatalf("all outputs are in %v", groups)
			}
			p.deploy(text)
			rng := rand.New(rand.NewPCG(5, 6))
			var bodies []string
			for round := range 5 {
				for range 200 {
					bodies = append(bodies, record(rng, len(bodies)))
					p.publish(bodies[len(bodies)-1])
				}
				if round%2 == 0 {
					p.whole(text, bodies, "OUT", "FAR", "BIG")
				}
				if round == 2 { // an update keeps what the step has, and numbers go on
					changed := strings.Replace(text, "operator: spread", "operator: spread\nsummary: changed", 1)
					if _, err := p.ops.service.update(t.Context(), "A", &Request{Spec: changed}); err != nil {
						t.Fatal(err)
					}
				}
				p.close()
				p = start()
			}
			p.whole(text, bodies, "OUT", "FAR", "BIG")
		})
	}
}

func TestAFullOutboxHoldsTheOperatorUp(t *testing.T) {
	t.Parallel()
	p := openWith(t, t.TempDir(), nil, compile, groupsOf(3, 2000))
	defer p.close()
	p.spread(1, 1, 1, 1)
	far, _ := p.Topic("A", "FAR")
	cfg := *far.Config()
	cfg.MaxMsgs, cfg.Discard = 10, topics.DiscardNew
	if _, err := p.UpdateTopic(t.Context(), "A", cfg); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(spreading, "delta")
	o := p.deploy(text)
	rng := rand.New(rand.NewPCG(7, 8))
	var bodies []string
	for range 4000 {
		bodies = append(bodies, record(rng, len(bodies)))
		p.publish(bodies[len(bodies)-1])
	}
	u := p.ops.unit(unitKey{id: o.ID}, nil)
	wait(t, "it is held up", func() (bool, string) {
		r := u.report()
		return strings.Contains(r.Blocked, "outbox is full") && strings.Contains(r.Blocked, "maximum messages"), r.Blocked
	})
	if n := len(p.output()); n >= len(bodies) {
		t.Errorf("it went on: %d of %d", n, len(bodies))
	}
	cfg.MaxMsgs = -1
	if _, err := p.UpdateTopic(t.Context(), "A", cfg); err != nil {
		t.Fatal(err)
	}
	p.whole(text, bodies, "OUT", "FAR", "BIG")
}

func TestWhatWaitsForATopicThatIsDeletedGoesToTheOneMadeAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := openWith(t, dir, nil, compile, groupsOf(3, 0))
	defer func() { p.close() }()
	p.spread(1, 1, 1, 1)
	far, _ := p.Topic("A", "FAR")
	cfg := *far.Config()
	cfg.MaxMsgs, cfg.Discard = 2, topics.DiscardNew
	if _, err := p.UpdateTopic(t.Context(), "A", cfg); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(spreading, "delta")
	o := p.deploy(text)
	var bodies []string
	for i := range 40 {
		bodies = append(bodies, fmt.Sprintf(`{"k":"a","v":%d}`, i%10))
		p.publish(bodies[i])
		if i < 2 {
			wait(t, "the first ones", func() (bool, string) { return len(p.outputOf("FAR")) == i+1, "" })
		}
	}
	wait(t, "the others wait", func() (bool, string) {
		return len(p.output()) == len(bodies) && len(p.outputOf("FAR")) == 2, ""
	})
	if err := p.DeleteTopic(t.Context(), "A", "FAR"); err != nil {
		t.Fatal(err)
	}
	wait(t, "it stops", func() (bool, string) {
		now := p.Operator("A", o.Name)
		return now.State == catalogue.Failed && strings.Contains(now.Error, "topic FAR"), now.Error
	})
	p.close()
	p = openWith(t, dir, nil, compile, groupsOf(3, 0))
	p.topic(conf(1, "FAR", "far.>"))
	if _, err := p.ops.service.resume(t.Context(), "A", &Request{Name: o.Name}); err != nil {
		t.Fatal(err)
	}
	bodies = append(bodies, `{"k":"b","v":9}`)
	p.publish(bodies[40])
	all := batchOf(t, text, "FAR", bodies)
	wait(t, "the rest", func() (bool, string) { return same(p.outputOf("FAR"), all[2:]) })
	p.whole(text, bodies, "OUT", "BIG")

	// One that nothing is to wait for: the operator goes on without it.
	changed := strings.Replace(text, "{topic: FAR, from: sums, subject: 'far.{k}'}", "{topic: FAR, from: sums, subject: 'far.{k}', on_error: skip}", 1)
	if _, err := p.ops.service.update(t.Context(), "A", &Request{Spec: changed}); err != nil {
		t.Fatal(err)
	}
	if err := p.DeleteTopic(t.Context(), "A", "FAR"); err != nil {
		t.Fatal(err)
	}
	bodies = append(bodies, `{"k":"b","v":8}`)
	p.publish(bodies[41])
	p.whole(text, bodies, "OUT", "BIG")
}

func TestOutputsFollowTheirTopicsWhileNodesAreKilled(t *testing.T) {
	t.Parallel()
	for _, standby := range []string{"delta", "replay"} {
		t.Run(standby, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t)
			f.any().spread(3, 3, 1, 1)
			for name, p := range f.nodes {
				wait(t, name+" knows the topics", func() (bool, string) {
					in, _ := p.Topic("A", "IN")
					out, _ := p.Topic("A", "OUT")
					far, _ := p.Topic("A", "FAR")
					big, _ := p.Topic("A", "BIG")
					return in != nil && out != nil && far != nil && big != nil && in.Data() != nil && out.Data() != nil, ""
				})
			}
			text := fmt.Sprintf(spreading, standby)
			f.any().deploy(text)
			rng := rand.New(rand.NewPCG(9, 10))
			sent := 0
			publish := func(n int) {
				for range n {
					f.any().publish(record(rng, sent))
					sent++
				}
			}
			resize := func(topic string, replicas int) {
				t.Helper()
				cfg := conf(replicas, topic, strings.ToLower(topic)+".>")
				wait(t, "resize "+topic, func() (bool, string) {
					_, err := f.any().UpdateTopic(t.Context(), "A", cfg)
					return err == nil, fmt.Sprint(err)
				})
			}
			for round := range 3 {
				publish(150)
				switch round {
				case 0:
					resize("FAR", 3)
				case 1:
					resize("OUT", 1)
					resize("BIG", 3)
				case 2:
					resize("OUT", 3)
					resize("FAR", 1)
				}
				publish(150)
				if testing.Short() && round > 0 {
					continue
				}
				wait(t, "a leader", func() (bool, string) { return f.leader() != nil, "" })
				dead := f.leader().net.Name()
				f.kill(dead)
				publish(50)
				f.join(dead)
				f.ready()
			}
			publish(100)
			for _, name := range []string{"OUT", "FAR", "BIG"} {
				wait(t, "the output "+name, func() (bool, string) {
					in, _ := f.any().Topic("A", "IN")
					if in == nil || in.Data() == nil {
						return false, "no input"
					}
					messages, _, err := in.Data().Read(nil, 1, 1<<20, 0, nil)
					if err != nil {
						return false, err.Error()
					}
					var bodies []string
					for _, m := range messages {
						bodies = append(bodies, string(m.Payload))
					}
					want := batchOf(t, text, name, bodies)
					why := "nobody has it"
					for _, p := range f.nodes {
						if top, ok := p.Topic("A", name); ok && top.Data() != nil {
							ok, w := same(p.outputOf(name), want)
							if ok {
								return len(want) > 0, "nothing is wanted"
							}
							why = w
						}
					}
					return false, why
				})
			}
		})
	}
}

func TestDeployMakesTheTopicsOfOutputs(t *testing.T) {
	p := openWith(t, t.TempDir(), nil, compile, groupsOf(3, 0))
	defer p.close()
	p.topic(conf(1, "IN", "in.>"))
	text := `
operator: made
inputs: [{topic: IN}]
steps:
  - {name: all, filter: v >= 0}
outputs:
  - {topic: OUT, subject: 'out.{k}.x', create: {max_age: 7d, max_bytes: 1MiB, description: made}}
  - {topic: FAR, create: {subjects: [far], discard: new, max_msgs: 100}}
`
	deploy := func(may bool) (any, error) {
		return p.ops.service.deploy(t.Context(), "A", &Request{Spec: text, may: func(s string) bool {
			return may || s != "$JS.API.STREAM.CREATE.FAR"
		}})
	}
	if _, err := deploy(false); err == nil || !strings.Contains(err.Error(), "$JS.API.STREAM.CREATE.FAR") {
		t.Errorf("without the right: %v", err)
	}
	if _, ok := p.Topic("A", "FAR"); ok || p.Operator("A", "made") != nil {
		t.Error("something was made without the right")
	}
	for range 2 {
		if _, err := deploy(true); err != nil {
			t.Fatal(err)
		}
	}
	out, _ := p.Topic("A", "OUT")
	far, _ := p.Topic("A", "FAR")
	o, f := out.Config(), far.Config()
	if o.Subjects[0] != "out.*.x" || o.MaxAge != 7*24*time.Hour || o.MaxBytes != 1<<20 || o.Description != "made" {
		t.Errorf("OUT is %+v", o)
	}
	if f.Subjects[0] != "far" || f.MaxMsgs != 100 || f.Discard != topics.DiscardNew {
		t.Errorf("FAR is %+v", f)
	}
	p.publish(`{"k":"a","v":1}`)
	p.whole(text, []string{`{"k":"a","v":1}`}, "OUT")
	wait(t, "the output FAR", func() (bool, string) { return same(p.outputOf("FAR"), []string{`far {"k":"a","v":1}`}) })
	for create, want := range map[string]string{
		"replicas: 0": "a number from 1", "storage: tape": "file or memory", "max_age: soon": "a duration", "colour: red": "colour is not known",
	} {
		bad := strings.Replace(text, "max_age: 7d", create, 1)
		if _, err := p.ops.service.deploy(t.Context(), "A", &Request{Spec: bad}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, wanted %s", create, err, want)
		}
	}
}
