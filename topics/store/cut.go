package store

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/heraldmq/herald/topics"
)

// cut is a copy of all that changed between two applied indexes: what one flush
// writes. Its slices of entries keep them alive for as long as it takes.
type cut struct {
	applied   topics.Index
	chain     chainMark
	slots     []slot
	base      uint64 // number of slots[0]
	topics    []topicCut
	deleted   []topics.TopicID
	producers []producerCut
	bytes     int64 // of the tail that it makes safe
	msgs      []cutMessage
	victims   []*dataFile // to rewrite
	empty     []*dataFile // to drop

	// How far writing it has come.
	file      *dataFile // nil if there is no message
	drop      []*dataFile
	committed bool
}

// cutMessage is one live message of the tail.
type cutMessage struct {
	seq topics.Sequence
	ref ref
}

type topicCut struct {
	t         *Topic
	changed   bool // record and what follows it are to be written
	record    topicRecord
	from, to  int // in cut.msgs
	last      topics.Sequence
	expires   map[topics.Sequence]topics.Nanos // of the messages
	dead      []deadCut
	deadBelow uint64 // blocks below have gone
	ids       []seenID
	idsFrom   uint64
	consumers []consumerCut
	dropped   []topics.ConsumerID
	sources   []source
	joined    bool // the last source is next to the messages
}

type consumerCut struct {
	id   topics.ConsumerID
	data []byte
}

// source is a run to rewrite.
type source struct {
	run    run
	live   *liveSet
	joined bool // next to the source before it
	moved  bool // it was rewritten
}

// takeCut copies what changed. It holds the read lock, which keeps the apply side
// out; what it resets is touched by no reader. msgs is reused.
func (s *Store) takeCut(msgs []cutMessage, compact bool) (*cut, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := &cut{applied: s.applied, chain: s.marks.mark(s.applied), deleted: s.deleted, bytes: s.unsaved, msgs: msgs[:0]}
	c.base = max(s.savedSlot, s.tail.base)
	for n := c.base; n < s.tail.next; n++ {
		c.slots = append(c.slots, s.tail.slots[n&uint64(len(s.tail.slots)-1)])
	}
	byID := make(map[topics.TopicID]int, len(s.dirty))
	for _, t := range s.dirty {
		t.dirty = false
		if t.gone {
			continue
		}
		tc, err := c.takeTopic(t)
		if err != nil {
			return nil, err
		}
		byID[t.id] = len(c.topics)
		c.topics = append(c.topics, tc)
	}
	s.dirty, s.deleted, s.armed, s.urged = nil, nil, false, false
	c.producers = s.takeProducers()
	for _, f := range s.files {
		if f.live == 0 {
			c.empty = append(c.empty, f)
		}
	}
	s.emptied = false
	if compact {
		s.takeVictims(c, byID)
	}
	slices.SortFunc(c.topics, func(a, b topicCut) int { return cmp.Compare(a.t.id, b.t.id) })
	return c, nil
}

func (c *cut) takeTopic(t *Topic) (topicCut, error) {
	if t.arrived && t.fromFile == 0 {
		t.fromFile = t.s.flusher.next
	}
	tc := topicCut{t: t, changed: true, record: t.record(), from: len(c.msgs), last: t.last}
	if t.refs.n > 0 {
		for seq := t.dead.nextLive(max(t.saved+1, t.refs.first, t.first)); seq <= t.last; seq = t.dead.nextLive(seq + 1) {
			r, _ := t.refs.at(seq)
			c.msgs = append(c.msgs, cutMessage{seq, r})
			if t.expiries != nil {
				if at, ok := t.expiries.at[seq]; ok {
					if tc.expires == nil {
						tc.expires = make(map[topics.Sequence]topics.Nanos)
					}
					tc.expires[seq] = at
				}
			}
		}
	}
	tc.to = len(c.msgs)
	for i := range t.dead.blocks {
		b := &t.dead.blocks[i]
		if !b.dirty {
			continue
		}
		b.dirty = false
		d := deadCut{block: t.dead.base + uint64(i), n: b.n}
		if b.bits != nil {
			bits := *b.bits
			d.bits = &bits
		}
		tc.dead = append(tc.dead, d)
	}
	tc.deadBelow = uint64(t.first) >> blockBits
	if d := t.dedupe; d != nil {
		tc.idsFrom = max(d.saved, d.gone)
		tc.ids = slices.Clone(d.queue[d.head+int(tc.idsFrom-d.gone):])
		d.saved = d.gone + uint64(len(d.queue)-d.head)
	}
	return tc, tc.takeConsumers(t)
}

func (tc *topicCut) takeConsumers(t *Topic) error {
	if t.members == nil {
		return nil
	}
	tc.dropped, t.members.dropped = t.members.dropped, nil
	for id, m := range t.members.byID {
		if !m.dirty {
			continue
		}
		m.dirty = false
		data, err := m.c.AppendBinary(nil)
		if err != nil {
			return fmt.Errorf("encode consumer %d of topic %d: %w", id, t.id, err)
		}
		tc.consumers = append(tc.consumers, consumerCut{id, data})
	}
	return nil
}
