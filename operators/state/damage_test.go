package state

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// filled is a state in files, of several tables, and what it was after each step that is in them.
func filled(t *testing.T, dir string, rng *rand.Rand) (d *Durable, states map[uint64]string) {
	t.Helper()
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Use(PebbleBackend, 0), d.Begin(1, NewMemory(), 0)); err != nil {
		t.Fatal(err)
	}
	states = map[uint64]string{0: ""}
	for seq := uint64(1); seq <= 30; seq++ {
		if err := d.Apply(randomDelta(rng, d), seq); err != nil {
			t.Fatal(err)
		}
		states[seq] = text(t, d, nil, nil)
		if seq%5 == 0 {
			if err := d.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return d, states
}

// copied copies a folder.
func copied(t *testing.T, from, to string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
		t.Fatal(err)
	}
}

// flip changes a byte of a file.
func flip(t *testing.T, name string, at int) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 0x5a
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Whatever happens to a file of a state, it is found out when it is opened or read, and nothing
// wrong is given: an older state, which says of which step it is, at most. Nothing ends the
// process.
func TestADamagedFileIsNeverBelieved(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 6))
	dir := t.TempDir()
	whole, hurt := filepath.Join(dir, "whole"), filepath.Join(dir, "hurt")
	d, states := filled(t, whole, rng)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(whole, "tree-*", "*"))
	if err != nil || len(names) < 4 {
		t.Fatal(names, err)
	}
	tries, found := 25, map[string]int{}
	if testing.Short() {
		tries = 6
	}
	check := func(name, what string) {
		t.Helper()
		kind := strings.Trim(filepath.Base(name), "0123456789-") + " " + strings.Fields(what)[0]
		d, err := Open(hurt)
		if err == nil {
			var got string
			if err = scanned(d, &got); err == nil {
				if want, is := states[d.Seq()]; !is || got != want {
					t.Errorf("%s %s: step %d has\n%s\nwanted\n%s", name, what, d.Seq(), got, want)
				}
			}
			if e := d.Close(); err == nil {
				err = e
			}
		}
		switch {
		case err == nil:
			found[kind+": harmless"]++
		case errors.Is(err, ErrDamaged):
			found[kind+": found"]++
		default:
			t.Errorf("%s %s: %v", name, what, err)
		}
	}
	for _, name := range append(names, filepath.Join(whole, pointerName)) {
		rel, _ := filepath.Rel(whole, name)
		at := filepath.Join(hurt, rel)
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		copied(t, whole, hurt)
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
		check(rel, "gone")
		for range min(tries, int(info.Size())) {
			copied(t, whole, hurt)
			n := rng.IntN(int(info.Size()))
			flip(t, at, n)
			check(rel, fmt.Sprint("flipped at ", n))
			copied(t, whole, hurt)
			if err := os.Truncate(at, int64(n)); err != nil {
				t.Fatal(err)
			}
			check(rel, fmt.Sprint("cut at ", n))
		}
	}
	if found[".sst flipped: found"] == 0 || found[".sst gone: found"] == 0 || found[".sst cut: found"] == 0 {
		t.Errorf("the test shows nothing: %v", found)
	}
	t.Log(found)
}

func scanned(r Reader, got *string) error {
	var b strings.Builder
	err := r.Scan(nil, nil, func(k, v []byte) bool { fmt.Fprintf(&b, "%x=%x\n", k, v); return true })
	*got = b.String()
	return err
}

