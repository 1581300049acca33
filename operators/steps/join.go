package steps

import (
	"bytes"
	"time"

	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/value"
)

// JoinKind says what becomes of a record without a partner.
type JoinKind uint8

// The kinds of joins.
const (
	Inner JoinKind = iota // it gives nothing
	Left                  // one of the left gives a result without a right part
	Outer                 // so does one of the right
)

// The ports of a join.
const (
	portLeft = iota
	portRight
)

var sideNames = [2]string{"l", "r"}

// Pairing is what all joins have in common: results are objects of As, evaluated over
// {left: …, right: …}, or that object where there is no As.
type Pairing struct {
	Kind JoinKind
	As   []Named
}

// pair makes a result of the two sides, one of which may be nil.
func (p *Pairing) pair(c stream.Context, left, right *stream.Record) (*stream.Record, error) {
	out := &stream.Record{Key: c.Key()}
	var parts [2]value.Value
	for i, side := range []*stream.Record{left, right} {
		if side == nil {
			continue
		}
		parts[i] = side.Value
		if side.Time > out.Time || out.Origin.Sequence == 0 || side.Time == out.Time && later(side.Origin, out.Origin) {
			out.Time, out.Origin = side.Time, side.Origin
		}
		if out.Subject == "" {
			out.Subject, out.Header = side.Subject, side.Header
		}
	}
	out.Value = value.OfObject(value.Field{Name: "left", Value: parts[0]}, value.Field{Name: "right", Value: parts[1]})
	if len(p.As) == 0 {
		return out, nil
	}
	var err error
	out.Value, err = object(p.As, c, out)
	return out, err
}

func later(a, b stream.Position) bool {
	return a.Input > b.Input || a.Input == b.Input && a.Sequence > b.Sequence
}

// Join joins two streams by key and event time: the pairs with right.time − left.time
// from −Before to After or, with a Window, those of one tumbling window. A pair comes
// out as soon as both are there, with the later's time (of a Window: its end's); a
// record without a partner when it can't get one any more. Both are forgotten then.
type Join struct {
	Pairing
	Before, After  time.Duration
	Window, Offset time.Duration
}

// reach returns which times of the other side a record may be paired with, both
// inclusive.
func (n *Join) reach(port int, t stream.Time) (from, to stream.Time) {
	if n.Window > 0 {
		from = floor(t, int64(n.Offset), int64(n.Window))
		return from, add(from, int64(n.Window)-1)
	}
	if port == portLeft {
		return add(t, -int64(n.Before)), add(t, int64(n.After))
	}
	return add(t, -int64(n.After)), add(t, int64(n.Before))
}

// Process implements stream.Node.
func (n *Join) Process(c stream.Context, port int, r *stream.Record) error {
	if r.Time < c.Watermark() {
		c.Side(stream.SideLate, r, "its partners may be gone")
		return nil
	}
	from, to := n.reach(port, r.Time)
	type partner struct {
		sub, v []byte
	}
	var partners []partner
	c.State().Scan(sideNames[1-port], appendTime(nil, from), appendTime(nil, add(to, 1)), func(sub, v []byte) bool {
		partners = append(partners, partner{bytes.Clone(sub), v})
		return true
	})
	for _, p := range partners {
		other, err := loadRecord(p.v[1:])
		if err != nil {
			return err
		}
		if err := n.emit(c, port, r, other, to); err != nil {
			return err
		}
		if n.keeps(1-port) && p.v[0] == 0 {
			v := bytes.Clone(p.v)
			v[0] = 1
			c.State().Put(sideNames[1-port], p.sub, v)
		}
	}
	matched := byte(0)
	if len(partners) > 0 {
		matched = 1
	}
	order := appendOrder(make([]byte, 0, orderSize+4), r.Time, r.Origin)
	keep(c.State(), sideNames[port], order, appendRecord([]byte{matched}, r))
	c.SetTimer(stream.Timer{Kind: stream.EventTime, At: add(to, 1), Name: sideNames[port]})
	return nil
}

