package state_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/heraldmq/herald/operators/state"
)

// A journal that is opened from what a crash leaves, its file cut anywhere, holds the
// state after some step, no older than what was flushed before the file was last as long.
func TestJournalHoldsAPrefixOfTheSteps(t *testing.T) {
	for seed := range seeds(20) {
		rng := rand.New(rand.NewPCG(seed, 9))
		dir := t.TempDir()
		j, err := state.OpenJournal(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Begin(3, state.NewMemory(), 0); err != nil {
			t.Fatal(err)
		}
		model := map[string]string{}
		after := []string{""} // what it held after each step
		sizes := map[int64]uint64{}
		for seq := uint64(1); seq < 30; seq++ {
			o := state.NewOverlay(j)
			step(t, rng, o, model)
			if err := j.Apply(o.Delta(), seq); err != nil {
				t.Fatal(err)
			}
			after = append(after, render(maps.Clone(model), "", ""))
			if rng.IntN(3) == 0 {
				if err := j.Flush(); err != nil {
					t.Fatal(err)
				}
				if j.Flushed() != seq {
					t.Fatalf("seed %d: flushed up to %d, wanted %d", seed, j.Flushed(), seq)
				}
				info, err := os.Stat(filepath.Join(dir, "state"))
				if err != nil {
					t.Fatal(err)
				}
				sizes[info.Size()] = seq
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(filepath.Join(dir, "state"))
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			cut := rng.IntN(len(file) + 1)
			damaged := bytes.Clone(file[:cut])
			if err := os.WriteFile(filepath.Join(dir, "state"), damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			least := uint64(0)
			for size, seq := range sizes {
				if int64(cut) >= size {
					least = max(least, seq)
				}
			}
			j, err := state.OpenJournal(dir)
			if errors.Is(err, state.ErrDelta) && least == 0 {
				continue // not even the first flush is whole
			}
			if err != nil {
				t.Fatal(err)
			}
			seq := j.Seq()
			if got := dump(t, j, nil, nil); got != after[seq] || seq < least || j.Epoch() != 3 {
				t.Fatalf("seed %d, cut at %d: step %d, at least %d: %s, wanted %s", seed, cut, seq, least, got, after[seq])
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestFramesCarryAStateToAnotherNode(t *testing.T) {
	m := state.NewMemory()
	o := state.NewOverlay(m)
	for i := range 20000 {
		o.Put(fmt.Appendf(nil, "key %d", i), fmt.Appendf(nil, "value %d", i))
	}
	if err := m.Apply(o.Delta(), 77); err != nil {
		t.Fatal(err)
	}
	s, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := state.WriteFrames(&b, 5, s); err != nil {
		t.Fatal(err)
	}
	n := state.NewMemory()
	epoch, _, err := state.ReadFrames(bytes.NewReader(b.Bytes()), n)
	if err != nil || epoch != 5 || n.Seq() != 77 || dump(t, n, nil, nil) != dump(t, m, nil, nil) {
		t.Errorf("epoch %d, step %d, %v", epoch, n.Seq(), err)
	}
	if _, _, err := state.ReadFrames(bytes.NewReader(b.Bytes()[:b.Len()-1]), state.NewMemory()); !errors.Is(err, state.ErrDelta) {
		t.Errorf("a state that is cut short: %v", err)
	}
}
