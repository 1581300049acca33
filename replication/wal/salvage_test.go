package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/fault"
)

// shared returns a disk with a closed log of n batches, in turn of groups 1 to 3, and
// the last index of each.
func shared(t testing.TB, n int) (d *fault.Disk, last [4]uint64) {
	t.Helper()
	d = fault.NewDisk()
	l := mustOpen(t, small(d, nil))
	for i := range n {
		g := uint32(i%3 + 1)
		last[g]++
		if err := l.Group(g).StoreLogs([]*raft.Log{{Index: last[g], Term: 1, Data: sharedData(g, last[g])}}); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, l)
	return d, last
}

func sharedData(g uint32, i uint64) []byte {
	return []byte(fmt.Sprintf("<entry %03d of group %d>%s", i, g, strings.Repeat(".", int(i%5)*24)))
}

func whole(l *Log, g uint32, last uint64) error {
	if now, _ := l.Group(g).LastIndex(); now != last {
		return fmt.Errorf("its log ends at %d", now)
	}
	for i := uint64(1); i <= last; i++ {
		var e raft.Log
		if err := l.Group(g).GetLog(i, &e); err != nil || string(e.Data) != string(sharedData(g, i)) {
			return fmt.Errorf("entry %d: %q, %w", i, e.Data, err)
		}
	}
	return nil
}

// TestSalvageNamesTheGroups flips each byte in turn. A group that isn't said to be hit
// has all its entries; most often only one is said to be.
func TestSalvageNamesTheGroups(t *testing.T) {
	d, last := shared(t, 45)
	one, several, harmless := 0, 0, 0
	for _, name := range liveSegments(t, d) {
		for off := 0; off < len(d.Bytes(name)); off += stride() {
			after := d.Kill()
			after.Bytes(name)[off] ^= 0x10
			o := small(after, func(err error) { t.Errorf("fatal: %v", err) })
			o.Salvage = true
			l, err := Open(o)
			var damage *disk.CorruptError
			if errors.As(err, &damage) && off < segmentHeader {
				continue // nothing is known of what is in it
			}
			if err != nil {
				t.Fatalf("byte %d of %s: %v", off, name, err)
			}
			hit := 0
			for g := uint32(1); g <= 3; g++ {
				if l.Damage(g) != nil {
					hit++
				} else if err := whole(l, g, last[g]); err != nil {
					t.Fatalf("byte %d of %s: group %d is said to be whole: %v", off, name, g, err)
				}
			}
			switch hit {
			case 0:
				harmless++
			case 1:
				one++
			default:
				several++
			}
			mustClose(t, l)
		}
	}
	t.Logf("one group hit: %d, several: %d, none: %d", one, several, harmless)
	if one < 4*several {
		t.Errorf("%d times several groups are said to be hit, %d times one", several, one)
	}
}

// TestSalvagedLogGoesOn drops the group that is hit, fills it again, writes to the
// others, and opens the log once more.
func TestSalvagedLogGoesOn(t *testing.T) {
	d, last := shared(t, 45)
	for _, name := range []string{liveSegments(t, d)[0], liveSegments(t, d)[len(liveSegments(t, d))-1]} {
		after := d.Kill()
		after.Bytes(name)[segmentHeader+recordHeader+3] ^= 1
		o := small(after, func(err error) { t.Errorf("fatal: %v", err) })
		o.Salvage = true
		l := mustOpen(t, o)
		var hit uint32
		for g := uint32(1); g <= 3; g++ {
			if l.Damage(g) != nil {
				hit = g
			}
		}
		if hit == 0 {
			t.Fatalf("%s: nothing was noticed", filepath.Base(name))
		}
		if err := l.Group(hit).Drop(); err != nil {
			t.Fatal(err)
		}
		now := last
		for range 20 {
			for g := uint32(1); g <= 3; g++ {
				if g == hit && now[g] == last[g] {
					now[g] = 100 // a snapshot was installed
				}
				now[g]++
				if err := l.Group(g).StoreLogs([]*raft.Log{{Index: now[g], Term: 2, Data: sharedData(g, now[g])}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		mustClose(t, l)
		l = mustOpen(t, o)
		for g := uint32(1); g <= 3; g++ {
			if err := l.Damage(g); err != nil {
				t.Errorf("group %d: %v", g, err)
			}
			if at, _ := l.Group(g).LastIndex(); at != now[g] {
				t.Errorf("group %d ends at %d, not %d", g, at, now[g])
			}
			if g != hit {
				if err := whole(l, g, now[g]); err != nil {
					t.Errorf("group %d: %v", g, err)
				}
			}
		}
		mustClose(t, l)
	}
}
