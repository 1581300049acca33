package state

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// text is all that a reader shows.
func text(t testing.TB, r Reader, from, to []byte) string {
	t.Helper()
	var b strings.Builder
	err := r.Scan(from, to, func(k, v []byte) bool {
		fmt.Fprintf(&b, "%x=%x\n", k, v)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func randomKey(rng *rand.Rand) []byte {
	k := make([]byte, rng.IntN(4))
	for i := range k {
		k[i] = []byte{0, 1, 'a', 'b', 0xfe, 0xff}[rng.IntN(6)]
	}
	// Some are of steps, as package engine has them.
	step := []byte{0, byte(1 + rng.IntN(3))}
	switch rng.IntN(3) {
	case 0:
		k = append(append([]byte{'s', 0, byte(rng.IntN(2))}, step...), k...)
	case 1:
		k = append(append([]byte{'t', 0, 1, 2, 3, 4, 5, 6, 7, byte(rng.IntN(3))}, step...), k...)
	}
	return k
}

// countedOf are the sizes of the steps, as what is there says.
func countedOf(t testing.TB, r Reader) []StepSize {
	t.Helper()
	var s sizes
	if err := r.Scan(nil, nil, func(k, v []byte) bool { s.more(k, len(v)); return true }); err != nil {
		t.Fatal(err)
	}
	return s.there()
}

func TestKeysAreOfTheirSteps(t *testing.T) {
	for key, want := range map[string]uint16{
		"": 0, "mc": 0, "s": 0, "s\x00\x01\x02": 0, "s\x00\x01\x02\x03": 0x203, "s\x00\x01\x02\x03key": 0x203,
		"t\x0012345678\x01": 0, "t\x0012345678\x01\x02": 0x102, "t\x0012345678\x01\x02name": 0x102, "o12345678901234": 0,
	} {
		if got := stepOf([]byte(key)); got != want {
			t.Errorf("%q is of step %x, wanted %x", key, got, want)
		}
	}
}

// randomDelta is a step's changes.
func randomDelta(rng *rand.Rand, below Reader) []byte {
	o := NewOverlay(below)
	for range 1 + rng.IntN(8) {
		switch rng.IntN(4) {
		case 0:
			o.Delete(randomKey(rng))
		default:
			v := make([]byte, rng.IntN(40))
			for i := range v {
				v[i] = byte(rng.IntN(256))
			}
			o.Put(randomKey(rng), v)
		}
	}
	return o.Delta()
}

// The same steps give the same on every backend, also where it changes on the way, is
// closed and opened again, or got from another.
func TestBackendsAreTheSame(t *testing.T) {
	for seed := range seeds(4) {
		rng := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		ref := NewMemory()
		stores := map[string]*Durable{}
		reopen := func(name string) {
			d, err := Open(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			b := map[string]Backend{"memory": MemoryBackend, "pebble": PebbleBackend}[name]
			if err := d.Use(b, 1500); err != nil {
				t.Fatal(err)
			}
			stores[name] = d
		}
		for _, name := range []string{"memory", "pebble", "auto"} {
			reopen(name)
			if err := stores[name].Begin(1, ref, 0); err != nil {
				t.Fatal(err)
			}
		}
		crossed := false
		for seq := uint64(1); seq <= 150; seq++ {
			delta := randomDelta(rng, ref)
			if err := ref.Apply(bytes.Clone(delta), seq); err != nil {
				t.Fatal(err)
			}
			from, to := randomKey(rng), randomKey(rng)
			if bytes.Compare(from, to) > 0 {
				from, to = to, from
			}
			act := rng.IntN(30)
			for name, d := range stores {
				if err := d.Apply(bytes.Clone(delta), seq); err != nil {
					t.Fatal(err)
				}
				switch act {
				case 0:
					if err := d.Close(); err != nil {
						t.Fatal(err)
					}
					reopen(name)
				case 1:
					var b bytes.Buffer
					s, err := ref.Snapshot()
					if err == nil {
						err = errors.Join(WriteFrames(&b, 7, s), d.Receive(&b, func(epoch, at uint64) error {
							if epoch != 7 || at != seq {
								return fmt.Errorf("epoch %d, step %d", epoch, at)
							}
							return nil
						}))
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				agree(t, name, stores[name], ref, from, to)
			}
			crossed = crossed || stores["auto"].InFiles()
		}
		if !crossed || !stores["pebble"].InFiles() || stores["memory"].InFiles() {
			t.Error("the stores are not where they should be")
		}
		for name, d := range stores {
			if err := d.Use(MemoryBackend, 0); err != nil {
				t.Fatal(err)
			}
			agree(t, name+" moved to memory", d, ref, nil, nil)
			if err := d.Remove(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is still there: %v", name, err)
			}
		}
	}
}

func agree(t *testing.T, name string, d *Durable, ref *Memory, from, to []byte) {
	t.Helper()
	k1, b1 := d.Size()
	k2, b2 := ref.Size()
	if k1 != k2 || b1 != b2 || d.Sum() != ref.Sum() || d.Seq() != ref.Seq() {
		t.Fatalf("%s: %d keys, %d bytes, sum %x, step %d; wanted %d, %d, %x, %d", name, k1, b1, d.Sum(), d.Seq(), k2, b2, ref.Sum(), ref.Seq())
	}
	if got, want := d.Steps(), countedOf(t, ref); !slices.Equal(got, want) {
		t.Fatalf("%s: the steps have %v, wanted %v", name, got, want)
	}
	if got, want := text(t, d, from, to), text(t, ref, from, to); got != want {
		t.Fatalf("%s from %x to %x:\n%s\nwanted\n%s", name, from, to, got, want)
	}
	if got, want := text(t, d, nil, nil), text(t, ref, nil, nil); got != want {
		t.Fatalf("%s:\n%s\nwanted\n%s", name, got, want)
	}
	v1, ok1, err1 := d.Get(from)
	v2, ok2, _ := ref.Get(from)
	a, _, ok3, err2 := d.First(from, to)
	b, _, ok4, _ := ref.First(from, to)
	if err := errors.Join(err1, err2); err != nil || ok1 != ok2 || !bytes.Equal(v1, v2) || ok3 != ok4 || !bytes.Equal(a, b) {
		t.Fatalf("%s: %x is %x (%v), first %x (%v); wanted %x (%v), %x (%v); %v", name, from, v1, ok1, a, ok3, v2, ok2, b, ok4, err)
	}
}

// After a crash, with any of what wasn't flushed lost, the tree holds the state after some
// step not before the last flush, and says which.
func TestPebbleHoldsAPrefixAfterACrash(t *testing.T) {
	for seed := range seeds(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		fs := vfs.NewCrashableMem()
		p, err := openPebble(fs, "state")
		if err != nil {
			t.Fatal(err)
		}
		model := NewMemory()
		states := map[uint64]string{0: ""}
		if err := p.Begin(3, model, 0); err != nil {
			t.Fatal(err)
		}
		flushed, last := uint64(0), uint64(20+rng.IntN(100))
		for seq := uint64(1); seq <= last; seq++ {
			delta := randomDelta(rng, model)
			if err := errors.Join(model.Apply(bytes.Clone(delta), seq), p.Apply(delta, seq)); err != nil {
				t.Fatal(err)
			}
			states[seq] = text(t, model, nil, nil)
			switch rng.IntN(15) {
			case 0:
				if err := p.Flush(); err != nil {
					t.Fatal(err)
				}
				flushed = seq
			case 1: // another tree
				if err := p.Begin(3, model, seq); err != nil {
					t.Fatal(err)
				}
				flushed = seq
			}
		}
		if p.Flushed() != flushed {
			t.Fatalf("seed %d: flushed %d, wanted %d", seed, p.Flushed(), flushed)
		}
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(seed%3) * 50, RNG: rand.New(rand.NewPCG(seed, 4))})
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		q, err := openPebble(crashed, "state")
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		want, is := states[q.Seq()]
		if q.Seq() < flushed || !is || q.Epoch() != 3 || text(t, q, nil, nil) != want {
			t.Errorf("seed %d: epoch %d, step %d, flushed %d of %d:\n%s\nwanted\n%s", seed, q.Epoch(), q.Seq(), flushed, last, text(t, q, nil, nil), want)
		}
		if got, want := q.Steps(), countedOf(t, q); !slices.Equal(got, want) {
			t.Errorf("seed %d: after a crash the steps have %v, wanted %v", seed, got, want)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A state that is removed stays for those who look at it, and then goes with its folder: a tree
// that loses its files while it is open ends the process, or waits for ever.
func TestAStateThatIsRemovedOutlivesItsReaders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 6))
	if err := errors.Join(d.Use(PebbleBackend, 0), d.Begin(1, NewMemory(), 0)); err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= 20; seq++ {
		if err := errors.Join(d.Apply(randomDelta(rng, d), seq), d.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	want := text(t, d, nil, nil)
	s, err := d.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	trees, err := filepath.Glob(filepath.Join(dir, "tree-*", "*.sst"))
	if err != nil || len(trees) == 0 {
		t.Errorf("the files of a tree that is open are gone: %v, %v", trees, err)
	}
	if got := text(t, s, nil, nil); got != want {
		t.Errorf("who looks at it sees\n%s\nwanted\n%s", got, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder is still there: %v", err)
	}
}

// What a version has written that didn't count by step, also after one that did, is counted
// when it is opened.
func TestPebbleCountsWhatWasNotCounted(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 5))
	for _, c := range []struct {
		when   string
		change func(p *Pebble) error
	}{
		{"nothing was noted", func(p *Pebble) error { return p.t.db.Delete(pebbleSteps, pebble.NoSync) }},
		{"it was noted before", func(p *Pebble) error {
			at := p.standing()
			key := []byte("s\x00\x00\x00\x09key")
			at.keys, at.bytes, at.sum, at.seq = at.keys+1, at.bytes+int64(len(key)+1), at.sum+pairSum(key, []byte("v")), at.seq+1
			return errors.Join(p.t.db.Set(dataKey(key), []byte("v"), pebble.NoSync), p.t.db.Set(pebbleAt, at.append(), pebble.NoSync))
		}},
		{"it is cut short", func(p *Pebble) error {
			return p.t.db.Set(pebbleSteps, append(p.standing().append(), 1, 2, 3), pebble.NoSync)
		}},
	} {
		p, err := OpenPebble(filepath.Join(dir, c.when))
		if err != nil {
			t.Fatal(err)
		}
		model := NewMemory()
		for seq := uint64(1); seq <= 20; seq++ {
			delta := randomDelta(rng, model)
			if err := errors.Join(model.Apply(bytes.Clone(delta), seq), p.Apply(delta, seq)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(c.change(p), p.t.db.Flush(), p.Close()); err != nil {
			t.Fatal(err)
		}
		if p, err = OpenPebble(filepath.Join(dir, c.when)); err != nil {
			t.Fatal(err)
		}
		if got, want := p.Steps(), countedOf(t, p); !slices.Equal(got, want) || len(want) < 2 {
			t.Errorf("%s: the steps have %v, wanted %v", c.when, got, want)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A snapshot shows its state while the tree is replaced, and a checkpoint can be opened.
func TestPebbleSnapshotsOutliveTheirTree(t *testing.T) {
	dir := t.TempDir()
	p, err := OpenPebble(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	put := func(k, v string, seq uint64) {
		if err := p.Apply(AppendChange(nil, []byte(k), []byte(v), false), seq); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "1", 1)
	s, err := p.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	put("a", "2", 2)
	if err := p.checkpoint(filepath.Join(dir, "checkpoint")); err != nil {
		t.Fatal(err)
	}
	if err := p.Begin(2, NewMemory(), 0); err != nil {
		t.Fatal(err)
	}
	if got := text(t, s, nil, nil); got != "61=31\n" || s.Seq() != 1 {
		t.Errorf("the snapshot shows %s", got)
	}
	if v, ok, err := p.Get([]byte("a")); ok || err != nil {
		t.Errorf("the new tree has %s, %v", v, err)
	}
	if err := errors.Join(s.Close(), p.Close()); err != nil {
		t.Fatal(err)
	}
	trees, err := filepath.Glob(filepath.Join(dir, "state", "tree-*"))
	if err != nil || len(trees) != 1 {
		t.Errorf("left are %v, %v", trees, err)
	}
	c, err := openTree(vfs.Default, dir, filepath.Join(dir, "checkpoint"), true, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if v, ok, err := c.lookUp(c.db, []byte("a")); string(v) != "2" || !ok || err != nil {
		t.Errorf("the checkpoint has %s, %v", v, err)
	}
	if err := c.done(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Get([]byte("a")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("read when closed: %v", err)
	}
}

// What changed since a step is what makes another replica's state the same.
func TestChangesBringAnotherReplicaUpToDate(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 3))
		a, err := Open(filepath.Join(t.TempDir(), "a"))
		if err != nil {
			t.Fatal(err)
		}
		a.Track(2000)
		b := NewMemory()
		whole := 0
		for seq := uint64(1); seq <= 200; seq++ {
			if err := a.Apply(randomDelta(rng, a), seq); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(10) > 0 {
				continue
			}
			s, keys, known, err := a.Since(b.Seq(), b.Seq())
			if err != nil {
				t.Fatal(err)
			}
			if !known {
				whole++
				if err := b.Replace(s, s.Seq()); err != nil {
					t.Fatal(err)
				}
				continue
			}
			var w bytes.Buffer
			if err := WriteChanges(&w, s, keys); err != nil {
				t.Fatal(err)
			}
			cut := w.Len() / 2
			if _, _, err := ReadChanges(bytes.NewReader(w.Bytes()[:cut]), 1<<20); err == nil {
				t.Fatal("half of the changes are taken for all")
			}
			delta, at, err := ReadChanges(&w, 1<<20)
			if err == nil {
				err = b.Apply(delta, at)
			}
			if err != nil || a.Sum() != b.Sum() || text(t, a, nil, nil) != text(t, b, nil, nil) {
				t.Fatalf("seed %d, step %d: %v, sums %x %x, %d keys\n%s\nwanted\n%s", seed, seq, err, a.Sum(), b.Sum(), len(keys), text(t, b, nil, nil), text(t, a, nil, nil))
			}
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Kept steps outlive a crash as a prefix, and those that the state has are forgotten.
func TestStepLogKeepsWhatFollowsTheState(t *testing.T) {
	dir := t.TempDir()
	l, err := OpenStepLog(dir, 2, 10)
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(11); seq <= 20; seq++ {
		l.Append(seq, fmt.Appendf(nil, "step %d", seq))
	}
	flushes := 0
	if err := l.Flush(func() error { flushes++; return nil }); err != nil || flushes != 1 {
		t.Fatal(flushes, err)
	}
	// What is forgotten while the state is flushed may not be in there yet: it stays until
	// the next time.
	for n, behind := range []uint64{10, 13} {
		if err := l.Flush(func() error { l.Trim(13); return nil }); err != nil {
			t.Fatal(err)
		}
		again, err := OpenStepLog(dir, 2, 10)
		if err != nil {
			t.Fatal(err)
		}
		if all := again.Steps(); n == 0 && (len(all) != 10 || all[0].Seq != 11) || n == 1 && len(all) != 0 {
			t.Fatalf("behind step %d there are %d steps", behind, len(all))
		}
	}
	l.Append(21, []byte("step 21"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, "steps"))
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(whole) + 1 {
		if err := os.WriteFile(filepath.Join(dir, "steps"), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := OpenStepLog(dir, 2, 13)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range l.Steps() {
			if s.Seq != uint64(14+i) || string(s.Head) != fmt.Sprintf("step %d", s.Seq) {
				t.Fatalf("cut at %d: step %d says %s", cut, s.Seq, s.Head)
			}
		}
		if n, _ := l.Size(); cut == len(whole) && n != 8 {
			t.Errorf("%d steps are left", n)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	other, err := OpenStepLog(dir, 3, 13)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := other.Size(); n != 0 {
		t.Errorf("%d steps of another epoch", n)
	}
	if err := other.Remove(); err != nil {
		t.Fatal(err)
	}
}

// seeds is how many of a test's seeds are run: in short mode, which is the race detector's,
// a quarter.
func seeds(n uint64) uint64 {
	if testing.Short() {
		return n / 4
	}
	return n
}
