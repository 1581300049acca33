package state

import (
	"context"
	"errors"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/store"
)

// switched returns the number of the move that a topic's group in the catalogue follows
// from.
func switched(e *catalogue.Topic) uint64 {
	if e.Move != nil && !e.Move.Switched {
		return e.Move.Number - 1
	}
	return e.Moves
}

// arrivedLocked is told that a replica here holds a topic that is known already: from the
// catalogue, or from the group it was in before. One that has moved on is of no interest.
func (s *State) arrivedLocked(t *Topic, g *Group, data *store.Topic) {
	moves := data.Moves()
	if t.Group() != g && moves <= t.moves.Load() {
		return
	}
	if old := t.Group(); old != g {
		defer s.leave(t, old)()
	}
	what := Updated
	if t.held.Load() || t.Group() != g {
		what = Moved
	}
	t.moves.Store(max(moves, t.moves.Load()))
	t.data.Store(data)
	t.configure(data.SharedConfig())
	t.group.Store(g)
	t.held.Store(false)
	s.tellTopicLocked(t, what)
}

// switchedLocked is told what the catalogue says about a topic that is known here. It tells
// whether that was news of a move.
func (s *State) switchedLocked(t *Topic, e *catalogue.Topic) bool {
	n, g := switched(e), s.groups.get(s, e.Group)
	if n <= t.moves.Load() || e.State == catalogue.Deleting {
		return n < t.moves.Load() // what is older than what the replica here knows
	}
	t.moves.Store(n)
	if t.Group() == g { // the move was given up
		return false
	}
	defer s.leave(t, t.Group())()
	t.data.Store(nil)
	if r := g.local.Load(); r != nil {
		t.held.Store(true) // until it is opened here
		t.group.Store(g)
		if data := r.data.Topic(t.id); data != nil && data.Moves() >= n {
			t.data.Store(data)
			t.held.Store(false)
		}
	} else {
		t.group.Store(g)
		t.held.Store(false)
	}
	t.configure(&e.Config)
	what := Moved
	if t.held.Load() {
		what = Updated
	}
	s.tellTopicLocked(t, what)
	return true
}

// movedLocked is told of the steps of a move that a replica here has applied; false when
// the change is of another kind, or is to be told as one.
func (s *State) movedLocked(g *Group, r *replica, id topics.TopicID, c Change) bool {
	t, known := s.topics.find(id)
	switch c {
	case Frozen:
		if known && t.Group() == g {
			t.held.Store(true)
			s.tellTopicLocked(t, Frozen)
		}
		return true
	case Moved:
		data := r.data.Topic(id)
		if data == nil {
			return true // gone again by the same entry
		}
		if known && t.Group() == g && t.Data() == data {
			t.held.Store(false)
			s.tellTopicLocked(t, Moved)
		} else {
			s.attachLocked(g, data)
		}
		r.expiry.touch(id)
		return true
	case Deleted:
		return known && t.Group() != g // it has moved on
	}
	return false
}

// ask is Group.ask for the topic's group, as soon as the topic isn't between two.
func (t *Topic) ask(ctx context.Context, kind topics.RecordKind, body []byte) (any, error) {
	return t.asking(ctx, func(g *Group) (any, error) { return g.ask(ctx, kind, body) })
}

// askAgain is Group.askAgain likewise.
func (t *Topic) askAgain(ctx context.Context, kind topics.RecordKind, body []byte) (any, error) {
	return t.asking(ctx, func(g *Group) (any, error) { return g.askAgain(ctx, kind, body) })
}

func (t *Topic) asking(ctx context.Context, ask func(*Group) (any, error)) (any, error) {
	for {
		g := t.Group()
		if t.held.Load() {
			if !sleep(ctx, moveLook) {
				return nil, errMoving
			}
			continue
		}
		result, err := ask(g)
		if err != nil || !noTopic(result) || t.Gone() || t.Group() == g && !t.held.Load() {
			return result, err
		}
		// It was frozen while the record was under way, which had no effect.
	}
}

// moveLook is how often it is looked whether a topic is served again.
const moveLook = 10 * time.Millisecond

// noTopic tells whether a result says that the group doesn't have the topic.
func noTopic(result any) bool {
	var f *topics.Fault
	switch r := result.(type) {
	case *topics.Fault:
		f = r
	case created:
		f = r.fault
	case reset:
		f = r.fault
	case purged:
		f = r.fault
	case removed:
		f = r.fault
	}
	return f != nil && errors.Is(f, faultTopicNotFound)
}
