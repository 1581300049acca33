package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// A topic moves from one group to another by committed records of both. Where it
// leaves it is frozen: still there to be read, but nothing is applied to it any more.
// Where it arrives it is hidden until it is whole and the catalogue says that it lives
// there now:
//
//	leaving   live ──freeze──► frozen ──drop──► gone
//	                 ◄──thaw──
//	arriving  nothing ──begin──► arriving ──complete──► arrived ──open──► live
//	                             messages, ids, trim, dead, consumers
//
// Moves of a topic are numbered, and so are the passes in which it is copied, the last
// of which goes with a freeze: both only rise. A record that comes late, of a move that
// has ended or of a pass that was given up, has no effect.

// MoveStep is what a record of a move asks for. The numbers are part of the log's
// format.
type MoveStep uint8

// The steps.
const (
	MoveFreeze   MoveStep = iota + 1 // nothing more, as all up to MoveDrop
	MoveThaw                         // only if it is frozen for this pass
	MoveCancel                       // thaws, and the move can't be begun again
	MoveDrop                         // what is frozen, or has not been opened, is deleted
	MoveBegin                        // moveBegin, as JSON
	MoveMessages                     // see appendMoved
	MoveIDs                          // ordinal, message ids
	MoveTrim                         // first, last: consumers follow anew
	MoveDead                         // any number of: block, length, what deadCut.append wrote
	MoveConsumer                     // what consumer.AppendBinary wrote
	MoveComplete                     // moveComplete, as JSON
	MoveOpen                         // nothing more
)

// The phases of a topic.
const (
	moveNone uint8 = iota
	moveFrozen
	moveArriving
	moveArrived
)

// move is a topic's part in a move, and what it remembers of the last.
type move struct {
	phase  uint8
	number uint64 // of the move under way
	pass   uint64 // the last one; frozen: that of the freeze; arrived: that it is complete with
	done   uint64 // the last move that has ended here
}

// hidden tells whether nothing but the steps of a move is applied to the topic.
func (t *Topic) hidden() bool { return t.move.phase != moveNone }

// CodeMoveStale is the code of the refusal of a step of a move that has ended here.
const CodeMoveStale = 20060

// The refusals of steps.
var (
	faultMoveStale = topics.NewFault(409, CodeMoveStale, "that move of the topic has ended")
	faultMoveOrder = topics.NewFault(409, 20061, "the copy of the topic is not where this step goes on")
	faultMoveCopy  = topics.NewFault(500, 20062, "the copy of the topic is not what it was copied from")
)

type moveBegin struct {
	Account string        `json:"account"`
	Created topics.Nanos  `json:"created"`
	Config  topics.Config `json:"config"`
}

type moveComplete struct {
	Config   topics.Config   `json:"config"`
	Messages uint64          `json:"messages"`
	Bytes    uint64          `json:"bytes"`
	Dead     uint64          `json:"dead"`
	First    topics.Sequence `json:"first"`
	Last     topics.Sequence `json:"last"`
	LastTime topics.Nanos    `json:"last_time"`
	LastID   string          `json:"last_id,omitempty"`

	Consumers    int               `json:"consumers"`
	LastConsumer topics.ConsumerID `json:"last_consumer,omitempty"`
	HasIDs       bool              `json:"has_ids,omitempty"`
	IDsGone      uint64            `json:"ids_gone,omitempty"`
	IDsEnd       uint64            `json:"ids_end,omitempty"`
	Sources      []movedSource     `json:"sources,omitempty"`
}

type movedSource struct {
	Key string          `json:"key"`
	Seq topics.Sequence `json:"seq"`
	At  topics.Nanos    `json:"at"`
}

// Moved is what a step did to what others see.
type Moved uint8

// The effects.
const (
	MovedNothing Moved = iota
	MovedAway          // the topic takes nothing any more
	MovedHere          // it is live, again or for the first time
	MovedOut           // it has been deleted
)

// Move applies a step of a pass of the move of a topic. The error is for a body that
// can't be read.
func (s *Store) Move(id topics.TopicID, number, pass uint64, step MoveStep, body []byte) (Moved, *topics.Fault, error) {
	t := s.topics[id]
	switch step {
	case MoveFreeze, MoveThaw:
		did, f := s.moveLeaving(t, number, pass, step)
		return did, f, nil
	case MoveCancel, MoveDrop, MoveOpen:
		did, f := s.moveEnd(t, number, step)
		return did, f, nil
	case MoveBegin:
		f, err := s.moveBegin(t, id, number, pass, body)
		return MovedNothing, f, err
	}
	if t == nil || t.move.phase != moveArriving || t.move.number != number || t.move.pass != pass {
		return MovedNothing, faultMoveStale, nil
	}
	t.touch()
	f, err := t.moveStep(step, body)
	return MovedNothing, f, err
}

