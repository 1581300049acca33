package engine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/heraldmq/herald/operators/eventtime"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
)

// Options say whose instance it is.
type Options struct {
	Operator  uint64
	Partition uint32
	Epoch     uint64
	Clock     stream.Time // when the operator was deployed, by the log
	// Stopwatch, nanoseconds of some clock, measures nodes in one of so many steps (Load);
	// nothing else depends on it. nil: nothing is measured.
	Stopwatch func() int64
	Share     Share
}

// Instance is one replica's share of an operator: its graph and its state.
type Instance struct {
	graph *graph.Graph
	store state.Store
	o     Options

	open []*pending // steps that were run and aren't committed, oldest first
	now  moment     // after the last of them

	exec    executor // scratch of the step that runs
	rewound bool     // the state has been rewound, and no step has said so yet
}

// moment is where an operator stands between two steps, besides what nodes keep.
type moment struct {
	seq     uint64
	clock   stream.Time
	tracker *eventtime.Tracker
	outbox  int64             // bytes that wait in the outbox; -1: to be counted
	ends    []topics.Sequence // by input: the last sequence read
	timers  [2]stream.Time    // by kind: no timer is due before
	back    *rollback         // of upstream and amnesia
}

type pending struct {
	step    *Step
	overlay *state.Overlay
	after   moment
	fired   bool // a timer did
	trimmed bool // something has left the outbox
}

// Errors of an Instance.
var (
	// ErrDiverged means that a standby came to something else than the primary: the
	// replica is of no use any more and has to be made anew.
	ErrDiverged = errors.New("the replica has diverged")
	// ErrOrder means that a step isn't the next one.
	ErrOrder = errors.New("the step is not the next one")
	// ErrStateFull means that the operator's state is as big as it may be.
	ErrStateFull = errors.New("the operator's state has reached its bound")
	// ErrState means that what the store holds isn't an instance's.
	ErrState = errors.New("the operator's state can't be read")
)

// Open makes an instance of what a store holds; an empty one begins at the beginning.
func Open(g *graph.Graph, st state.Store, o Options) (*Instance, error) {
	i := &Instance{graph: g, store: st, o: o}
	if err := i.reload(); err != nil {
		return nil, err
	}
	i.exec.init(i)
	return i, nil
}

// reload takes where it stands from the store.
func (i *Instance) reload() error {
	i.exec.cache.clear()
	m := moment{seq: i.store.Seq(), clock: i.o.Clock, ends: make([]topics.Sequence, len(i.graph.Inputs)), outbox: -1}
	m.tracker = i.tracker()
	for _, part := range []struct {
		key  []byte
		load func(b []byte) error
	}{
		{metaClock, func(b []byte) error {
			c, n := binary.Varint(b)
			if n != len(b) {
				return ErrState
			}
			m.clock = stream.Time(c)
			return nil
		}},
		{metaTracker, func(b []byte) error { return m.tracker.Load(b, m.clock) }},
		{metaInputs, func(b []byte) error {
			for at := 0; len(b) > 0; at++ {
				e, n := binary.Uvarint(b)
				if n <= 0 {
					return ErrState
				}
				if b = b[n:]; at < len(m.ends) {
					m.ends[at] = topics.Sequence(e)
				}
			}
			return nil
		}},
	} {
		b, ok, err := i.store.Get(part.key)
		if err != nil {
			return fmt.Errorf("open operator %s: %w", i.graph.Name, err)
		}
		if !ok {
			continue
		}
		if err := part.load(b); err != nil {
			return fmt.Errorf("open operator %s: %w: %w", i.graph.Name, ErrState, err)
		}
	}
	if err := i.loadBack(&m); err != nil {
		return fmt.Errorf("open operator %s: %w", i.graph.Name, err)
	}
	m.timers = [2]stream.Time{stream.TimeMin, stream.TimeMin} // to be looked for
	i.open, i.now = nil, m
	return nil
}

func (i *Instance) tracker() *eventtime.Tracker {
	return eventtime.New(i.graph.Time, len(i.graph.Inputs), i.o.Clock)
}

// Seq returns the last step, committed or not.
func (i *Instance) Seq() uint64 { return i.now.seq }

// Committed returns the last step that was committed.
func (i *Instance) Committed() uint64 { return i.store.Seq() }

// Open returns how many steps were run and aren't committed.
func (i *Instance) Open() int { return len(i.open) }

// Position returns the last sequence of an input that was read, 0 before the first.
func (i *Instance) Position(input int) topics.Sequence { return i.now.ends[input] }

// Watermark returns how far event time has come.
func (i *Instance) Watermark() stream.Time { return i.now.tracker.Watermark() }

// Clock returns the clock of the last step.
func (i *Instance) Clock() stream.Time { return i.now.clock }

