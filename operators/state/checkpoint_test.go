package state

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What stays of a state is the same wherever the state is, also after a crash, and what is
// read past by a fate that many keys share stays.
func TestWhatIsRetainedIsTheSameInEveryBackend(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 9))
		drop := byte('a' + rng.IntN(5))
		fate := func(key []byte) (bool, []byte) {
			if key[0] == drop {
				return false, nil
			}
			return true, []byte{key[0] + 1}
		}
		var want string
		var sum uint64
		for _, backend := range []Backend{MemoryBackend, PebbleBackend} {
			rng := rand.New(rand.NewPCG(seed, 10))
			dir := filepath.Join(t.TempDir(), "state")
			d, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(d.Use(backend, 0), d.Begin(1, NewMemory(), 0)); err != nil {
				t.Fatal(err)
			}
			for seq := uint64(1); seq < 40; seq++ {
				k := fmt.Sprintf("%c%d", 'a'+rune(rng.IntN(5)), rng.IntN(30))
				if err := d.Apply(AppendChange(nil, []byte(k), bytes.Repeat([]byte{byte(seq)}, rng.IntN(3000)), rng.IntN(6) == 0), seq); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.Retain(2, 7, fate); err != nil {
				t.Fatal(err)
			}
			check := func(when string) {
				t.Helper()
				got := text(t, d, nil, nil)
				keys, size := d.Size()
				if want == "" {
					want, sum = got, d.Sum()
				}
				m := NewMemory()
				if err := m.Replace(d, 0); err != nil {
					t.Fatal(err)
				}
				mk, ms := m.Size()
				if got != want || d.Sum() != sum || m.Sum() != sum || d.Epoch() != 2 || d.Seq() != 7 || keys != mk || size != ms || keys == 0 || !slices.Equal(d.Steps(), m.Steps()) {
					t.Errorf("seed %d, backend %d, %s: epoch %d, step %d, %d keys of %d bytes, sum %x:\n%s\nwanted %x\n%s", seed, backend, when, d.Epoch(), d.Seq(), keys, size, d.Sum(), got, sum, want)
				}
			}
			check("at once")
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if d, err = Open(dir); err != nil {
				t.Fatal(err)
			}
			check("opened again")
			if trees, err := filepath.Glob(filepath.Join(dir, "tree-*")); err != nil || backend == PebbleBackend && len(trees) != 1 {
				t.Errorf("left are %v, %v", trees, err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A clone in files shares them, and goes on by itself.
func TestAClonesFilesAreShared(t *testing.T) {
	for _, backend := range []Backend{MemoryBackend, PebbleBackend} {
		dir := t.TempDir()
		d, err := Open(filepath.Join(dir, "a"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Use(backend, 0), d.Begin(3, NewMemory(), 0)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Apply(AppendChange(nil, []byte("k"), []byte("v"), false), 5), d.Flush()); err != nil {
			t.Fatal(err)
		}
		shared := 0
		for try := 0; shared == 0 && try < 5; try++ { // a compaction may replace files just then
			before := files(t, filepath.Join(dir, "a"))
			if err := errors.Join(os.RemoveAll(filepath.Join(dir, "b")), d.Clone(filepath.Join(dir, "b"))); err != nil {
				t.Fatal(err)
			}
			for _, f := range append(before, files(t, filepath.Join(dir, "a"))...) {
				for _, g := range files(t, filepath.Join(dir, "b")) {
					if os.SameFile(f, g) {
						shared++
					}
				}
			}
		}
		if backend == PebbleBackend && shared == 0 {
			t.Error("no file is shared")
		}
		c, err := Open(filepath.Join(dir, "b"))
		if err != nil {
			t.Fatal(err)
		}
		if c.Epoch() != 3 || c.Seq() != 5 || c.Sum() != d.Sum() {
			t.Errorf("backend %d: the clone is of step %d of epoch %d", backend, c.Seq(), c.Epoch())
		}
		if err := errors.Join(c.Apply(AppendChange(nil, []byte("k"), []byte("w"), false), 6), c.Flush(), d.Remove()); err != nil {
			t.Fatal(err)
		}
		if v, ok, err := c.Get([]byte("k")); string(v) != "w" || !ok || err != nil {
			t.Errorf("backend %d: the clone has %s, %v", backend, v, err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// files are the tables in a folder.
func files(t *testing.T, dir string) (all []os.FileInfo) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "tree-*", "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		i, err := os.Stat(n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, i)
	}
	return all
}
