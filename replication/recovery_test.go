package replication

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heraldmq/herald/replication/stable"
	"github.com/heraldmq/herald/topics"
)

// tiny makes snapshots, trims and recycling frequent.
func tiny(dir string) Config {
	return Config{
		Dir: dir, NodeID: "a", SegmentBytes: 16 << 10, PoolSegments: 2, TailBytes: 8 << 10,
		SnapshotBytes: 20 << 10, CatalogBytes: 20 << 10, TrailingBytes: 4 << 10,
	}
}

func text(i int) string { return fmt.Sprintf("%06d %s", i, strings.Repeat("x", i%900)) }

// TestCompleteSnapshotsTrimTheLog: group 0's machine has no files of its own.
func TestCompleteSnapshotsTrimTheLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var want []string
	for round := range 3 {
		n := openNode(t, tiny(dir))
		sm := &list{}
		g := startGroup(t, n, 0, sm)
		if !slices.Equal(sm.all(), want) {
			t.Fatalf("round %d: %d entries after Start, want %d", round, len(sm.all()), len(want))
		}
		if round > 0 && sm.restores != 1 {
			t.Errorf("round %d: restored %d times", round, sm.restores)
		}
		for range 300 {
			want = append(want, text(len(want)))
			propose(t, g, want[len(want)-1])
		}
		await(t, "the log is trimmed", func() bool { s := g.Stats(); return s.Snapshot > 0 && s.First > 1 })
		closeNode(t, n)
	}
}

// TestUnflushedEntriesStay: a data group's log is kept until its machine has
// flushed, whatever its length.
func TestUnflushedEntriesStay(t *testing.T) {
	dir := t.TempDir()
	n := openNode(t, tiny(dir))
	g := startGroup(t, n, 1, &list{})
	for i := range 400 {
		propose(t, g, text(i))
	}
	if s := g.Stats(); s.First != 1 || s.Snapshot != 0 {
		t.Errorf("the log begins at %d, snapshot %d", s.First, s.Snapshot)
	}
	closeNode(t, n)
	n = openNode(t, tiny(dir))
	sm := &list{}
	startGroup(t, n, 1, sm)
	if len(sm.all()) != 400 {
		t.Errorf("%d entries after a restart", len(sm.all()))
	}
}

// TestFlushedMachine: a machine with files of its own, restarted with what it had
// flushed, an older flush, and too old a one.
func TestFlushedMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := openNode(t, tiny(dir))
	sm := &list{}
	g := startGroup(t, n, 1, sm)
	var flushes []topics.Index
	var at []int // entries in the machine at that flush
	for i := range 1500 {
		index := propose(t, g, text(i))
		if i%50 == 49 {
			if err := g.Flushed(index); err != nil {
				t.Fatal(err)
			}
			flushes, at = append(flushes, index), append(at, i+1)
			if _, ok := g.Entry(index); ok {
				t.Fatalf("entry %d stayed in memory after the flush", index)
			}
		}
	}
	await(t, "the log is trimmed", func() bool { return g.Stats().First > 1 })
	if err := g.Flushed(g.LastIndex() + 1); err == nil {
		t.Error("a flush of what was not applied was taken")
	}
	all := sm.all()
	closeNode(t, n)

	for back := 1; back <= 2; back++ { // the newest flush, and the one before
		k := len(flushes) - back
		n := openNode(t, tiny(dir))
		sm := &list{applied: flushes[k], entries: slices.Clone(all[:at[k]]), fail: errors.New("only a manifest")}
		startGroup(t, n, 1, sm)
		if !slices.Equal(sm.all(), all) {
			t.Errorf("from flush -%d: %d entries, want %d", back, len(sm.all()), len(all))
		}
		closeNode(t, n)
	}
	n = openNode(t, tiny(dir))
	var gap *GapError
	_, err := n.Start(1, &list{applied: 3, fail: errors.New("only a manifest")})
	if !errors.As(err, &gap) || gap.Applied != 3 || gap.First <= 4 {
		t.Errorf("a machine from the stone age: %v", err)
	}
	t.Log(err)
	var lost *LostLogError
	_, err = n.Start(1, &list{applied: 100000})
	if !errors.As(err, &lost) || lost.Applied != 100000 {
		t.Errorf("a machine ahead of the log: %v", err)
	}
	t.Log(err)
	// And the group still starts for a machine that fits.
	k := len(flushes) - 1
	startGroup(t, n, 1, &list{applied: flushes[k], entries: slices.Clone(all[:at[k]])})
}

func TestLostFilesAreNoticed(t *testing.T) {
	var mayNot *stable.MayNotVoteError
	var lost *LostLogError
	var damage *CorruptError
	for what, c := range map[string]struct {
		do func(t *testing.T, dir string)
		is any
		sm *list
	}{
		"vote lost": {is: &mayNot, do: func(t *testing.T, dir string) { remove(t, dir, "stable", "1") }},
		"vote damaged": {is: &mayNot, do: func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "stable", "1"), make([]byte, 5000), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		"log lost":              {is: &lost, do: func(t *testing.T, dir string) { remove(t, dir, "wal") }},
		"segments lost":         {is: &damage, do: func(t *testing.T, dir string) { remove(t, dir, "wal", "0000000000000001.seg") }},
		"log lost, machine not": {is: &lost, sm: &list{applied: 5}, do: func(t *testing.T, dir string) { remove(t, dir, "wal"); remove(t, dir, "stable") }},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			n := openNode(t, Config{Dir: dir, NodeID: "a"})
			g := startGroup(t, n, 1, &list{})
			for i := range 10 {
				propose(t, g, text(i))
			}
			closeNode(t, n)
			c.do(t, dir)
			n, err := Open(Config{Dir: dir, NodeID: "a", Fatal: func(err error) { t.Errorf("fatal: %v", err) }})
			if err == nil {
				defer n.Close()
				sm := c.sm
				if sm == nil {
					sm = &list{}
				}
				_, err = n.Start(1, sm)
			}
			if !errors.As(err, c.is) {
				t.Fatalf("got %v", err)
			}
			t.Log(err)
		})
	}
}

func remove(t *testing.T, path ...string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(path...)); err != nil {
		t.Fatal(err)
	}
}

func TestDirectoryBelongsToOneProcessAndOneNode(t *testing.T) {
	dir := t.TempDir()
	n := openNode(t, Config{Dir: dir, NodeID: "a"})
	var locked *LockedError
	if _, err := Open(Config{Dir: dir}); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("opened twice: %v", err)
	}
	closeNode(t, n)
	if _, err := Open(Config{Dir: dir, NodeID: "b"}); err == nil || !strings.Contains(err.Error(), `belongs to node "a"`) {
		t.Errorf("another node: %v", err)
	}
	n = openNode(t, Config{Dir: dir})
	if n.ID() != "a" {
		t.Errorf("the node is %q", n.ID())
	}
}
