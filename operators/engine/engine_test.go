package engine_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/eventtime"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/expr"
	"github.com/heraldmq/herald/topics/value"
)

const second = stream.Time(time.Second)

// keyBy gives records the key of a field.
type keyBy struct{ field string }

func (k keyBy) Process(c stream.Context, _ int, r *stream.Record) error {
	f, ok := r.Value.Get(k.field)
	if !ok {
		return fmt.Errorf("no field %s", k.field)
	}
	keyed := *r
	keyed.Key = value.AppendKey(nil, f)
	c.Emit(0, &keyed)
	return nil
}
func (keyBy) OnTimer(stream.Context, stream.Timer) error { return nil }

// counter counts per key and tumbling window of ten seconds, and emits when the
// watermark passes its end.
type windowCount struct{}

func (windowCount) Process(c stream.Context, _ int, r *stream.Record) error {
	end := r.Time - r.Time%(10*second) + 10*second
	if end <= c.Watermark() {
		c.Side(stream.SideLate, r, "the window is closed")
		return nil
	}
	if f, _ := r.Value.Get("v"); f.IsNull() {
		c.State().Put("partial", nil, []byte("must not stay"))
		return errors.New("v is null")
	} else if f.Str() == "panic" {
		panic("asked to")
	}
	sub := binary.BigEndian.AppendUint64(nil, uint64(end))
	n := uint64(0)
	if b, ok := c.State().Get("n", sub); ok {
		n = binary.BigEndian.Uint64(b)
	}
	c.State().Put("n", sub, binary.BigEndian.AppendUint64(nil, n+1))
	c.SetTimer(stream.Timer{Kind: stream.EventTime, At: end})
	return nil
}

func (windowCount) OnTimer(c stream.Context, t stream.Timer) error {
	sub := binary.BigEndian.AppendUint64(nil, uint64(t.At))
	b, _ := c.State().Get("n", sub)
	c.State().Delete("n", sub)
	c.Emit(0, &stream.Record{Key: c.Key(), Time: t.At, Value: value.OfObject(
		value.Field{Name: "end", Value: value.OfInt(int64(t.At / second))},
		value.Field{Name: "n", Value: value.OfUint(binary.BigEndian.Uint64(b))},
		value.Field{Name: "draw", Value: value.OfInt(0)})})
	return nil
}

func counting(policy graph.Policy) *graph.Graph {
	env, err := expr.NewEnv(expr.Options{})
	if err != nil {
		panic(err)
	}
	at, err := env.Compile("at")
	if err != nil {
		panic(err)
	}
	encode := func(r *stream.Record) (graph.Out, error) {
		return graph.Out{Subject: "out", Header: r.Header, Payload: value.AppendJSON(nil, r.Value)}, nil
	}
	input := graph.Input{
		Topic: "T", Policy: policy,
		Decode: func(m *topics.Message) (value.Value, error) { return value.Parse(m.Payload, value.Options{}) },
		EventTime: func(r *stream.Record, clock stream.Time) (stream.Time, error) {
			v, err := stream.Eval(at, r, clock)
			if err != nil {
				return 0, err
			}
			i, ok := v.Int()
			if !ok {
				return 0, errors.New("at is no int")
			}
			return stream.Time(i) * second, nil
		},
		Out: []graph.Edge{{Node: 0}},
	}
	a, b := input, input
	a.Name, b.Name = "a", "b"
	return &graph.Graph{
		Name: "counting", Inputs: []graph.Input{a, b},
		Nodes: []graph.Node{
			{Name: "key", Node: keyBy{"k"}, ID: 1, Policy: policy, Outs: [][]graph.Edge{{{Node: 1}}}},
			{
				Name: "count", Node: windowCount{}, ID: 2, Policy: policy, Keyed: true,
				Outs: [][]graph.Edge{{graph.ToSink(0)}}, Sides: map[string][]graph.Edge{stream.SideLate: {graph.ToSink(1)}},
			},
		},
		Sinks:  []graph.Sink{{Name: "out", Encode: encode}, {Name: "late", Encode: encode}, {Name: "errors", Encode: encode}},
		Errors: []graph.Edge{graph.ToSink(2)},
		Time:   eventtime.Config{Disorder: 3 * time.Second, MaxFuture: time.Hour},
	}
}

