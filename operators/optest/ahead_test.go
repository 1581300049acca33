package optest_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
)

// The primary runs several steps ahead of what is committed, and throws them away when it
// loses the lead, as a broker does: standbys that run the same steps come to the same.
func TestEveryKindRunAhead(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			for seed := range uint64(8) {
				rng := rand.New(rand.NewPCG(seed, 12))
				runAhead(t, k, rng, random(rng, 250))
			}
		})
	}
}

func runAhead(t *testing.T, k kind, rng *rand.Rand, all []record) {
	_, g := compile(t, k.text())
	whole := open(t, g, state.NewMemory())
	in, inputs := arrivals(g, all)
	s, taken, err := whole.Run(engine.Batch{Clock: 5e9, Arrivals: in})
	if err != nil || taken != len(in) {
		t.Fatalf("%d of %d taken: %v", taken, len(in), err)
	}
	want := outputs(g, s)
	primary, replay := open(t, g, state.NewMemory()), open(t, g, state.NewMemory())
	read := func(r engine.Read) ([]topics.Message, error) { return inputs[r.Input][r.From-1 : r.To], nil }
	type ahead struct {
		s    *engine.Step
		done int // records that are taken with it
	}
	var got strings.Builder
	var open []ahead
	commit := func() {
		s := open[0].s
		if err := primary.Commit(s.Seq); err != nil {
			t.Fatal(err)
		}
		again := *s
		again.Delta = nil
		if err := replay.Apply(&again, read); err != nil {
			t.Fatal(err)
		}
		got.WriteString(outputs(g, s))
		open = open[1:]
	}
	for done, committed := 0, 0; done < len(in) || len(open) > 0; {
		switch {
		case len(open) > 0 && (done == len(in) || len(open) == 4 || rng.IntN(3) == 0):
			committed = open[0].done
			commit()
		case rng.IntN(15) == 0: // the lead is lost
			if err := primary.Abort(); err != nil {
				t.Fatal(err)
			}
			open, done = nil, committed
			if rng.IntN(2) == 0 { // to the standby
				primary, replay = replay, primary
			}
		default:
			s, taken, err := primary.Run(engine.Batch{Clock: 5e9, Arrivals: in[done:min(done+1+rng.IntN(20), len(in))]})
			if err != nil {
				t.Fatal(err)
			}
			done += taken
			open = append(open, ahead{s, done})
		}
	}
	if got.String() != want {
		t.Fatalf("run ahead:\n%s\nin one:\n%s", got.String(), want)
	}
	if full(t, primary.Store()) != full(t, replay.Store()) {
		t.Fatal("the standby's state differs")
	}
}
