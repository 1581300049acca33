package state

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/heraldmq/herald/replication/disk"
)

// newerSnapshot makes a snapshot file one that a later program wrote.
func newerSnapshot(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	crc := crc32.MakeTable(crc32.Castagnoli)
	le := binary.LittleEndian
	le.PutUint32(b[4:], le.Uint32(b[4:])+1)
	le.PutUint32(b[12:], crc32.Update(crc32.Checksum(b[:12], crc), crc, b[16:16+le.Uint32(b[8:])]))
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestASnapshotOfANewerVersionEndsTheNode: a node whose log is as it should be, and whose
// snapshots are of a later format, ends, though others could fill it again. Nothing is moved.
func TestASnapshotOfANewerVersionEndsTheNode(t *testing.T) {
	f := healing(t)
	_, followers := f.others()
	node := followers[0]
	f.fill("a", 100)
	snaps := filepath.Join(f.dir, node, "groups", "*", "snapshots", "*.snap")
	var found []string
	f.wait("there is a snapshot", func() (bool, string) {
		found, _ = filepath.Glob(snaps)
		return len(found) > 0, ""
	})
	f.kill(node)
	if found, _ = filepath.Glob(snaps); len(found) == 0 {
		t.Fatal("no snapshot")
	}
	name := found[len(found)-1]
	want := newerSnapshot(t, name)
	ended := make(chan error, 1)
	f.with = append(f.with, func(o *Options) {
		o.Fatal = func(err error) {
			select {
			case ended <- err:
			default:
			}
		}
	})
	f.open(f.network(node, f.seeds[int(node[0]-'a')]))
	select {
	case err := <-ended:
		if !disk.IsNewer(err) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it goes on with a snapshot that it can't read")
	}
	f.kill(node)
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the snapshot was changed: %v", err)
	}
	if moved, _ := filepath.Glob(filepath.Join(f.dir, node, "damaged", "*")); len(moved) > 0 {
		t.Errorf("moved away: %v", moved)
	}
}
