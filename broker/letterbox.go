package broker

import (
	"context"
	"errors"
	"time"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/store"
)

// A topic remembers how far the dead letters of each consumer have come for as long as there
// is the consumer. Whoever leads the topic's group asks now and then whether there still is,
// and has the topic forget the others.

const (
	letterboxEvery    = 5 * time.Minute
	letterboxPatience = 10 * time.Second
	letterboxesMost   = 256 // questions of one look to another node
	// burialsOld is for how long after its start a node leaves alone what versions before
	// remember of single letters: one that has not been upgraded may still go by it.
	burialsOld = time.Hour
)

// run looks until the broker ends.
func (l *letters) run() {
	started := time.Now()
	tick := time.NewTicker(letterboxEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.d.ctx.Done():
			return
		case <-tick.C:
			l.sweep(l.d.ctx, time.Since(started) >= burialsOld)
		}
	}
}

// sweep has the topics of the groups led here forget the consumers that are gone, and, with
// old, the groups what versions before remember.
func (l *letters) sweep(ctx context.Context, old bool) {
	for _, g := range l.d.state.Groups() {
		if !g.IsLeader() {
			continue
		}
		one, cancel := context.WithTimeout(ctx, letterboxPatience)
		err := l.sweepGroup(one, g)
		if old {
			err = errors.Join(err, sweepBurials(one, g))
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			l.d.b.cfg.Log.Debug("What is known of dead letters could not be looked through", "group", g.ID(), "error", err)
		}
	}
}

func (l *letters) sweepGroup(ctx context.Context, g *state.Group) error {
	asked := 0
	for _, b := range g.Store().Letterboxes() {
		from, ok := l.d.state.TopicByID(b.From)
		if ok && from.Data() != nil && from.Data().HasConsumer(b.Consumer) {
			continue // as far as is known here; that is enough to keep it
		}
		if asked++; asked > letterboxesMost {
			return nil
		}
		gone, err := l.senderGone(ctx, &b)
		if err == nil && gone {
			err = g.ForgetLetters(ctx, &b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// senderGone tells whether there never again is the consumer of a letterbox.
func (l *letters) senderGone(ctx context.Context, b *store.Letterbox) (bool, error) {
	if l.d.state.Deleted(b.From) {
		return true, nil
	}
	from, ok := l.d.state.TopicByID(b.From)
	if !ok || from.Moving() {
		return false, nil // next time
	}
	there, err := from.Group().HasConsumer(ctx, b.From, b.Consumer)
	var f *topics.Fault
	if errors.As(err, &f) {
		return false, nil // the topic is between two groups
	}
	return !there, err
}

// sweepBurials removes the producers that were a single letter each.
func sweepBurials(ctx context.Context, g *state.Group) (err error) {
	g.Store().Producers(func(id, _ uint64) bool {
		if id&topics.BurialProducer != 0 && id&topics.OutboxBit == 0 {
			_, err = g.DeclareProducer(ctx, id, 0)
		}
		return err == nil
	})
	return err
}
