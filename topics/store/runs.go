package store

import (
	"sort"
	"sync/atomic"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/datafile"
)

// dataFile is a data file of the store.
type dataFile struct {
	*datafile.File
	id    uint64 // unique in the process, which its number is not: see Adopt
	live  uint64 // messages; guarded by the store's mu, changed by the apply side
	total uint64
	keep  bool // part of it is damaged: it can't be rewritten; the flusher's
}

var fileIDs atomic.Uint64

func newDataFile(f *datafile.File) *dataFile {
	d := &dataFile{File: f, id: fileIDs.Add(1)}
	for i := range f.Runs {
		d.total += uint64(f.Runs[i].Messages)
	}
	return d
}

// run is where a stretch of a topic's messages is on disk. A topic's runs are in
// the order of their sequences and do not overlap.
type run struct {
	file  *dataFile
	i     int32 // in file.Runs
	first topics.Sequence
	last  topics.Sequence
}

func (r *run) key(chunk bool) cacheKey { return cacheKey{r.file.id, r.i, chunk} }

func (r *run) info() *datafile.Run { return &r.file.Runs[r.i] }

// runFrom returns the place of the first run that ends at or after seq.
func (t *Topic) runFrom(seq topics.Sequence) int {
	if len(t.runs) > 0 && seq <= t.runs[0].last {
		return 0
	}
	return sort.Search(len(t.runs), func(i int) bool { return t.runs[i].last >= seq })
}

// runAt returns the run that holds a live sequence, nil if that is in memory or
// its file is lost.
func (t *Topic) runAt(seq topics.Sequence) *run {
	i := t.runFrom(seq)
	if i == len(t.runs) || t.runs[i].first > seq {
		return nil
	}
	return &t.runs[i]
}

// liveIn returns how many live messages a run holds.
func (t *Topic) liveIn(r *run) uint64 {
	first, last := max(r.first, t.first), min(r.last, t.last)
	if first > last {
		return 0
	}
	return uint64(last-first) + 1 - (t.dead.below(last+1) - t.dead.below(first))
}

// dropRuns forgets the runs below first.
func (t *Topic) dropRuns() {
	n := 0
	for n < len(t.runs) && t.runs[n].last < t.first {
		n++
	}
	if n > 0 {
		t.runs = t.runs[n:]
	}
	if len(t.runs) == 0 {
		t.runs = nil
	}
}

// leaveRuns takes all the topic's live messages out of their files' counts.
func (t *Topic) leaveRuns() {
	for i := range t.runs {
		r := &t.runs[i]
		t.s.uncount(r.file, t.liveIn(r))
	}
	t.runs = nil
}

// uncount takes n messages out of a file's count of the living.
func (s *Store) uncount(f *dataFile, n uint64) {
	f.live -= min(n, f.live)
	if f.live == 0 && n > 0 {
		s.emptied = true
	}
}

// lost is what stands for the subject of a message that can't be read.
const lost = ^uint32(0)

// meta looks a live message up. Of a damaged one the size is a guess (the
// topic's mean), the subject is lost and the time is an upper bound.
func (t *Topic) meta(seq topics.Sequence) meta {
	if t.refs.has(seq) {
		r, sub := t.refs.at(seq)
		sl := t.s.tail.slotOf(r)
		return meta{size: t.size(lengths(sl.data, int(uint32(r)))), sub: sub, time: sl.time}
	}
	if r := t.runAt(seq); r != nil {
		if block := t.s.loadBlock(r).block; block != nil {
			return t.metaIn(block, seq)
		}
		return meta{size: t.bytes / max(t.messages, 1), sub: lost, time: r.info().LastTime}
	}
	return meta{size: t.bytes / max(t.messages, 1), sub: lost, time: t.lastTime}
}

func (t *Topic) metaIn(block *datafile.Block, seq topics.Sequence) meta {
	i := block.Find(seq)
	if i == block.Len() || block.Sequence(i) != seq {
		return meta{size: t.bytes / max(t.messages, 1), sub: lost, time: t.lastTime}
	}
	m := meta{time: block.Time(i), sub: lost}
	bytes, header := block.Size(i)
	h := 0
	if header {
		h = 1 // that there is one is all that counts
	}
	m.size = t.size(bytes-h, h, 0)
	if sub, ok := t.subjects.peek(block.Subjects[block.Subject(i)].Name); ok {
		m.sub = sub
	}
	return m
}
