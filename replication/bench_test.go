package replication

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/heraldmq/herald/replication/disk"
)

// sink is a machine that keeps nothing and flushes every 64 MiB, as the store does.
type sink struct {
	list
	group *Group
	bytes int
}

func (s *sink) Apply(entries []Entry) []any {
	for _, e := range entries {
		s.bytes += len(e.Data)
	}
	if last := entries[len(entries)-1].Index; s.bytes > 64<<20 && s.group != nil {
		s.bytes = 0
		go s.group.Flushed(last - 1)
	}
	return make([]any, len(entries))
}

// BenchmarkPropose proposes one entry at a time to a group with one voter, in turns
// with a raw pwrite and fdatasync of the same bytes over a file that has been
// written before, and prints the ratio of the medians. ns/op is both together.
func BenchmarkPropose(b *testing.B) {
	for _, size := range []int{128, 4 << 10, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			n := openNode(b, Config{Dir: b.TempDir()})
			sm := &sink{}
			g := startGroup(b, n, 1, sm)
			sm.group = g
			one := func(entry []byte) {
				if _, _, err := g.Propose(entry).Result(); err != nil {
					b.Fatal(err)
				}
			}
			for range min(2000, 500<<20/size) {
				one(make([]byte, size))
			}
			raw := rawFile(b)
			data := make([]byte, size)
			var own, bare []time.Duration
			off := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				entry := make([]byte, size) // who proposes has built it
				t0 := time.Now()
				one(entry)
				t1 := time.Now()
				if _, err := raw.WriteAt(data, off); err != nil {
					b.Fatal(err)
				}
				if err := raw.Datasync(); err != nil {
					b.Fatal(err)
				}
				own, bare = append(own, t1.Sub(t0)), append(bare, time.Since(t1))
				if off += int64(size); off+int64(size) > 64<<20 {
					off = 0
				}
			}
			slices.Sort(own)
			slices.Sort(bare)
			mid := len(own) / 2
			b.ReportMetric(float64(own[mid].Microseconds()), "µs-own")
			b.ReportMetric(float64(bare[mid].Microseconds()), "µs-raw")
			b.ReportMetric(float64(own[mid])/float64(bare[mid]), "×raw")
		})
	}
}

// BenchmarkProposeStream keeps four entries of 256 KiB on their way.
func BenchmarkProposeStream(b *testing.B) {
	const size = 256 << 10
	n := openNode(b, Config{Dir: b.TempDir()})
	sm := &sink{}
	g := startGroup(b, n, 1, sm)
	sm.group = g
	var flying []*Proposal
	b.SetBytes(size)
	for b.Loop() {
		flying = append(flying, g.Propose(make([]byte, size)))
		if len(flying) == 4 {
			if _, _, err := flying[0].Result(); err != nil {
				b.Fatal(err)
			}
			flying = flying[1:]
		}
	}
	for _, p := range flying {
		<-p.Done()
	}
}

// rawFile returns a file of 64 MiB that has been written before.
func rawFile(b *testing.B) disk.File {
	b.Helper()
	f, err := disk.OS{}.Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	chunk := make([]byte, 1<<20)
	for off := int64(0); off < 64<<20; off += 1 << 20 {
		if _, err := f.WriteAt(chunk, off); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Datasync(); err != nil {
		b.Fatal(err)
	}
	return f
}
