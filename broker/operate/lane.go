package operate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/operators/engine"
	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
)

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
	if errors.Is(err, opstate.ErrDamaged) { // the unit sees to it
		b.u.poke()
		return idle
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
		m.Header = u.withOrigin(storable(o.Header), origin{p.Epoch, p.Seq, o.Index, o.ID, o.Again})
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
