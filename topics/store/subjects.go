package store

import (
	"slices"
	"strings"

	"github.com/heraldmq/herald/topics"
)

// subjectFew is how many subjects a topic may have before it gets a map.
const subjectFew = 8

// subjectEntry is what is known about the live messages of one subject.
//
// Invariant: first <= the first live message and last >= the last one, equal
// unless loose says otherwise; with a history both are exact.
type subjectEntry struct {
	name    string
	first   topics.Sequence
	last    topics.Sequence
	count   uint64 // 0: the slot is free
	history *[]topics.Sequence
	loose   uint8
}

// What of a subjectEntry is a bound and not exact.
const (
	looseFirst = 1 << iota
	looseLast
)

// subjectTable is a topic's index by subject. Entries have numbers (slots of a
// slice), which the tail keeps per message instead of the text.
type subjectTable struct {
	entries   []subjectEntry
	index     map[string]uint32 // nil while there are few
	free      []uint32
	live      int
	recent    uint32 // the slot asked for last: topics often get runs of one subject
	histories bool   // keep every sequence of subjects that have more than two
}

// find returns the slot of a subject. The apply side's: it remembers the answer.
func (t *subjectTable) find(name string) (uint32, bool) {
	i, ok := t.peek(name)
	if ok {
		t.recent = i
	}
	return i, ok
}

// peek is find for readers: it changes nothing.
func (t *subjectTable) peek(name string) (uint32, bool) {
	if int(t.recent) < len(t.entries) {
		if e := &t.entries[t.recent]; e.count > 0 && e.name == name {
			return t.recent, true
		}
	}
	if t.index != nil {
		i, ok := t.index[name]
		return i, ok
	}
	for i := range t.entries {
		if t.entries[i].count > 0 && t.entries[i].name == name {
			return uint32(i), true
		}
	}
	return 0, false
}

// add counts a new message, the highest sequence so far, and returns the slot;
// fresh tells that the slot was not this subject's before.
func (t *subjectTable) add(name string, seq topics.Sequence) (i uint32, fresh bool) {
	i, ok := t.find(name)
	if !ok {
		return t.insert(subjectEntry{name: strings.Clone(name), first: seq, last: seq, count: 1}), true
	}
	t.addAt(i, seq)
	return i, false
}

// addAt is add for a subject whose slot is known.
func (t *subjectTable) addAt(i uint32, seq topics.Sequence) {
	e := &t.entries[i]
	if t.histories && e.count >= 2 {
		if e.history == nil {
			e.history = &[]topics.Sequence{e.first, e.last}
		}
		*e.history = append(*e.history, seq)
	}
	e.last = seq
	e.loose &^= looseLast
	e.count++
}

// addedRun counts n more messages of a subject, of which last is the highest sequence so
// far. Only for tables without histories.
func (t *subjectTable) addedRun(i uint32, last topics.Sequence, n int) {
	e := &t.entries[i]
	e.last = last
	e.loose &^= looseLast
	e.count += uint64(n)
}

// addRun counts messages of a subject that are later than all before. Only for
// tables without histories.
func (t *subjectTable) addRun(name string, first, last topics.Sequence, count uint64) {
	if i, ok := t.find(name); ok {
		e := &t.entries[i]
		e.last = last
		e.count += count
		return
	}
	t.insert(subjectEntry{name: strings.Clone(name), first: first, last: last, count: count})
}

func (t *subjectTable) insert(e subjectEntry) uint32 {
	t.live++
	var i uint32
	if n := len(t.free); n > 0 {
		i = t.free[n-1]
		t.free = t.free[:n-1]
		t.entries[i] = e
	} else {
		i = uint32(len(t.entries))
		t.entries = append(t.entries, e)
	}
	t.recent = i
	if t.index == nil && t.live > subjectFew {
		t.index = make(map[string]uint32, 2*subjectFew)
		for j := range t.entries {
			if t.entries[j].count > 0 {
				t.index[t.entries[j].name] = uint32(j)
			}
		}
	} else if t.index != nil {
		t.index[e.name] = i
	}
	return i
}

// remove counts a message out.
func (t *subjectTable) remove(i uint32, seq topics.Sequence) {
	e := &t.entries[i]
	e.count--
	if e.count == 0 {
		t.release(i)
		return
	}
	if e.history != nil {
		e.forget(seq)
		return
	}
	switch {
	case seq == e.first && seq == e.last:
	case seq == e.first:
		e.first++
		e.loose |= looseFirst
	case seq == e.last:
		e.last--
		e.loose |= looseLast
	}
	if e.count == 1 && e.loose == looseFirst {
		e.first, e.loose = e.last, 0
	} else if e.count == 1 && e.loose == looseLast {
		e.last, e.loose = e.first, 0
	}
}

// forget takes seq out of the history.
func (e *subjectEntry) forget(seq topics.Sequence) {
	h := *e.history
	if at, ok := slices.BinarySearch(h, seq); ok {
		if at == 0 {
			h = h[1:]
		} else {
			h = slices.Delete(h, at, at+1)
		}
	}
	e.first, e.last = h[0], h[len(h)-1]
	*e.history = h
	if len(h) <= 2 {
		e.history = nil
	}
}

func (t *subjectTable) release(i uint32) {
	if t.index != nil {
		delete(t.index, t.entries[i].name)
	}
	t.entries[i] = subjectEntry{}
	t.free = append(t.free, i)
	t.live--
	if t.live == 0 {
		*t = subjectTable{histories: t.histories}
	}
}

// each calls f for every subject with live messages, in no order.
func (t *subjectTable) each(f func(i uint32, e *subjectEntry) bool) {
	for i := range t.entries {
		if t.entries[i].count > 0 && !f(uint32(i), &t.entries[i]) {
			return
		}
	}
}
