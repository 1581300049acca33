package optest_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/optest"
	"github.com/heraldmq/herald/operators/spec"
	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/steps"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/value"
)

// functions are the process functions of tests.
var functions = map[string]steps.Factory{"visits": visits}

// visits counts a key's records in every kind of typed state, and says how many there
// were when a minute of event time has passed since one.
func visits(value.Value) (steps.Function, error) {
	n := state.Reducing[int64]{Name: "n", Codec: state.Ints{}, Reduce: func(a, b int64) int64 { return a + b }}
	list := state.List[value.Value]{Name: "l", Codec: state.Values{}, TTL: 1e12}
	byV := state.Map[int64]{Name: "m", Codec: state.Ints{}}
	mean := state.Aggregating[int64, [2]int64, int64]{
		Name: "a", Codec: state.JSON[[2]int64]{}, Insert: func(s [2]int64, v int64) [2]int64 { return [2]int64{s[0] + v, s[1] + 1} },
		Result: func(s [2]int64) int64 { return s[0] / max(s[1], 1) },
	}
	return steps.Function{
		Class: stream.Deterministic,
		Process: func(c stream.Context, r *stream.Record) error {
			if _, err := n.Add(c, 1); err != nil {
				return err
			}
			v, _ := r.Value.Get("v")
			i, _ := v.Int()
			list.Add(c, v)
			byV.Put(c, v.String(), i)
			c.SetTimer(stream.Timer{Kind: stream.EventTime, At: r.Time + 60e9, Name: "minute"})
			return mean.Add(c, i)
		},
		Timer: func(c stream.Context, t stream.Timer) error {
			total, _, err := n.Get(c)
			if err != nil {
				return err
			}
			all, err := list.All(c)
			if err != nil {
				return err
			}
			kinds := 0
			if err := byV.Each(c, func(string, int64) bool { kinds++; return true }); err != nil {
				return err
			}
			m, err := mean.Get(c)
			c.Emit(0, &stream.Record{Key: c.Key(), Time: t.At, Value: value.OfObject(
				value.Field{Name: "n", Value: value.OfInt(total)}, value.Field{Name: "kept", Value: value.OfInt(int64(len(all)))},
				value.Field{Name: "kinds", Value: value.OfInt(int64(kinds))}, value.Field{Name: "mean", Value: value.OfInt(m)})})
			return err
		},
	}, nil
}

// kind is a step, or a few, with what is known of it.
type kind struct {
	name, steps string
	ordered     bool // what comes out doesn't depend on the order of arrival
	list        bool // nor does the order in which it comes out
}

