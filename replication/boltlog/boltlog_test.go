package boltlog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/heraldmq/herald/replication/disk"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pattern(i uint64) []byte { return bytes.Repeat([]byte{byte('A' + i%26)}, 100) }

func mustOpen(t *testing.T, dir string) *Log {
	t.Helper()
	l, err := Open(disk.OS{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func fill(t *testing.T, dir string, n uint64) {
	t.Helper()
	l := mustOpen(t, dir)
	for i := uint64(1); i <= n; i++ {
		if err := l.StoreLog(&raft.Log{Index: i, Term: 1, Data: pattern(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestKeeps(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, 10)
	l := mustOpen(t, dir)
	defer l.Close()
	first, _ := l.FirstIndex()
	last, _ := l.LastIndex()
	var e raft.Log
	if err := l.GetLog(8, &e); err != nil || first != 1 || last != 10 || e.Term != 1 || !bytes.Equal(e.Data, pattern(8)) {
		t.Errorf("%d to %d, entry 8 %+v, %v", first, last, e, err)
	}
	if err := l.GetLog(11, &e); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("entry 11: %v", err)
	}
}

// TestARetiredLogIsRefusedByVersionsBefore opens a retired log as they do.
func TestARetiredLogIsRefusedByVersionsBefore(t *testing.T) {
	for _, n := range []uint64{0, 10} {
		dir := t.TempDir()
		if n > 0 {
			fill(t, dir, n)
		}
		if live, err := Live(disk.OS{}, dir); err != nil || live != (n > 0) {
			t.Fatalf("%d entries: live %v, %v", n, live, err)
		}
		for range 2 {
			if err := Retire(disk.OS{}, dir); err != nil {
				t.Fatal(err)
			}
			if live, err := Live(disk.OS{}, dir); err != nil || live {
				t.Fatalf("%d entries, retired: live %v, %v", n, live, err)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "log.bolt")); !os.IsNotExist(err) {
			t.Errorf("the file is still there: %v", err)
		}
		_, err := Open(disk.OS{}, dir)
		var damage *disk.CorruptError
		if !errors.As(err, &damage) {
			t.Errorf("%d entries: opened as by a version before: %v", n, err)
		}
	}
}

// TestALogThatIsGoneIsNotAnEmptyOne deletes the file behind the marker's back.
func TestALogThatIsGoneIsNotAnEmptyOne(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, 3)
	if err := os.Remove(filepath.Join(dir, "log.bolt")); err != nil {
		t.Fatal(err)
	}
	var damage *disk.CorruptError
	if live, err := Live(disk.OS{}, dir); !errors.As(err, &damage) {
		t.Errorf("live %v, %v", live, err)
	}
}

// TestFlippedBit damages an entry. Bare raft-boltdb returns it as if it were good.
func TestFlippedBit(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, 10)
	path := filepath.Join(dir, "log.bolt")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for off := 0; ; {
		i := bytes.Index(b[off:], pattern(5))
		if i < 0 {
			break
		}
		b[off+i+50] ^= 1
		off += i + 100
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	bare, err := raftboltdb.NewBoltStore(path)
	if err != nil {
		t.Fatal(err)
	}
	var e raft.Log
	if err := bare.GetLog(5, &e); err != nil {
		t.Errorf("the bare store notices: %v", err)
	}
	bare.Close()
	l := mustOpen(t, dir)
	defer l.Close()
	var damage *disk.CorruptError
	if err := l.GetLog(5, &e); !errors.As(err, &damage) || damage.File != path {
		t.Errorf("entry 5: %v", err)
	}
	if err := l.GetLog(6, &e); err != nil || !bytes.Equal(e.Data, pattern(6)) {
		t.Errorf("entry 6: %v", err)
	}
}

// TestRolledBackMetaPage damages each meta page in turn. For one of them bbolt
// opens one transaction back, silently.
func TestRolledBackMetaPage(t *testing.T) {
	noticed := 0
	for page := range 2 {
		dir := t.TempDir()
		fill(t, dir, 11)
		path := filepath.Join(dir, "log.bolt")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[page*os.Getpagesize()+24] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(disk.OS{}, dir)
		var damage *disk.CorruptError
		switch {
		case errors.As(err, &damage):
			noticed++
			t.Log(err)
		case err != nil:
			t.Fatal(err)
		default:
			if last, _ := l.LastIndex(); last != 11 {
				t.Errorf("meta page %d: silently back to entry %d", page, last)
			}
			l.Close()
		}
	}
	if noticed != 1 {
		t.Errorf("%d of the meta pages were noticed, want 1", noticed)
	}
}

func TestOtherDamage(t *testing.T) {
	for what, do := range map[string]func(path string) error{
		"deleted": func(path string) error { return os.Remove(path) },
		"cut": func(path string) error {
			st, err := os.Stat(path)
			if err != nil {
				return err
			}
			return os.Truncate(path, st.Size()/8)
		},
		"no marker": func(path string) error { return os.Remove(filepath.Join(filepath.Dir(path), "marker")) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir, 300)
			if err := do(filepath.Join(dir, "log.bolt")); err != nil {
				t.Fatal(err)
			}
			l, err := Open(disk.OS{}, dir)
			if err == nil {
				// It may open; then reading must notice.
				for i := uint64(1); i <= 300 && err == nil; i++ {
					err = l.GetLog(i, new(raft.Log))
				}
				l.Close()
			}
			var damage *disk.CorruptError
			if !errors.As(err, &damage) {
				t.Fatalf("not noticed: %v", err)
			}
			t.Log(err)
		})
	}
}
