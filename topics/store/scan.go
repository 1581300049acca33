package store

import (
	"slices"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// view is a topic as the apply side sees it, with the store's lock held.
type view struct{ t *Topic }

var (
	_ consumer.Log = view{}
	_ consumer.Log = (*Topic)(nil)
)

func (v view) Bounds() (first, last topics.Sequence) { return v.t.first, v.t.last }

func (v view) Next(f *topics.Filter, from topics.Sequence) (topics.Sequence, bool) {
	return v.t.next(v.t.matcher(f), from)
}

func (v view) Prev(f *topics.Filter, from topics.Sequence) (topics.Sequence, bool) {
	return v.t.prev(v.t.matcher(f), from)
}

func (v view) Count(f *topics.Filter, from topics.Sequence) uint64 { return v.t.count64(f, from) }

func (v view) LastPerSubject(f *topics.Filter) []topics.Sequence { return v.t.lastPerSubject(f) }

func (v view) SequenceAt(at topics.Nanos) topics.Sequence { return v.t.sequenceAt(at) }

// Bounds returns the first live sequence (last+1 when the topic is empty) and
// the last assigned one.
func (t *Topic) Bounds() (first, last topics.Sequence) {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	return t.first, t.last
}

// Next returns the first live message at or after from that f lets through.
func (t *Topic) Next(f *topics.Filter, from topics.Sequence) (topics.Sequence, bool) {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	return t.next(t.matcher(f), from)
}

// Prev returns the last live message at or before from that f lets through.
func (t *Topic) Prev(f *topics.Filter, from topics.Sequence) (topics.Sequence, bool) {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	return t.prev(t.matcher(f), from)
}

// Count returns exactly how many live messages at or after from f lets through.
func (t *Topic) Count(f *topics.Filter, from topics.Sequence) uint64 {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	return t.count64(f, from)
}

// LastFor returns the last live sequence of a subject or pattern, 0 if it has
// none.
func (t *Topic) LastFor(subj string) topics.Sequence {
	seq, ok := t.Prev(topics.NewFilter([]string{subj}), ^topics.Sequence(0))
	if !ok {
		return 0
	}
	return seq
}

// LastPerSubject returns, in order, the last live message of each subject that f
// lets through.
func (t *Topic) LastPerSubject(f *topics.Filter) []topics.Sequence {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	return t.lastPerSubject(f)
}

// SubjectCounts calls count with every subject f lets through and its number of
// live messages, in no order, until it returns false. count must not call the
// topic.
func (t *Topic) SubjectCounts(f *topics.Filter, count func(subj string, messages uint64) bool) {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	t.subjects.each(func(_ uint32, e *subjectEntry) bool {
		return !f.Match(e.name) || count(e.name, e.count)
	})
}

// SequenceAt returns the first live message stored at or after at, last+1 if
// there is none.
func (t *Topic) SequenceAt(at topics.Nanos) topics.Sequence {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	return t.sequenceAt(at)
}

// DeletedSequences calls f with every dead sequence between the first live
// message and the last sequence, in order, until it returns false. f must not
// call the topic.
func (t *Topic) DeletedSequences(f func(topics.Sequence) bool) {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	if t.dead.total == 0 {
		return
	}
	for seq := t.first; seq <= t.last; seq++ {
		if t.dead.has(seq) && !f(seq) {
			return
		}
	}
}

func (t *Topic) next(m *matcher, from topics.Sequence) (topics.Sequence, bool) {
	for seq := t.dead.nextLive(max(from, t.first)); seq <= t.last; seq = t.dead.nextLive(seq + 1) {
		if m == nil {
			return seq, true
		}
		if _, sub := t.refs.at(seq); m.match(t, sub) {
			return seq, true
		}
	}
	return 0, false
}

func (t *Topic) prev(m *matcher, from topics.Sequence) (topics.Sequence, bool) {
	for seq := t.dead.prevLive(min(from, t.last)); seq >= t.first && seq > 0; seq = t.dead.prevLive(seq - 1) {
		if m == nil {
			return seq, true
		}
		if _, sub := t.refs.at(seq); m.match(t, sub) {
			return seq, true
		}
	}
	return 0, false
}

func (t *Topic) count64(f *topics.Filter, from topics.Sequence) uint64 {
	from = max(from, t.first)
	if t.messages == 0 || from > t.last {
		return 0
	}
	m := t.matcher(f)
	if m == nil {
		return uint64(t.last-from) + 1 - (t.dead.total - t.dead.below(from))
	}
	var n uint64
	for seq, ok := t.next(m, from); ok; seq, ok = t.next(m, seq+1) {
		n++
	}
	return n
}

func (t *Topic) lastPerSubject(f *topics.Filter) []topics.Sequence {
	var seqs []topics.Sequence
	t.subjects.each(func(i uint32, e *subjectEntry) bool {
		if f.Match(e.name) {
			seq := e.last
			if e.loose&looseLast != 0 {
				seq, _ = t.prev(t.one(i), e.last)
			}
			seqs = append(seqs, seq)
		}
		return true
	})
	slices.Sort(seqs)
	return seqs
}

func (t *Topic) sequenceAt(at topics.Nanos) topics.Sequence {
	low, high := t.first, t.last+1
	for low < high {
		mid := low + (high-low)/2
		live := t.dead.nextLive(mid)
		switch {
		case live >= high:
			high = mid
		case t.timeOf(live) >= at:
			high = mid
		default:
			low = live + 1
		}
	}
	return min(t.dead.nextLive(low), t.last+1)
}
