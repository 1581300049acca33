package store

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// MoveCursor is how far the copy of a topic that moves has come.
type MoveCursor struct {
	Begun bool            `json:"begun,omitempty"`
	Last  topics.Sequence `json:"last,omitempty"`
	IDs   uint64          `json:"ids,omitempty"` // ordinal of the next message id
	// Complete is the pass with which the copy is whole, 0 while it isn't.
	Complete uint64 `json:"complete,omitempty"`
}

// ErrNotFrozen is returned by Depart when the topic isn't frozen for the pass that is to
// make the copy whole.
var ErrNotFrozen = errors.New("the topic is not frozen for that move")

// Arriving returns how far the copy has come of a topic that arrives by a move.
func (s *Store) Arriving(id topics.TopicID, number uint64) MoveCursor {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.topics[id]
	if t == nil || t.move.number != number || t.move.phase != moveArriving && t.move.phase != moveArrived {
		return MoveCursor{}
	}
	c := MoveCursor{Begun: true, Last: t.last}
	if t.dedupe != nil {
		c.IDs = t.dedupe.end()
	}
	if t.move.phase == moveArrived {
		c.Complete = t.move.pass
	}
	return c
}

// Moves returns the number of the move that brought the topic here, or the last that
// was given up; 0 if there was none.
func (t *Topic) Moves() uint64 {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	return t.move.done
}

// Hides tells whether a topic is there, but frozen or still arriving.
func (s *Store) Hides(id topics.TopicID) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.topics[id]
	return t != nil && t.hidden()
}

// Arrivals returns the topics that are still arriving, each with the number of its move.
func (s *Store) Arrivals() map[topics.TopicID]uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all map[topics.TopicID]uint64
	for id, t := range s.topics {
		if t.move.phase == moveArriving || t.move.phase == moveArrived {
			if all == nil {
				all = map[topics.TopicID]uint64{}
			}
			all[id] = t.move.number
		}
	}
	return all
}

// moveChunk is about how many bytes a step that brings something has.
const moveChunk = 128 << 10

// Depart gives emit the steps that bring a copy of a topic from c to what is there now.
// The last pass, for which the topic must be frozen, makes it whole; before, the topic
// goes on changing, and Arriving tells where the next one goes on.
func (s *Store) Depart(id topics.TopicID, pass uint64, last bool, c MoveCursor, emit func(MoveStep, []byte) error) error {
	s.mu.RLock()
	t := s.topics[id]
	if t == nil {
		s.mu.RUnlock()
		return fmt.Errorf("copy topic %d: %w", id, ErrUnknownTopic)
	}
	frozen := t.move.phase == moveFrozen && t.move.pass == pass
	begin, err := json.Marshal(&moveBegin{t.account, t.created, *t.cfg})
	end := t.last
	s.mu.RUnlock()
	if err != nil {
		return fmt.Errorf("copy topic %d: %w", id, err)
	}
	if last && !frozen {
		return fmt.Errorf("copy topic %d: %w", id, ErrNotFrozen)
	}
	if err := emit(MoveBegin, begin); err != nil {
		return err
	}
	if err := t.departMessages(c.Last, end, emit); err != nil {
		return fmt.Errorf("copy topic %d: %w", id, err)
	}
	if err := t.departIDs(c.IDs, emit); err != nil || !last {
		return err
	}
	return t.departRest(emit)
}

func (t *Topic) departMessages(after, end topics.Sequence, emit func(MoveStep, []byte) error) error {
	var msgs []topics.Message
	for next := after + 1; next <= end; {
		var err error
		if msgs, next, err = t.Read(nil, next, 1024, moveChunk, msgs[:0]); err != nil {
			return err
		}
		for len(msgs) > 0 && msgs[len(msgs)-1].Sequence > end {
			msgs = msgs[:len(msgs)-1]
		}
		if len(msgs) == 0 {
			return nil
		}
		step := binary.AppendUvarint(nil, uint64(after))
		for i := range msgs {
			step = appendMoved(step, &msgs[i])
		}
		after = msgs[len(msgs)-1].Sequence
		if err := emit(MoveMessages, step); err != nil {
			return err
		}
	}
	return nil
}

func (t *Topic) departIDs(from uint64, emit func(MoveStep, []byte) error) error {
	for {
		t.s.mu.RLock()
		d := t.dedupe
		if d == nil {
			t.s.mu.RUnlock()
			return nil
		}
		from = max(from, d.gone)
		i := d.head + int(from-d.gone)
		ids := slices.Clone(d.queue[min(i, len(d.queue)):min(i+2048, len(d.queue))])
		t.s.mu.RUnlock()
		if len(ids) == 0 {
			return nil
		}
		if err := emit(MoveIDs, appendIDs(binary.AppendUvarint(nil, from), ids)); err != nil {
			return err
		}
		from += uint64(len(ids))
	}
}

// departRest gives what only a frozen topic can.
func (t *Topic) departRest(emit func(MoveStep, []byte) error) error {
	s := t.s
	s.mu.RLock()
	whole := t.whole()
	blocks := len(t.dead.blocks)
	var consumers []*consumer.Consumer
	if t.members != nil {
		for _, id := range slices.Sorted(maps.Keys(t.members.byID)) {
			consumers = append(consumers, t.members.byID[id].c.Clone())
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(whole.Sources, func(a, b movedSource) int { return cmp.Compare(a.Key, b.Key) })
	if err := emit(MoveTrim, binary.AppendUvarint(binary.AppendUvarint(nil, uint64(whole.First)), uint64(whole.Last))); err != nil {
		return err
	}
	for i := 0; i < blocks; {
		var step []byte
		s.mu.RLock()
		for ; i < min(blocks, len(t.dead.blocks)) && len(step) < moveChunk; i++ {
			if b := &t.dead.blocks[i]; b.n > 0 {
				cut := deadCut{block: t.dead.base + uint64(i), n: b.n, bits: b.bits}
				body := cut.append(nil)
				step = binary.AppendUvarint(step, cut.block)
				step = append(binary.AppendUvarint(step, uint64(len(body))), body...)
			}
		}
		s.mu.RUnlock()
		if len(step) == 0 {
			break
		}
		if err := emit(MoveDead, step); err != nil {
			return err
		}
	}
	for _, c := range consumers {
		body, err := c.AppendBinary(nil)
		if err != nil {
			return fmt.Errorf("copy consumer %s: %w", c.Name(), err)
		}
		if err := emit(MoveConsumer, body); err != nil {
			return err
		}
	}
	body, err := json.Marshal(&whole)
	if err != nil {
		return fmt.Errorf("copy topic %d: %w", t.id, err)
	}
	return emit(MoveComplete, body)
}
