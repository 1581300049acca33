package broker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/heraldmq/herald/broker/delivery"
	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// letters is the way of dead letters to the topics that keep them. A parcel is what an
// outbox sends (topics.LetterProducer): its topic, wherever it lives, knows which it has,
// and takes none twice and none that comes late. Where consumer and topic are of one group,
// storing and giving up are one entry.
type letters struct {
	d *durable
	// sends is called before a parcel is sent; nil: nothing is. Tests hold parcels up with it.
	sends atomic.Pointer[func(*state.Guarded)]
}

var errNoNumber = errors.New("the consumer's number is too high for dead letters")

// Keeper implements delivery.Letters.
func (l *letters) Keeper(account, subject string) (topics.TopicID, bool) {
	if t := l.d.state.TopicKeeping(account, subject); t != nil {
		return t.ID(), true
	}
	return 0, false
}

// Send implements delivery.Letters.
func (l *letters) Send(ctx context.Context, p *delivery.Parcel) (delivery.Fate, error) {
	producer, partition, ok := topics.LetterProducer(p.From, p.Consumer)
	if !ok {
		return delivery.Unknown, errNoNumber
	}
	to, ok := l.d.state.TopicByID(p.To)
	if !ok || to.Gone() || to.Moving() {
		return l.missing(p)
	}
	x := &state.Guarded{Guard: topics.Guard{Producer: producer, Partition: partition, Epoch: p.Number, Seq: topics.LetterStored}}
	for _, m := range p.Letters {
		x.Publishes = append(x.Publishes, topics.Publish{Topic: p.To, Subject: []byte(p.Subject), Header: m.Header, Payload: m.Payload})
	}
	if from, ok := l.d.state.TopicByID(p.From); ok && from.Group() == to.Group() {
		x.Letters = p.Given
	}
	if f := l.sends.Load(); f != nil {
		(*f)(x)
	}
	r, err := to.Group().AskGuarded(ctx, x)
	switch {
	case err != nil:
		return delivery.Unknown, fmt.Errorf("store in topic %s: %w", to.Name(), err)
	case r.Verdict == topics.GuardNext:
		tellLive(l.d.b.front.Account(p.Account), p)
		return delivery.Stored, nil
	case r.Verdict == topics.GuardDone:
		return fate(p, r.At), nil
	case r.Fault == nil: // the topic is behind it
		return l.Close(ctx, p)
	case notHere(r.Fault):
		return l.missing(p)
	}
	return delivery.Refused, fmt.Errorf("topic %s refuses it: %w", to.Name(), r.Fault)
}

// Close implements delivery.Letters.
func (l *letters) Close(ctx context.Context, p *delivery.Parcel) (delivery.Fate, error) {
	producer, partition, ok := topics.LetterProducer(p.From, p.Consumer)
	if !ok {
		return delivery.Unknown, errNoNumber
	}
	to, ok := l.d.state.TopicByID(p.To)
	if !ok || to.Gone() || to.Moving() {
		return l.missing(p)
	}
	r, err := to.Group().CloseLetters(ctx, p.To, producer, partition, p.Number)
	switch {
	case err != nil:
		return delivery.Unknown, fmt.Errorf("ask topic %s whether it has it: %w", to.Name(), err)
	case r.Fault != nil:
		return l.missing(p)
	}
	return fate(p, r.At), nil
}

// fate says what became of a parcel, from where its topic is.
func fate(p *delivery.Parcel, at topics.Place) delivery.Fate {
	if at.Epoch == p.Number && at.Seq == topics.LetterStored {
		return delivery.Stored
	}
	p.Behind = at.Epoch
	return delivery.Closed
}

// notHere tells whether a topic couldn't be asked: it is moving, or damaged.
func notHere(f *topics.Fault) bool { return f.ErrCode == codeNoTopic || f.ErrCode == codeOffline }

const (
	codeNoTopic = 10059
	codeOffline = 10118
)

// missing says what becomes of a parcel whose topic was not found. One that has been deleted
// takes nothing any more.
func (l *letters) missing(p *delivery.Parcel) (delivery.Fate, error) {
	if l.d.state.Deleted(p.To) {
		return delivery.Closed, nil
	}
	return delivery.Unknown, fmt.Errorf("topic %d is moving, or being made or repaired: %w", p.To, replication.ErrNotLeader)
}

// tellLive gives dead letters to those who listen, as what is published to a topic reaches
// them too.
func tellLive(a *front.Account, p *delivery.Parcel) {
	if a == nil {
		return
	}
	to := a.NewPublisher()
	for _, m := range p.Letters {
		to.Deliver(p.Subject, p.Subject, "", m.Header, m.Payload)
	}
	to.Flush()
}
