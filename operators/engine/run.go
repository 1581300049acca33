package engine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/heraldmq/herald/operators/eventtime"
	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
)

// Arrival is a record that was read.
type Arrival struct {
	Input   int
	Message *topics.Message
}

// Batch is what the primary runs next.
type Batch struct {
	Clock    stream.Time // of now; taken as the last step's where that is later
	Arrivals []Arrival   // each input's in the order of its topic
	// Ends is how far each input was looked at, filtered records included; nil: up
	// to the last arrival.
	Ends []topics.Sequence
	// Waiting tells whether an input has more, or isn't read for now; such an input is
	// never idle. nil: none has.
	Waiting func(input int) bool
	// Routes, Sent and Halt are as in Step.
	Routes []topics.TopicID
	Sent   []Sent
	Halt   uint32
}

// StoppedError says in front of what an operator has stopped, since a step's policy
// is to stop. It stays there until the graph or its policy is changed.
type StoppedError struct {
	Step  string // name of the graph's step
	At    stream.Position
	Input string
	Err   error
	Stack []byte // of a process function that panicked
	// Shared: all instances of the operator stop there, and none has taken the record.
	Shared bool
}

func (e *StoppedError) Error() string {
	if e.Input == "" {
		return fmt.Sprintf("step %s: %v", e.Step, e.Err)
	}
	return fmt.Sprintf("step %s, at sequence %d of input %s: %v", e.Step, e.At.Sequence, e.Input, e.Err)
}

func (e *StoppedError) Unwrap() error { return e.Err }

// Run runs the next step on what arrived, above the steps that aren't committed yet.
// It takes a part of the batch where the limits say so: taken records. step is nil when
// there was nothing to do. The error is a *StoppedError when the first record that
// isn't taken can't be passed, with the step for those in front of it; ErrStateFull;
// or a failure of the store, after which the instance must be opened anew.
func (i *Instance) Run(b Batch) (step *Step, taken int, err error) {
	clock := max(b.Clock, i.now.clock)
	waiting := b.Waiting
	if waiting == nil {
		waiting = func(int) bool { return false }
	}
	arrived := make([]bool, len(i.graph.Inputs))
	for _, a := range b.Arrivals {
		arrived[a.Input] = true
	}
	flips := i.now.tracker.Decide(clock, func(in int) bool { return arrived[in] || waiting(in) })
	p, taken, err := i.execute(clock, flips, &b)
	if err != nil && p == nil {
		return nil, 0, err
	}
	var stopped *StoppedError
	if taken == 0 && !p.changed(&i.now) && (err == nil || errors.As(err, &stopped)) {
		return nil, 0, err // an empty step says nothing
	}
	p.step.Delta = p.overlay.Delta()
	p.step.Digest = digest(p.step.Delta, p.step.Outputs)
	i.open = append(i.open, p)
	i.now = p.after
	return p.step, taken, err
}

// changed tells whether a step without records did anything.
func (p *pending) changed(before *moment) bool {
	if p.trimmed || len(p.step.Outputs) > 0 || len(p.step.Flips) > 0 || p.after.tracker.Watermark() != before.tracker.Watermark() {
		return true
	}
	for in, e := range p.step.Ends {
		if e != before.ends[in] {
			return true
		}
	}
	return p.fired
}

// execute runs one step: on the primary, and again on a standby. Everything it does
// follows from its arguments and the state.
func (i *Instance) execute(clock stream.Time, flips []eventtime.Flip, b *Batch) (_ *pending, taken int, err error) {
	arrivals := b.Arrivals
	x := &i.exec
	done := false
	defer func() {
		if !done {
			x.cache.clear() // nothing of the step stays
		}
	}()
	var below state.Reader = i.store
	if n := len(i.open); n > 0 {
		below = i.open[n-1].overlay
	}
	x.begin(state.NewOverlay(below), clock, &i.now)
	x.routes = b.Routes
	var stop *StoppedError
	x.halt(b.Halt)
	if err = x.sent(b.Sent); err == nil {
		err = x.clockwork(flips)
	}
	if err == nil {
		taken, err = x.records(arrivals)
	} else if errors.As(err, &stop) {
		return nil, 0, err // a timer can't be passed: not even the clock moves
	}
	if err != nil && !errors.As(err, &stop) {
		return nil, 0, err
	}
	if err := x.post(); err != nil {
		return nil, 0, err
	}
	after := x.end(taken == len(arrivals), b.Ends)
	if err := x.overlay.Err(); err != nil {
		return nil, 0, err
	}
	if _, size := i.store.Size(); err == nil && i.graph.State.Max > 0 && size+x.overlay.Bytes() > i.graph.State.Max && x.grew() {
		return nil, 0, fmt.Errorf("%w of %d bytes", ErrStateFull, i.graph.State.Max)
	}
	done, x.cache.seq = true, after.seq
	s := &Step{
		Operator: i.o.Operator, Partition: i.o.Partition, Epoch: i.o.Epoch, Seq: after.seq,
		Clock: clock, Flips: flips, Reads: x.reads, Ends: after.ends, Outputs: x.outputs, Routes: b.Routes, Sent: b.Sent, Halt: b.Halt,
	}
	return &pending{step: s, overlay: x.overlay, after: after, fired: x.fired, trimmed: x.trimmed}, taken, err
}

