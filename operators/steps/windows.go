package steps

import (
	"fmt"
	"time"

	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/expr"
	"github.com/heraldmq/herald/topics/value"
)

// Aggregation is what all windows and running aggregates have in common: what is
// aggregated, and what is made of it.
type Aggregation struct {
	Aggregates []Aggregate
	KeyNames   []string      // of the key's fields in the result
	Having     *expr.Program // results for which it isn't true are left out; nil: none

	shapes [8]shape // of results: with a key, a start, an end
}

func (g *Aggregation) all() aggregates { return g.Aggregates }

// record makes a result, and tells whether it is one.
func (g *Aggregation) record(c stream.Context, r row, at stream.Time, from stream.Position, start, end *stream.Time) (*stream.Record, bool, error) {
	v, err := g.result(r, c.Key(), start, end)
	if err != nil {
		return nil, false, err
	}
	out := &stream.Record{Key: c.Key(), Time: at, Value: v, Origin: from}
	if g.Having == nil {
		return out, true, nil
	}
	pass, err := match(g.Having, c, out)
	if err != nil {
		return nil, false, fmt.Errorf("having: %w", err)
	}
	return out, pass, nil
}

// change emits a result that replaces the one before, where one was shown, and tells
// whether one is shown now.
func (g *Aggregation) change(c stream.Context, r row, at stream.Time, from stream.Position, start, end *stream.Time, shown bool) (bool, error) {
	out, pass, err := g.record(c, r, at, from, start, end)
	if err != nil {
		return false, err
	}
	if !pass {
		if !shown {
			return false, nil
		}
		out.Op = stream.Delete
	}
	c.Emit(0, out)
	return pass, nil
}

// Windows aggregates in windows of a fixed size that begin at multiples of Every from
// Offset: tumbling ones where Every is Size, else hopping ones. What comes in is kept in
// panes, of which windows are made up, so that a record is added once.
type Windows struct {
	Aggregation
	Size, Every time.Duration
	Offset      time.Duration
	Allow       time.Duration // how long after its end a window waits for late records
	Processing  bool          // by the logged clock
	Changes     bool          // emit at each change, not at the end

	sub []byte // scratch
}

const stateWindows = "w"

func (n *Windows) clock() clock {
	if n.Processing {
		return clock(stream.Processing)
	}
	return clock(stream.EventTime)
}

