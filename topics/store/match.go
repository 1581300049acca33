package store

import (
	"slices"
	"sort"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/datafile"
)

// The scans below work with the store's lock held. They return done == false
// when an index must be loaded first, and then where they stopped.

// runVerdicts are a matcher's verdicts on the subjects of one run, made as they
// are needed.
type runVerdicts struct {
	t     *Topic
	m     *matcher
	block *datafile.Block
	known []uint8
}

func (v *runVerdicts) match(i int) bool {
	at := v.block.Subject(i)
	if v.known == nil {
		v.known = make([]uint8, len(v.block.Subjects))
	}
	if v.known[at] == 0 {
		v.known[at] = verdictNo
		if v.m.matchName(v.t, v.block.Subjects[at].Name) {
			v.known[at] = verdictYes
		}
	}
	return v.known[at] == verdictYes
}

// next returns the first live message at or after from that m lets through.
func (t *Topic) next(l *lookup, m *matcher, from topics.Sequence) (seq topics.Sequence, ok, done bool) {
	if m != nil && m.filter == nil {
		var known bool
		if from, ok, known = t.nextOfSubject(m, max(from, t.first)); known {
			return from, ok, true
		}
	}
	seq = t.dead.nextLive(max(from, t.first))
	for seq <= t.last {
		switch {
		case m == nil:
			return seq, true, true
		case t.refs.has(seq):
			if _, sub := t.refs.at(seq); m.match(t, sub) {
				return seq, true, true
			}
			seq = t.dead.nextLive(seq + 1)
		default:
			r := t.runAt(seq)
			if r == nil {
				seq = t.dead.nextLive(seq + 1)
				continue
			}
			block, loaded := l.block(r)
			if !loaded {
				return seq, false, false
			}
			if block != nil {
				v := runVerdicts{t: t, m: m, block: block}
				for i := block.Find(seq); i < block.Len(); i++ {
					if at := block.Sequence(i); v.match(i) && !t.dead.has(at) {
						return at, true, true
					}
				}
			}
			seq = t.dead.nextLive(r.last + 1)
		}
	}
	return t.last + 1, false, true
}

// nextOfSubject answers next for one subject from what is known of it in memory,
// or says from where to scan.
func (t *Topic) nextOfSubject(m *matcher, from topics.Sequence) (seq topics.Sequence, ok, known bool) {
	if m.none {
		return t.last + 1, false, true
	}
	e := &t.subjects.entries[m.only-1]
	switch {
	case from > e.last:
		return t.last + 1, false, true
	case from <= e.first && e.loose&looseFirst == 0:
		return e.first, true, true
	case e.history != nil:
		at, _ := slices.BinarySearch(*e.history, from)
		return (*e.history)[at], true, true
	case e.count == 2 && e.loose == 0:
		return e.last, true, true
	}
	return max(from, e.first), false, false
}

// prevOfSubject is nextOfSubject for prev.
func (t *Topic) prevOfSubject(m *matcher, from topics.Sequence) (seq topics.Sequence, ok, known bool) {
	if m.none {
		return 0, false, true
	}
	e := &t.subjects.entries[m.only-1]
	switch {
	case from < e.first:
		return 0, false, true
	case from >= e.last && e.loose&looseLast == 0:
		return e.last, true, true
	case e.history != nil:
		at, found := slices.BinarySearch(*e.history, from)
		if !found {
			at--
		}
		return (*e.history)[at], true, true
	case e.count == 2 && e.loose == 0:
		return e.first, true, true
	}
	return min(from, e.last), false, false
}

// prev returns the last live message at or before from that m lets through.
func (t *Topic) prev(l *lookup, m *matcher, from topics.Sequence) (seq topics.Sequence, ok, done bool) {
	if t.messages == 0 {
		return 0, false, true
	}
	from = min(from, t.last)
	if m != nil && m.filter == nil {
		var known bool
		if from, ok, known = t.prevOfSubject(m, from); known {
			return from, ok, true
		}
	}
	seq = t.dead.prevLive(from)
	for seq >= t.first && seq > 0 {
		switch {
		case m == nil:
			return seq, true, true
		case t.refs.has(seq):
			if _, sub := t.refs.at(seq); m.match(t, sub) {
				return seq, true, true
			}
			seq = t.dead.prevLive(seq - 1)
		default:
			r := t.runAt(seq)
			if r == nil {
				seq = t.dead.prevLive(seq - 1)
				continue
			}
			block, loaded := l.block(r)
			if !loaded {
				return seq, false, false
			}
			if block != nil {
				v := runVerdicts{t: t, m: m, block: block}
				for i := block.Find(seq+1) - 1; i >= 0; i-- {
					if at := block.Sequence(i); at >= t.first && v.match(i) && !t.dead.has(at) {
						return at, true, true
					}
				}
			}
			seq = t.dead.prevLive(r.first - 1)
		}
	}
	return 0, false, true
}

// nextNow and prevNow are next and prev for the apply side, which may read the
// disk.
func (t *Topic) nextNow(m *matcher, from topics.Sequence) (topics.Sequence, bool) {
	seq, ok, _ := t.next(&lookup{s: t.s, wait: true}, m, from)
	return seq, ok
}

func (t *Topic) prevNow(m *matcher, from topics.Sequence) (topics.Sequence, bool) {
	seq, ok, _ := t.prev(&lookup{s: t.s, wait: true}, m, from)
	return seq, ok
}

// tally remembers, between the attempts of one Count, what was found in runs. A
// figure holds for as long as the run has lost no message.
type tally struct {
	runs map[cacheKey]runTally
}