// Holding returns what an account has in a topic, on the apply side: while an entry is
// applied.
func (s *Store) Holding(id topics.TopicID) (account string, storage topics.Storage, consumers []string) {
	t := s.topics[id]
	if t == nil {
		return "", "", nil
	}
	if t.members != nil {
		consumers = slices.Sorted(maps.Keys(t.members.byName))
	}
	return t.account, t.cfg.Storage, consumers
}

// moveLeaving freezes and thaws.
func (s *Store) moveLeaving(t *Topic, number, pass uint64, step MoveStep) (Moved, *topics.Fault) {
	if t == nil {
		return MovedNothing, faultNoTopic
	}
	m := &t.move
	frozen := m.phase == moveFrozen && m.number == number
	switch {
	case frozen && m.pass == pass && step == MoveThaw:
		m.phase = moveNone
		t.touch()
		return MovedHere, nil
	case frozen && m.pass == pass:
		return MovedNothing, nil // by the same request
	case step == MoveThaw, number <= m.done, number < m.number, m.number == number && pass <= m.pass,
		m.phase != moveNone && !frozen:
		return MovedNothing, faultMoveStale
	}
	m.phase, m.number, m.pass = moveFrozen, number, pass
	s.recent[t.id%256] = nil
	t.touch()
	return MovedAway, nil
}

// moveEnd ends a move, here.
func (s *Store) moveEnd(t *Topic, number uint64, step MoveStep) (Moved, *topics.Fault) {
	if t == nil {
		return MovedNothing, faultNoTopic
	}
	m := &t.move
	switch step {
	case MoveCancel:
		if m.phase != moveNone && m.phase != moveFrozen || m.done >= number {
			return MovedNothing, nil
		}
		did := MovedNothing
		if m.phase == moveFrozen {
			did = MovedHere
		}
		*m = move{done: number}
		t.touch()
		return did, nil
	case MoveDrop:
		if m.phase == moveNone || m.number != number {
			return MovedNothing, faultMoveStale
		}
		s.DeleteTopic(t.id)
		return MovedOut, nil
	}
	switch {
	case m.phase == moveArrived && m.number == number:
		*m = move{done: number}
		t.touch()
		return MovedHere, nil
	case m.phase == moveNone && m.done == number:
		return MovedNothing, nil // it was opened before
	}
	return MovedNothing, faultMoveStale
}

// moveBegin makes room for a topic that arrives, and begins a pass. What an earlier move
// left is dropped; where this one has begun already it goes on.
func (s *Store) moveBegin(t *Topic, id topics.TopicID, number, pass uint64, body []byte) (*topics.Fault, error) {
	var b moveBegin
	if err := json.Unmarshal(body, &b); err != nil {
		return nil, fmt.Errorf("%w: begin of a move: %w", topics.ErrBadEntry, err)
	}
	arriving := t != nil && (t.move.phase == moveArriving || t.move.phase == moveArrived)
	switch {
	case s.damaged[id] != nil:
		return faultOffline, nil
	case t == nil:
	case !arriving, t.move.number > number: // it lives here, or is about to leave
		return faultMoveStale, nil
	case t.move.number < number:
		s.DeleteTopic(id)
	case pass < t.move.pass:
		return faultMoveStale, nil
	case pass > t.move.pass:
		t.move.phase, t.move.pass = moveArriving, pass
		t.touch()
		return nil, nil
	default:
		return nil, nil // by the same request
	}
	cfg := b.Config
	cfg.FirstSeq = 0 // it counts from what it brings
	n := newTopic(s, id, b.Account, cfg, b.Created)
	n.move, n.arrived = move{phase: moveArriving, number: number, pass: pass}, true
	s.topics[id] = n
	n.touch()
	return nil, nil
}

// moveStep applies what a topic that arrives brings.
func (t *Topic) moveStep(step MoveStep, body []byte) (*topics.Fault, error) {
	r := reader{b: body, ok: true}
	var f *topics.Fault
	switch step {
	case MoveMessages:
		f = t.takeMessages(&r)
	case MoveIDs:
		t.takeIDs(&r)
	case MoveTrim:
		t.takeBounds(topics.Sequence(r.uvarint()), topics.Sequence(r.uvarint()))
	case MoveDead:
		t.takeDead(&r)
	case MoveConsumer:
		c, err := consumer.Unmarshal(body)
		if err != nil {
			return nil, fmt.Errorf("%w: a consumer that moves: %w", topics.ErrBadEntry, err)
		}
		if t.members == nil {
			t.members = newConsumers()
		}
		t.adopt(&member{c: c, dirty: true})
		return nil, nil
	case MoveComplete:
		var c moveComplete
		if err := json.Unmarshal(body, &c); err != nil {
			return nil, fmt.Errorf("%w: end of a move: %w", topics.ErrBadEntry, err)
		}
		return t.complete(&c), nil
	default:
		return nil, fmt.Errorf("%w: step %d of a move is not known to this version", topics.ErrBadEntry, step)
	}
	if !r.ok || len(r.b) > 0 && f == nil {
		return nil, fmt.Errorf("%w: step %d of a move", topics.ErrBadEntry, step)
	}
	return f, nil
}
