package store

import "github.com/heraldmq/herald/topics"

// dedupe is the message ids of a topic's window, in the order they came. It is
// replicated state: entries go by the time of log entries only.
type dedupe struct {
	seqs  map[string]topics.Sequence
	queue []seenID
	head  int
	gone  uint64 // how many left the queue, ever: the ordinal of the oldest
	saved uint64 // ordinals below are in state.db
}

type seenID struct {
	id   string
	seq  topics.Sequence
	time topics.Nanos
}

// duplicate returns the sequence under which an id was stored within the window.
func (t *Topic) duplicate(id string) (topics.Sequence, bool) {
	if t.dedupe == nil {
		return 0, false
	}
	t.forgetIDs()
	seq, ok := t.dedupe.seqs[id]
	return seq, ok
}

// remember adds the id of a message that was stored at a time; the caller gives
// the string away.
func (t *Topic) remember(id string, seq topics.Sequence, at topics.Nanos) {
	if t.cfg.Duplicates <= 0 {
		return
	}
	if t.dedupe == nil {
		t.dedupe = newDedupe()
	}
	t.forgetIDs()
	t.dedupe.add(seenID{id: id, seq: seq, time: at})
}

// forget drops the oldest id.
func (d *dedupe) forget() {
	e := &d.queue[d.head]
	if d.seqs[e.id] == e.seq {
		delete(d.seqs, e.id)
	}
	*e = seenID{}
	d.head++
	d.gone++
}

func newDedupe() *dedupe { return &dedupe{seqs: make(map[string]topics.Sequence)} }

func (d *dedupe) add(e seenID) {
	d.seqs[e.id] = e.seq
	d.queue = append(d.queue, e)
}

// forgetIDs drops the ids that are past the window at the entry's time.
func (t *Topic) forgetIDs() {
	d := t.dedupe
	if d == nil {
		return
	}
	for d.head < len(d.queue) {
		e := &d.queue[d.head]
		if t.s.now-e.time < topics.Nanos(t.cfg.Duplicates) {
			break
		}
		d.forget()
		t.touch()
	}
	if d.head > len(d.queue)/2 && d.head > 64 || d.head == len(d.queue) {
		n := copy(d.queue, d.queue[d.head:])
		clear(d.queue[n:])
		d.queue, d.head = d.queue[:n], 0
	}
	if len(d.seqs) == 0 && len(d.queue) == 0 && cap(d.queue) > 1024 {
		d.seqs, d.queue = make(map[string]topics.Sequence), nil
	}
}
