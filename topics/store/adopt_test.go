package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
)

// mark is what a store says at a marker.
func mark(s *Store) any {
	digest, known, err := s.Mark(false, false)
	return fmt.Sprint(digest, known, err)
}

// markFull is the same for one that looks at everything.
func markFull(s *Store) any {
	digest, known, err := s.Mark(true, true)
	return fmt.Sprint(digest, known, err)
}

type fataler interface{ Fatal(args ...any) }

// adoptFrom gives to what from holds: by way of a folder that is not to's.
func adoptFrom(t fataler, to *Store, dir string, from *Store) {
	tmp, err := os.MkdirTemp("", "herald-adopt-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	x, err := from.Export(tmp)
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Files) == 0 {
		return
	}
	if err := to.Adopt(tmp, func() error { return moveAll(tmp, dir) }); err != nil {
		t.Fatal(err)
	}
	if to.Applied() != x.Applied {
		t.Fatal("adopted", x.Applied, "and has", to.Applied())
	}
}

// moveAll puts the files of one folder in place of those of another.
func moveAll(from, to string) error {
	if err := os.RemoveAll(filepath.Join(to, dataDir)); err != nil {
		return err
	}
	for _, name := range []string{dataDir, "state.db", "generation"} {
		if err := os.Rename(filepath.Join(from, name), filepath.Join(to, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.MkdirAll(filepath.Join(to, dataDir), 0o700)
}

// stocked returns a feeder of a store with some topics, flushed now and then.
func stocked(t *testing.T, o Options, entries int) *feeder {
	f := newFeeder(t, o)
	for id := topics.TopicID(1); id <= 3; id++ {
		f.do(func() {
			cfg := topics.Config{Name: fmt.Sprint("T", id), Subjects: []string{">"}, MaxMsgs: 400, Storage: topics.StoreFile}
			if err := f.s.CreateTopic(id, "A", cfg, f.now); err != nil {
				t.Fatal(err)
			}
		})
	}
	for i := range entries {
		f.now += topics.Nanos(time.Second)
		f.publish(pub(topics.TopicID(1+i%3), fmt.Sprint("s.", i%7), "", strings.Repeat(fmt.Sprint(i), 50)))
		if i%97 == 0 {
			if err := f.s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return f
}

// TestReadersWhileAdopting reads all the time while a store takes over what others
// have: each read is of one state, and nothing is damaged.
func TestReadersWhileAdopting(t *testing.T) {
	dir := t.TempDir()
	behind := stocked(t, Options{Dir: dir}, 500)
	ahead := stocked(t, Options{}, 1500)
	done := make(chan struct{})
	var reading sync.WaitGroup
	for id := topics.TopicID(1); id <= 3; id++ {
		tp := behind.s.Topic(id)
		reading.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				first, last := tp.Bounds()
				msgs, _, err := tp.Read(nil, first, 1000, 0, nil)
				if err != nil {
					t.Errorf("read %d to %d: %v", first, last, err)
					return
				}
				for i := range msgs {
					if string(msgs[i].Payload) == "" || i > 0 && msgs[i].Sequence <= msgs[i-1].Sequence {
						t.Errorf("read %+v", msgs[i])
						return
					}
				}
				tp.Count(topics.NewFilter([]string{"s.3"}), first)
			}
		})
	}
	for range 5 {
		adoptFrom(t, behind.s, dir, ahead.s)
		for range 100 {
			ahead.now += topics.Nanos(time.Second)
			ahead.publish(pub(2, "s.3", "", "more"))
		}
	}
	close(done)
	reading.Wait()
	if err := behind.s.Damage(); err != nil {
		t.Fatal(err)
	}
	adoptFrom(t, behind.s, dir, ahead.s)
	same(t, ahead.s, behind.s)
}

func same(t *testing.T, a, b *Store) {
	t.Helper()
	x, err := a.Digest()
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if x != y {
		t.Fatalf("digests %x and %x", x, y)
	}
}

// TestAdoptRefuses what is damaged or older, and changes nothing then.
func TestAdoptRefuses(t *testing.T) {
	f := stocked(t, Options{}, 300)
	other := stocked(t, Options{}, 600)
	before, err := f.s.Digest()
	if err != nil {
		t.Fatal(err)
	}
	never := func() error { t.Error("moved"); return nil }
	old := t.TempDir()
	if _, err := stocked(t, Options{}, 100).s.Export(old); err != nil {
		t.Fatal(err)
	}
	if err := f.s.Adopt(old, never); !errors.Is(err, ErrOlder) {
		t.Errorf("adopt something older: %v", err)
	}
	for _, harm := range []func(dir string) error{
		func(dir string) error { return os.Remove(filepath.Join(dir, "state.db")) },
		func(dir string) error { return os.Truncate(filepath.Join(dir, "state.db"), 5000) },
		func(dir string) error {
			names, err := filepath.Glob(filepath.Join(dir, dataDir, "*.run"))
			if err != nil || len(names) == 0 {
				return fmt.Errorf("no data file: %w", err)
			}
			return os.Remove(names[0])
		},
	} {
		dir := t.TempDir()
		if _, err := other.s.Export(dir); err != nil {
			t.Fatal(err)
		}
		if err := harm(dir); err != nil {
			t.Fatal(err)
		}
		var damage *CorruptError
		if err := f.s.Adopt(dir, never); !errors.As(err, &damage) {
			t.Errorf("adopt something damaged: %v", err)
		}
	}
	if after, err := f.s.Digest(); err != nil || after != before {
		t.Errorf("the digest is %x, %v, and was %x", after, err, before)
	}
	f.publish(pub(1, "s.1", "", "goes on"))
	if err := f.s.Flush(); err != nil {
		t.Fatal(err)
	}
}

// TestExportOutlivesCompaction reads what was exported after the store has dropped
// its files.
func TestExportOutlivesCompaction(t *testing.T) {
	f := stocked(t, Options{}, 900)
	dir := t.TempDir()
	x, err := f.s.Export(dir)
	if err != nil {
		t.Fatal(err)
	}
	want, err := f.s.Digest()
	if err != nil {
		t.Fatal(err)
	}
	f.do(func() {
		for id := topics.TopicID(1); id <= 3; id++ {
			if _, fault := f.s.Purge(id, Purge{}); fault != nil {
				t.Fatal(fault)
			}
		}
	})
	for range 3 {
		f.publish(pub(1, "s.1", "", "x"))
		if err := f.s.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	to, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if got, err := to.Digest(); err != nil || got != want || to.Applied() != x.Applied {
		t.Fatalf("the copy has %d with digest %x, %v; exported was %d with %x", to.Applied(), got, err, x.Applied, want)
	}
}
