package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/spec"
	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
)

// replicas are stores of one operator, of which one runs it and the others take in what
// the log would bring them.
type replicas struct {
	testing.TB
	text    string
	topics  [][]topics.Message // by input
	stores  []*state.Memory
	primary int
	inst    *engine.Instance
	clock   int
	outputs []engine.Output
	lost    uint64
	again   uint64
}

func compiled(t testing.TB, text string) *graph.Graph {
	t.Helper()
	s, err := spec.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g, _, err := spec.Compile(s, spec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func newReplicas(t testing.TB, text string, in [][]topics.Message) *replicas {
	r := &replicas{TB: t, text: text, topics: in}
	for range 3 {
		r.stores = append(r.stores, state.NewMemory())
	}
	r.inst = open(t, compiled(t, text), r.stores[0])
	return r
}

// takeOver makes another replica the one that runs.
func (r *replicas) takeOver(to int) {
	r.Helper()
	r.primary = to
	r.inst = open(r, compiled(r, r.text), r.stores[to])
	w, err := r.inst.Rewind()
	if err != nil {
		r.Fatal(err)
	}
	if w != nil {
		r.lost += w.Lost
		r.again += w.Again
	}
}

// step runs a step of up to n records of each input, in the order of their times, and has
// all take it in; it tells whether there was anything.
func (r *replicas) step(n int) bool {
	r.Helper()
	var arrivals []engine.Arrival
	for in, messages := range r.topics {
		at := int(r.inst.Position(in))
		for k := at; k < min(at+n, len(messages)); k++ {
			arrivals = append(arrivals, engine.Arrival{Input: in, Message: &messages[k]})
		}
	}
	slices.SortStableFunc(arrivals, func(a, b engine.Arrival) int { return int(a.Message.Time - b.Message.Time) })
	r.clock++
	s, taken, err := r.inst.Run(engine.Batch{Clock: 1000*second + second/1000*clockOf(r.clock), Arrivals: arrivals})
	if err != nil || taken != len(arrivals) {
		r.Fatalf("%d of %d taken: %v", taken, len(arrivals), err)
	}
	if s == nil {
		return false
	}
	logged := *s
	logged.Delta, logged.Progress = engine.Progress(s.Delta), true
	head, err := engine.ParseStep(logged.Append(nil))
	if err != nil {
		r.Fatal(err)
	}
	if err := r.inst.Commit(s.Seq); err != nil {
		r.Fatal(err)
	}
	for i, st := range r.stores {
		if i != r.primary {
			if err := engine.TakeIn(st, head); err != nil {
				r.Fatal(err)
			}
		}
	}
	r.outputs = append(r.outputs, s.Outputs...)
	return true
}

type clockOf = stream.Time

// row is what an output says, without what tells that it came again.
func row(o *engine.Output) string { return fmt.Sprintf("%d %s %s", o.Sink, o.Subject, o.Payload) }

func rows(outputs []engine.Output) (all []string) {
	for i := range outputs {
		all = append(all, row(&outputs[i]))
	}
	slices.Sort(all)
	return all
}

func events(rng *rand.Rand, inputs, n int) [][]topics.Message {
	all := make([][]topics.Message, inputs)
	for i := range all {
		for s := 1; s <= n; s++ {
			at := 1_790_000_000_000 + s*400 - rng.IntN(6000)
			all[i] = append(all[i], topics.Message{
				Sequence: topics.Sequence(s), Time: topics.Nanos(s), Subject: "in.x",
				Payload: fmt.Appendf(nil, `{"k":"k%d","v":%d,"at":%d,"id":"%d-%d"}`, rng.IntN(4), rng.IntN(10), at, i, s),
			})
		}
	}
	return all
}

const head = `
operator: x
recovery: %s
accept_loss: %v
time: {event: at, unit: ms, disorder: %s, max_future: 0s}
inputs: [{topic: A}%s]
steps:
%s
outputs: [{topic: OUT, subject: 'out.x'}]
`

var recovered = []struct {
	name, steps string
	inputs      int
	loss        bool // what is lost can't be told from what comes out
}{
	{"filter", "  - filter: v > 3", 1, false},
	{"tumble", "  - key: k\n  - window: {tumble: 10s}\n  - aggregate: {n: count(), s: sum(v)}", 1, false},
	{"hop, late", "  - key: k\n  - window: {hop: 12s, every: 3s, late: {allow: 5s, to: late}}\n  - aggregate: {n: count(), s: sum(v)}", 1, false},
	{"changes", "  - key: k\n  - window: {tumble: 10s, emit: changes}\n  - aggregate: {n: count()}", 1, false},
	{"windows of windows", "  - key: k\n  - window: {tumble: 5s}\n  - aggregate: {n: count()}\n  - key: '\"all\"'\n  - window: {tumble: 20s}\n  - aggregate: {m: max(n), c: count()}", 1, false},
	{"join", "  - from: A\n    join: {with: B, on: {left: k, right: k}, kind: left, within: {before: 2s, after: 3s}, as: {l: left.id, r: 'has(right.id) ? right.id : \"none\"'}}", 2, false},
	{"sessions", "  - key: k\n  - window: {session: 3s}\n  - aggregate: {n: count()}", 1, false},
	{"running", "  - key: k\n  - aggregate: {n: count()}", 1, true},
}

func specOf(recovery, steps string, inputs int, loss bool) string {
	more, disorder := "", "4s"
	if inputs > 1 { // what is late depends on the interleaving
		more, disorder = ", {topic: B}", "7s"
	}
	return fmt.Sprintf(head, recovery, loss, disorder, more, steps)
}

// Whoever takes over upstream begins with nothing: what comes again says so and is the
// same, and nothing is missing.
func TestUpstreamGivesAgainWhatItGaveAndLosesNothing(t *testing.T) {
	for _, c := range recovered {
		t.Run(c.name, func(t *testing.T) {
			duplicates := 0
			for seed := range uint64(8) {
				rng := rand.New(rand.NewPCG(seed, 5))
				in := events(rng, c.inputs, 400)
				ref := newReplicas(t, specOf("active", c.steps, c.inputs, c.loss), in)
				for ref.step(7) {
				}
				got := newReplicas(t, specOf("upstream", c.steps, c.inputs, c.loss), in)
				for k := 0; got.step(1 + rng.IntN(15)); k++ {
					if rng.IntN(6) == 0 && k < 60 {
						got.takeOver(rng.IntN(3))
					}
				}
				first := map[string]string{}
				var once []engine.Output
				for i := range got.outputs {
					o := &got.outputs[i]
					before, is := first[o.ID]
					switch {
					case !is:
						first[o.ID] = row(o)
						once = append(once, *o)
					case !o.Again:
						t.Fatalf("seed %d: %s comes again and doesn't say so", seed, row(o))
					case before != row(o):
						t.Fatalf("seed %d: %s comes again as %s", seed, before, row(o))
					default:
						duplicates++
					}
				}
				a, b := rows(once), rows(ref.outputs)
				if !slices.Equal(a, b) {
					t.Fatalf("seed %d: %d different outputs, wanted %d; %s", seed, len(a), len(b), firstDifference(a, b))
				}
			}
			if c.name != "filter" && duplicates == 0 {
				t.Error("nothing came again: the test shows nothing")
			}
		})
	}
}

func firstDifference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("output %d is %s instead of %s", i, a[i], b[i])
		}
	}
	return ""
}

