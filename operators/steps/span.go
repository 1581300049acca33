package steps

import (
	"time"

	"github.com/heraldmq/herald/operators/stream"
)

// Unbounded is the span of a step that remembers for ever, or for as long as records keep
// coming.
const Unbounded time.Duration = -1

// Span is how long after its event time a record may still matter to what a step gives:
// what a replica that begins with nothing must have read again. Unbounded where one
// record's fate depends on the one before, and so on to the first: running aggregates, and
// also sessions and deduplication, whose chains of records have no length of their own.
func Span(n stream.Node) time.Duration {
	switch n := n.(type) {
	case *Windows:
		if !n.Processing {
			return n.Size + n.Allow
		}
	case *Slide:
		if !n.Processing {
			return n.Size + n.Allow
		}
	case *Join:
		if n.Window > 0 {
			return n.Window
		}
		return n.Before + n.After
	}
	return Unbounded
}
