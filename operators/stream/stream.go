// Package stream is what the nodes of an operator's graph and the engine that runs
// them have in common: records, the node's view of the world, timers and state.
//
// Everything a node may know comes through its Context, so that two replicas that
// give it the same records, clock and state get the same bytes out of it: no clock,
// no randomness, no order of a Go map, no goroutine. This is what lets a standby
// follow a primary and go on in its place (Hwang et al., ICDE 2005: a deterministic
// operator; what would make it arbitrary, the interleaving of inputs and the clock,
// is in the log).
package stream

import (
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/value"
)

// Time is nanoseconds since 1970, of an event or of the logged clock.
type Time int64

// The ends of time: of a watermark before anything was seen, and after everything.
const (
	TimeMin Time = -1 << 63
	TimeMax Time = 1<<63 - 1
)

// ChangeOp says what a record of a changelog does to the row with its key.
type ChangeOp uint8

// The changes. A stream that is no changelog has only Upsert.
const (
	Upsert ChangeOp = iota
	Delete
)

// Position is where a record came from.
type Position struct {
	Input    int // index among the operator's inputs
	Sequence topics.Sequence
}

// Record is one event on its way through the graph. Nodes share it: whoever wants to
// change something copies the Record first. Values and byte slices are immutable.
type Record struct {
	Value   value.Value
	Key     []byte // value.AppendKey of the key; nil before a key step
	Time    Time   // event time
	Subject string
	Header  []byte // the block "NATS/1.0\r\n…", or nil
	Origin  Position
	Op      ChangeOp
}

// TimerKind says which time a timer waits for.
type TimerKind uint8

// The kinds of timers.
const (
	EventTime  TimerKind = iota // fires when the watermark has reached it
	Processing                  // fires in a step whose clock has reached it
)

// Timer is a timer of a node that is due. Timers fire in the order of (At, key,
// Name), each once.
type Timer struct {
	Kind TimerKind
	At   Time
	Name string // tells a key's timers apart; together with Kind and At it is one timer
}

// Class is how far a node's output follows from its input, each contained in the
// next (Hwang et al. 2005). A graph is of the worst class of its nodes.
type Class uint8

// The classes, best first.
const (
	Repeatable    Class = iota // output follows from single records: filter, map
	Convergent                 // from a bounded stretch of input: windows by event time
	Deterministic              // from all input in its order: counts, top-N
	Arbitrary                  // also from the clock or the interleaving of inputs
)

var classNames = [...]string{"repeatable", "convergent-capable", "deterministic", "arbitrary"}

func (c Class) String() string { return classNames[c] }

// Node is one step of a graph, with its state elsewhere: it keeps nothing between
// calls but what Context.State holds. It is called by one goroutine at a time. An
// error is about the record (or timer): what becomes of it is the step's policy.
// What the node had emitted and written for it before is undone.
type Node interface {
	// Process takes a record that came in on a port.
	Process(c Context, port int, r *Record) error
	// OnTimer takes a timer of the current key that has come due.
	OnTimer(c Context, t Timer) error
}

// Watcher is a Node that wants to hear when its watermark advances, outside of any
// key. State is then that of the empty key.
type Watcher interface {
	OnWatermark(c Context, w Time) error
}

// Context is what a node may do and know while it is called. It is valid until the
// call returns.
type Context interface {
	// Emit passes a record on to what is connected to an output port; 0 is the main
	// one.
	Emit(port int, r *Record)
	// Side passes a record to a side output by name, with the reason it is there:
	// SideLate, SideSuspect, SideError or a name of the spec's. It is counted, and
	// dropped where nothing is connected only if the spec says so.
	Side(name string, r *Record, reason string)

	// State is the node's state under the current key: that of the record or the
	// timer.
	State() State
	Key() []byte

	// Cached returns the object that Cache has kept under a name and sub of the current
	// key, nil where there is none (any more). Who takes it may change it, if state is
	// changed alike in the same call.
	Cached(name string, sub []byte) any
	// Cache keeps what a node has made of its state, of about as many bytes, so that it
	// need not be read again; nil: what is kept is wrong now. It is kept as long as there
	// is room, and not where an error undoes the call: a node must come to the same
	// without it.
	Cache(name string, sub []byte, obj any, bytes int)

	// SetTimer sets a timer of the current key. Setting the same one again changes
	// nothing. One that is due already fires next.
	SetTimer(t Timer)
	DeleteTimer(t Timer)

	// Clock is the step's logged clock. It never goes back.
	Clock() Time
	// Watermark is how far event time has come at this node: no record that isn't
	// late is older.
	Watermark() Time
	// Random returns the next number of a sequence that follows from the operator,
	// the step and how often it was asked.
	Random() uint64
	// Count adds to a counter that is shown for the step (late, suspect, own names).
	Count(name string, n uint64)
}

// The side outputs every node has.
const (
	SideLate    = "late"    // behind the watermark by more than is allowed
	SideSuspect = "suspect" // further in the future than is believed
	SideError   = "error"   // could not be processed
)

// State is ordered bytes under one node and key: sub-keys sort as bytes within a
// name. What Get and Scan give is valid until the node returns, and must not be
// changed; Put and Delete keep what they are given.
type State interface {
	Get(name string, sub []byte) ([]byte, bool)
	Put(name string, sub, v []byte)
	Delete(name string, sub []byte)
	// Scan calls f with what is from from (inclusive) to to (exclusive, nil: the
	// end), in order, until it returns false. It sees what was written before it
	// began; f may write.
	Scan(name string, from, to []byte, f func(sub, v []byte) bool)
}
