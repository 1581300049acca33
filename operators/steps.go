package operators

import (
	"time"

	"github.com/heraldmq/herald/operators/spec"
)

func text(s string) spec.Expr { return spec.Expr{Text: s} }

func keys(expressions []string) (by []spec.Field) {
	for _, e := range expressions {
		by = append(by, spec.Field{Expr: text(e)})
	}
	return by
}

// Filter passes the records for which the condition is true.
func (s *Stream) Filter(condition string) *Stream { return s.Add(&spec.Filter{If: text(condition)}) }

// Assert makes an error of a record for which the condition isn't true.
func (s *Stream) Assert(condition string) *Stream { return s.Add(&spec.Assert{If: text(condition)}) }

// Map makes an object of fields of each record.
func (s *Stream) Map(fields ...spec.Field) *Stream { return s.Add(&spec.Map{Fields: fields}) }

// MapTo makes what the expression gives of each record.
func (s *Stream) MapTo(expression string) *Stream { return s.Add(&spec.Map{Whole: text(expression)}) }

// Project keeps fields.
func (s *Stream) Project(fields ...string) *Stream { return s.Add(&spec.Project{Fields: fields}) }

// Drop drops fields.
func (s *Stream) Drop(fields ...string) *Stream {
	return s.Add(&spec.Project{Fields: fields, Drop: true})
}

// Flatmap makes a record of each item of the list that the expression gives.
func (s *Stream) Flatmap(list string) *Stream { return s.Add(&spec.Flatmap{List: text(list)}) }

// Key gives records a key of one expression, or of several.
func (s *Stream) Key(expressions ...string) *Stream { return s.Add(&spec.Key{By: keys(expressions)}) }

// Union takes other streams in.
func (s *Stream) Union(others ...*Stream) *Stream { return s.Add(&spec.Union{}, others...) }

// Split sends each record to the first branch whose condition is true, else to the
// branch named rest; "" drops the others. Take branches with Branch.
func (s *Stream) Split(rest string, branches ...spec.Field) *Stream {
	return s.Add(&spec.Split{Branches: branches, Else: rest})
}

// Deduplicate passes the first, by event time, of the records that have the same by and
// are less than within apart.
func (s *Stream) Deduplicate(by string, within time.Duration) *Stream {
	return s.Add(&spec.Deduplicate{By: keys([]string{by}), Within: within})
}

// Window is any window; it must be followed by Aggregate.
func (s *Stream) Window(w spec.Window) *Stream { return s.Add(&w) }

// Tumble divides event time into windows.
func (s *Stream) Tumble(size time.Duration) *Stream {
	return s.Window(spec.Window{Kind: "tumble", Size: size})
}

// Hop begins a window of a size every so often.
func (s *Stream) Hop(size, every time.Duration) *Stream {
	return s.Window(spec.Window{Kind: "hop", Size: size, Every: every})
}

// Session ends a window when a key has been quiet for a pause, or after most; 0: only
// then.
func (s *Stream) Session(pause, most time.Duration) *Stream {
	return s.Window(spec.Window{Kind: "session", Size: pause, Max: most})
}

// Aggregate calculates from the records of a key, or of a key and window: calls like
// Field("total", "sum(x)").
func (s *Stream) Aggregate(calls ...spec.Field) *Stream {
	return s.Add(&spec.Aggregate{Calls: calls})
}

// Having leaves out the results of the aggregate that was added last for which the
// condition isn't true.
func (s *Stream) Having(condition string) *Stream {
	if n := len(s.o.s.Steps); n > 0 {
		if a, ok := s.o.s.Steps[n-1].Body.(*spec.Aggregate); ok {
			a.Having = text(condition)
		}
	}
	return s
}

// Top ranks the records of a key, the greatest by first: a changelog of the first n.
func (s *Stream) Top(n int, by string) *Stream { return s.Add(&spec.Top{N: n, By: text(by)}) }

// Join joins with a stream or a table: see spec.Join for the kinds.
func (s *Stream) Join(with *Stream, j spec.Join) *Stream {
	j.With = text(with.name)
	return s.Add(&j)
}

// Table makes a changelog by key.
func (s *Stream) Table(key ...string) *Stream { return s.Add(&spec.Table{Key: keys(key)}) }

// Process runs a registered function.
func (s *Stream) Process(function string) *Stream {
	return s.Add(&spec.Process{Function: text(function)})
}
