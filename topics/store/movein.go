package store

import (
	"encoding/binary"
	"maps"

	"github.com/heraldmq/herald/topics"
)

// appendMoved appends a message to a step that brings messages: sequence, time,
// subject, header, payload.
func appendMoved(dst []byte, m *topics.Message) []byte {
	dst = binary.AppendUvarint(dst, uint64(m.Sequence))
	dst = binary.AppendUvarint(dst, uint64(m.Time))
	dst = appendText(dst, m.Subject)
	dst = append(binary.AppendUvarint(dst, uint64(len(m.Header))), m.Header...)
	return append(binary.AppendUvarint(dst, uint64(len(m.Payload))), m.Payload...)
}

// bytes returns the next length and so many bytes, which are the reader's.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if !r.ok || n > uint64(len(r.b)) {
		r.ok = false
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// takeMessages stores messages as they were. The step begins with the last sequence
// that must be there before it, so that none is stored twice.
func (t *Topic) takeMessages(r *reader) *topics.Fault {
	if after := topics.Sequence(r.uvarint()); !r.ok || after != t.last {
		return faultMoveOrder
	}
	grew := t.grew
	t.grew = true // nobody is told
	defer func() { t.grew = grew }()
	for r.ok && len(r.b) > 0 {
		seq, at := topics.Sequence(r.uvarint()), topics.Nanos(r.uvarint())
		p := topics.Publish{Topic: t.id, Time: at, Subject: r.bytes(), Header: r.bytes(), Payload: r.bytes()}
		if !r.ok || seq <= t.last {
			r.ok = false
			return nil
		}
		t.skipTo(seq - 1)
		in, data := t.s.keepMade(&p)
		subj, _, _ := parts(data, topics.EntryHeader)
		t.append(in, alias(subj), t.size(len(p.Subject), len(p.Header), len(p.Payload)), at)
		if len(p.Header) > 0 {
			if ttl, _ := parseTTL(parseHeaders(p.Header).ttl); ttl > 0 {
				t.expire(seq, ttl, at)
			}
		}
	}
	return nil
}

// takeIDs adds message ids, from an ordinal on.
func (t *Topic) takeIDs(r *reader) {
	from := r.uvarint()
	ids, ok := decodeIDs(r.b)
	r.b, r.ok = nil, r.ok && ok
	if !r.ok {
		return
	}
	if t.dedupe == nil {
		t.dedupe = newDedupe()
		t.dedupe.gone, t.dedupe.saved = from, from
	}
	d := t.dedupe
	if from > d.end() { // those between have been forgotten meanwhile
		*d = *newDedupe()
		d.gone, d.saved = from, from
	}
	for i := range ids {
		if from+uint64(i) == d.end() {
			d.add(ids[i])
		}
	}
}

// end is the ordinal of the next id.
func (d *dedupe) end() uint64 { return d.gone + uint64(len(d.queue)-d.head) }

// takeBounds brings the topic to where the other one begins and ends, and clears the
// way for its consumers.
func (t *Topic) takeBounds(first, last topics.Sequence) {
	t.skipTo(last)
	for t.messages > 0 && t.first < first {
		t.remove(t.first)
	}
	if t.members != nil {
		for id := range t.members.byID {
			t.members.dropped = append(t.members.dropped, id)
		}
		clear(t.members.byID)
		clear(t.members.byName)
	}
}

// takeDead removes what has been removed from the other one meanwhile.
func (t *Topic) takeDead(r *reader) {
	for r.ok && len(r.b) > 0 {
		block := r.uvarint()
		d, ok := decodeDead(r.bytes())
		if r.ok = r.ok && ok; !r.ok {
			return
		}
		from := topics.Sequence(block << blockBits)
		for seq := max(from, t.first); seq < from+blockSize && seq <= t.last; seq++ {
			at := uint64(seq) % blockSize
			if t.alive(seq) && (d.bits == nil || d.bits[at/64]&(1<<(at%64)) != 0) {
				t.remove(seq)
			}
		}
	}
}

// complete takes over the rest, and compares.
func (t *Topic) complete(c *moveComplete) *topics.Fault {
	t.configure(c.Config)
	t.lastTime, t.lastMsgID = c.LastTime, c.LastID
	if c.LastConsumer > 0 && t.members == nil {
		t.members = newConsumers()
	}
	consumers := 0
	if t.members != nil {
		t.members.lastID, consumers = c.LastConsumer, len(t.members.byID)
	}
	t.sources = nil
	if len(c.Sources) > 0 {
		t.sources = make(map[string]sourced)
		for _, s := range c.Sources {
			t.sources[s.Key] = sourced{s.Seq, s.At}
		}
		t.listOutboxes()
	}
	if !t.completeIDs(c) || t.messages != c.Messages || t.bytes != c.Bytes || t.dead.total != c.Dead ||
		t.first != c.First || t.last != c.Last || consumers != c.Consumers {
		return faultMoveCopy
	}
	t.move.phase = moveArrived
	return nil
}

func (t *Topic) completeIDs(c *moveComplete) bool {
	if !c.HasIDs {
		t.dedupe = nil
		return true
	}
	if t.dedupe == nil || t.dedupe.end() < c.IDsGone {
		t.dedupe = newDedupe()
		t.dedupe.gone, t.dedupe.saved = c.IDsGone, c.IDsGone
	}
	d := t.dedupe
	for d.gone < c.IDsGone {
		d.forget()
	}
	return d.end() == c.IDsEnd
}

// whole is what complete compares with.
func (t *Topic) whole() moveComplete {
	c := moveComplete{
		Config: *t.cfg, Messages: t.messages, Bytes: t.bytes, Dead: t.dead.total,
		First: t.first, Last: t.last, LastTime: t.lastTime, LastID: t.lastMsgID,
	}
	if t.members != nil {
		c.Consumers, c.LastConsumer = len(t.members.byID), t.members.lastID
	}
	if d := t.dedupe; d != nil {
		c.HasIDs, c.IDsGone, c.IDsEnd = true, d.gone, d.end()
	}
	for key := range maps.Keys(t.sources) {
		c.Sources = append(c.Sources, movedSource{key, t.sources[key].seq, t.sources[key].at})
	}
	return c
}