// clockwork does what is due before any record: flips, event time that goes on with
// the clock, timers.
func (x *executor) clockwork(flips []eventtime.Flip) error {
	for _, f := range flips {
		x.now.tracker.Flip(f, x.now.clock)
	}
	if err := x.advance(); err != nil {
		return err
	}
	return x.fire(stream.Processing, x.now.clock)
}

// records takes what arrived, one after the other, until the step is full. A record
// that stops the operator leaves no trace.
func (x *executor) records(arrivals []Arrival) (taken int, err error) {
	limit := x.i.graph.Limits
	for n := range arrivals {
		if n > 0 && (limit.Records > 0 && n >= limit.Records || limit.Bytes > 0 && x.size() >= limit.Bytes) {
			return n, nil
		}
		m := x.mark()
		if err := x.record(&arrivals[n]); err != nil {
			x.back(m)
			return n, err
		}
		x.took(&arrivals[n])
		x.overlay.Forget()
	}
	return len(arrivals), nil
}

// record takes one record through the graph, and moves time on.
func (x *executor) record(a *Arrival) error {
	in := &x.i.graph.Inputs[a.Input]
	r := &stream.Record{
		Time: stream.Time(a.Message.Time), Subject: a.Message.Subject, Header: a.Message.Header,
		Origin: stream.Position{Input: a.Input, Sequence: a.Message.Sequence},
	}
	x.at = r.Origin
	if share := x.i.o.Share; !share.alone() {
		x.owned, x.answers = false, share.answers()
		defer func() { x.owned = true }()
	}
	clear(x.alike)
	pass, err := x.decode(a, r)
	if err != nil {
		return x.failed(failure{name: in.Name, policy: in.Policy, count: -1 - a.Input, err: err, r: r, message: a.Message})
	}
	if !pass {
		x.count(uint16(0xffff-a.Input), "filtered", 1)
		x.now.tracker.Touch(a.Input, x.now.clock)
		return x.advance()
	}
	believed := x.now.clock
	if !x.i.o.Share.alone() {
		believed = stream.Time(a.Message.Time) // the same for all instances
	}
	if x.now.tracker.ObserveBy(a.Input, r.Time, x.now.clock, believed) == eventtime.Suspect {
		x.count(uint16(0xffff-a.Input), stream.SideSuspect, 1)
		if !x.told() {
			return nil
		}
		return x.errorRecord(in.Name, r, a.Message, "the timestamp is too far in the future")
	}
	for _, e := range in.Out {
		if err := x.deliver(e, r); err != nil {
			return err
		}
	}
	return x.advance()
}

// decode fills in what the message says.
func (x *executor) decode(a *Arrival, r *stream.Record) (pass bool, err error) {
	in := &x.i.graph.Inputs[a.Input]
	if r.Value, err = in.Decode(a.Message); err != nil {
		return false, err
	}
	if in.Where != nil {
		if pass, err = stream.Match(in.Where, r, x.now.clock); err != nil || !pass {
			return false, err
		}
	}
	if in.EventTime != nil {
		if r.Time, err = in.EventTime(r, x.now.clock); err != nil {
			return false, err
		}
	}
	return true, nil
}

// advance moves the watermark as far as it goes and fires the timers it passes.
func (x *executor) advance() error {
	was := x.owned
	x.owned = true // what waits for a time is this instance's
	defer func() { x.owned = was }()
	w, moved := x.now.tracker.Advance(x.now.clock)
	if !moved && x.now.timers[stream.EventTime] > w {
		return nil
	}
	if err := x.fire(stream.EventTime, w); err != nil {
		return err
	}
	x.event = max(x.event, w)
	if !moved {
		return nil
	}
	for _, n := range x.watchers {
		if err := x.call(n, nil, invocation{event: w}); err != nil {
			return err
		}
	}
	return nil
}

// took notes that a record was taken.
func (x *executor) took(a *Arrival) {
	seq := a.Message.Sequence
	x.inBytes += len(a.Message.Payload) + len(a.Message.Header)
	x.now.ends[a.Input] = max(x.now.ends[a.Input], seq)
	if n := len(x.reads); n > 0 && x.reads[n-1].Input == a.Input {
		x.reads[n-1].To = seq
		x.reads[n-1].Count++
		return
	}
	x.reads = append(x.reads, Read{Input: a.Input, From: seq, To: seq, Count: 1})
}

// end writes down where the operator stands now.
func (x *executor) end(all bool, ends []topics.Sequence) moment {
	if all && ends != nil {
		for in := range x.now.ends {
			x.now.ends[in] = max(x.now.ends[in], ends[in])
		}
	}
	x.now.seq++
	x.overlay.Put(metaClock, binary.AppendVarint(nil, int64(x.now.clock)))
	x.overlay.Put(metaTracker, x.now.tracker.AppendTo(nil))
	x.overlay.Put(metaInputs, encodeEnds(x.now.ends))
	if x.now.back != nil {
		x.note()
	}
	x.writeCounts()
	return x.now
}
