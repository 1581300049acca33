package wal

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
)

// rawLoop measures what the disk itself needs: pwrite and fdatasync of size
// bytes, one after the other, over a file that has been written before.
func rawLoop(b *testing.B, size int, rounds int) time.Duration {
	b.Helper()
	f, err := disk.OS{}.Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	const file = 64 << 20
	chunk := make([]byte, 1<<20)
	for off := int64(0); off < file; off += 1 << 20 {
		if _, err := f.WriteAt(chunk, off); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Datasync(); err != nil {
		b.Fatal(err)
	}
	data := make([]byte, size)
	off := int64(0)
	begin := time.Now()
	for range rounds {
		if off+int64(size) > file {
			off = 0
		}
		if err := f.Writev([][]byte{data}, off); err != nil {
			b.Fatal(err)
		}
		if err := f.Datasync(); err != nil {
			b.Fatal(err)
		}
		off += int64(size)
	}
	return time.Since(begin) / time.Duration(rounds)
}

// BenchmarkStoreLogs stores one entry at a time and prints its cost as a multiple
// of a raw pwrite and fdatasync of the same bytes, measured before and after.
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
			for range min(2000, 300<<20/size) { // until segments are recycled
				store()
			}
			raw := rawLoop(b, size, 300)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			begin := time.Now()
			n := 0
			for b.Loop() {
				store()
				n++
			}
			own := time.Since(begin) / time.Duration(n)
			raw = (raw + rawLoop(b, size, 300)) / 2
			b.ReportMetric(float64(own)/float64(raw), "×raw")
			b.ReportMetric(float64(raw.Nanoseconds()), "raw-ns/op")
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