// input makes n records for each of the two inputs.
func input(seed uint64, n int) [][]topics.Message {
	rng := rand.New(rand.NewPCG(seed, 3))
	all := make([][]topics.Message, 2)
	for i := range all {
		for s := 1; s <= n; s++ {
			at := s - rng.IntN(6)
			if rng.IntN(40) == 0 {
				at -= 30
			}
			p := fmt.Sprintf(`{"k":"k%d","at":%d,"v":%d}`, rng.IntN(4), max(at, 0), s)
			switch rng.IntN(50) {
			case 0:
				p = `{"k":` // can't be decoded
			case 1:
				p = fmt.Sprintf(`{"k":"k","at":%d,"v":null}`, max(at, 0))
			case 2:
				p = `{"k":"k","at":1000000}` // too far ahead
			}
			all[i] = append(all[i], topics.Message{Sequence: topics.Sequence(2 * s), Time: topics.Nanos(s), Subject: "in", Payload: []byte(p)})
		}
	}
	return all
}

// arrivals interleaves the inputs in a fixed way.
func arrivals(in [][]topics.Message) []engine.Arrival {
	rng := rand.New(rand.NewPCG(99, 99))
	var all []engine.Arrival
	at := make([]int, len(in))
	for at[0] < len(in[0]) || at[1] < len(in[1]) {
		i := rng.IntN(2)
		for range 1 + rng.IntN(3) {
			if at[i] < len(in[i]) {
				all = append(all, engine.Arrival{Input: i, Message: &in[i][at[i]]})
				at[i]++
			}
		}
	}
	return all
}

func text(outputs []engine.Output) string {
	var b strings.Builder
	for _, o := range outputs {
		fmt.Fprintf(&b, "%d %s %s\n", o.Sink, o.Header, o.Payload)
	}
	return b.String()
}

