package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/fault"
)

// asOf makes a segment one of another version, as the program of that version would.
func asOf(b []byte, version uint32) {
	binary.LittleEndian.PutUint32(b[8:], version)
	binary.LittleEndian.PutUint32(b[12:], 0)
	binary.LittleEndian.PutUint32(b[12:], crc32.Checksum(b[:segmentHeader], castagnoli))
}

// TestALogOfANewerVersionIsLeftAlone opens logs in which some segments are of a version
// that isn't known here: a program that was put back to the one before. It must neither
// read them nor take them for damage, which would move them away.
func TestALogOfANewerVersionIsLeftAlone(t *testing.T) {
	first, _ := filled(t, 120)
	names := liveSegments(t, first)
	if len(names) < 3 {
		t.Fatalf("only %d segments", len(names))
	}
	for _, c := range []struct {
		name  string
		which []string
	}{
		{"all", names},
		{"the last", names[len(names)-1:]},
		{"one in the middle", names[1:2]},
	} {
		for _, salvage := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				d := first.Kill()
				for _, name := range c.which {
					asOf(d.Bytes(name), segmentVersion+1)
				}
				before := everything(t, d)
				o := small(d, func(err error) { t.Errorf("fatal: %v", err) })
				o.Salvage = salvage
				_, err := Open(o)
				var newer *disk.NewerError
				var damage *disk.CorruptError
				if !errors.As(err, &newer) || errors.As(err, &damage) {
					t.Fatalf("opened with %v", err)
				}
				if newer.File != c.which[0] || newer.Version != segmentVersion+1 || !strings.Contains(err.Error(), "newer version") {
					t.Errorf("the error doesn't say what is wrong: %v", err)
				}
				if !bytes.Equal(everything(t, d), before) {
					t.Error("the files were changed")
				}
			})
		}
	}
}

// A flipped bit of the version is damage, not a newer version.
func TestADamagedVersionIsDamage(t *testing.T) {
	d, _ := filled(t, 24)
	d.Bytes(liveSegments(t, d)[0])[8] ^= 4
	_, err := Open(small(d, func(err error) { t.Errorf("fatal: %v", err) }))
	var damage *disk.CorruptError
	if !errors.As(err, &damage) {
		t.Fatalf("opened with %v", err)
	}
}

// everything is the names and bytes of all files of the log.
func everything(t *testing.T, d *fault.Disk) (all []byte) {
	t.Helper()
	names, err := d.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		all = append(append(append(all, name...), 0), d.Bytes(testDir+"/"+name)...)
	}
	return all
}
