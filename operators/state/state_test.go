package state_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/heraldmq/herald/operators/state"
)

func dump(t testing.TB, r state.Reader, from, to []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.Scan(from, to, func(k, v []byte) bool { fmt.Fprintf(&b, "%s=%s ", k, v); return true }); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func render(model map[string]string, from, to string) string {
	var b bytes.Buffer
	for _, k := range slices.Sorted(maps.Keys(model)) {
		if k >= from && (to == "" || k < to) {
			fmt.Fprintf(&b, "%s=%s ", k, model[k])
		}
	}
	return b.String()
}

// Random writes on overlays above overlays above a store read as a plain map does,
// and after their deltas are applied a second store holds the same.
func TestOverlaysAgainstAModel(t *testing.T) {
	for seed := range seeds(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		store, standby := state.NewMemory(), state.NewMemory()
		model := map[string]string{}
		for seq := uint64(1); seq < 40; seq += 2 {
			first := state.NewOverlay(store)
			second := state.NewOverlay(first)
			for _, o := range []*state.Overlay{first, second} {
				step(t, rng, o, model)
			}
			for i, o := range []*state.Overlay{first, second} {
				delta := o.Delta()
				if err := standby.Apply(bytes.Clone(delta), seq+uint64(i)); err != nil {
					t.Fatal(err)
				}
				if err := store.Apply(delta, seq+uint64(i)); err != nil {
					t.Fatal(err)
				}
			}
			want := render(model, "", "")
			if got := dump(t, store, nil, nil); got != want {
				t.Fatalf("seed %d: the store holds %s, wanted %s", seed, got, want)
			}
			if got := dump(t, standby, nil, nil); got != want {
				t.Fatalf("seed %d: the standby holds %s, wanted %s", seed, got, want)
			}
		}
		keys, size := store.Size()
		want := 0
		for k, v := range model {
			want += len(k) + len(v)
		}
		if int(keys) != len(model) || int(size) != want {
			t.Fatalf("seed %d: size is %d keys and %d bytes, wanted %d and %d", seed, keys, size, len(model), want)
		}
	}
}

func step(t *testing.T, rng *rand.Rand, o *state.Overlay, model map[string]string) {
	t.Helper()
	for range 10 {
		mark, before := o.Mark(), maps.Clone(model)
		for range 5 {
			k := fmt.Sprintf("k%03d", rng.IntN(150))
			if rng.IntN(3) == 0 {
				o.Delete([]byte(k))
				delete(model, k)
			} else {
				v := fmt.Sprint(rng.IntN(1000))
				o.Put([]byte(k), []byte(v))
				model[k] = v
			}
		}
		if rng.IntN(4) == 0 {
			o.Rollback(mark)
			clear(model)
			maps.Copy(model, before)
		}
		k := fmt.Sprintf("k%03d", rng.IntN(150))
		v, ok, err := o.Get([]byte(k))
		if want, has := model[k]; err != nil || ok != has || string(v) != want {
			t.Fatalf("%s is %q, %v, wanted %q, %v (%v)", k, v, ok, want, has, err)
		}
	}
	from, to := fmt.Sprintf("k%03d", rng.IntN(150)), fmt.Sprintf("k%03d", rng.IntN(150))
	if got, want := dump(t, o, []byte(from), []byte(to)), render(model, from, to); got != want {
		t.Fatalf("from %s to %s: %s, wanted %s", from, to, got, want)
	}
}

// The order of writes doesn't show in a delta, nor does what was rolled back.
func TestDeltaIsCanonical(t *testing.T) {
	a, b := state.NewOverlay(state.NewMemory()), state.NewOverlay(state.NewMemory())
	a.Put([]byte("x"), []byte("1"))
	a.Put([]byte("y"), []byte("2"))
	a.Delete([]byte("z"))
	b.Delete([]byte("z"))
	b.Put([]byte("y"), []byte("9"))
	b.Put([]byte("y"), []byte("2"))
	mark := b.Mark()
	b.Put([]byte("w"), nil)
	b.Rollback(mark)
	b.Put([]byte("x"), []byte("1"))
	if !bytes.Equal(a.Delta(), b.Delta()) || state.Digest(a.Delta()) != state.Digest(b.Delta()) {
		t.Errorf("%q and %q", a.Delta(), b.Delta())
	}
}

func TestBadDeltaChangesNothing(t *testing.T) {
	m := state.NewMemory()
	o := state.NewOverlay(m)
	o.Put([]byte("a"), []byte("1"))
	o.Put([]byte("b"), []byte("2"))
	good := o.Delta()
	for cut := 1; cut < len(good); cut++ {
		if err := m.Apply(good[:cut], 1); err == nil {
			if got := dump(t, m, nil, nil); got != "a=1 " {
				t.Errorf("%d bytes of the delta were taken as %s", cut, got)
			}
			if err := m.Replace(state.NewMemory(), 0); err != nil {
				t.Fatal(err)
			}
		} else if got := dump(t, m, nil, nil); got != "" || m.Seq() != 0 {
			t.Errorf("a delta that was refused left %s", got)
		}
	}
}

// A snapshot stands while steps go on, and a store can be made what it holds.
func TestSnapshotStands(t *testing.T) {
	m := state.NewMemory()
	write := func(from, n int, seq uint64) {
		o := state.NewOverlay(m)
		for i := from; i < from+n; i++ {
			o.Put(fmt.Appendf(nil, "k%05d", i), fmt.Append(nil, seq))
		}
		if err := m.Apply(o.Delta(), seq); err != nil {
			t.Error(err)
		}
	}
	write(0, 1000, 1)
	s, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	want := dump(t, s, nil, nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		for seq := uint64(2); seq < 20; seq++ {
			write(int(seq)*37, 1000, seq)
		}
	})
	for range 20 {
		if got := dump(t, s, nil, nil); got != want {
			t.Error("the snapshot changed")
		}
	}
	wg.Wait()
	other := state.NewMemory()
	if err := other.Replace(s, s.Seq()); err != nil {
		t.Fatal(err)
	}
	if got := dump(t, other, nil, nil); got != want || other.Seq() != 1 {
		t.Error("what was made of the snapshot differs from it")
	}
	if k, b := other.Size(); k != 1000 || b != 7000 {
		t.Errorf("its size is %d keys, %d bytes", k, b)
	}
}

