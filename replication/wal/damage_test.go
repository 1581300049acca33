package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/fault"
)

// filled returns a disk with a closed log of n batches of two entries, and the
// bytes of entry i of group 1.
func filled(t testing.TB, n int) (*fault.Disk, func(i uint64) string) {
	t.Helper()
	d := fault.NewDisk()
	l := mustOpen(t, small(d, nil))
	data := func(i uint64) string {
		return fmt.Sprintf("<entry %03d of the log>%s", i, strings.Repeat(".", int(i%7)*20))
	}
	for i := range uint64(n) {
		logs := []*raft.Log{{Index: 2*i + 1, Term: 1, Data: []byte(data(2*i + 1))}, {Index: 2*i + 2, Term: 1, Data: []byte(data(2*i + 2))}}
		if err := l.Group(1).StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, l)
	return d, data
}

func liveSegments(t testing.TB, d *fault.Disk) (names []string) {
	t.Helper()
	all, err := d.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		if strings.HasSuffix(n, ".seg") {
			names = append(names, filepath.Join(testDir, n))
		}
	}
	return names
}

// stride is which bytes are tried: in short mode, which is the race detector's, a few.
func stride() int {
	if testing.Short() {
		return 23
	}
	return 1
}

// TestEveryFlippedByteIsNoticed flips each byte of the log in turn. Either the log
// does not open and names the file, or the byte is behind the log's end and
// everything is still served right. Nothing acknowledged is ever missing or wrong.
func TestEveryFlippedByteIsNoticed(t *testing.T) {
	const batches = 24
	d, data := filled(t, batches)
	noticed, harmless := 0, 0
	for _, name := range append(liveSegments(t, d), filepath.Join(testDir, "marker")) {
		size := len(d.Bytes(name))
		for off := 0; off < size; off += stride() {
			after := d.Kill()
			after.Bytes(name)[off] ^= 0x10
			l, err := Open(small(after, func(err error) { t.Errorf("fatal: %v", err) }))
			var damage *disk.CorruptError
			if errors.As(err, &damage) {
				noticed++
				if damage.File != name && !strings.Contains(damage.File, ".seg") {
					t.Fatalf("byte %d of %s: the error names %s", off, name, damage.File)
				}
				continue
			}
			if err != nil {
				t.Fatalf("byte %d of %s: %v", off, name, err)
			}
			harmless++
			g := l.Group(1)
			if last, _ := g.LastIndex(); last != 2*batches {
				t.Fatalf("byte %d of %s: the log silently ends at %d", off, name, last)
			}
			for i := uint64(1); i <= 2*batches; i++ {
				var e raft.Log
				if err := g.GetLog(i, &e); err != nil || string(e.Data) != data(i) {
					t.Fatalf("byte %d of %s: entry %d is %q (%v)", off, name, i, e.Data, err)
				}
			}
			mustClose(t, l)
		}
	}
	t.Logf("%d flips noticed at open, %d harmless (behind the end, or one of two marker generations)", noticed, harmless)
	if noticed < 1000/stride() {
		t.Errorf("only %d flips were noticed", noticed)
	}
}

// TestDamageUnderARunningLog checks that each read from disk checks.
func TestDamageUnderARunningLog(t *testing.T) {
	d, data := filled(t, 12)
	l := mustOpen(t, small(d, nil))
	defer mustClose(t, l)
	for _, name := range liveSegments(t, d) {
		if i := bytes.Index(d.Bytes(name), []byte(data(5))); i >= 0 {
			d.Bytes(name)[i+3] ^= 1
		}
	}
	var e raft.Log
	var damage *disk.CorruptError
	if err := l.Group(1).GetLog(5, &e); !errors.As(err, &damage) || damage.Offset <= 0 || !strings.HasSuffix(damage.File, ".seg") {
		t.Errorf("the damaged entry: %q, %v", e.Data, err)
	}
	if err := l.Group(1).GetLog(6, &e); err != nil || string(e.Data) != data(6) {
		t.Errorf("the entry behind it: %q, %v", e.Data, err)
	}
}

func TestShorterLogIsNoticed(t *testing.T) {
	base, _ := filled(t, 80)
	names := liveSegments(t, base)
	last := names[len(names)-1]
	damage := map[string]func(d *fault.Disk){
		"last segment cut":     func(d *fault.Disk) { d.Truncate(last, segmentHeader+100) },
		"last segment emptied": func(d *fault.Disk) { d.Truncate(last, 0) },
		"last segment zeroed":  func(d *fault.Disk) { clear(d.Bytes(last)) },
		"last segment removed": func(d *fault.Disk) { d.Remove(last) },
		"first segment cut":    func(d *fault.Disk) { d.Truncate(names[0], segmentHeader+100) },
		"middle removed":       func(d *fault.Disk) { d.Remove(names[1]) },
		"marker removed":       func(d *fault.Disk) { d.Remove(filepath.Join(testDir, "marker")) },
		"all segments removed": func(d *fault.Disk) {
			for _, n := range names {
				d.Remove(n)
			}
		},
		"segments swapped": func(d *fault.Disk) {
			a, b := d.Bytes(names[1]), d.Bytes(names[2])
			n := min(len(a), len(b))
			c := bytes.Clone(a[:n])
			copy(a, b[:n])
			copy(b, c)
		},
	}
	for what, do := range damage {
		t.Run(what, func(t *testing.T) {
			d := base.Kill()
			do(d)
			l, err := Open(small(d, func(error) {}))
			var damaged *disk.CorruptError
			if !errors.As(err, &damaged) || damaged.File == "" {
				if err == nil {
					l.Close()
				}
				t.Fatalf("open: %v", err)
			}
			t.Log(err)
		})
	}
}

