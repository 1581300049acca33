package steps

import (
	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/value"
)

// Function is a process function: code in Go with state (package state's Value, List,
// Map, Reducing, Aggregating) and timers. It must keep nothing elsewhere, read no clock
// but the Context's and start nothing, or standbys will come to something else.
type Function struct {
	// Class is how far its output follows from its input; a stateless one may be
	// stream.Repeatable. The zero value is: say stream.Deterministic where there is
	// state that all input goes into.
	Class   stream.Class
	Process func(c stream.Context, r *stream.Record) error
	Timer   func(c stream.Context, t stream.Timer) error // nil: it sets none
}

// Factory makes the function of a step from what the spec says under `with`, which is
// null where it says nothing.
type Factory func(with value.Value) (Function, error)

// Process runs a function.
type Process struct{ Func Function }

// Process implements stream.Node.
func (n *Process) Process(c stream.Context, _ int, r *stream.Record) error {
	return n.Func.Process(c, r)
}

// OnTimer implements stream.Node.
func (n *Process) OnTimer(c stream.Context, t stream.Timer) error {
	if state.Expire(c, t) || n.Func.Timer == nil {
		return nil
	}
	return n.Func.Timer(c, t)
}
