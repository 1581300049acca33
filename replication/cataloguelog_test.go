package replication

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/heraldmq/herald/replication/boltlog"
	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/topics"
)

// oldDirectory makes the directory of a node as versions before kept it: group 0's log is
// in raft-boltdb. It returns what group 0 holds.
func oldDirectory(t *testing.T, dir string) []string {
	t.Helper()
	n, g, sm := openCatalogue(t, dir)
	for i := range 30 {
		if _, _, err := g.Propose(fmt.Appendf(nil, "entry %d", i)).Result(); err != nil {
			t.Fatal(err)
		}
	}
	held := sm.all()
	var entries []*raft.Log
	first, _ := g.logs.FirstIndex()
	for i := first; i <= uint64(g.LastIndex()); i++ {
		var e raft.Log
		if err := g.logs.GetLog(i, &e); err != nil {
			t.Fatal(err)
		}
		e.Data = bytes.Clone(e.Data)
		entries = append(entries, &e)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"meta/wal", "meta/marker", "stable/0.bolt"} {
		if err := os.RemoveAll(filepath.Join(dir, path)); err != nil {
			t.Fatal(err)
		}
	}
	old, err := boltlog.Open(disk.OS{}, filepath.Join(dir, "meta"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(old.StoreLogs(entries), old.Close()); err != nil {
		t.Fatal(err)
	}
	return held
}

func openCatalogue(t *testing.T, dir string) (*Node, *Group, *list) {
	t.Helper()
	n, err := Open(Config{Dir: dir, NodeID: "n", Fatal: func(err error) { t.Log("fatal:", err) }})
	if err != nil {
		t.Fatal(err)
	}
	sm := &list{}
	g, err := n.Start(topics.CatalogueGroup, sm)
	if err != nil {
		n.Close()
		t.Fatal(err)
	}
	return n, g, sm
}

func TestAnOldCatalogueLogIsMoved(t *testing.T) {
	dir := t.TempDir()
	held := oldDirectory(t, dir)
	for range 2 {
		n, g, sm := openCatalogue(t, dir)
		if got := sm.all(); !slices.Equal(got, held) {
			t.Errorf("%d entries, want %d: %q", len(got), len(held), got)
		}
		more := fmt.Sprintf("more than %d", len(held))
		if _, _, err := g.Propose([]byte(more)).Result(); err != nil {
			t.Fatal(err)
		}
		held = append(held, more)
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "meta", "log.bolt")); !os.IsNotExist(err) {
			t.Errorf("the old log is still there: %v", err)
		}
	}
}

// TestAnInterruptedMoveIsRepeated leaves half of the entries, of another content, where
// they are to go.
func TestAnInterruptedMoveIsRepeated(t *testing.T) {
	dir := t.TempDir()
	held := oldDirectory(t, dir)
	other := t.TempDir()
	n, g, _ := openCatalogue(t, other)
	for i := range 10 {
		if _, _, err := g.Propose(fmt.Appendf(nil, "half %d", i)).Result(); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "meta", "wal"), os.DirFS(filepath.Join(other, "meta", "wal"))); err != nil {
		t.Fatal(err)
	}
	n, _, sm := openCatalogue(t, dir)
	defer n.Close()
	if got := sm.all(); !slices.Equal(got, held) {
		t.Errorf("%d entries, want %d: %q", len(got), len(held), got)
	}
}

// TestADamagedOldLogIsNotMoved flips a bit of an entry.
func TestADamagedOldLogIsNotMoved(t *testing.T) {
	dir := t.TempDir()
	oldDirectory(t, dir)
	hurt(t, filepath.Join(dir, "meta", "log.bolt"), "entry 17")
	n, err := Open(Config{Dir: dir, NodeID: "n", Fatal: func(err error) { t.Log("fatal:", err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	_, err = n.Start(topics.CatalogueGroup, &list{})
	var damage *CorruptError
	if !errors.As(err, &damage) {
		t.Errorf("started: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "meta", "log.bolt")); err != nil {
		t.Error(err)
	}
}

// TestALostCatalogueLogIsNoticed deletes the whole log, also where a snapshot could take
// its place: entries behind that are missing.
func TestALostCatalogueLogIsNoticed(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		t.Run(fmt.Sprintf("snapshot %v", snapshot), func(t *testing.T) {
			dir := t.TempDir()
			n, g, _ := openCatalogue(t, dir)
			propose := func(what string) {
				t.Helper()
				if _, _, err := g.Propose([]byte(what)).Result(); err != nil {
					t.Fatal(err)
				}
			}
			propose("one")
			if snapshot {
				if err := g.raft.Snapshot().Error(); err != nil {
					t.Fatal(err)
				}
			}
			propose("two")
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(dir, "meta")); err != nil {
				t.Fatal(err)
			}
			n, err := Open(Config{Dir: dir, NodeID: "n"})
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			_, err = n.Start(topics.CatalogueGroup, &list{})
			var lost *LostLogError
			if !errors.As(err, &lost) {
				t.Errorf("started: %v", err)
			}
		})
	}
}
