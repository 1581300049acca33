package main

import (
	"bytes"
	"embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/spec"
	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
)

//go:embed queries/*.yaml
var files embed.FS

// query is one of the benchmark's.
type query struct {
	name string
	// flink is what Flink does per core, in thousands of events per second (the
	// benchmark's own page: 100 million events, 8 slots, RocksDB, exactly-once).
	flink float64
	keyed bool // what comes out are changes of rows: the table in the end counts
	want  func(all []Event) []row
	// seconds is over how long a time events are spread where a broker runs it, for its
	// windows to end before they do; 0: as defaultRate says.
	seconds int64
}

// defaultRate is the benchmark's own.
const defaultRate = 10_000

// rate is how many of so many events come in a second of event time.
func (q query) rate(events int64) int64 {
	if q.seconds > 0 {
		return max(events/q.seconds, 1)
	}
	return defaultRate
}

var queries = []query{
	{"q0", 155, false, q0, 0},
	{"q1", 158, false, q1, 0},
	{"q2", 175, false, q2, 0},
	{"q3", 152, false, q3, 0},
	{"q4", 34.3, true, q4, 0},
	{"q5", 22.1, false, q5, 50},
	{"q6", 0, false, q6, 250},
	{"q7", 12.3, false, q7, 50},
	{"q8", 146, false, q8, 50},
	{"q9", 14.2, true, q9, 0},
	{"q10", 57.8, false, q10, 0},
	{"q11", 39.7, false, q11, 50},
	{"q12", 75.7, false, q12, 0},
	{"q13", 131, false, q13, 0},
	{"q14", 161, false, q14, 0},
	{"q17", 117, true, q17, 0},
	{"q18", 53.7, true, q18, 0},
	{"q19", 44, true, q19, 0},
	{"q20", 19, false, q20, 0},
}

// compile makes a query's graph of its file.
func compile(name string) (*graph.Graph, error) {
	b, err := files.ReadFile("queries/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("read query %s: %w", name, err)
	}
	s, err := spec.Parse(name+".yaml", b)
	if err != nil {
		return nil, err
	}
	g, _, err := spec.Compile(s, spec.Options{})
	return g, err
}

// sideRows is how many rows the table of q13 has.
const sideRows = 10_000

// driver runs a query on events, as a broker would: step by step, each committed.
type driver struct {
	graph *graph.Graph
	store state.Store
	i     *engine.Instance
	take  func(o *engine.Output)
	clock stream.Time
}

func newDriver(g *graph.Graph, clock time.Time, take func(o *engine.Output)) (*driver, error) {
	d := &driver{graph: g, store: state.NewMemory(), take: take, clock: stream.Time(clock.UnixNano())}
	return d, d.restart()
}

// restart goes on from nothing but what is committed.
func (d *driver) restart() (err error) {
	d.i, err = engine.Open(d.graph, d.store, engine.Options{Operator: 1, Epoch: 1, Clock: d.clock})
	return err
}

// arrivals are a message as each of the inputs gets it whose topic and subjects it has.
func (d *driver) arrivals(dst []engine.Arrival, topic string, m *topics.Message) []engine.Arrival {
	for i := range d.graph.Inputs {
		in := &d.graph.Inputs[i]
		if in.Topic == topic && (len(in.Subjects) == 0 || slices.Contains(in.Subjects, m.Subject)) {
			dst = append(dst, engine.Arrival{Input: i, Message: m})
		}
	}
	return dst
}

// side feeds the table of q13 to an operator that reads it.
func (d *driver) side(at int64) error {
	var all []engine.Arrival
	for k := range sideRows {
		all = d.arrivals(all, "SIDE", &topics.Message{
			Sequence: topics.Sequence(k + 1), Subject: "side", Payload: fmt.Appendf(nil, `{"id":%d,"value":"side %d","date_time":%d}`, k, k, at),
		})
	}
	return d.run(all)
}

// run runs steps until everything is taken.
func (d *driver) run(all []engine.Arrival) error {
	for len(all) > 0 {
		taken, err := d.step(all, true)
		if err != nil {
			return err
		}
		all = all[taken:]
	}
	return nil
}

func (d *driver) step(all []engine.Arrival, waiting bool) (int, error) {
	s, taken, err := d.i.Run(engine.Batch{Clock: d.clock, Arrivals: all, Waiting: func(int) bool { return waiting }})
	if err != nil || s == nil {
		return taken, err
	}
	if err := d.i.Commit(s.Seq); err != nil {
		return taken, err
	}
	for i := range s.Outputs {
		d.take(&s.Outputs[i])
	}
	return taken, nil
}

// end lets time pass until everything has come out.
func (d *driver) end() error {
	for _, pass := range []time.Duration{time.Minute, time.Hour} {
		d.clock += stream.Time(pass)
		if _, err := d.step(nil, false); err != nil {
			return err
		}
	}
	return nil
}

// message is an event as the topic has it.
func message(e *Event) *topics.Message {
	return &topics.Message{Sequence: topics.Sequence(e.Number + 1), Subject: Subjects[e.Kind], Payload: e.AppendJSON(nil)}
}

// headerOf returns a header's value in a block.
func headerOf(block []byte, name string) string {
	for line := range bytes.SplitSeq(block, []byte("\r\n")) {
		if v, ok := strings.CutPrefix(string(line), name+": "); ok {
			return v
		}
	}
	return ""
}