func open(t testing.TB, g *graph.Graph, st state.Store) *engine.Instance {
	t.Helper()
	i, err := engine.Open(g, st, engine.Options{Operator: 7, Epoch: 1, Clock: 1000 * second})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func full(t testing.TB, r state.Reader) string {
	t.Helper()
	var b strings.Builder
	if err := r.Scan(nil, nil, func(k, v []byte) bool { fmt.Fprintf(&b, "%x=%x\n", k, v); return true }); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Cut into steps anywhere, with several of them open, thrown away and run again,
// restarted from the store, followed by standbys in both modes: output and state are
// those of one step that takes everything.
func TestAnyCutGivesTheSame(t *testing.T) {
	for seed := range uint64(25) {
		in := input(seed, 300)
		all := arrivals(in)
		ref := open(t, counting(graph.DeadLetter), state.NewMemory())
		step, taken, err := ref.Run(engine.Batch{Clock: 1000 * second, Arrivals: all})
		if err != nil || taken != len(all) {
			t.Fatalf("seed %d: %d taken: %v", seed, taken, err)
		}
		want := text(step.Outputs)
		if err := ref.Commit(1); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(want, `"error"`) || !strings.Contains(want, "window is closed") || !strings.Contains(want, `"n":`) {
			t.Fatalf("seed %d: the input shows too little:\n%s", seed, want)
		}

		rng := rand.New(rand.NewPCG(seed, 5))
		read := reader(in)
		store, delta, replay := state.NewMemory(), state.NewMemory(), state.NewMemory()
		primary := open(t, counting(graph.DeadLetter), store)
		follow := open(t, counting(graph.DeadLetter), delta)
		again := open(t, counting(graph.DeadLetter), replay)
		var got strings.Builder
		var steps []*engine.Step
		for done, runs := 0, 0; done < len(all) || len(steps) > 0; runs++ {
			if n := rng.IntN(30); runs < len(all)*4 && done < len(all) && len(steps) < 4 && rng.IntN(3) > 0 {
				s, taken, err := primary.Run(engine.Batch{Clock: 1000 * second, Arrivals: all[done:min(done+n, len(all))]})
				if err != nil {
					t.Fatal(err)
				}
				if s != nil {
					steps = append(steps, s)
				}
				done += taken
				continue
			}
			if len(steps) > 0 && rng.IntN(5) == 0 { // the lead is lost: what is open is run anew
				for _, s := range steps {
					for _, r := range s.Reads {
						done -= r.Count
					}
				}
				steps = nil
				if rng.IntN(2) == 0 {
					primary = open(t, counting(graph.DeadLetter), store)
				} else if err := primary.Abort(); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if len(steps) == 0 {
				continue
			}
			s := steps[0]
			steps = steps[1:]
			got.WriteString(text(s.Outputs))
			if err := primary.Commit(s.Seq); err != nil {
				t.Fatal(err)
			}
			sent, err := engine.ParseStep(s.Append(nil))
			if err != nil {
				t.Fatal(err)
			}
			if err := follow.Apply(sent, nil); err != nil {
				t.Fatal(err)
			}
			sent.Delta = nil
			if sent, err = engine.ParseStep(sent.Append(nil)); err != nil {
				t.Fatal(err)
			}
			if err := again.Apply(sent, read); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(10) == 0 {
				follow, again = open(t, counting(graph.DeadLetter), delta), open(t, counting(graph.DeadLetter), replay)
			}
		}
		if got.String() != want {
			t.Fatalf("seed %d: cut into steps it gives\n%s\nin one\n%s", seed, got.String(), want)
		}
		for name, st := range map[string]state.Store{"primary": store, "delta": delta, "replay": replay} {
			if full(t, st) != full(t, ref.Store()) {
				t.Errorf("seed %d: the state of %s differs", seed, name)
			}
		}
	}
}

func reader(in [][]topics.Message) func(r engine.Read) ([]topics.Message, error) {
	return func(r engine.Read) (out []topics.Message, err error) {
		for _, m := range in[r.Input] {
			if m.Sequence >= r.From && m.Sequence <= r.To {
				out = append(out, m)
			}
		}
		return out, nil
	}
}

// A standby that comes to something else says so.
func TestDivergenceIsSeen(t *testing.T) {
	in := input(1, 50)
	p := open(t, counting(graph.DeadLetter), state.NewMemory())
	s, _, err := p.Run(engine.Batch{Clock: 1000 * second, Arrivals: arrivals(in)})
	if err != nil {
		t.Fatal(err)
	}
	sent, err := engine.ParseStep(s.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	sent.Delta = nil
	in[0][10].Payload = []byte(`{"k":"other","at":10,"v":1}`)
	standby := open(t, counting(graph.DeadLetter), state.NewMemory())
	if err := standby.Apply(sent, reader(in)); !errors.Is(err, engine.ErrDiverged) {
		t.Errorf("other input gives %v", err)
	}
	in[0] = in[0][:20]
	if err := open(t, counting(graph.DeadLetter), state.NewMemory()).Apply(sent, reader(in)); !errors.Is(err, engine.ErrDiverged) {
		t.Errorf("less input gives %v", err)
	}
	sent.Seq = 2
	if err := standby.Apply(sent, reader(in)); !errors.Is(err, engine.ErrOrder) {
		t.Errorf("a step too far gives %v", err)
	}
}

// With the policy to stop, the operator stands in front of the record, everything
// before it is done, nothing of it is, and it goes no further.
func TestStopsInFrontOfABadRecord(t *testing.T) {
	for bad, want := range map[string]string{`{"k":`: "invalid JSON", `{"k":"k","at":3,"v":null}`: "v is null", `{"k":"k","at":3,"v":"panic"}`: "panic: asked to"} {
		in := []topics.Message{
			{Sequence: 1, Payload: []byte(`{"k":"k","at":1,"v":1}`)},
			{Sequence: 2, Payload: []byte(bad)},
			{Sequence: 3, Payload: []byte(`{"k":"k","at":5,"v":1}`)},
		}
		st := state.NewMemory()
		i := open(t, counting(graph.Stop), st)
		var all []engine.Arrival
		for n := range in {
			all = append(all, engine.Arrival{Message: &in[n]})
		}
		s, taken, err := i.Run(engine.Batch{Clock: 1000 * second, Arrivals: all})
		var stopped *engine.StoppedError
		if !errors.As(err, &stopped) || taken != 1 || s == nil || !strings.Contains(err.Error(), want) || stopped.At.Sequence != 2 || stopped.Input != "a" {
			t.Fatalf("%s: %d taken, %v", bad, taken, err)
		}
		if (stopped.Stack != nil) != strings.Contains(bad, "panic") {
			t.Errorf("%s: the stack is %q", bad, stopped.Stack)
		}
		if err := i.Commit(s.Seq); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(full(t, st), fmt.Sprintf("%x", "must not stay")) {
			t.Error("what the record had written has stayed")
		}
		if s, taken, err := i.Run(engine.Batch{Clock: 1000 * second, Arrivals: all[1:]}); s != nil || taken != 0 || !errors.As(err, &stopped) {
			t.Errorf("it goes on with %v: %v", s, err)
		}
	}
}

// A step takes no more than its bounds, and the state no more than its own.
func TestBounds(t *testing.T) {
	g := counting(graph.Skip)
	g.Limits = graph.Limits{Records: 10}
	i := open(t, g, state.NewMemory())
	all := arrivals(input(2, 100))
	if _, taken, err := i.Run(engine.Batch{Clock: 1000 * second, Arrivals: all}); taken != 10 || err != nil {
		t.Errorf("%d taken: %v", taken, err)
	}
	g = counting(graph.Skip)
	g.Limits = graph.Limits{Bytes: 300}
	if _, taken, err := open(t, g, state.NewMemory()).Run(engine.Batch{Clock: 1000 * second, Arrivals: all}); taken == 0 || taken > 20 || err != nil {
		t.Errorf("%d taken: %v", taken, err)
	}
	g = counting(graph.Skip)
	g.State.Max = 500
	i = open(t, g, state.NewMemory())
	var err error
	for n := 0; n < len(all) && err == nil; n++ {
		var s *engine.Step
		if s, _, err = i.Run(engine.Batch{Clock: 1000 * second, Arrivals: all[n : n+1]}); s != nil {
			if err := i.Commit(s.Seq); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, size := i.Store().Size(); !errors.Is(err, engine.ErrStateFull) || size > 500 {
		t.Errorf("%d bytes of state: %v", size, err)
	}
}

// An input that has more than what is in the batch isn't idle, however long it gave nothing.
func TestAnInputWithRecordsWaitingIsNotIdle(t *testing.T) {
	g := counting(graph.Skip)
	g.Time.IdleAfter = 30 * time.Second
	i := open(t, g, state.NewMemory())
	for n, at := range []stream.Time{1000, 1100} {
		m := topics.Message{Sequence: topics.Sequence(n + 1), Payload: []byte(`{"k":"k","at":995,"v":1}`)}
		s, _, err := i.Run(engine.Batch{Clock: at * second, Arrivals: []engine.Arrival{{Message: &m}}, Waiting: func(in int) bool { return in == 1 }})
		if err != nil || s == nil || len(s.Flips) != 0 {
			t.Fatalf("step %+v, %v", s, err)
		}
		if err := i.Commit(s.Seq); err != nil {
			t.Fatal(err)
		}
	}
	s, _, err := i.Run(engine.Batch{Clock: 1101 * second})
	if err != nil || s == nil || len(s.Flips) != 1 || s.Flips[0].Input != 1 {
		t.Errorf("nothing waits for it any more: %+v, %v", s, err)
	}
}

// A step that does nothing isn't made; a clock that passes a decision makes one.
func TestIdleMakesNoSteps(t *testing.T) {
	g := counting(graph.Skip)
	g.Time.IdleAfter = 30 * time.Second
	i := open(t, g, state.NewMemory())
	m := topics.Message{Sequence: 1, Payload: []byte(`{"k":"k","at":995,"v":1}`)}
	run := func(at stream.Time, a ...engine.Arrival) *engine.Step {
		t.Helper()
		s, _, err := i.Run(engine.Batch{Clock: at * second, Arrivals: a})
		if err != nil {
			t.Fatal(err)
		}
		if s != nil {
			if err := i.Commit(s.Seq); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	run(1000, engine.Arrival{Message: &m})
	if s := run(1001); s != nil {
		t.Errorf("a step for nothing: %+v", s)
	}
	if s := run(1030); s == nil || len(s.Flips) != 2 || len(s.Outputs) != 0 {
		t.Errorf("both inputs idle: %+v", s)
	}
	s := run(1040)
	if s == nil || len(s.Outputs) != 1 || !strings.Contains(string(s.Outputs[0].Payload), `"end":1000,"n":1`) {
		t.Errorf("ten seconds later the window is closed: %+v", s)
	}
	if s := run(1041); s != nil && len(s.Outputs) > 0 {
		t.Errorf("again: %+v", s)
	}
}

func FuzzParseStep(f *testing.F) {
	s := &engine.Step{Operator: 1, Seq: 2, Clock: 3, Flips: []eventtime.Flip{{Input: 1, Idle: true}}, Reads: []engine.Read{{Input: 0, From: 5, To: 9, Count: 3}}, Ends: []topics.Sequence{9}, Delta: []byte("x")}
	f.Add(s.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := engine.ParseStep(b)
		if err != nil {
			if !errors.Is(err, engine.ErrStep) {
				t.Fatal(err)
			}
			return
		}
		if _, err := engine.ParseStep(s.Append(nil)); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkWindowCount(b *testing.B) {
	in := input(3, 2000)
	all := arrivals(in)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		i := open(b, counting(graph.Skip), state.NewMemory())
		for done := 0; done < len(all); {
			s, taken, err := i.Run(engine.Batch{Clock: 1000 * second, Arrivals: all[done:min(done+500, len(all))]})
			if err != nil {
				b.Fatal(err)
			}
			done += taken
			if err := i.Commit(s.Seq); err != nil {
				b.Fatal(err)
			}
		}
		n += len(all)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
}