func FuzzEachChange(f *testing.F) {
	o := state.NewOverlay(state.NewMemory())
	o.Put([]byte("a"), []byte("1"))
	o.Delete([]byte("b"))
	f.Add(o.Delta())
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := state.EachChange(b, func(_, _ []byte, _ bool) error { return nil }); err != nil {
			return
		}
		if err := state.NewMemory().Apply(b, 1); err != nil {
			t.Fatal(err)
		}
	})
}

// A scan gives what was there when it began, whatever is written, undone and scanned on
// the way.
func TestAScanSeesWhatWasThereWhenItBegan(t *testing.T) {
	o := state.NewOverlay(state.NewMemory())
	const n = 50
	key := func(i int) []byte { return fmt.Appendf(nil, "k%02d", i) }
	for i := range n {
		o.Put(key(i), []byte("old"))
	}
	mark := o.Mark()
	seen := 0
	err := o.Scan(nil, nil, func(k, v []byte) bool {
		if string(k) != string(key(seen)) || string(v) != "old" {
			t.Fatalf("%s = %s, want %s", k, v, key(seen))
		}
		switch seen {
		case 3:
			for i := range n {
				o.Put(key(i), []byte("new"))
			}
			o.Put([]byte("k10a"), []byte("new"))
		case 20:
			o.Rollback(mark)
			o.Delete(key(30))
		}
		inner := 0
		if err := o.Scan(key(n-5), nil, func(_, _ []byte) bool { inner++; return true }); err != nil || inner != 5 {
			t.Fatalf("%d keys in a scan within: %v", inner, err)
		}
		seen++
		return true
	})
	if err != nil || seen != n {
		t.Errorf("%d keys of %d: %v", seen, n, err)
	}
	if got := strings.Count(dump(t, o, nil, nil), "old"); got != n-1 {
		t.Errorf("%d keys are as before, want %d", got, n-1)
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
