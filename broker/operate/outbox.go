package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/topics"
)

// How long a lane waits before it tries again: after what passes soon, and after what
// somebody has to see to.
const (
	laneSoon  = 20 * time.Millisecond
	laneLater = time.Second
)

// outbox sends what waits in an operator's state for topics of other groups, where the
// operator is led: a lane for each topic, each with a goroutine that the unit waits for.
//
// A parcel is sent until its topic says that it has it, wherever that is: by the topic's
// own count it is stored once. What has been sent leaves the state with one of the next
// steps.
type outbox struct {
	u      *unit
	ctx    context.Context
	cancel context.CancelFunc // nil while nothing is sent
	rested bool               // the operator wasn't to run when the lanes were tended last
	wg     sync.WaitGroup
	lanes  map[topics.TopicID]*lane
}

// tend starts the lanes that are missing and wakes the others. It is called where the
// operator is led.
func (b *outbox) tend(inst *engine.Instance, runs bool) error {
	if runs && b.rested {
		b.stop() // what was refused is tried again
	}
	b.rested = !runs
	all, err := engine.Lanes(inst.Store())
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return nil
	}
	if b.cancel == nil {
		b.ctx, b.cancel = context.WithCancel(b.u.e.ctx)
		b.lanes = map[topics.TopicID]*lane{}
	}
	for _, l := range all {
		if b.lanes[l.Topic] == nil {
			n := &lane{topic: l.Topic, name: l.Name, wake: make(chan struct{}, 1)}
			b.lanes[l.Topic] = n
			ctx := b.ctx
			b.wg.Go(func() { b.run(ctx, n) })
		}
		b.lanes[l.Topic].poke()
	}
	return nil
}

// stop ends the lanes and waits for them.
func (b *outbox) stop() {
	if b.cancel == nil {
		return
	}
	b.cancel()
	b.wg.Wait()
	b.cancel, b.lanes = nil, nil
}

// reset is told that steps were thrown away: what they took out is there again.
func (b *outbox) reset() {
	for _, l := range b.lanes {
		l.proposed = 0
	}
}

// settled returns what the next step is to take out of the outbox; alone: that step takes
// nothing in. The error stops the operator.
func (b *outbox) settled() (all []engine.Sent, alone bool, err error) {
	for _, l := range b.lanes {
		l.mu.Lock()
		sent, deleted, refused := l.sent, l.gone, l.refused
		l.mu.Unlock()
		if refused != "" {
			return nil, false, errors.New(refused)
		}
		if sent > l.proposed {
			all = append(all, engine.Sent{Topic: l.topic, Number: sent})
		}
		// What is known to have another one's name now is not asked for first: what comes
		// next would go there before what waits.
		if !deleted && !b.u.madeAnew(l) {
			continue
		}
		waits, err := b.u.inst.Waits(l.topic)
		if err != nil {
			return nil, false, err
		}
		if !waits {
			continue
		}
		if alone = true; b.u.inst.Open() > 0 {
			continue // what is under way comes first
		}
		s, err := b.u.orphaned(l)
		if err != nil {
			return nil, false, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b engine.Sent) int { return cmp.Compare(a.Topic, b.Topic) })
	return all, alone, nil
}

// madeAnew tells whether a lane's topic was deleted and another one has its name.
func (u *unit) madeAnew(l *lane) bool {
	t, ok := u.e.state.Topic(u.op.Load().Account, l.name)
	return ok && t.ID() != l.topic
}

// orphaned decides what becomes of what waits for a topic that was deleted.
func (u *unit) orphaned(l *lane) (s engine.Sent, err error) {
	s = engine.Sent{Topic: l.topic, Number: math.MaxInt64, Fate: engine.Dropped}
	if t, ok := u.e.state.Topic(u.op.Load().Account, l.name); ok && t.ID() != l.topic {
		s.Fate, s.To = engine.Rerouted, t.ID()
		u.note("warn", "topic %s was made anew: what waited for the one that was deleted goes there", l.name)
		return s, nil
	}
	for i := range u.g.Sinks {
		if sink := &u.g.Sinks[i]; l.name != "" && sink.Topic == l.name && sink.Policy == graph.Stop {
			return s, fmt.Errorf("topic %s was deleted, and outputs wait for it: make it anew and resume the operator, and they go there", l.name)
		}
	}
	u.note("warn", "topic %s was deleted: what waited for it goes the way of the output's policy", l.name)
	return s, nil
}

