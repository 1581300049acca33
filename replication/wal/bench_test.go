package wal

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
)

// raw is the disk without a log: pwrite and fdatasync over a file that has been
// written before.
type raw struct {
	file disk.File
	off  int64
}

const rawFile = 64 << 20

func newRaw(b *testing.B) *raw {
	b.Helper()
	f, err := disk.OS{}.Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	chunk := make([]byte, 1<<20)
	for off := int64(0); off < rawFile; off += 1 << 20 {
		if _, err := f.WriteAt(chunk, off); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Datasync(); err != nil {
		b.Fatal(err)
	}
	return &raw{file: f}
}

func (r *raw) write(b *testing.B, data []byte) {
	if r.off+int64(len(data)) > rawFile {
		r.off = 0
	}
	if _, err := r.file.WriteAt(data, r.off); err != nil {
		b.Fatal(err)
	}
	if err := r.file.Datasync(); err != nil {
		b.Fatal(err)
	}
	r.off += int64(len(data))
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkStoreLogs stores one entry at a time, in turns with a raw pwrite and
// fdatasync of the same bytes, and prints the ratio of the medians. ns/op is both
// together.
func BenchmarkStoreLogs(b *testing.B) {
	for _, size := range []int{128, 4 << 10, 64 << 10, 256 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l, err := Open(Options{Dir: b.TempDir(), Node: "a", Fatal: func(err error) { b.Error(err) }})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			g := l.Group(1)
			next := uint64(0)
			data := make([]byte, size)
			store := func() {
				next++
				if err := g.StoreLog(&raft.Log{Index: next, Term: 1, Data: data, AppendedAt: time.Now()}); err != nil {
					b.Fatal(err)
				}
				if bytes := next * uint64(size); bytes%(128<<20) < uint64(size) { // as after a flush
					if err := g.DeleteRange(0, next-1); err != nil {
						b.Fatal(err)
					}
				}
			}
			for range min(2000, 400<<20/size) { // until segments are recycled
				store()
			}
			r := newRaw(b)
			b.ReportAllocs()
			var own, bare []time.Duration
			for b.Loop() {
				t0 := time.Now()
				store()
				t1 := time.Now()
				r.write(b, data)
				own, bare = append(own, t1.Sub(t0)), append(bare, time.Since(t1))
			}
			b.ReportMetric(float64(median(own).Microseconds()), "µs-own")
			b.ReportMetric(float64(median(bare).Microseconds()), "µs-raw")
			b.ReportMetric(float64(median(own))/float64(median(bare)), "×raw")
		})
	}
}

// BenchmarkGetLogFromDisk reads entries that are not in memory any more.
func BenchmarkGetLogFromDisk(b *testing.B) {
	l, err := Open(Options{Dir: b.TempDir(), Node: "a", Fatal: func(err error) { b.Error(err) }})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	g := l.Group(1)
	const entries = 64
	for i := range uint64(entries) {
		if err := g.StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: make([]byte, 256<<10)}); err != nil {
			b.Fatal(err)
		}
	}
	g.Release(entries)
	b.SetBytes(256 << 10)
	i := uint64(0)
	for b.Loop() {
		var e raft.Log
		if err := g.GetLog(i%entries+1, &e); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
