package store

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/heraldmq/herald/topics"
)

const (
	// compactMost bounds the bytes one flush rewrites.
	compactMost = 64 << 20
	// mergeFiles is how many files of about the same size are made one. Sizes are
	// compared by powers of 8 from 64 KiB up; files of mergeLargest are left alone.
	mergeFiles   = 8
	mergeLargest = 64 << 20
)

// takeVictims picks data files to rewrite: those mostly dead, and small ones when
// there are many of a size. Their live messages join the cut.
func (s *Store) takeVictims(c *cut, byID map[topics.TopicID]int) {
	budget := int64(compactMost)
	chosen := make(map[*dataFile]bool)
	choose := func(f *dataFile) {
		size := int64(float64(f.Length()) * float64(f.live) / float64(max(f.total, 1)))
		if !chosen[f] && f.live > 0 && !f.keep && size <= budget {
			budget -= size
			chosen[f] = true
			c.victims = append(c.victims, f)
		}
	}
	files := make([]*dataFile, 0, len(s.files))
	for _, f := range s.files {
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b *dataFile) int { return cmp.Compare(a.Number(), b.Number()) })
	tiers := make(map[int][]*dataFile)
	for _, f := range files {
		if f.live*2 < f.total {
			choose(f)
		} else if f.Length() < mergeLargest {
			tier := (bits.Len64(uint64(f.Length())>>16) + 2) / 3
			tiers[tier] = append(tiers[tier], f)
		}
	}
	for tier := range 6 {
		if all := tiers[tier]; len(all) >= mergeFiles {
			for _, f := range all[:mergeFiles] {
				choose(f)
			}
		}
	}
	if len(chosen) > 0 {
		s.takeSources(c, byID, chosen)
	}
}

// takeSources adds the runs of the chosen files to the cut.
func (s *Store) takeSources(c *cut, byID map[topics.TopicID]int, chosen map[*dataFile]bool) {
	seen := make(map[topics.TopicID]bool)
	for _, f := range c.victims {
		f.Retain()
		for i := range f.Runs {
			id := f.Runs[i].Topic
			t := s.topics[id]
			if t == nil || seen[id] {
				continue
			}
			seen[id] = true
			at, ok := byID[id]
			if !ok {
				at = len(c.topics)
				byID[id] = at
				c.topics = append(c.topics, topicCut{t: t, last: t.saved, from: len(c.msgs), to: len(c.msgs)})
			}
			c.topics[at].takeSources(t, chosen)
		}
	}
}

func (tc *topicCut) takeSources(t *Topic, chosen map[*dataFile]bool) {
	before := -2
	for i := range t.runs {
		r := &t.runs[i]
		if !chosen[r.file] {
			continue
		}
		seq := t.seek(r.first)
		if seq > r.last {
			continue
		}
		tc.sources = append(tc.sources, source{run: *r, live: t.liveSequences(r, seq, nil, blockSize), joined: i == before+1})
		before = i
	}
	tc.joined = before == len(t.runs)-1
}