// keeps tells whether a side's records without a partner give results.
func (n *Join) keeps(port int) bool { return n.Kind == Outer || n.Kind == Left && port == portLeft }

func (n *Join) emit(c stream.Context, port int, r, other *stream.Record, to stream.Time) error {
	left, right := r, other
	if port == portRight {
		left, right = other, r
	}
	out, err := n.pair(c, left, right)
	if err != nil {
		return err
	}
	if n.Window > 0 {
		out.Time = to
	}
	c.Emit(0, out)
	return nil
}

// OnTimer implements stream.Node: what can't be paired any more is forgotten.
func (n *Join) OnTimer(c stream.Context, t stream.Timer) error {
	port := portLeft
	if t.Name == sideNames[portRight] {
		port = portRight
	}
	var over [][]byte
	var err error
	c.State().Scan(t.Name, nil, nil, func(sub, v []byte) bool {
		at, _ := loadOrder(sub)
		_, to := n.reach(port, at)
		if add(to, 1) > t.At {
			return false
		}
		over = append(over, bytes.Clone(sub))
		if v[0] == 1 || !n.keeps(port) {
			return true
		}
		var r *stream.Record
		if r, err = loadRecord(v[1:]); err == nil {
			err = n.emit(c, port, r, nil, to)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	for _, sub := range over {
		c.State().Delete(t.Name, sub)
	}
	return nil
}

// Lookup joins each record of the left with the row of its key in the table on the
// right, as it is when the record is taken. What comes out depends on the order in
// which the two came.
type Lookup struct {
	Pairing
	noTimers
}

// Process implements stream.Node.
func (n *Lookup) Process(c stream.Context, port int, r *stream.Record) error {
	if port == portRight {
		return setRow(c, port, r)
	}
	row, err := getRow(c, portRight)
	if err != nil {
		return err
	}
	if row == nil && n.Kind == Inner {
		c.Count("unmatched", 1)
		return nil
	}
	out, err := n.pair(c, r, row)
	if err != nil {
		return err
	}
	// A row may be of any time: the result is of its record's.
	out.Time, out.Origin, out.Op = r.Time, r.Origin, r.Op
	c.Emit(0, out)
	return nil
}

func setRow(c stream.Context, port int, r *stream.Record) error {
	if r.Op == stream.Delete {
		c.State().Delete(sideNames[port], nil)
		return nil
	}
	c.State().Put(sideNames[port], nil, appendRecord(nil, r))
	return nil
}

func getRow(c stream.Context, port int) (*stream.Record, error) {
	b, there := c.State().Get(sideNames[port], nil)
	if !there {
		return nil, nil
	}
	return loadRecord(b)
}

// Merge joins two tables by key: a changelog of the rows that both make, with an update
// when either changes.
type Merge struct {
	Pairing
	noTimers
}

// Process implements stream.Node.
func (n *Merge) Process(c stream.Context, port int, r *stream.Record) error {
	before, err := n.result(c, r)
	if err != nil {
		return err
	}
	if err := setRow(c, port, r); err != nil {
		return err
	}
	after, err := n.result(c, r)
	switch {
	case err != nil:
		return err
	case after != nil:
		c.Emit(0, after)
	case before != nil:
		before.Op = stream.Delete
		c.Emit(0, before)
	}
	return nil
}

// result is the row as it is, nil where there is none.
func (n *Merge) result(c stream.Context, cause *stream.Record) (*stream.Record, error) {
	left, err := getRow(c, portLeft)
	if err != nil {
		return nil, err
	}
	right, err := getRow(c, portRight)
	if err != nil {
		return nil, err
	}
	if left == nil && right == nil || left == nil && n.Kind != Outer || right == nil && n.Kind == Inner {
		return nil, nil
	}
	out, err := n.pair(c, left, right)
	if err != nil {
		return nil, err
	}
	out.Time, out.Origin = cause.Time, cause.Origin
	return out, nil
}