type runTally struct {
	from    topics.Sequence
	end     topics.Sequence
	live    uint64
	matches uint64
}

// matches returns how many live messages at or after from f lets through.
func (t *Topic) matches(sum *tally, l *lookup, f *topics.Filter, from topics.Sequence) (n uint64, done bool) {
	from = max(from, t.first)
	if t.messages == 0 || from > t.last {
		return 0, true
	}
	m := t.matcher(f)
	switch {
	case m == nil:
		return uint64(t.last-from) + 1 - (t.dead.total - t.dead.below(from)), true
	case m.none:
		return 0, true
	}
	if n, ok := t.matchesBySubject(m, from); ok {
		return n, true
	}
	end := t.last // the tail has what is above
	if t.refs.n > 0 {
		end = t.refs.first - 1
	}
	for i := t.runFrom(from); i < len(t.runs) && t.runs[i].first <= end; i++ {
		n += t.matchesInRun(sum, l, m, &t.runs[i], from, end)
		if l.full() {
			return 0, false
		}
	}
	if len(l.missing) > 0 {
		return 0, false
	}
	return n + t.matchesInTail(m, from), true
}

// matchesBySubject adds the counts of the subjects up, if for none of them some
// messages are before from and some after; with a history that is no hindrance.
func (t *Topic) matchesBySubject(m *matcher, from topics.Sequence) (n uint64, ok bool) {
	ok = true
	count := func(e *subjectEntry) bool {
		switch {
		case e.first >= from || from <= t.first:
			n += e.count
		case e.last < from:
		case e.history != nil:
			at, _ := slices.BinarySearch(*e.history, from)
			n += uint64(len(*e.history) - at)
		case e.count == 2 && e.loose == 0:
			n++
		default:
			ok = false
		}
		return ok
	}
	if m.filter == nil {
		return n, count(&t.subjects.entries[m.only-1])
	}
	t.subjects.each(func(i uint32, e *subjectEntry) bool { return !m.match(t, i) || count(e) })
	return n, ok
}

// matchesInRun counts in one run, from a sequence up to another. What must be
// loaded first counts for nothing, and is in l.missing.
func (t *Topic) matchesInRun(sum *tally, l *lookup, m *matcher, r *run, from, end topics.Sequence) (n uint64) {
	live := t.liveIn(r)
	if live == 0 {
		return 0
	}
	from, end = max(from, r.first), min(end, r.last)
	if s, ok := sum.runs[r.key(false)]; ok && s.live == live && s.from == from && s.end == end {
		return s.matches
	}
	block, loaded := l.block(r)
	if !loaded {
		return 0
	}
	if block != nil {
		v := runVerdicts{t: t, m: m, block: block}
		for i := block.Find(from); i < block.Len() && block.Sequence(i) <= end; i++ {
			if v.match(i) && !t.dead.has(block.Sequence(i)) {
				n++
			}
		}
	}
	if sum.runs == nil {
		sum.runs = make(map[cacheKey]runTally)
	}
	sum.runs[r.key(false)] = runTally{from: from, end: end, live: live, matches: n}
	return n
}

func (t *Topic) matchesInTail(m *matcher, from topics.Sequence) (n uint64) {
	if t.refs.n == 0 {
		return 0
	}
	for seq := t.dead.nextLive(max(from, t.refs.first)); seq <= t.last; seq = t.dead.nextLive(seq + 1) {
		if _, sub := t.refs.at(seq); m.match(t, sub) {
			n++
		}
	}
	return n
}

// lastPerSubject returns the last live message of each subject f lets through,
// in order.
func (t *Topic) lastPerSubject(l *lookup, f *topics.Filter) (seqs []topics.Sequence, done bool) {
	done = true
	t.subjects.each(func(i uint32, e *subjectEntry) bool {
		if !f.Match(e.name) {
			return true
		}
		seq := e.last
		if e.loose&looseLast != 0 {
			var ok bool
			if seq, ok, done = t.prev(l, t.one(i), e.last); !done || !ok {
				return done
			}
		}
		seqs = append(seqs, seq)
		return true
	})
	slices.Sort(seqs)
	return seqs, done
}

// sequenceAt returns the first live message stored at or after a time.
func (t *Topic) sequenceAt(l *lookup, at topics.Nanos) (seq topics.Sequence, done bool) {
	seq = t.first
	if n := len(t.runs); n > 0 {
		i := sort.Search(n, func(i int) bool { return t.runs[i].info().LastTime >= at })
		if i < n && !(t.refs.n > 0 && t.runs[i].first >= t.refs.first) {
			r := &t.runs[i]
			block, loaded := l.block(r)
			if !loaded {
				return 0, false
			}
			seq = r.first
			if block != nil {
				j := sort.Search(block.Len(), func(j int) bool { return block.Time(j) >= at })
				seq = r.last + 1
				if j < block.Len() {
					seq = block.Sequence(j)
				}
			}
			return min(t.dead.nextLive(max(seq, t.first)), t.last+1), true
		}
		seq = t.runs[n-1].last + 1
	}
	if t.refs.n > 0 {
		// Sequences of the ring are all alive or dead, and the time of the next live
		// one rises with them.
		low := max(t.refs.first, t.first)
		span := int(t.last - low + 1)
		seq = low + topics.Sequence(sort.Search(span, func(i int) bool {
			live := t.dead.nextLive(low + topics.Sequence(i))
			if live > t.last {
				return true
			}
			r, _ := t.refs.at(live)
			return t.s.tail.slotOf(r).time >= at
		}))
	}
	return min(t.dead.nextLive(max(seq, t.first)), t.last+1), true
}
