// Package graph is an operator ready to run: what spec.Compile makes and the engine
// runs. It decides nothing.
package graph

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/heraldmq/herald/operators/eventtime"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/expr"
	"github.com/heraldmq/herald/topics/value"
)

// Graph is an operator's graph: acyclic, from inputs over nodes to sinks. It is
// immutable, but for what its nodes may cache; one Graph is run by one engine.
type Graph struct {
	Name    string
	Version string
	Summary string

	Inputs []Input
	Nodes  []Node // each behind those whose records it takes
	Sinks  []Sink
	// Adverts are the advertisements of the outputs, but of those that aren't to be advertised.
	Adverts []Advert

	Errors []Edge // where records go whose step's policy is DeadLetter

	Time       eventtime.Config // of the whole operator
	Recovery   Recovery
	Standby    StandbyMode
	Checkpoint time.Duration // of passive standbys
	Partitions int
	State      StateConfig
	Limits     Limits
	Class      stream.Class // the worst of the nodes'
	// Span is how long after its event time a record may matter to what comes out: the
	// most over all ways through the graph; negative: for ever.
	Span time.Duration

	JSON   []byte   // the canonical form of the spec
	Digest [32]byte // SHA-256 of JSON: what a deployment pins
}

// Recovery is what is kept for the case that the primary fails, in the words of Hwang
// et al. 2005.
type Recovery uint8

// The modes, and the guarantee each gives.
const (
	Active   Recovery = iota // standbys run along: precise
	Passive                  // state is shipped now and then: precise, after re-running what followed
	Upstream                 // nothing but positions: rollback, what is needed is read again
	Amnesia                  // nothing: gap
)

var recoveryNames = [...]string{"active", "passive", "upstream", "amnesia"}

func (r Recovery) String() string { return recoveryNames[r] }

// StandbyMode is how an active standby keeps up.
type StandbyMode uint8

// The modes.
const (
	Auto   StandbyMode = iota // delta, until replay costs less
	Delta                     // applies the logged changes of state
	Replay                    // reads the same input and runs the same step
)

// StateConfig bounds an operator's state.
type StateConfig struct {
	Max    int64 // bytes of keys and values; reaching it stops the operator
	Pebble bool  // in files from the beginning; else when it has grown (Auto)
	Auto   bool
	TTL    time.Duration // 0: never
}

// Limits bound one step.
type Limits struct {
	Records  int           // read
	Bytes    int           // of input read, and of output and state written
	Linger   time.Duration // how long a step waits for more input
	InFlight int           // steps proposed and not yet committed
}

// Policy is what becomes of a record that a step can't process.
type Policy uint8

// The policies.
const (
	Stop       Policy = iota // the operator stops in front of it
	Skip                     // it is counted
	DeadLetter               // it goes to the error output
)

// Edge leads to a port of a node, or to a sink.
type Edge struct {
	Node int // index among Nodes; -1: to a sink
	Port int // of the node; the sink's index
}

// ToSink returns the edge that leads to a sink.
func ToSink(i int) Edge { return Edge{Node: -1, Port: i} }

// Input is a durable topic that is read.
type Input struct {
	Name     string
	Topic    string
	Subjects []string // filters; none: everything
	From     From
	Decode   func(m *topics.Message) (value.Value, error)
	// Write makes a payload that Decode reads, for examples; nil: it is JSON.
	Write func(v value.Value) ([]byte, error)
	Where *expr.Program // nil: everything
	// EventTime finds the record's time; nil: when it was stored.
	EventTime func(r *stream.Record, clock stream.Time) (stream.Time, error)
	Policy    Policy // for what can't be decoded
	Out       []Edge
}

// From is where an input begins to be read.
type From struct {
	New      bool
	Sequence topics.Sequence
	Time     stream.Time // 0: no time
}

// Node is a step.
type Node struct {
	Name   string // unique in the graph; state is kept under the index, see Kept
	Kind   string
	Node   stream.Node
	Class  stream.Class
	Policy Policy
	Outs   [][]Edge          // by output port
	Sides  map[string][]Edge // by side output
	Keyed  bool              // its state is under the record's key; else under the empty one
	ID     uint16            // its state's place; stays the same over versions
	// Lag is by how much the node's watermark is behind that of the inputs, since what
	// is in front of it gives results late.
	Lag time.Duration
	// Span is how long a record matters to the node; negative: for ever.
	Span   time.Duration
	Config string // canonical text of its configuration: what decides if state fits
}

// Sink is where records leave the graph.
type Sink struct {
	Name  string
	Topic string // durable; "" for a live subject
	// Aside is the subject of late records or dead letters, with * for tokens with fields;
	// "" for an output. A topic that keeps it gets all of them.
	Aside string
	// Create is how the topic is made where it doesn't exist; nil: it isn't.
	Create *topics.Config
	// Encode makes the message. An error is the record's, with the sink's policy.
	Encode func(r *stream.Record) (Out, error)
	// Read reads a payload that Encode made, for examples; nil: it is JSON.
	Read   func(payload []byte) (value.Value, error)
	Policy Policy
}

// Out is a message on its way out.
type Out struct {
	Subject string
	Header  []byte // without Herald's own, which the broker adds
	Payload []byte
}

// Advert is the advertisement of an output.
type Advert struct {
	Output string                     // the sink's name
	Topic  string                     // durable; "" of a live output
	Fields map[string]json.RawMessage // without a subject where it is the topic's
	// Implicit tells that nobody asked for it: it gives way to others, and that it can't be
	// made is no error.
	Implicit bool
	Why      string // it can't be made; "": it can
}

// With returns the advertisement with a subject.
func (a Advert) With(subject string) Advert {
	a.Fields = maps.Clone(a.Fields)
	a.Fields["subject"], _ = json.Marshal(subject) // can't fail
	return a
}