// Every kind of step, on the inputs a and b with records {k, t, v}.
var kinds = []kind{
	{"filter", "[{filter: v % 3 == 0}]", true, false},
	{"map", "[{map: {k: k, w: v + 1}}, {map: 'this.w'}]", true, false},
	{"project", "[{project: [v, k]}, {project: {drop: [k]}}]", true, false},
	{"flatmap", "[{map: '[v, v + 1]'}, {flatmap: this}]", true, false},
	{"union", "[{union: [a, b]}, {key: k}, {window: {tumble: 30s}}, {aggregate: {n: count(), total: sum(v)}}]", true, true},
	{"split", "[{name: s, split: {even: v % 2 == 0, else: odd}}, {from: s.even, map: {even: v}}, {name: o, from: s.odd, map: {odd: v}}, {union: [map_1, o]}]", true, false},
	{"assert", "[{assert: v != 7, on_error: skip}]", true, false},
	{"deduplicate", "[{deduplicate: {by: v % 10, within: 40s}}]", true, true},
	{"deduplicate processing", "[{key: k}, {deduplicate: {by: v % 10, within: 40s, time: processing}}]", false, false},
	{"tumble", "[{key: k}, {window: {tumble: 30s, offset: 7s}}, {aggregate: {n: count(), total: sum(v), least: min(v), most: 'max(t, by: v)', list: 'collect(v, max: 1000)', kinds: 'distinct(v % 4, max: 10)', best: 'top(2, by: v, of: t)', head: first(v), tail: last(v), spread: var(1)}, having: n > 1}]", true, true},
	{"tumble unkeyed", "[{window: {tumble: 30s}}, {aggregate: {n: count()}}]", true, true},
	{"hop", "[{key: [k, v % 2]}, {window: {hop: 60s, every: 25s}}, {aggregate: {n: count(), total: sum(v)}}]", true, true},
	{"late allowed", "[{key: k}, {window: {tumble: 20s, late: {allow: 15s}}}, {aggregate: {n: count()}}, {name: again, window: {tumble: 60s}}, {aggregate: {windows: count(), n: sum(n)}}]", true, true},
	{"changes", "[{key: k}, {window: {hop: 60s, every: 30s, emit: changes}}, {aggregate: {n: count()}, having: n % 3 != 0}]", false, false},
	{"slide", "[{key: k}, {window: {slide: 20s}}, {aggregate: {n: count(), total: sum(v)}}]", true, true},
	{"session", "[{key: k}, {window: {session: 8s}}, {aggregate: {n: count(), total: sum(v), list: 'collect(v, max: 1000)'}}]", true, true},
	{"session max", "[{key: k}, {window: {session: 8s, max: 30s}}, {aggregate: {n: count(), total: sum(v)}}]", true, true},
	{"session changes", "[{key: k}, {window: {session: 8s, emit: changes}}, {aggregate: {n: count()}}]", false, false},
	{"count", "[{key: k}, {window: {count: 6, every: 4}}, {aggregate: {n: count(), total: sum(v)}}]", false, false},
	{"running", "[{key: k}, {aggregate: {n: count(), total: sum(v)}, having: n % 2 == 0}]", false, false},
	{"top", "[{key: k}, {top: {n: 3, by: v % 20}}]", false, false},
	{"top latest", "[{top: {n: 3, by: v % 5, order: asc, ties: [-time, -seq]}}]", false, false},
	{"top of rows", `[{key: v % 9}, {aggregate: {n: sum(v)}, name: sums}, {key: '"all"'}, {top: {n: 3, by: n, row: key}}]`, false, false},
	{"interval join", "[{key: k}, {name: bk, from: b, key: k}, {from: key_1, join: {with: bk, within: {before: 3s, after: 5s}, as: {l: left.v, r: right.v}}}]", true, false},
	{"interval outer", "[{name: j, from: a, join: {with: b, on: {left: 'k', right: 'k'}, within: 1s, kind: outer}}, {window: {tumble: 60s}}, {aggregate: {n: count()}}]", true, true},
	{"window join", "[{from: a, join: {with: b, on: {left: k, right: k}, window: {tumble: 10s}, kind: left}}]", true, false},
	{"lookup", "[{name: t, from: b, table: {key: k, delete: v % 5 == 0}}, {from: a, join: {with: t, on: {left: k, right: k}, table: true, kind: left}}]", false, false},
	{"tables", "[{name: t, from: b, table: {key: k, delete: v % 5 == 0}}, {name: u, from: a, table: {key: k}}, {from: u, join: {with: t, table: true, kind: outer}}]", false, false},
	{"table filter", "[{table: {key: k, delete: v % 7 == 0}}, {filter: v % 2 == 0}, {map: {v: v}}]", false, false},
	{"process", "[{key: k}, {process: visits}]", false, false},
	{"processing window", "[{key: k}, {window: {tumble: 30s, time: processing}}, {aggregate: {n: count()}}]", false, false},
	{"windows of windows", "[{key: k}, {window: {tumble: 10s}}, {aggregate: {n: count()}}, {name: w2, window: {tumble: 30s}}, {aggregate: {n: sum(n)}}, {key: '1'}, {name: w3, window: {hop: 60s, every: 30s}}, {aggregate: {n: sum(n)}}]", true, true},
}