// routes says which outputs go with the step and which wait in the outbox: those of
// topics that live elsewhere, or are moving, or have something waiting.
func (u *unit) routes() ([]topics.TopicID, error) {
	o := u.op.Load()
	routes := make([]topics.TopicID, len(u.g.Sinks))
	some := false
	for i := range u.g.Sinks {
		name := u.g.Sinks[i].Topic
		t := u.keeperOf(i)
		switch {
		case name == "" && t == nil:
			continue
		case name != "":
			var err error
			if t, err = u.topic(o.Account, name); err != nil {
				return nil, err
			}
		}
		if t == nil {
			routes[i], some = engine.RouteGone, true
			continue
		}
		away := t.Group() != u.group || t.Moving()
		if !away {
			waits, err := u.inst.Waits(t.ID())
			if err != nil {
				return nil, err
			}
			away = waits
		}
		if away {
			routes[i], some = t.ID(), true
		}
	}
	if !some {
		return nil, nil
	}
	return routes, nil
}

// topic returns a topic, nil when it is certain that there is none.
func (u *unit) topic(account, name string) (*state.Topic, error) {
	if t, ok := u.e.state.Topic(account, name); ok {
		return t, nil
	}
	ctx, cancel := context.WithTimeout(u.e.ctx, 2*time.Second)
	defer cancel()
	if err := u.e.state.SyncCatalogue(ctx); err != nil {
		return nil, fmt.Errorf("look for the topic %s: %w", name, err)
	}
	t, _ := u.e.state.Topic(account, name)
	return t, nil
}

// trim runs a step that takes in nothing and only takes what was sent out of the outbox, and
// notes that the instance halts.
func (u *unit) trim(sent []engine.Sent, halt uint32) error {
	s, _, err := u.inst.Run(engine.Batch{Clock: u.inst.Clock(), Sent: sent, Halt: halt, Waiting: func(int) bool { return true }})
	if err != nil {
		u.faulty = true
		return err
	}
	u.outbox.note(sent)
	if s != nil {
		u.propose(s, nil, time.Now())
	}
	return nil
}

func (b *outbox) note(sent []engine.Sent) {
	for _, s := range sent {
		if l := b.lanes[s.Topic]; l != nil && s.Fate == engine.Delivered {
			l.proposed = max(l.proposed, s.Number)
		}
	}
}

// full says why the operator waits for its outbox.
func (b *outbox) full(bytes int64) string {
	why := ""
	for _, l := range b.lanes {
		l.mu.Lock()
		if l.blocked != "" {
			why = ": " + l.blocked
		}
		l.mu.Unlock()
	}
	return fmt.Sprintf("the outbox is full: %d bytes wait for topics of other groups%s", bytes, why)
}

// LaneReport is what waits for a topic of another group.
type LaneReport struct {
	Topic   string `json:"topic"`
	Parcels int    `json:"parcels"`
	Bytes   int64  `json:"bytes"`
	Blocked string `json:"blocked,omitempty"`
}

// report says what waits in the outbox, of what is committed.
func (b *outbox) report(inst *engine.Instance) (all []LaneReport) {
	lanes, err := engine.Lanes(inst.Store())
	if err != nil {
		return nil // it is told where it matters
	}
	for _, l := range lanes {
		r := LaneReport{Topic: l.Name}
		if t, ok := b.u.e.state.TopicByID(l.Topic); ok && r.Topic == "" {
			r.Topic = t.Name()
		}
		_ = engine.Parcels(inst.Store(), l.Topic, 0, func(_ uint64, p []byte) bool { // likewise
			r.Parcels++
			r.Bytes += int64(len(p))
			return true
		})
		if at := b.lanes[l.Topic]; at != nil {
			at.mu.Lock()
			if r.Blocked = at.blocked; at.refused != "" {
				r.Blocked = at.refused
			}
			at.mu.Unlock()
		}
		all = append(all, r)
	}
	return all
}
