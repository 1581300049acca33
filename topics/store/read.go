package store

import (
	"fmt"

	"github.com/heraldmq/herald/topics"
)

// Load returns one message, or ErrNotFound. A *CorruptError says that it is
// damaged on disk.
func (t *Topic) Load(seq topics.Sequence) (topics.Message, error) {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	return t.load(seq)
}

func (t *Topic) load(seq topics.Sequence) (topics.Message, error) {
	if !t.alive(seq) {
		return topics.Message{}, fmt.Errorf("load sequence %d: %w", seq, ErrNotFound)
	}
	return t.inTail(seq), nil
}

// inTail returns a message the tail holds.
func (t *Topic) inTail(seq topics.Sequence) topics.Message {
	r, _ := t.refs.at(seq)
	sl := t.s.tail.slotOf(r)
	subj, header, payload := parts(sl.data, int(uint32(r)))
	return topics.Message{Sequence: seq, Time: sl.time, Subject: alias(subj), Header: header, Payload: payload}
}

// Read appends to dst up to max live messages at or after from that f lets
// through, until their headers and payloads reach maxBytes (0: no bound; at least
// one message comes). next is where to go on; with nothing appended and no error
// it is above the last sequence looked at.
func (t *Topic) Read(f *topics.Filter, from topics.Sequence, max int, maxBytes int, dst []topics.Message) (msgs []topics.Message, next topics.Sequence, err error) {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	m := t.matcher(f)
	if from < t.first {
		from = t.first
	}
	bytes := 0
	seq := t.dead.nextLive(from)
	for ; seq <= t.last && max > 0; seq = t.dead.nextLive(seq + 1) {
		if m != nil {
			if _, sub := t.refs.at(seq); !m.match(t, sub) {
				continue
			}
		}
		msg := t.inTail(seq)
		size := len(msg.Header) + len(msg.Payload)
		if maxBytes > 0 && bytes > 0 && bytes+size > maxBytes {
			return dst, seq, nil
		}
		bytes += size
		dst = append(dst, msg)
		max--
	}
	return dst, seq, nil
}