func compile(t testing.TB, text string) (*spec.Spec, *graph.Graph) {
	t.Helper()
	s, err := spec.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	g, _, err := spec.Compile(s, spec.Options{Functions: functions})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s, g
}

// text of an operator of a kind's steps. Both inputs are read, whatever the steps take.
func (k kind) text() string {
	extra := ""
	if !strings.Contains(k.steps, "b") || !strings.Contains(k.steps, "from: b") && !strings.Contains(k.steps, "with: b") && !strings.Contains(k.steps, "union: [a, b]") {
		extra = "  - {topic: REST, from: b}\n"
	}
	return "operator: test\ntime: {event: t, unit: s, disorder: 10s, idle_after: 0s, max_future: 0s}\ninputs: [{name: a, topic: A}, {name: b, topic: B}]\nsteps: " + k.steps + "\noutputs:\n  - topic: OUT\n" + extra
}

// record is what the inputs hold.
type record struct {
	input string
	k     string
	t, v  int64
}

func (r record) payload() []byte { return fmt.Appendf(nil, `{"k":%q,"t":%d,"v":%d}`, r.k, r.t, r.v) }

// random records, each at most nine seconds behind the newest: none is late.
func random(rng *rand.Rand, n int) []record {
	all := make([]record, n)
	for i := range all {
		all[i] = record{[]string{"a", "b"}[rng.IntN(2)], fmt.Sprintf("k%d", rng.IntN(3)), 1000 + int64(i) - rng.Int64N(9), rng.Int64N(100)}
	}
	jump := int64(0) // a pause that ends sessions
	for i := range all {
		if rng.IntN(25) == 0 {
			jump += 20
		}
		all[i].t += jump
	}
	return all
}

func arrivals(g *graph.Graph, all []record) (out []engine.Arrival, inputs [][]topics.Message) {
	inputs = make([][]topics.Message, 2)
	for i := range all {
		in := int(all[i].input[0] - 'a')
		m := topics.Message{Sequence: topics.Sequence(len(inputs[in]) + 1), Subject: "s." + all[i].input, Payload: all[i].payload()}
		inputs[in] = append(inputs[in], m)
		out = append(out, engine.Arrival{Input: in, Message: &m})
	}
	_ = g
	return out, inputs
}

func outputs(g *graph.Graph, s *engine.Step) string {
	var b strings.Builder
	for _, o := range s.Outputs {
		fmt.Fprintf(&b, "%s %q %s\n", g.Sinks[o.Sink].Name, o.Header, o.Payload)
	}
	return b.String()
}

func open(t testing.TB, g *graph.Graph, st state.Store) *engine.Instance {
	t.Helper()
	i, err := engine.Open(g, st, engine.Options{Operator: 3, Epoch: 1, Clock: 5e9})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func full(t testing.TB, r state.Reader) string {
	t.Helper()
	var b strings.Builder
	if err := r.Scan(nil, nil, func(k, v []byte) bool { fmt.Fprintf(&b, "%q=%q\n", k, v); return true }); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// However a kind's input is cut into steps, and wherever it is opened again: the same
// comes out, and a standby that applies deltas, one that runs the steps again, and the
// primary hold the same state.
func TestEveryKindCutAnywhere(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			for seed := range uint64(4) {
				rng := rand.New(rand.NewPCG(seed, 11))
				cutAnywhere(t, k, rng, random(rng, 250))
			}
		})
	}
}

