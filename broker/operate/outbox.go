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

// lane sends to one topic.
type lane struct {
	topic topics.TopicID
	name  string
	wake  chan struct{} // holds one

	mu      sync.Mutex
	sent    uint64 // the topic has what is up to it
	gone    bool   // there is no such topic any more
	refused string // for good, until the operator is resumed
	blocked string // for now

	proposed uint64 // taken out by a step that was proposed; the unit's goroutine's
	teller   teller // the lane's goroutine's
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

func (l *lane) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run is a lane's goroutine.
func (b *outbox) run(ctx context.Context, l *lane) {
	for ctx.Err() == nil {
		pause := b.next(ctx, l)
		if pause == 0 {
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-l.wake:
		}
		timer.Stop()
	}
}

// next sends the next parcel and returns how long to wait before the one after it.
func (b *outbox) next(ctx context.Context, l *lane) time.Duration {
	l.mu.Lock()
	from, stuck := l.sent+1, l.gone || l.refused != ""
	l.mu.Unlock()
	if stuck {
		return idle
	}
	var number uint64
	var raw []byte
	store := b.u.store.Load()
	err := engine.Parcels(store, l.topic, from, func(n uint64, p []byte) bool {
		number, raw = n, p
		return false
	})
	if err == nil && raw == nil {
		return idle
	}
	var p *engine.Parcel
	if err == nil {
		p, err = engine.ParseParcel(raw)
	}
	if err != nil {
		l.tell(func() { l.refused = err.Error() })
		b.u.poke()
		return idle
	}
	return b.send(ctx, l, number, p)
}

func (l *lane) tell(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// send sends a parcel to wherever its topic is.
func (b *outbox) send(ctx context.Context, l *lane, number uint64, p *engine.Parcel) time.Duration {
	u := b.u
	t, ok := u.e.state.TopicByID(l.topic)
	if !ok || t.Gone() {
		return b.missing(ctx, l)
	}
	if t.Moving() {
		l.tell(func() { l.blocked = "the topic " + l.name + " is moving to another group" })
		return laneSoon
	}
	x := &state.Guarded{Guard: topics.Guard{Producer: u.id | topics.OutboxBit, Partition: u.slot, Epoch: u.outboxEpoch(), Seq: number}}
	for i := range p.Outputs {
		o := &p.Outputs[i]
		m := topics.Publish{Topic: l.topic, Subject: []byte(o.Subject), Payload: o.Payload}
		m.Header = u.withOrigin(o.Header, origin{p.Epoch, p.Seq, o.Index, o.ID, o.Again})
		if o.Subject == "" {
			m.Subject = []byte(firstSubject(t.Config()))
		}
		x.Publishes = append(x.Publishes, m)
	}
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := t.Group().AskGuarded(limited, x)
	switch {
	case err != nil:
		l.tell(func() { l.blocked = fmt.Sprintf("group %d: %v", t.Group().ID(), err) })
		if errors.Is(err, state.ErrClosed) {
			return laneLater
		}
		return laneSoon
	case r.Verdict != topics.GuardRefused:
		l.tell(func() { l.sent, l.blocked = max(number, r.At.Seq), "" })
		if r.Verdict == topics.GuardNext { // else it was told when it was stored
			l.teller.tell(u.e.o.Account(u.op.Load().Account), x.Publishes)
		}
		u.poke()
		return 0
	case r.Fault == nil && r.At.Epoch == x.Guard.Epoch && r.At.Seq > number:
		l.tell(func() { l.sent = r.At.Seq })
		return 0
	case r.Fault == nil:
		l.tell(func() {
			l.refused = fmt.Sprintf("topic %s has what was sent up to %d of epoch %d, and %d of epoch %d comes next: something between is lost", l.name, r.At.Seq, r.At.Epoch, number, x.Guard.Epoch)
		})
		u.poke()
		return idle
	case r.Fault.ErrCode == codeNoTopic:
		l.tell(func() { l.blocked = "the topic " + l.name + " is not found in its group" })
		return b.missing(ctx, l)
	case permanent(r.Fault):
		l.tell(func() { l.refused = fmt.Sprintf("an output to topic %s was refused: %v", l.name, r.Fault) })
		u.poke()
		return idle
	}
	l.tell(func() { l.blocked = r.Fault.Error() })
	return laneLater
}

// codeNoTopic is the code of the refusal of a topic that isn't there: deleted, or in
// another group meanwhile.
const codeNoTopic = 10059

// missing finds out if a topic that was not found has been deleted.
func (b *outbox) missing(ctx context.Context, l *lane) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := b.u.e.state.SyncCatalogue(ctx); err != nil {
		return laneSoon
	}
	if t, ok := b.u.e.state.TopicByID(l.topic); ok && !t.Gone() {
		return laneSoon // between two groups, or it has just been made
	}
	l.tell(func() { l.gone, l.blocked = true, "the topic "+l.name+" was deleted" })
	b.u.poke()
	return idle
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
		if !deleted {
			continue
		}
		s, some, err := b.u.orphaned(l)
		if err != nil {
			return nil, false, err
		}
		if some {
			all, alone = append(all, s), true
		}
	}
	slices.SortFunc(all, func(a, b engine.Sent) int { return cmp.Compare(a.Topic, b.Topic) })
	return all, alone, nil
}

// orphaned decides what becomes of what waits for a topic that was deleted.
func (u *unit) orphaned(l *lane) (s engine.Sent, some bool, err error) {
	waits, err := u.inst.Waits(l.topic)
	if err != nil || !waits || u.inst.Open() > 0 {
		return s, false, err // what is under way comes first
	}
	s = engine.Sent{Topic: l.topic, Number: math.MaxInt64, Fate: engine.Dropped}
	if t, ok := u.e.state.Topic(u.op.Load().Account, l.name); ok && t.ID() != l.topic {
		s.Fate, s.To = engine.Rerouted, t.ID()
		u.note("warn", "topic %s was made anew: what waited for the one that was deleted goes there", l.name)
		return s, true, nil
	}
	for i := range u.g.Sinks {
		if sink := &u.g.Sinks[i]; sink.Topic == l.name && sink.Policy == graph.Stop {
			return s, false, fmt.Errorf("topic %s was deleted, and outputs wait for it: make it anew and resume the operator, and they go there", l.name)
		}
	}
	u.note("warn", "topic %s was deleted: what waited for it goes the way of the output's policy", l.name)
	return s, true, nil
}

// routes says which outputs go with the step and which wait in the outbox: those of
// topics that live elsewhere, or are moving, or have something waiting.
func (u *unit) routes() ([]topics.TopicID, error) {
	o := u.op.Load()
	routes := make([]topics.TopicID, len(u.g.Sinks))
	some := false
	for i := range u.g.Sinks {
		name := u.g.Sinks[i].Topic
		if name == "" {
			continue
		}
		t, err := u.topic(o.Account, name)
		if err != nil {
			return nil, err
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
