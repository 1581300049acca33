// Package spec is the language operators are written in (docs/operators.md): it reads a
// file, says everything that is wrong with it and where, and makes the graph that the
// engine runs.
//
//	YAML ──Parse──► Spec ──Compile──► graph.Graph, warnings
//	Go API ─────────┘ └─JSON──► canonical form, its digest
//
// A Spec's canonical form is a file in the language too, with every default and every
// name said: Parse reads it back to the same digest. It is what a deployment pins.
//
// Nothing here reads a clock or is random: the same file gives the same graph on every
// node.
package spec

import (
	"time"

	"github.com/heraldmq/herald/topics/schema"
	"github.com/heraldmq/herald/topics/value"
)

// Pos is a place in a file; zero where there is none (the Go API).
type Pos struct{ Line, Column int }

// Expr is an expression, or another text, with its place.
type Expr struct {
	Text string
	At   Pos
}

// Set tells whether there is one.
func (e Expr) Set() bool { return e.Text != "" }

// Field is a named expression.
type Field struct {
	Name string
	Expr Expr
}

// Spec is an operator as it is written. Fields without a value take the default that
// docs/operators.md says.
type Spec struct {
	File       string // for problems
	Operator   Expr
	Version    string
	Summary    string
	Recovery   Expr
	Standby    Expr
	AcceptLoss bool
	Checkpoint time.Duration
	Partitions int
	State      State
	Time       Time
	Limits     Limits
	Errors     Errors
	Inputs     []Input
	Steps      []Step
	Outputs    []Output
	Advertise  value.Value // as it is, or false: outputs aren't advertised; null: by default
	Tests      []Test      // not part of the canonical form
}

// State bounds what the operator remembers.
type State struct {
	Max     int64  // bytes
	Backend string // auto | memory | pebble
	TTL     time.Duration
}

// Time says how event time is found and how it behaves. Nil durations are the default.
type Time struct {
	Event     Expr
	Unit      string // s | ms | us | ns
	Disorder  *time.Duration
	IdleAfter *time.Duration
	MaxFuture *time.Duration
}

// Limits bound a step of the engine's.
type Limits struct {
	Batch      int
	BatchBytes int64
	Linger     time.Duration
	InFlight   int
}

// Errors says what becomes of a record that can't be processed.
type Errors struct {
	Policy string // stop | skip | dead-letter; "" is the operator's
	To     Expr   // subject of dead letters
	At     Pos
}

// Input is a topic that is read.
type Input struct {
	Name     string
	Topic    Expr
	Subjects []string
	From     From
	Codec    Codec
	Where    Expr
	Event    Expr // how its event time is found; none: as the operator says
	Stored   bool // its event time is when it was stored, whatever the operator says
	Unit     string
	Table    bool
	Key      []Field // of a table
	Delete   Expr    // of a table
	OnError  *Errors
	At       Pos
}

// From is where an input begins; the zero From is the first message.
type From struct {
	New      bool
	Sequence uint64
	Time     time.Time
}

// Codec is how payloads are read or written.
type Codec struct {
	Kind     string // json | text | bytes | avro | protobuf
	Decimals bool
	Schema   schema.Source // of avro and protobuf
	At       Pos
}

// Step is one step.
type Step struct {
	Name    string
	From    []Expr // names of inputs, steps and outlets; none: the step before
	Body    Body
	OnError *Errors
	At      Pos
}

// Body is what a step does: one of the types below.
type Body interface{ kind() string }

// The bodies of steps, as docs/operators.md describes them.
type (
	// Filter passes records for which If is true.
	Filter struct{ If Expr }
	// Assert makes an error of those for which it isn't.
	Assert struct{ If Expr }
	// Map makes an object of Fields, or what Whole gives.
	Map struct {
		Fields []Field
		Whole  Expr
	}
	// Project keeps fields, or drops them.
	Project struct {
		Fields []string
		Drop   bool
	}
	// Flatmap makes a record of each item.
	Flatmap struct{ List Expr }
	// Key gives records a key; a Field without a name is named after its expression.
	Key struct{ By []Field }
	// Union takes several streams.
	Union struct{}
	// Split sends each record to a branch.
	Split struct {
		Branches []Field
		Else     string
	}
	// Deduplicate passes the first of equal records.
	Deduplicate struct {
		By         []Field
		Within     time.Duration
		Processing bool
	}
	// Window says what the aggregate behind it aggregates.
	Window struct {
		Kind       string // tumble | hop | slide | session | count
		Size       time.Duration
		Every      time.Duration // of hop
		Offset     time.Duration
		Max        time.Duration // of session
		Count      int
		CountEvery int
		Processing bool
		Allow      time.Duration
		Late       Expr // subject of late records
		Changes    bool
	}
	// Aggregate calculates from the records of a key, and a window.
	Aggregate struct {
		Calls  []Field // Expr is a call: sum(mag)
		Having Expr
		Row    []Field // of a changelog: what tells its rows apart
	}
	// Top ranks.
	Top struct {
		N      int
		By     Expr
		Rising bool
		Latest bool
		Row    []Field
	}
	// Join takes the step's From as the left, With as the right.
	Join struct {
		With        Expr
		Left, Right Expr // keys
		Kind        string
		Table       bool
		Interval    bool
		Before      time.Duration
		After       time.Duration
		Window      time.Duration
		Offset      time.Duration
		Late        Expr
		As          []Field
	}
	// Table makes a changelog.
	Table struct {
		Key    []Field
		Delete Expr
	}
	// Process runs a function in Go.
	Process struct {
		Function Expr
		With     value.Value
	}
)

func (*Filter) kind() string      { return "filter" }
func (*Assert) kind() string      { return "assert" }
func (*Map) kind() string         { return "map" }
func (*Project) kind() string     { return "project" }
func (*Flatmap) kind() string     { return "flatmap" }
func (*Key) kind() string         { return "key" }
func (*Union) kind() string       { return "union" }
func (*Split) kind() string       { return "split" }
func (*Deduplicate) kind() string { return "deduplicate" }
func (*Window) kind() string      { return "window" }
func (*Aggregate) kind() string   { return "aggregate" }
func (*Top) kind() string         { return "top" }
func (*Join) kind() string        { return "join" }
func (*Table) kind() string       { return "table" }
func (*Process) kind() string     { return "process" }

// Output is where records leave: a durable Topic, or a Live subject.
type Output struct {
	Topic   Expr
	Live    Expr
	From    Expr
	Subject Expr // template
	Key     Expr
	Headers []Field
	Codec   Codec
	Create  value.Value // how the topic is made where it doesn't exist; null: it isn't
	// Advertise is what the output adds to the operator's; false: it isn't advertised.
	Advertise value.Value
	OnError   *Errors
	At        Pos
}

// Test is an example that `pubsub operator test` runs.
type Test struct {
	Name   string
	Clock  time.Time // of the logged clock when it begins
	Input  []TestRecord
	Expect []Expected
	At     Pos
}

// TestRecord is a record of an input, or time that passes.
type TestRecord struct {
	Input   string
	Payload value.Value
	Subject string
	Pass    time.Duration // of the logged clock, before the record
	At      Pos
}

// Expected is what an output gives, in order.
type Expected struct {
	Output  string // its topic or live subject
	Records []value.Value
	At      Pos
}