func TestForeignLogIsRefused(t *testing.T) {
	d, _ := filled(t, 3)
	o := small(d, func(error) {})
	o.Node = "b"
	if l, err := Open(o); err == nil {
		l.Close()
		t.Fatal("node b opened node a's log")
	}
}

// TestRecycledRecordsDoNotComeBack fills recycled segments partly: behind the end
// stand whole records of the file's earlier life.
func TestRecycledRecordsDoNotComeBack(t *testing.T) {
	d := fault.NewDisk()
	o := small(d, nil)
	o.FirstBytes = o.SegmentBytes
	l := mustOpen(t, o)
	g := l.Group(1)
	for i := uint64(1); i <= 400; i++ {
		if err := g.StoreLog(&raft.Log{Index: i, Term: 1, Data: []byte("0123456789")}); err != nil {
			t.Fatal(err)
		}
		if i%20 == 0 {
			if err := g.DeleteRange(0, i-10); err != nil {
				t.Fatal(err)
			}
		}
		if i%17 == 0 {
			mustClose(t, l)
			l = mustOpen(t, o)
			g = l.Group(1)
			if last, _ := g.LastIndex(); last != i {
				t.Fatalf("after reopening the log ends at %d, want %d", last, i)
			}
		}
	}
	if s := l.Stats(); s.Segments > 3 || s.Spare > 3 {
		t.Errorf("segments were not recycled: %+v", s)
	}
	mustClose(t, l)
}

// FuzzDecodeRecord gives the decoder arbitrary bytes, and good records with one
// change.
func FuzzDecodeRecord(f *testing.F) {
	good := func(data, ext []byte) []byte {
		r := entryRecord(1, &raft.Log{Index: 7, Term: 3, Data: data, Extensions: ext})
		parts := r.encode(new([recordHeader]byte), data, ext, 42)
		return bytes.Join(parts[:], nil)
	}
	f.Add(good(nil, nil), 0, byte(0))
	f.Add(good([]byte("data"), []byte("ext")), 13, byte(1))
	f.Add(bytes.Repeat([]byte{0xA7}, 100), 3, byte(9))
	f.Fuzz(func(t *testing.T, b []byte, at int, flip byte) {
		r, body, err := decodeRecord(b, 42)
		if err == nil && (r.size() > int64(len(b)) || len(body) != int(r.data+r.ext)) {
			t.Fatalf("record of %d bytes with %d of body in %d", r.size(), len(body), len(b))
		}
		g := good(b, b[:len(b)/2])
		if _, _, err := decodeRecord(g, 42); err != nil {
			t.Fatalf("a good record: %v", err)
		}
		if flip == 0 || at < 0 || at >= len(g) {
			return
		}
		g[at] ^= flip
		if _, _, err := decodeRecord(g, 42); err == nil {
			t.Fatalf("byte %d was changed, and the record still decodes", at)
		}
	})
}

// TestPowerCutInTheFirstWriteAfterAStart: also when the one before was cut as well. The
// batch being written then isn't the one behind the last good record.
func TestPowerCutInTheFirstWriteAfterAStart(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for i := range 80 {
		d := fault.NewDisk()
		small := func(fsys disk.FS, fatal func(error)) Options {
			o := small(fsys, fatal)
			o.Salvage = i%2 == 0
			return o
		}
		l := mustOpen(t, small(d, nil))
		if err := l.Group(1).StoreLog(entry(1, 20)); err != nil {
			t.Fatal(err)
		}
		mustClose(t, l)
		for range 4 {
			fsys := fault.NewInject(d)
			l := mustOpen(t, small(fsys, nil))
			if err := l.Damage(1); err != nil {
				t.Fatal(err)
			}
			last, _ := l.Group(1).LastIndex()
			var after *fault.Disk
			fsys.On(func(op fault.Op, name string) error {
				if op == fault.OpSync && after == nil && name != testDir+"/marker" {
					after = d.Crash(rnd)
				}
				return nil
			})
			logs := []*raft.Log{entry(last+1, 400), entry(last+2, 400), entry(last+3, 400)}
			if err := l.Group(1).StoreLogs(logs); err != nil {
				t.Fatal(err)
			}
			fsys.On(nil)
			mustClose(t, l)
			d = after
		}
	}
}