func cutAnywhere(t *testing.T, k kind, rng *rand.Rand, all []record) {
	_, g := compile(t, k.text())
	whole := open(t, g, state.NewMemory())
	in, inputs := arrivals(g, all)
	s, taken, err := whole.Run(engine.Batch{Clock: 5e9, Arrivals: in})
	if err != nil || taken != len(in) {
		t.Fatalf("%d of %d taken: %v", taken, len(in), err)
	}
	if err := whole.Commit(1); err != nil {
		t.Fatal(err)
	}
	want := outputs(g, s)
	if strings.Count(want, "OUT ") < 3 && k.name != "processing window" { // the clock stands
		t.Fatalf("too little comes out: %s", want)
	}
	stores := []state.Store{state.NewMemory(), state.NewMemory(), state.NewMemory()}
	primary, delta, replay := open(t, g, stores[0]), open(t, g, stores[1]), open(t, g, stores[2])
	var got strings.Builder
	for done := 0; done < len(in); {
		s, taken, err := primary.Run(engine.Batch{Clock: 5e9, Arrivals: in[done:min(done+1+rng.IntN(40), len(in))]})
		if err != nil {
			t.Fatal(err)
		}
		if rng.IntN(6) == 0 { // lost before it was committed
			if err := primary.Abort(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		done += taken
		got.WriteString(outputs(g, s))
		if err := primary.Commit(s.Seq); err != nil {
			t.Fatal(err)
		}
		if err := delta.Apply(s, nil); err != nil {
			t.Fatal(err)
		}
		again := *s
		again.Delta = nil
		if err := replay.Apply(&again, func(r engine.Read) ([]topics.Message, error) {
			return inputs[r.Input][r.From-1 : r.To], nil
		}); err != nil {
			t.Fatal(err)
		}
		if rng.IntN(4) == 0 {
			primary, delta, replay = open(t, g, stores[0]), open(t, g, stores[1]), open(t, g, stores[2])
		}
	}
	if got.String() != want {
		t.Fatalf("cut into steps:\n%s\nin one:\n%s", got.String(), want)
	}
	for n, st := range stores {
		if full(t, st) != full(t, whole.Store()) {
			t.Fatalf("the state of replica %d differs", n)
		}
	}
}

// In whatever order records come, as long as none is late, the same comes out at the
// end; and no state is left but what is bounded by nothing (counts, and the clock).
func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	for _, k := range kinds {
		if !k.ordered {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			for seed := range uint64(4) {
				rng := rand.New(rand.NewPCG(seed, 12))
				all := random(rng, 250)
				var as, bs []record
				for _, r := range all {
					if r.input == "a" {
						as = append(as, r)
					} else {
						bs = append(bs, r)
					}
				}
				other := interleave(rng, as, bs)
				first, second := drain(t, k, all), drain(t, k, other)
				if !k.list {
					slices.Sort(first)
					slices.Sort(second)
				}
				if !slices.Equal(first, second) {
					t.Fatalf("seed %d: in another order\n%s\ninstead of\n%s", seed, strings.Join(second, "\n"), strings.Join(first, "\n"))
				}
			}
		})
	}
}

// interleave mixes two inputs at random, as the log of another run might have.
func interleave(rng *rand.Rand, a, b []record) (out []record) {
	for len(a) > 0 || len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && rng.IntN(2) == 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return out
}

func drain(t *testing.T, k kind, all []record) (out []string) {
	t.Helper()
	_, g := compile(t, k.text())
	var records []optest.Record
	for i := range all {
		records = append(records, optest.Record{Input: all[i].input, Payload: all[i].payload()})
	}
	st := state.NewMemory()
	r, err := optest.Run(g, optest.Options{Store: st}, records...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Counts {
		if c.Name == stream.SideLate {
			t.Fatalf("%d late at %s", c.N, c.Step)
		}
	}
	for _, m := range r.Of("OUT") {
		out = append(out, string(m.Payload))
	}
	left := 0
	_ = st.Scan(nil, nil, func(key, _ []byte) bool {
		if key[0] != 'm' {
			left++
		}
		return true
	})
	if left > 0 {
		t.Errorf("%d keys of state are left:\n%s", left, full(t, st))
	}
	return out
}
