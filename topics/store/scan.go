package store

import (
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
	return v.t.nextNow(v.t.matcher(f), from)
}

func (v view) Prev(f *topics.Filter, from topics.Sequence) (topics.Sequence, bool) {
	return v.t.prevNow(v.t.matcher(f), from)
}

func (v view) Count(f *topics.Filter, from topics.Sequence) uint64 {
	n, _ := v.t.matches(&tally{}, &lookup{s: v.t.s, wait: true}, f, from)
	return n
}

func (v view) LastPerSubject(f *topics.Filter) []topics.Sequence {
	seqs, _ := v.t.lastPerSubject(&lookup{s: v.t.s, wait: true}, f)
	return seqs
}

func (v view) SequenceAt(at topics.Nanos) topics.Sequence {
	seq, _ := v.t.sequenceAt(&lookup{s: v.t.s, wait: true}, at)
	return seq
}

// Bounds returns the first live sequence (last+1 when the topic is empty) and
// the last assigned one.
func (t *Topic) Bounds() (first, last topics.Sequence) {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	return t.first, t.last
}

// Next returns the first live message at or after from that f lets through.
func (t *Topic) Next(f *topics.Filter, from topics.Sequence) (seq topics.Sequence, ok bool) {
	t.look(func(l *lookup) (done bool) {
		seq, ok, done = t.next(l, t.matcher(f), from)
		from = seq
		return done
	})
	return seq, ok
}

// Prev returns the last live message at or before from that f lets through.
func (t *Topic) Prev(f *topics.Filter, from topics.Sequence) (seq topics.Sequence, ok bool) {
	t.look(func(l *lookup) (done bool) {
		seq, ok, done = t.prev(l, t.matcher(f), from)
		from = seq
		return done
	})
	return seq, ok
}

// Count returns exactly how many live messages at or after from f lets through.
// Without a filter, or from the topic's start, it costs next to nothing; else a
// look at the indexes of the runs from there on.
func (t *Topic) Count(f *topics.Filter, from topics.Sequence) (n uint64) {
	var sum tally
	t.look(func(l *lookup) (done bool) {
		n, done = t.matches(&sum, l, f, from)
		return done
	})
	return n
}

// look calls f with the store's lock held, again and again with more indexes
// loaded, until it is done.
func (t *Topic) look(f func(l *lookup) (done bool)) {
	l := lookup{s: t.s}
	for {
		t.s.mu.RLock()
		done := f(&l)
		t.s.mu.RUnlock()
		if len(l.missing) > 0 {
			l.load()
		}
		if done {
			return
		}
	}
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
func (t *Topic) LastPerSubject(f *topics.Filter) (seqs []topics.Sequence) {
	t.look(func(l *lookup) (done bool) {
		seqs, done = t.lastPerSubject(l, f)
		return done
	})
	return seqs
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
func (t *Topic) SequenceAt(at topics.Nanos) (seq topics.Sequence) {
	t.look(func(l *lookup) (done bool) {
		seq, done = t.sequenceAt(l, at)
		return done
	})
	return seq
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
