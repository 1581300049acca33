// Package optest runs an operator on records and gives what comes out: no broker, no
// clock but the one that is said. It is for tests of specs, for the examples a spec
// carries (`pubsub operator test`), and for tests of process functions.
//
//	g, _, err := spec.Compile(s, spec.Options{})
//	…
//	out, err := optest.Run(g, optest.Options{}, records...)
//	for _, m := range out.Of("QUAKES_HOURLY") { … }
//
// When all records are in, time passes until everything that waits for it has come out.
package optest

import (
	"fmt"
	"slices"
	"time"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/value"
)

// Record is a message of an input.
type Record struct {
	Input   string
	Subject string
	Header  []byte
	Payload []byte
	Pass    time.Duration // of the clock, before it
}

// Options say how to run. The zero Options are usable.
type Options struct {
	// Clock is that of the first step, and when messages were stored; zero: the
	// beginning of 2030. It must be near the records' event time or behind it, or
	// max_future puts them aside.
	Clock time.Time
	// Cut says how many records the next step takes; nil: as many as the limits say.
	Cut func() int
	// Store holds the state; nil: a new one in memory.
	Store state.Store
	// Open leaves what waits for time waiting.
	Open bool
	// Share has only one of several instances run.
	Share engine.Share
	// Begin is how many records of each input there were before; nil: none.
	Begin []topics.Sequence
}

// Message is what came out.
type Message struct {
	Sink    string // name of the output: its topic or subject
	Subject string // "": the topic's own
	Header  []byte
	Payload []byte

	read func(payload []byte) (value.Value, error) // nil: it is JSON
}

// Payload makes a payload of an input from JSON, as the input's codec has it.
func Payload(g *graph.Graph, input string, json []byte) ([]byte, error) {
	i := slices.IndexFunc(g.Inputs, func(in graph.Input) bool { return in.Name == input })
	if i < 0 || g.Inputs[i].Write == nil || len(json) == 0 {
		return json, nil
	}
	v, err := value.Parse(json, value.Options{Decimals: true})
	if err != nil {
		return nil, err
	}
	return g.Inputs[i].Write(v)
}

// Text returns the payload, as JSON where its codec has a schema.
func (m *Message) Text() []byte {
	if m.read == nil || len(m.Payload) == 0 {
		return m.Payload
	}
	return value.AppendJSON(nil, m.Value())
}

// Value returns what the message says, as JSON has it: a timestamp is a string. A
// tombstone is null, and what is not JSON a string.
func (m *Message) Value() value.Value {
	if len(m.Payload) == 0 {
		return value.Value{}
	}
	text := m.Payload
	if m.read != nil {
		v, err := m.read(m.Payload)
		if err != nil {
			return value.OfString(err.Error())
		}
		text = value.AppendJSON(nil, v)
	}
	v, err := value.Parse(text, value.Options{})
	if err != nil {
		return value.OfString(string(text))
	}
	return v
}

// Result is everything that came out, in order.
type Result struct {
	Messages []Message
	Counts   []engine.Count
}

// Of returns what came out of one output.
func (r *Result) Of(sink string) []Message {
	var all []Message
	for _, m := range r.Messages {
		if m.Sink == sink {
			all = append(all, m)
		}
	}
	return all
}

// Run runs records in their order. The error is the engine's: a *engine.StoppedError
// where a record can't be passed, with what came out in front of it.
func Run(g *graph.Graph, o Options, records ...Record) (*Result, error) {
	if o.Clock.IsZero() {
		o.Clock = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if o.Store == nil {
		o.Store = state.NewMemory()
	}
	own := *g
	if own.Time.IdleAfter == 0 {
		own.Time.IdleAfter = time.Second // so that the end is one
	}
	r := &runner{g: &own, o: o, clock: stream.Time(o.Clock.UnixNano()), result: &Result{}, sequences: make([]topics.Sequence, len(g.Inputs))}
	for in := range r.sequences {
		if in < len(o.Begin) {
			r.sequences[in] = o.Begin[in]
		}
	}
	var err error
	if r.i, err = engine.Open(&own, o.Store, engine.Options{Operator: 1, Epoch: 1, Clock: r.clock, Share: o.Share}); err != nil {
		return nil, err
	}
	if err := r.records(records); err != nil {
		return r.result, err
	}
	if !o.Open {
		for _, pass := range []time.Duration{own.Time.IdleAfter, 10 * 365 * 24 * time.Hour} {
			r.clock += stream.Time(pass)
			if _, err := r.step(nil, false); err != nil {
				return r.result, err
			}
		}
	}
	r.result.Counts, err = r.i.Counts()
	return r.result, err
}

type runner struct {
	g         *graph.Graph
	o         Options
	i         *engine.Instance
	clock     stream.Time
	sequences []topics.Sequence
	result    *Result
}

func (r *runner) records(records []Record) error {
	var batch []engine.Arrival
	flush := func() error {
		for len(batch) > 0 {
			n := len(batch)
			if r.o.Cut != nil {
				n = min(n, max(r.o.Cut(), 1))
			}
			taken, err := r.step(batch[:n], true)
			if err != nil {
				return err
			}
			batch = batch[taken:]
		}
		return nil
	}
	for k := range records {
		rec := &records[k]
		in := slices.IndexFunc(r.g.Inputs, func(in graph.Input) bool { return in.Name == rec.Input })
		if in < 0 {
			return fmt.Errorf("record %d is of %q, which is no input of operator %s", k+1, rec.Input, r.g.Name)
		}
		if rec.Pass > 0 {
			if err := flush(); err != nil {
				return err
			}
			r.clock += stream.Time(rec.Pass)
			if _, err := r.step(nil, false); err != nil {
				return err
			}
		}
		r.sequences[in]++
		batch = append(batch, engine.Arrival{Input: in, Message: &topics.Message{
			Sequence: r.sequences[in], Time: topics.Nanos(r.clock), Subject: rec.Subject, Header: rec.Header, Payload: rec.Payload,
		}})
	}
	return flush()
}

// step runs one step and commits it.
func (r *runner) step(batch []engine.Arrival, waiting bool) (taken int, err error) {
	s, taken, err := r.i.Run(engine.Batch{Clock: r.clock, Arrivals: batch, Waiting: func(int) bool { return waiting }})
	if s != nil {
		for _, o := range s.Outputs {
			r.result.Messages = append(r.result.Messages, Message{r.g.Sinks[o.Sink].Name, o.Subject, o.Header, o.Payload, r.g.Sinks[o.Sink].Read})
		}
		if err := r.i.Commit(s.Seq); err != nil {
			return taken, err
		}
	}
	return taken, err
}
