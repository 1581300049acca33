package store

import (
	"slices"

	"github.com/heraldmq/herald/topics"
)

// install makes the readers see what was written, and lets the tail go down to
// what is worth keeping.
func (s *Store) install(c *cut) {
	file := c.file
	s.mu.Lock()
	defer s.mu.Unlock()
	s.savedIndex = c.applied
	s.savedSlot = c.base + uint64(len(c.slots))
	s.unsaved -= c.bytes
	s.urged = false // the flusher was urged while unsaved still counted what is written now
	for _, d := range c.drop {
		delete(s.files, d.Number())
	}
	if file != nil {
		s.files[file.Number()] = file
	}
	first := 0
	for i := range c.topics {
		first = c.topics[i].install(file, first)
	}
	if file != nil && file.live == 0 {
		s.emptied = true
	}
	if len(c.slots) > 0 {
		s.flushes = append(s.flushes, flushed{start: c.base, end: s.savedSlot, topics: c.inTail()})
	}
	s.evict()
}

// install adds the topic's runs of a file, which start at the i-th or later, and
// returns where the next topic's may start.
func (tc *topicCut) install(file *dataFile, i int) int {
	t := tc.t
	if t.gone {
		return i
	}
	t.saved = max(t.saved, tc.last)
	if file == nil {
		return i
	}
	moved := make(map[cacheKey]bool)
	for j := range tc.sources {
		if tc.sources[j].moved {
			moved[tc.sources[j].run.key(false)] = true
		}
	}
	if len(moved) > 0 {
		kept := make([]run, 0, len(t.runs))
		for j := range t.runs {
			r := &t.runs[j]
			if moved[r.key(false)] {
				t.s.uncount(r.file, t.liveIn(r))
			} else {
				kept = append(kept, *r)
			}
		}
		t.runs = kept
	}
	for i < len(file.Runs) && file.Runs[i].Topic < t.id {
		i++
	}
	added := len(t.runs)
	for ; i < len(file.Runs) && file.Runs[i].Topic == t.id; i++ {
		in := &file.Runs[i]
		r := run{file: file, i: int32(i), first: in.First, last: in.Last}
		if live := t.liveIn(&r); live > 0 {
			t.runs = append(t.runs, r)
			file.live += live
		}
	}
	if added > 0 && len(moved) > 0 {
		slices.SortFunc(t.runs, func(a, b run) int { return compareSequences(a.first, b.first) })
	}
	return i
}

func compareSequences(a, b topics.Sequence) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// flushed says which topics have messages in a stretch of the tail.
type flushed struct {
	start, end uint64
	topics     []*Topic
}

// inTail returns the topics that changed and have messages in the tail.
func (c *cut) inTail() []*Topic {
	var grown []*Topic
	for i := range c.topics {
		if tc := &c.topics[i]; tc.changed && tc.t.refs.n > 0 {
			grown = append(grown, tc.t)
		}
	}
	return grown
}

// evict drops the oldest flushed entries until the tail has room for what the
// next flush will find.
func (s *Store) evict() {
	until := s.tail.base
	bytes := s.tail.bytes
	for bytes > s.o.TailBytes-s.o.FlushBytes && until < s.savedSlot {
		bytes -= int64(len(s.tail.at(until).data)) + slotOverhead
		until++
	}
	// The slots of an entry go together: its messages refer to them in no order,
	// while forgetRefs relies on one.
	for until < s.savedSlot && s.tail.at(until).more {
		until++
	}
	for len(s.flushes) > 0 && s.flushes[0].start < until {
		fl := &s.flushes[0]
		for _, t := range fl.topics {
			t.forgetRefs(until)
		}
		if fl.end > until {
			break
		}
		*fl = flushed{}
		s.flushes = s.flushes[1:]
	}
	s.tail.drop(until)
}

// forgetRefs drops the refs into slots below until.
func (t *Topic) forgetRefs(until uint64) {
	seq := t.dead.nextLive(t.refs.first)
	end := t.refs.first + topics.Sequence(t.refs.n)
	for ; seq < end && seq <= t.saved; seq = t.dead.nextLive(seq + 1) {
		r, _ := t.refs.at(seq)
		// The difference of slot numbers modulo 2^32 says which is older, also for the
		// refs of what went long ago.
		if r != 0 && int32(uint32(r>>32)-uint32(until)) >= 0 {
			break
		}
	}
	t.refs.trim(seq)
}
