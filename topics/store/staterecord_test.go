package store

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/heraldmq/herald/topics"
)

// FuzzStateRecords feeds what state.db's values are decoded with anything; what
// they take must come out the same again.
func FuzzStateRecords(f *testing.F) {
	r := topicRecord{account: "A", cfg: &topics.Config{Name: "T"}, messages: 3, first: 2, last: 9, lastMsgID: "id", idsEnd: 4}
	b, err := r.append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(appendIDs(nil, []seenID{{"a", 1, 2}, {"bb", 3, 4}}))
	for _, n := range []int{1, 100, 2000, 4095, 4096} {
		var d deadSet
		for seq := range n {
			d.add(topics.Sequence(seq + blockSize))
		}
		c := deadCut{n: uint16(n), bits: d.block(blockSize).bits}
		f.Add(c.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, ok := decodeTopicRecord(b); ok {
			if _, err := r.append(nil); err != nil {
				t.Fatal(err)
			}
		}
		if ids, ok := decodeIDs(b); ok {
			again, ok := decodeIDs(appendIDs(nil, ids))
			if !ok || len(again) != len(ids) {
				t.Fatalf("%d ids became %d", len(ids), len(again))
			}
		}
		if d, ok := decodeDead(b); ok && d.n > 0 {
			again, ok := decodeDead(d.append(nil))
			if !ok || again.n != d.n || (d.bits != nil && *again.bits != *d.bits) {
				t.Fatalf("%d dead became %d", d.n, again.n)
			}
		}
	})
}

func TestSealedValues(t *testing.T) {
	k, v := key64(1, 2), []byte("value")
	s := sealed(k, bytes.Clone(v))
	if got, ok := unseal(k, s); !ok || string(got) != "value" {
		t.Errorf("%q, %t", got, ok)
	}
	if _, ok := unseal(key64(1, 3), s); ok {
		t.Error("a value was taken under another key")
	}
}

// TestDeadSetAgainstModel compares the set with a map of all sequences.
func TestDeadSetAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d deadSet
		dead := make(map[topics.Sequence]bool)
		first := topics.Sequence(rapid.SampledFrom([]int{1, 4000, 5_000_000}).Draw(t, "first"))
		last := first + topics.Sequence(rapid.SampledFrom([]int{300, 9000, 600_000}).Draw(t, "span"))
		start := first
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			at := first + topics.Sequence(rapid.Uint64Range(0, uint64(last-first)).Draw(t, "at"))
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0, 1:
				n := topics.Sequence(rapid.SampledFrom([]int{1, 50, 5000}).Draw(t, "run"))
				for seq := at; seq < at+n && seq <= last; seq++ {
					if seq > first && !dead[seq] {
						dead[seq] = true
						d.add(seq)
					}
				}
			default:
				first = d.nextLive(at)
				d.trim(first)
				for seq := range dead {
					if seq < first {
						delete(dead, seq)
					}
				}
				if first > last {
					return
				}
			}
			if int(d.total) != len(dead) {
				t.Fatalf("%d dead, want %d", d.total, len(dead))
			}
			probe := start + topics.Sequence(rapid.Uint64Range(0, uint64(last-start)+2).Draw(t, "probe"))
			below := uint64(0)
			for seq := range dead {
				if seq < probe {
					below++
				}
			}
			if n := d.below(probe); n != below {
				t.Fatalf("below(%d) = %d, want %d", probe, n, below)
			}
			next := probe
			for dead[next] {
				next++
			}
			if got := d.nextLive(probe); got != next {
				t.Fatalf("nextLive(%d) = %d, want %d", probe, got, next)
			}
			prev := probe
			for dead[prev] {
				prev--
			}
			if got := d.prevLive(probe); got != prev {
				t.Fatalf("prevLive(%d) = %d, want %d", probe, got, prev)
			}
			if d.has(probe) != dead[probe] {
				t.Fatalf("has(%d) = %t", probe, d.has(probe))
			}
		}
	})
}