// Amnesia gives nothing that is wrong: what the lost records would have been part of is
// missing, and how many those are is told.
func TestAmnesiaLeavesOutWhatItCannotKnow(t *testing.T) {
	for _, c := range recovered[:6] {
		t.Run(c.name, func(t *testing.T) {
			missing := 0
			for seed := range uint64(8) {
				rng := rand.New(rand.NewPCG(seed, 6))
				in := events(rng, c.inputs, 400)
				ref := newReplicas(t, specOf("active", c.steps, c.inputs, c.loss), in)
				for ref.step(7) {
				}
				got := newReplicas(t, specOf("amnesia", c.steps, c.inputs, c.loss), in)
				for k := 0; got.step(1 + rng.IntN(15)); k++ {
					if k == 10 || k == 30 {
						got.takeOver(rng.IntN(3))
					}
				}
				a, b := rows(got.outputs), rows(ref.outputs)
				for _, line := range a {
					at, is := slices.BinarySearch(b, line)
					if !is {
						t.Fatalf("seed %d: %s is given, and would not have been without a failure", seed, line)
					}
					b = slices.Delete(b, at, at+1)
				}
				missing += len(b)
				if len(b) > 0 && got.lost == 0 {
					t.Errorf("seed %d: %d outputs are missing and nothing is told", seed, len(b))
				}
			}
			if c.name != "filter" && missing == 0 {
				t.Error("nothing was missing: the test shows nothing")
			}
		})
	}
}
