package operate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
)

// disturbed runs an operator on records that keep coming while it is disturbed, and checks that
// the output is that of one that wasn't.
func disturbed(t *testing.T, disturb func(p *place, round int)) {
	t.Helper()
	p := open(t, t.TempDir(), nil)
	defer p.close()
	p.topics(1)
	text := fmt.Sprintf(counting, "delta\nlimits: {batch: 5}")
	p.deploy(text)
	rng := rand.New(rand.NewPCG(11, 12))
	var bodies []string
	for round := range 20 {
		for range 200 {
			bodies = append(bodies, record(rng, len(bodies)))
			p.publish(bodies[len(bodies)-1])
		}
		disturb(p, round)
	}
	want := batch(t, text, bodies)
	wait(t, "the output", func() (bool, string) { return same(p.output(), want) })
}

// Steps of an epoch that has ended reach the group behind its end: a node that doesn't know
// runs and proposes them. None may be taken.
func TestAZombiesStepsAreNotTaken(t *testing.T) {
	t.Parallel()
	text := fmt.Sprintf(counting, "delta\nlimits: {batch: 5}")
	disturbed(t, func(p *place, round int) {
		o := p.Operator("A", "counts")
		// The group learns of the epoch before the operator's own node does.
		u := p.ops.unit(unitKey{id: o.ID}, o)
		in, err := u.group.DeclareProducer(t.Context(), o.ID, o.Epoch+1)
		if err != nil || in != o.Epoch+1 {
			t.Fatalf("epoch %d, %v", in, err)
		}
		changed := strings.Replace(text, "operator: counts", fmt.Sprint("operator: counts\nsummary: ", round), 1)
		if _, err := p.ops.service.update(t.Context(), "A", &Request{Spec: changed}); err != nil {
			t.Fatal(err)
		}
		// What it proposed before, and what a zombie proposes now.
		for _, at := range []topics.Guard{{Epoch: o.Epoch, Seq: 1}, {Epoch: o.Epoch, Seq: 1_000_000}, {Epoch: o.Epoch, Seq: u.group.Store().Place(o.ID, 0).Seq + 1}} {
			at.Producer = o.ID
			p.sends(u.group, at, "OUT", "out.zombie")
		}
	})
}

// sends has a group judge a message behind a guard that must not be the next.
func (p *place) sends(g *state.Group, at topics.Guard, topic, subject string) {
	p.Helper()
	out, _ := p.Topic("A", topic)
	ctx, cancel := context.WithCancel(p.Context())
	defer cancel()
	r, err := g.AskGuarded(ctx, &state.Guarded{Guard: at, Publishes: []topics.Publish{{Topic: out.ID(), Subject: []byte(subject), Payload: []byte("zombie")}}})
	if err != nil || r.Verdict == topics.GuardNext {
		p.Errorf("%d of epoch %d: verdict %d at %v, %v", at.Seq, at.Epoch, r.Verdict, r.At, err)
	}
}

// A step that is there comes again, as from a primary that doesn't know what became of it, and
// one comes too early, as if one in front of it was lost. Each step is taken once, in its order.
func TestStepsThatComeAgainAreTakenOnce(t *testing.T) {
	t.Parallel()
	disturbed(t, func(p *place, _ int) {
		o := p.Operator("A", "counts")
		u := p.ops.unit(unitKey{id: o.ID}, o)
		wait(t, "steps", func() (bool, string) { return u.group.Store().Place(o.ID, 0).Seq > 2, "" })
		last := u.group.Store().Place(o.ID, 0).Seq
		for _, seq := range []uint64{1, last - 1, last, last + 1_000_000} {
			p.sends(u.group, topics.Guard{Producer: o.ID, Epoch: o.Epoch, Seq: seq}, "OUT", "out.again")
		}
	})
}

// The outbox of an operator that has begun anew is another one: what is left of the one before
// comes too late.
func TestAZombiesParcelsAreNotTaken(t *testing.T) {
	t.Parallel()
	p := openWith(t, t.TempDir(), nil, compile, groupsOf(3, 0))
	defer p.close()
	p.spread(1, 1, 1, 1)
	text := fmt.Sprintf(spreading, "delta")
	o := p.deploy(text)
	rng := rand.New(rand.NewPCG(13, 14))
	var bodies []string
	for range 100 {
		bodies = append(bodies, record(rng, len(bodies)))
		p.publish(bodies[len(bodies)-1])
	}
	p.whole(text, bodies, "OUT", "FAR", "BIG")
	far, _ := p.Topic("A", "FAR")
	had := len(p.outputOf("FAR"))
	next := topics.Guard{Producer: o.ID | topics.OutboxBit, Epoch: 2, Seq: 1}
	begun := &state.Guarded{Guard: next, Publishes: []topics.Publish{{Topic: far.ID(), Subject: []byte("far.new"), Payload: []byte("new")}}}
	if r, err := far.Group().AskGuarded(t.Context(), begun); err != nil || r.Verdict != topics.GuardNext {
		t.Fatalf("the first parcel of the next outbox: %+v, %v", r, err)
	}
	for _, seq := range []uint64{1, 2, uint64(had), uint64(had) + 1} {
		p.sends(far.Group(), topics.Guard{Producer: o.ID | topics.OutboxBit, Epoch: 1, Seq: seq}, "FAR", "far.zombie")
	}
	for range 50 { // its own lane is a zombie's now
		p.publish(record(rng, len(bodies)))
	}
	p.sends(far.Group(), next, "FAR", "far.again")
	if got := len(p.outputOf("FAR")); got != had+1 {
		t.Errorf("%d messages, want %d", got, had+1)
	}
}
