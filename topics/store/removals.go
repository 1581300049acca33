package store

import "github.com/heraldmq/herald/topics"

// removalsMax bounds what a topic remembers of its removals.
const removalsMax = 32

// removals tells a consumer that has counted what lies ahead of it whether that
// count still holds (consumer.RemovalLog). It is not part of the topic's state:
// it only has to last as long as the process.
//
// Of the removals so far it keeps those that no later one surpassed: their
// numbers grow while their sequences fall, so that the highest sequence since a
// number is the first entry behind it. Limits and acknowledgements mostly remove
// in order, which leaves one entry.
type removals struct {
	total uint64
	peaks []removal
}

type removal struct {
	number uint64
	seq    topics.Sequence
}

// add notes that n messages up to seq, which is one of them, were removed.
func (r *removals) add(n uint64, seq topics.Sequence) {
	r.total += n
	for len(r.peaks) > 0 && r.peaks[len(r.peaks)-1].seq <= seq {
		r.peaks = r.peaks[:len(r.peaks)-1]
	}
	if len(r.peaks) == removalsMax {
		// The two oldest become one: too high for some, too low for nobody.
		r.peaks[1].seq = r.peaks[0].seq
		r.peaks = r.peaks[:copy(r.peaks, r.peaks[1:])]
	}
	r.peaks = append(r.peaks, removal{r.total, seq})
}

// removed notes removals.
func (t *Topic) removed(n uint64, seq topics.Sequence) {
	if t.removals == nil {
		t.removals = new(removals)
	}
	t.removals.add(n, seq)
}

// RemovedSince returns the number of messages removed since the store was opened
// and at least the highest sequence among those removed after the first mark of
// them.
func (t *Topic) RemovedSince(mark uint64) (now uint64, highest topics.Sequence) {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	if t.removals == nil {
		return 0, 0
	}
	for _, p := range t.removals.peaks {
		if p.number > mark {
			return t.removals.total, p.seq
		}
	}
	return t.removals.total, 0
}
