package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/heraldmq/herald/broker/delivery"
	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// bury stores a dead letter, once, and has its consumer give the message up.
//
// The letter stands behind a guard of its own, whose place in the state of the letter's
// group remembers for as long as needed that it is stored. Where both topics are of one
// group, letter and giving up are one entry. Else the giving up is proposed once the
// letter is durable; if it is lost, whoever leads then asks again and hears that the
// letter is stored, also where the letters' topic has moved to another group meanwhile
// (buriedElsewhere). Only when both are durable the place is removed, and what a leader
// that went in between leaves behind is swept up (letters.go).
func (d *durable) bury(ctx context.Context, b *delivery.Burial) error {
	to, source := d.state.TopicKeeping(b.Account, b.Subject), (*state.Topic)(nil)
	if to == nil {
		return fmt.Errorf("no topic keeps %s", b.Subject)
	}
	source, ok := d.state.TopicByID(b.Topic)
	if !ok {
		return errors.New("the topic is gone")
	}
	g, from := to.Group(), source.Group()
	if b.Again {
		stored, err := d.buriedElsewhere(ctx, b, to, g)
		if err != nil {
			return err
		}
		if stored {
			return giveUp(ctx, from, b) // the place is swept up
		}
	}
	if _, err := g.DeclareProducer(ctx, b.ID, 1); err != nil {
		return err
	}
	if err := stillDying(ctx, from, source, b); err != nil {
		return err // the place is swept up
	}
	x := letter(b, to)
	if g == from {
		x.Acked = b.Given
	}
	r, err := g.AskGuarded(ctx, x)
	switch {
	case err != nil:
		return err
	case r.Verdict == topics.GuardRefused && r.Fault != nil:
		return fmt.Errorf("topic %s refuses it: %w", to.Name(), r.Fault)
	case r.Verdict == topics.GuardRefused:
		return fmt.Errorf("topic %s is being given another one: %w", to.Name(), replication.ErrNotLeader)
	}
	if g != from {
		if err := giveUp(ctx, from, b); err != nil {
			return err
		}
	}
	if r.Verdict == topics.GuardNext {
		tellLive(d.b.front.Account(b.Account), b)
	}
	// The next leader may not know yet, and ask once more: then the place must be there.
	if b.Leads() {
		if _, err := g.DeclareProducer(ctx, b.ID, 0); err != nil {
			d.b.cfg.Log.Debug("The place of a dead letter could not be removed", "subject", b.Subject, "error", err)
		}
	}
	return nil
}

// stillDying fails where the message has been given up already. A leader that was held up may
// be one of the past: when its successor has been through all of this, the removal of the
// place included, the place just made would take the letter once more. After this question
// either the successor finds this place, or this letter finds none.
func stillDying(ctx context.Context, from *state.Group, source *state.Topic, b *delivery.Burial) error {
	if err := from.Linearize(ctx); err != nil {
		return fmt.Errorf("ask group %d whether the message still waits for its letter: %w", from.ID(), err)
	}
	if data := source.Data(); data == nil || len(delivery.Wanted(data, map[uint64]bool{b.ID: true})) == 0 {
		return fmt.Errorf("another leader has given the message up: %w", replication.ErrNotLeader)
	}
	return nil
}

// buriedElsewhere tells whether a letter has been stored while its topic was in another
// group than now: the place of its guard stayed there. The question is the letter itself,
// which a group stores only when it has a place for it and the topic.
func (d *durable) buriedElsewhere(ctx context.Context, b *delivery.Burial, to *state.Topic, now *state.Group) (bool, error) {
	for _, g := range d.state.AllGroups() {
		if g == now {
			continue
		}
		r, err := g.AskGuarded(ctx, letter(b, to))
		if err != nil {
			return false, fmt.Errorf("ask group %d whether it was stored there: %w", g.ID(), err)
		}
		if r.Verdict != topics.GuardRefused {
			return true, nil
		}
	}
	return false, nil
}

// letter is a dead letter behind its guard.
func letter(b *delivery.Burial, to *state.Topic) *state.Guarded {
	return &state.Guarded{
		Guard:     topics.Guard{Producer: b.ID, Epoch: 1, Seq: 1},
		Publishes: []topics.Publish{{Topic: to.ID(), Subject: []byte(b.Subject), Header: b.Header, Payload: b.Payload}},
	}
}

// giveUp proposes that the consumer gives the message up, and waits for that.
func giveUp(ctx context.Context, from *state.Group, b *delivery.Burial) error {
	if !b.Leads() {
		return replication.ErrNotLeader
	}
	done := make(chan error, 1)
	from.Submit(topics.RecordAcked, b.Given, func(result any, err error) {
		if f, ok := result.(*topics.Fault); ok && f != nil && err == nil {
			err = f
		}
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tellLive gives a dead letter to those who listen, as what is published to a topic
// reaches them too.
func tellLive(a *front.Account, b *delivery.Burial) {
	if a == nil {
		return
	}
	p := a.NewPublisher()
	p.Deliver(b.Subject, b.Subject, "", b.Header, b.Payload)
	p.Flush()
}
