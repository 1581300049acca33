package store

import (
	"testing"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
	"pgregory.net/rapid"
)

var _ consumer.RemovalLog = (*Topic)(nil)

func TestRemovalsAreNeverUnderstated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r removals
		var all []topics.Sequence
		for range rapid.IntRange(0, 200).Draw(t, "removals") {
			seq := topics.Sequence(rapid.IntRange(1, 1000).Draw(t, "seq"))
			r.add(1, seq)
			all = append(all, seq)
		}
		topic := &Topic{s: &Store{}, removals: &r}
		mark := rapid.IntRange(0, len(all)).Draw(t, "mark")
		now, highest := topic.RemovedSince(uint64(mark))
		var want topics.Sequence
		for _, s := range all[mark:] {
			want = max(want, s)
		}
		if now != uint64(len(all)) || highest < want || mark == len(all) && highest != 0 {
			t.Fatalf("RemovedSince(%d) = %d, %d; want %d, at least %d", mark, now, highest, len(all), want)
		}
		if len(all) <= removalsMax && highest != want {
			t.Fatalf("highest %d, want exactly %d", highest, want)
		}
	})
}
