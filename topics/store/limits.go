package store

import (
	"slices"

	"github.com/heraldmq/herald/topics"
)

// enforce lets the oldest messages go until the topic's limits hold.
func (t *Topic) enforce() {
	cfg := t.cfg
	if cfg.MaxMsgs > 0 {
		for t.messages > uint64(cfg.MaxMsgs) {
			t.remove(t.first)
		}
	}
	if cfg.MaxBytes > 0 {
		for t.bytes > uint64(cfg.MaxBytes) && t.messages > 0 {
			t.remove(t.first)
		}
	}
}

// enforcePer lets the oldest messages of a subject go until its limit holds.
func (t *Topic) enforcePer(i uint32) {
	for t.subjects.entries[i].count > uint64(t.cfg.MaxMsgsPer) {
		t.remove(t.firstOf(i))
	}
}

// enforceAll applies limits that may just have become lower.
func (t *Topic) enforceAll() {
	if t.cfg.MaxMsgsPer > 0 {
		t.subjects.each(func(i uint32, e *subjectEntry) bool {
			if e.count > uint64(t.cfg.MaxMsgsPer) {
				t.enforcePer(i)
			}
			return true
		})
	}
	t.enforce()
	t.expireOld()
	t.forgetIDs()
	t.touch()
}

// meta is what removing a message needs to know of it.
type meta struct {
	size uint64
	sub  uint32
	time topics.Nanos
}

func (t *Topic) timeOf(seq topics.Sequence) topics.Nanos { return t.meta(seq).time }

// alive tells whether seq is a live message.
func (t *Topic) alive(seq topics.Sequence) bool {
	return seq >= t.first && seq <= t.last && !t.dead.has(seq)
}

// remove takes a live message out.
func (t *Topic) remove(seq topics.Sequence) {
	m := t.meta(seq)
	t.removed(1, seq)
	t.s.marks.removed(t.id, seq)
	t.messages--
	t.bytes -= min(m.size, t.bytes)
	if m.sub != lost {
		t.subjects.remove(m.sub, seq)
	}
	if seq <= t.saved {
		if r := t.runAt(seq); r != nil {
			t.s.uncount(r.file, 1)
		}
	}
	if t.expiries != nil {
		delete(t.expiries.at, seq)
	}
	if seq == t.first {
		t.advance(seq + 1)
	} else {
		t.dead.add(seq)
	}
}

// advance moves first to the first live message at or after seq; everything
// below must be dead and counted out.
func (t *Topic) advance(seq topics.Sequence) {
	t.first = t.dead.nextLive(seq)
	if t.messages == 0 {
		t.first, t.bytes = t.last+1, 0
		t.subjects = subjectTable{histories: t.subjects.histories}
	}
	t.dropRuns()
	t.dead.trim(t.first)
	t.refs.trim(t.first)
	t.firstTime = 0
	if t.messages > 0 {
		t.firstTime = t.timeOf(t.first)
	}
}

// firstOf returns the first live sequence of a subject.
func (t *Topic) firstOf(i uint32) topics.Sequence {
	e := &t.subjects.entries[i]
	if e.loose&looseFirst != 0 {
		if seq, ok := t.nextNow(t.one(i), max(e.first, t.first)); ok {
			e.first, e.loose = seq, e.loose&^looseFirst
		}
	}
	return e.first
}

// lastIn returns the last live sequence of a subject.
func (t *Topic) lastIn(i uint32) topics.Sequence {
	e := &t.subjects.entries[i]
	if e.loose&looseLast != 0 {
		if seq, ok := t.prevNow(t.one(i), min(e.last, t.last)); ok {
			e.last, e.loose = seq, e.loose&^looseLast
		}
	}
	return e.last
}

// rebuildHistories makes or drops the per-subject lists after a change of
// max_msgs_per_subject. It also makes first and last of each subject exact, which
// is what a list starts from.
func (t *Topic) rebuildHistories() {
	t.subjects.each(func(_ uint32, e *subjectEntry) bool {
		e.history = nil
		return true
	})
	if !t.subjects.histories || t.messages == 0 {
		return
	}
	for seq := t.dead.nextLive(t.first); seq <= t.last; seq = t.dead.nextLive(seq + 1) {
		sub := t.meta(seq).sub
		if sub == lost {
			continue
		}
		e := &t.subjects.entries[sub]
		if e.history == nil {
			e.history = new([]topics.Sequence)
			*e.history = slices.Grow(*e.history, int(e.count))
		}
		*e.history = append(*e.history, seq)
	}
	t.subjects.each(func(_ uint32, e *subjectEntry) bool {
		if e.history == nil {
			return true // all its messages are damaged
		}
		h := *e.history
		e.first, e.last, e.loose = h[0], h[len(h)-1], 0
		if len(h) <= 2 {
			e.history = nil
		}
		return true
	})
}