// harmed is a state in files that was opened just now, with a byte changed in each of its tables.
func harmed(t *testing.T, dir string) (d *Durable, alarms chan bool) {
	t.Helper()
	d, _ = filled(t, dir, rand.New(rand.NewPCG(4, 6)))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	alarms = make(chan bool, 10)
	d.Alarm(func() { alarms <- true })
	tables, err := filepath.Glob(filepath.Join(dir, "tree-*", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	for _, name := range tables {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		if _, err := f.ReadAt(b[:], 20); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 1
		if _, err := f.WriteAt(b[:], 20); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return d, alarms
}

// A state that is found to be damaged while it is used, by whoever reads it, gives nothing any
// more, and says which file it is; its files can be put aside, and another state takes its place.
func TestADamagedStateGivesNothing(t *testing.T) {
	for _, by := range []string{"a reader", "compaction", "a change"} {
		t.Run(by, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			d, alarms := harmed(t, dir)
			s, err := d.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			if d.Damaged() != nil {
				t.Fatalf("nobody has read it: %v", d.Damaged())
			}
			switch tree := d.now().(*Pebble).t; by {
			case "a reader":
				var got string
				err = scanned(d, &got)
			case "compaction":
				_ = tree.db.Compact(t.Context(), []byte("a"), []byte("z"), false)
				err = d.Damaged()
			case "a change":
				for k := range 256 {
					err = errors.Join(err, d.Apply(AppendChange(nil, []byte{byte(k)}, nil, false), 31))
				}
			}
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), ".sst") || !errors.Is(d.Damaged(), ErrDamaged) {
				t.Fatalf("%v, %v", err, d.Damaged())
			}
			<-alarms
			_, _, e1 := d.Get([]byte("k"))
			_, _, e2 := s.Get([]byte("k"))
			_, e3 := d.Snapshot()
			var got string
			for what, err := range map[string]error{
				"get": e1, "get of a snapshot": e2, "snapshot": e3, "scan": scanned(d, &got), "scan of a snapshot": scanned(s, &got),
				"apply": d.Apply(AppendChange(nil, []byte("new"), nil, false), 31), "flush": d.Flush(), "clone": d.Clone(dir + "2"),
				"retain": d.Retain(2, 0, func([]byte) (bool, []byte) { return true, nil }), "move": d.Use(MemoryBackend, 0),
			} {
				if !errors.Is(err, ErrDamaged) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if len(alarms) > 0 {
				t.Error("it is told more than once")
			}
			if err := d.Close(); !errors.Is(err, ErrDamaged) {
				t.Errorf("close: %v", err)
			}
			// While somebody still looks at it.
			if err := PutAside(dir, dir+".damaged"); err != nil {
				t.Fatal(err)
			}
			if aside, err := filepath.Glob(filepath.Join(dir+".damaged", "tree-*", "*.sst")); err != nil || len(aside) == 0 {
				t.Errorf("put aside: %v, %v", aside, err)
			}
			if d, err = Open(dir); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(d.Use(PebbleBackend, 0), d.Begin(1, NewMemory(), 7), s.Close()); err != nil || d.Seq() != 7 || d.Damaged() != nil {
				t.Errorf("the new one: step %d, %v, %v", d.Seq(), err, d.Damaged())
			}
			if err := errors.Join(d.Apply(AppendChange(nil, []byte("k"), []byte("v"), false), 8), d.Flush(), d.Remove()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Files that somebody takes away while they are used end the state, not the process, and nobody
// waits for them.
func TestFilesThatGoUnderAnOpenState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	d, _ := filled(t, dir, rand.New(rand.NewPCG(5, 6)))
	if err := d.Apply(AppendChange(nil, []byte("k"), []byte("v"), false), 31); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := d.Flush(); !errors.Is(err, ErrDamaged) {
		t.Errorf("flush: %v", err)
	}
	if err := d.Close(); !errors.Is(err, ErrDamaged) {
		t.Errorf("close: %v", err)
	}
	h := &harm{seen: make(chan struct{}), alarm: func() {}}
	quiet{h}.Fatalf("MANIFEST set current failed: %v", &os.PathError{Op: "open", Path: "x", Err: os.ErrNotExist})
	if !errors.Is(h.err(), ErrDamaged) {
		t.Errorf("a manifest whose folder is gone: %v", h.err())
	}
	defer func() {
		if recover() == nil {
			t.Error("a write that fails doesn't end the process")
		}
	}()
	quiet{&harm{seen: make(chan struct{})}}.Fatalf("MANIFEST sync failed: %v", errors.New("input/output error"))
}

// What is still looked at when its state is removed has its files to itself: another state in the
// same folder, also one that is cloned there, has others, and each goes with its last user.
func TestAnotherStateInTheFolderOfOneThatIsLookedAt(t *testing.T) {
	for _, how := range []string{"opened", "cloned", "opened twice"} {
		t.Run(how, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			d, _ := filled(t, dir, rand.New(rand.NewPCG(6, 6)))
			want := text(t, d, nil, nil)
			old := d.now().(*Pebble).t
			s, err := d.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(d.Apply(AppendChange(nil, []byte("k"), []byte("late"), false), 31), d.Remove()); err != nil {
				t.Fatal(err)
			}
			if how == "cloned" {
				other, _ := filled(t, dir+".other", rand.New(rand.NewPCG(7, 6)))
				if err := errors.Join(RemoveFolder(dir), other.Clone(dir), other.Remove()); err != nil {
					t.Fatal(err)
				}
			}
			if d, err = Open(dir); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(d.Use(PebbleBackend, 0), d.Retain(2, 1, func([]byte) (bool, []byte) { return true, nil })); err != nil {
				t.Fatal(err)
			}
			if how == "opened twice" { // whoever opens it looks for what a crash has left
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				if d, err = Open(dir); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(d.Apply(AppendChange(nil, []byte("k"), []byte("new"), false), 2), d.Flush()); err != nil {
				t.Fatal(err)
			}
			is := text(t, d, nil, nil)
			// The old one writes what it has, and compacts all of it.
			if err := errors.Join(old.db.Flush(), old.db.Compact(t.Context(), []byte("a"), []byte("z"), false)); err != nil || old.harm.err() != nil {
				t.Fatal(err, old.harm.err())
			}
			if got := text(t, s, nil, nil); got != want {
				t.Errorf("who looks at the old one sees\n%s\nwanted\n%s", got, want)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if got := text(t, d, nil, nil); got != is || d.Damaged() != nil {
				t.Errorf("the new one has\n%s\nwanted\n%s (%v)", got, is, d.Damaged())
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if d, err = Open(dir); err != nil {
				t.Fatal(err)
			}
			if got := text(t, d, nil, nil); got != is || d.Epoch() != 2 || d.Seq() != 2 {
				t.Errorf("opened again, at step %d of epoch %d, it has\n%s\nwanted\n%s", d.Seq(), d.Epoch(), got, is)
			}
			if trees, err := filepath.Glob(filepath.Join(dir, "tree-*")); err != nil || len(trees) != 1 {
				t.Errorf("left are %v, %v", trees, err)
			}
			if err := d.Remove(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder is left: %v", err)
			}
		})
	}
}

// A tree that is still looked at can't be opened by another store, which is told so.
func TestATreeIsOpenOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	d, _ := filled(t, dir, rand.New(rand.NewPCG(8, 6)))
	s, err := d.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, errInUse) || errors.Is(err, ErrDamaged) {
		t.Errorf("opened while it is looked at: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if d, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
