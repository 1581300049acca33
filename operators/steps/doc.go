// Package steps is the nodes an operator's graph is made of: what docs/operators.md
// calls steps, each as a stream.Node over the engine's state.
//
//	single records   Filter Map Project Flatmap Key Union Split Assert Table
//	by time          Windows Slide Sessions Deduplicate Join (interval, window)
//	by order         Running Rows Counted Top Lookup Merge
//	own              Process: functions in Go, registered by name
//
// A node keeps nothing between calls but what stream.State holds, so any replica can go
// on where another stopped. What it needs no more it deletes when a timer says that
// event time, or the logged clock, has passed it.
//
// What comes out by event time doesn't depend on the order in which records came, as
// long as none is late, but for the last digits of sums of doubles. Equal times are
// told apart by input and sequence. The event time of a window's result is the window's
// end less a nanosecond: the results of windows can be put into windows.
//
// A stream may be a changelog: its records say what the row with their key is now
// (stream.Upsert), or that it is gone (stream.Delete). Filter, Map and the like keep
// that: a row that doesn't pass a filter is gone.
//
// Nodes are made of exported fields, which must not be changed once the node runs. A
// node is for one goroutine.
package steps

import (
	"bytes"
	"encoding/binary"

	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/value"
)

// noTimers is a node that sets none.
type noTimers struct{}

// OnTimer does nothing: there is none.
func (noTimers) OnTimer(stream.Context, stream.Timer) error { return nil }

// clock says by which time a node works.
type clock stream.TimerKind

// at is when a record happened by it.
func (k clock) at(c stream.Context, r *stream.Record) stream.Time {
	if stream.TimerKind(k) == stream.Processing {
		return c.Clock()
	}
	return r.Time
}

// passed tells whether everything in front of a moment is over. Records of a step that
// runs by processing time have its clock, so a moment is over once the clock is there.
func (k clock) passed(c stream.Context, at stream.Time) bool {
	if stream.TimerKind(k) == stream.Processing {
		return at <= c.Clock()
	}
	return at <= c.Watermark()
}

func (k clock) timer(at stream.Time, name string) stream.Timer {
	return stream.Timer{Kind: stream.TimerKind(k), At: at, Name: name}
}

// add adds to a time without running over its ends.
func add(t stream.Time, d int64) stream.Time {
	switch s := t + stream.Time(d); {
	case d > 0 && s < t:
		return stream.TimeMax
	case d < 0 && s > t:
		return stream.TimeMin
	default:
		return s
	}
}

// appendTime appends a time so that times sort as bytes.
func appendTime(dst []byte, t stream.Time) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(t)^1<<63)
}

func loadTime(b []byte) (stream.Time, []byte, error) {
	if len(b) < 8 {
		return 0, nil, errAccumulator
	}
	return stream.Time(binary.BigEndian.Uint64(b) ^ 1<<63), b[8:], nil
}

// appendOrder appends what records are ordered by: time, input, sequence.
func appendOrder(dst []byte, t stream.Time, p stream.Position) []byte {
	dst = appendTime(dst, t)
	dst = binary.BigEndian.AppendUint32(dst, uint32(p.Input))
	return binary.BigEndian.AppendUint64(dst, uint64(p.Sequence))
}

// orderSize is how long appendOrder's bytes are; behind them stands a number that tells
// records apart that one record was made into.
const orderSize = 20

// keep puts v under an order and the first number that is free behind it, and returns
// both.
func keep(s stream.State, name string, order, v []byte) []byte {
	sub := binary.BigEndian.AppendUint32(order, 0)
	for n := uint32(1); ; n++ {
		if _, taken := s.Get(name, sub); !taken {
			s.Put(name, sub, v)
			return sub
		}
		binary.BigEndian.PutUint32(sub[len(sub)-4:], n)
	}
}

// loadRecord and appendRecord are a record in state.
func appendRecord(dst []byte, r *stream.Record) []byte {
	dst = appendOrder(dst, r.Time, r.Origin)
	dst = append(dst, byte(r.Op))
	dst = appendBlock(dst, r.Key)
	dst = appendBlock(dst, []byte(r.Subject))
	dst = appendBlock(dst, r.Header)
	return value.Append(dst, r.Value)
}

func loadRecord(b []byte) (*stream.Record, error) {
	if len(b) < orderSize+1 {
		return nil, errAccumulator
	}
	r := &stream.Record{}
	r.Time, r.Origin = loadOrder(b)
	r.Op = stream.ChangeOp(b[orderSize])
	key, b, err := loadBlock(b[orderSize+1:])
	if err != nil {
		return nil, err
	}
	subject, b, err := loadBlock(b)
	if err != nil {
		return nil, err
	}
	header, b, err := loadBlock(b)
	if err != nil {
		return nil, err
	}
	r.Key, r.Subject = key, string(subject)
	if len(header) > 0 {
		r.Header = header
	}
	r.Value, err = value.Load(b)
	return r, err
}

func loadOrder(b []byte) (stream.Time, stream.Position) {
	t := stream.Time(binary.BigEndian.Uint64(b) ^ 1<<63)
	return t, stream.Position{Input: int(binary.BigEndian.Uint32(b[8:])), Sequence: topics.Sequence(binary.BigEndian.Uint64(b[12:]))}
}

// remove deletes what is under a name from from to to.
func remove(s stream.State, name string, from, to []byte) {
	var over [][]byte
	s.Scan(name, from, to, func(sub, _ []byte) bool {
		over = append(over, bytes.Clone(sub))
		return true
	})
	for _, sub := range over {
		s.Delete(name, sub)
	}
}