// Graph returns the graph.
func (i *Instance) Graph() *graph.Graph { return i.graph }

// Store returns what is committed, for looking at.
func (i *Instance) Store() state.Store { return i.store }

// Abort throws the steps away that were run and aren't committed: nothing of them has
// been seen.
func (i *Instance) Abort() error { return i.reload() }

// Commit takes the oldest step in that was run here, once the log has it.
func (i *Instance) Commit(seq uint64) error {
	if len(i.open) == 0 || i.open[0].step.Seq != seq {
		return fmt.Errorf("commit step %d of operator %s: %w", seq, i.graph.Name, ErrOrder)
	}
	p := i.open[0]
	delta := p.step.Delta
	if delta == nil {
		delta = p.overlay.Delta()
	}
	if err := i.store.Apply(delta, seq); err != nil {
		return fmt.Errorf("commit step %d of operator %s: %w", seq, i.graph.Name, err)
	}
	i.open, i.rewound = i.open[1:], false
	if len(i.open) > 0 {
		i.open[0].overlay.Rebase(i.store)
	}
	return nil
}

// Follow runs the records that a step of another graph has read, with its clock and its
// decisions, and commits what comes of them; it returns the outputs. It takes as many steps
// of its own as its limits say, and Seq is that of the other graph's step.
func (i *Instance) Follow(s *Step, arrivals []Arrival) (outputs []Output, err error) {
	if len(i.open) > 0 || s.Seq != i.now.seq+1 {
		return nil, fmt.Errorf("follow step %d behind step %d of operator %s: %w", s.Seq, i.now.seq, i.graph.Name, ErrOrder)
	}
	seq, flips := i.now.seq, s.Flips
	for {
		i.now.seq = seq
		p, taken, err := i.execute(s.Clock, flips, &Batch{Arrivals: arrivals, Ends: s.Ends})
		if err != nil {
			return outputs, err
		}
		if err := i.store.Apply(p.overlay.Delta(), s.Seq); err != nil {
			return outputs, fmt.Errorf("follow step %d of operator %s: %w", s.Seq, i.graph.Name, err)
		}
		outputs, i.now = append(outputs, p.step.Outputs...), p.after
		if arrivals, flips = arrivals[taken:], nil; len(arrivals) == 0 {
			return outputs, nil
		}
	}
}

// Apply takes in a step that another replica ran: its delta, or, where it has none,
// by running it on the records that were read, which read returns in their order. The
// error Is ErrDiverged when that comes to something else.
func (i *Instance) Apply(s *Step, read func(r Read) ([]topics.Message, error)) error {
	if len(i.open) > 0 || s.Seq != i.now.seq+1 || s.Epoch != i.o.Epoch {
		return fmt.Errorf("step %d of epoch %d behind step %d of epoch %d of operator %s: %w", s.Seq, s.Epoch, i.now.seq, i.o.Epoch, i.graph.Name, ErrOrder)
	}
	if s.Delta != nil {
		if err := TakeIn(i.store, s); err != nil {
			return fmt.Errorf("operator %s: %w", i.graph.Name, err)
		}
		return i.reload()
	}
	i.exec.cache.clear() // what is compared is what comes of the state itself
	var arrivals []Arrival
	for _, r := range s.Reads {
		messages, err := read(r)
		if err != nil {
			return fmt.Errorf("run step %d of operator %s again: %w", s.Seq, i.graph.Name, err)
		}
		if len(messages) != r.Count {
			return fmt.Errorf("run step %d of operator %s again: %d records of input %s from %d to %d instead of %d: %w",
				s.Seq, i.graph.Name, len(messages), i.graph.Inputs[r.Input].Name, r.From, r.To, r.Count, ErrDiverged)
		}
		for m := range messages {
			arrivals = append(arrivals, Arrival{r.Input, &messages[m]})
		}
	}
	p, taken, err := i.execute(s.Clock, s.Flips, &Batch{Arrivals: arrivals, Ends: s.Ends, Routes: s.Routes, Sent: s.Sent, Halt: s.Halt})
	if err != nil || taken != len(arrivals) {
		return fmt.Errorf("run step %d of operator %s again: %w: %d of %d records: %w", s.Seq, i.graph.Name, ErrDiverged, taken, len(arrivals), err)
	}
	delta := p.overlay.Delta()
	if got := digest(delta, p.step.Outputs); got != s.Digest {
		return fmt.Errorf("run step %d of operator %s again: %w: digest %016x, the primary's is %016x", s.Seq, i.graph.Name, ErrDiverged, got, s.Digest)
	}
	if err := i.store.Apply(delta, s.Seq); err != nil {
		return fmt.Errorf("apply step %d of operator %s: %w", s.Seq, i.graph.Name, err)
	}
	s.Outputs = p.step.Outputs
	i.now = p.after
	return nil
}
