package replication

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// BenchmarkThreeNodes proposes one entry at a time to a group of three, in turns where
// entries are sent ahead, where they aren't, and as a raw pwrite and fdatasync of the
// same bytes. It prints the medians. ns/op is all three together.
func BenchmarkThreeNodes(b *testing.B) {
	for _, size := range []int{128, 16 << 10, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var groups []*Group
			for _, plain := range []bool{false, true} {
				l := newLab(b, 1, func(_ string, c *Config) { c.WriteFirst = plain }, "a", "b", "c")
				leader := l.leader()
				for _, ln := range l.running() {
					ln.list.mu.Lock()
					ln.list.forgets = true
					ln.list.mu.Unlock()
				}
				groups = append(groups, leader.g)
			}
			one := func(g *Group, entry []byte) {
				if _, _, err := g.Propose(entry).Result(); err != nil {
					b.Fatal(err)
				}
			}
			for range min(300, 100<<20/size) {
				for _, g := range groups {
					one(g, make([]byte, size))
				}
			}
			raw := rawFile(b)
			data := make([]byte, size)
			var took [3][]time.Duration
			off := int64(0)
			for b.Loop() {
				for i, g := range groups {
					entry := make([]byte, size)
					began := time.Now()
					one(g, entry)
					took[i] = append(took[i], time.Since(began))
				}
				began := time.Now()
				if _, err := raw.WriteAt(data, off); err != nil {
					b.Fatal(err)
				}
				if err := raw.Datasync(); err != nil {
					b.Fatal(err)
				}
				took[2] = append(took[2], time.Since(began))
				if off += int64(size); off+int64(size) > 64<<20 {
					off = 0
				}
			}
			var mid [3]time.Duration
			for i := range took {
				slices.Sort(took[i])
				mid[i] = took[i][len(took[i])/2]
			}
			b.ReportMetric(float64(mid[0].Microseconds()), "µs-ahead")
			b.ReportMetric(float64(mid[1].Microseconds()), "µs-plain")
			b.ReportMetric(float64(mid[2].Microseconds()), "µs-raw")
		})
	}
}