// pane is the width of panes: windows begin and end at multiples of it.
func (n *Windows) pane() int64 {
	a, b := int64(n.Size), int64(n.Every)
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// floor is the greatest multiple of width from offset that isn't above t.
func floor(t stream.Time, offset, width int64) stream.Time {
	d := int64(t) - offset
	m := d % width
	if m < 0 {
		m += width
	}
	return t - stream.Time(m)
}

// lastEnd is the end of the last window that a pane is in.
func (n *Windows) lastEnd(pane stream.Time) stream.Time {
	return add(floor(pane, int64(n.Offset), int64(n.Every)), int64(n.Size))
}

// Process implements stream.Node.
func (n *Windows) Process(c stream.Context, _ int, r *stream.Record) error {
	by := n.clock()
	t := by.at(c, r)
	pane := floor(t, int64(n.Offset), n.pane())
	last := n.lastEnd(pane)
	if by.passed(c, add(last, int64(n.Allow))) {
		c.Side(stream.SideLate, r, "its windows are closed")
		return nil
	}
	n.sub = appendTime(n.sub[:0], pane)
	sub := n.sub
	old, there := c.State().Get(stateWindows, sub)
	row, err := n.all().loadOrNew(old, there)
	if err != nil {
		return err
	}
	if err := n.all().take(row, c, r); err != nil {
		return err
	}
	c.State().Put(stateWindows, sub, row.append(make([]byte, 0, max(len(old)+8, 16))))
	if !there {
		for end := last; end > pane; end = add(end, -int64(n.Every)) {
			if !by.passed(c, add(end, int64(n.Allow))) {
				c.SetTimer(by.timer(add(end, int64(n.Allow)), ""))
			}
		}
	}
	if n.Changes {
		return n.changed(c, pane, last, r.Origin)
	}
	return nil
}

// changed emits the windows a pane is in that are still open, first to last.
func (n *Windows) changed(c stream.Context, pane, last stream.Time, from stream.Position) error {
	end := last
	for add(end, -int64(n.Every)) > pane {
		end = add(end, -int64(n.Every))
	}
	for ; end <= last; end = add(end, int64(n.Every)) {
		if n.clock().passed(c, add(end, int64(n.Allow))) {
			continue
		}
		row, found, err := n.window(c, end)
		if err != nil || !found {
			return err
		}
		var space [16]byte
		sub := appendTime(space[:0], end)
		_, shown := c.State().Get("shown", sub)
		start := add(end, -int64(n.Size))
		now, err := n.change(c, row, add(end, -1), from, &start, &end, shown)
		if err != nil {
			return err
		}
		if n.Having != nil && now != shown {
			if now {
				c.State().Put("shown", sub, nil)
			} else {
				c.State().Delete("shown", sub)
			}
		}
	}
	return nil
}

// window merges the panes of the window that ends at end, first to last.
func (n *Windows) window(c stream.Context, end stream.Time) (sum row, found bool, err error) {
	from, to := appendTime(nil, add(end, -int64(n.Size))), appendTime(nil, end)
	c.State().Scan(stateWindows, from, to, func(_, v []byte) bool {
		var part row
		if part, err = n.all().load(v); err != nil {
			return false
		}
		if sum == nil {
			sum = part
			return true
		}
		err = n.all().merge(sum, part)
		return err == nil
	})
	return sum, sum != nil, err
}

// OnTimer implements stream.Node: a window is closed, and the panes go that no later
// window has.
func (n *Windows) OnTimer(c stream.Context, t stream.Timer) error {
	end := add(t.At, -int64(n.Allow))
	if !n.Changes {
		row, found, err := n.window(c, end)
		if err != nil {
			return err
		}
		start := add(end, -int64(n.Size))
		if found {
			out, pass, err := n.record(c, row, add(end, -1), stream.Position{}, &start, &end)
			if err != nil {
				return err
			}
			if pass {
				c.Emit(0, out)
			}
		}
	} else if n.Having != nil {
		c.State().Delete("shown", appendTime(nil, end))
	}
	next := add(end, int64(n.Every)-int64(n.Size))
	remove(c.State(), stateWindows, nil, appendTime(nil, next))
	return nil
}

// loadOrNew reads a row from state.
func (all aggregates) loadOrNew(b []byte, there bool) (row, error) {
	if !there {
		return all.newRow(), nil
	}
	return all.load(b)
}

// take adds what a record brings.
func (all aggregates) take(to row, c stream.Context, r *stream.Record) error {
	for i := range all {
		got, err := all[i].eval(c, r)
		if err != nil {
			return err
		}
		if err := all[i].add(to[i], got, r.Time, r.Origin); err != nil {
			return err
		}
	}
	return nil
}

// appendArgs and loadArgs are what a record brings, in state.
func appendArgs(dst []byte, got []args) []byte {
	for i := range got {
		dst = appendBlock(dst, value.Append(nil, got[i].arg))
		dst = appendBlock(dst, value.Append(nil, got[i].by))
	}
	return dst
}

func loadArgs(b []byte, n int) ([]args, error) {
	got := make([]args, n)
	for i := range got {
		for _, to := range []*value.Value{&got[i].arg, &got[i].by} {
			block, rest, err := loadBlock(b)
			if err != nil {
				return nil, err
			}
			if *to, err = value.Load(block); err != nil {
				return nil, err
			}
			b = rest
		}
	}
	return got, nil
}
