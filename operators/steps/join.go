package steps

import (
	"bytes"
	"encoding/binary"
	"slices"
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
	// Stored is by side which fields of a record are kept for As; nil: all.
	Stored [2][]string

	shape shape
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
	out.Value, err = object(&p.shape, p.As, c, out)
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
	other, err := n.side(c, 1-port, from, to)
	if err != nil {
		return err
	}
	matched := false
	for i, end := other.between(from, to); i < end; i++ {
		matched = true
		p := &other.entries[i]
		record, err := p.record()
		if err != nil {
			return err
		}
		if err := n.emit(c, port, r, record, to); err != nil {
			return err
		}
		if n.keeps(1-port) && !p.matched {
			v := bytes.Clone(p.v)
			v[0], p.matched, p.v = 1, true, v
			c.State().Put(sideNames[1-port], p.sub, v)
		}
	}
	return n.store(c, port, r, add(to, 1), matched)
}

// store keeps a record until a time. What is kept of a side has a timer: where it must be
// told in time that a record has no partner, one for when the first is over; else any.
func (n *Join) store(c stream.Context, port int, r *stream.Record, until stream.Time, matched bool) error {
	mine, err := n.side(c, port, r.Time, r.Time)
	if err != nil {
		return err
	}
	e := joined{time: r.Time, matched: matched, v: make([]byte, 1, 96)}
	if matched {
		e.v[0] = 1
	}
	stored := *r
	stored.Value = projected(r.Value, n.Stored[port])
	e.v = appendRecord(e.v, &stored)
	e.sub = binary.BigEndian.AppendUint32(appendOrder(make([]byte, 0, orderSize+4), r.Time, r.Origin), 0)
	at, taken := mine.find(e.sub)
	for number := uint32(1); taken; number++ {
		binary.BigEndian.PutUint32(e.sub[orderSize:], number)
		at, taken = mine.find(e.sub)
	}
	front, none := at == 0, len(mine.entries) == 0
	if mine.part && front {
		front, none = first(c, port, e.sub)
	}
	if front && (none || n.keeps(port)) {
		c.SetTimer(stream.Timer{Kind: stream.EventTime, At: until, Name: sideNames[port]})
	}
	c.State().Put(sideNames[port], e.sub, e.v)
	if mine.part {
		return nil
	}
	mine.entries = slices.Insert(mine.entries, at, e)
	mine.bytes += weight(len(e.v))
	mine.keep(c, port)
	return nil
}

// first tells whether a sub comes in front of all there are, and whether there is none.
func first(c stream.Context, port int, sub []byte) (front, none bool) {
	front, none = true, true
	c.State().Scan(sideNames[port], nil, nil, func(least, _ []byte) bool {
		front, none = bytes.Compare(sub, least) < 0, false
		return false
	})
	return front, none
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
	s, err := n.side(c, port, stream.TimeMin, t.At)
	if err != nil {
		return err
	}
	over := 0
	for ; over < len(s.entries); over++ {
		e := &s.entries[over]
		_, to := n.reach(port, e.time)
		if add(to, 1) > t.At {
			break
		}
		c.State().Delete(t.Name, e.sub)
		s.bytes -= weight(len(e.v))
		if e.matched || !n.keeps(port) {
			continue
		}
		r, err := e.record()
		if err != nil {
			return err
		}
		if err := n.emit(c, port, r, nil, to); err != nil {
			return err
		}
	}
	s.entries = slices.Delete(s.entries, 0, over)
	if s.part {
		if m, ok := c.Cached(t.Name, nil).(*side); ok {
			if m.gone += over; m.gone >= sideMax { // maybe there are few again
				c.Cache(t.Name, nil, nil, 0)
			}
		}
		*s = side{}
		if err := s.read(c, port, nil, nil, 1); err != nil {
			return err
		}
	} else {
		s.keep(c, port)
	}
	if len(s.entries) > 0 {
		c.SetTimer(stream.Timer{Kind: stream.EventTime, At: n.next(port, s.entries[0].time, t.At), Name: t.Name})
	}
	return nil
}

// next is when what is over is removed after a moment, where the first of what is left is of
// a time. Where nobody sees when they go they wait for others, for as long as they are kept
// anyway, or a second.
func (n *Join) next(port int, first, now stream.Time) stream.Time {
	_, to := n.reach(port, first)
	at := add(to, 1)
	if n.keeps(port) {
		return at
	}
	width := n.After
	if n.Window > 0 {
		width = n.Window
	} else if port == portRight {
		width = n.Before
	}
	width = max(width, time.Second)
	return max(at, add(floor(now, 0, int64(width)), int64(width)))
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
		return n.setRow(c, port, r)
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

func (p *Pairing) setRow(c stream.Context, port int, r *stream.Record) error {
	c.Cache(sideNames[port], nil, nil, 0)
	if r.Op == stream.Delete {
		c.State().Delete(sideNames[port], nil)
		return nil
	}
	stored := *r
	stored.Value = projected(r.Value, p.Stored[port])
	c.State().Put(sideNames[port], nil, appendRecord(nil, &stored))
	return nil
}

func getRow(c stream.Context, port int) (*stream.Record, error) {
	if r, ok := c.Cached(sideNames[port], nil).(*stream.Record); ok {
		return r, nil
	}
	b, there := c.State().Get(sideNames[port], nil)
	if !there {
		return nil, nil
	}
	r, err := loadRecord(b)
	if err == nil {
		c.Cache(sideNames[port], nil, r, weight(len(b)))
	}
	return r, err
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
	if err := n.setRow(c, port, r); err != nil {
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
