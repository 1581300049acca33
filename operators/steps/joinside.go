package steps

import (
	"bytes"
	"math"
	"slices"
	"sort"

	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/value"
)

// side is the records of one side of a key that are kept, in order.
type side struct {
	entries []joined
	bytes   int
	part    bool // there are so many that only those asked for are read
	gone    int  // of so many, since that was found out
	rare    bool // there was none when it was read
}

// sideMax is how many records of a side are kept at hand.
const sideMax = 4096

// keep keeps what was read of a side, or that it is too much.
func (s *side) keep(c stream.Context, port int) {
	if len(s.entries) > sideMax {
		s = &side{part: true}
	}
	if s.rare = len(s.entries) < 2 && !s.part && s.rare; s.rare {
		return // of a key that comes once there is nothing to remember
	}
	c.Cache(sideNames[port], nil, s, s.bytes)
}

// joined is a record that is kept. Under its sub is whether it has had a partner, then the
// record.
type joined struct {
	time    stream.Time
	sub, v  []byte
	matched bool
	read    *stream.Record // once it was asked for
}

func (e *joined) record() (_ *stream.Record, err error) {
	if e.read == nil {
		e.read, err = loadRecord(e.v[1:])
	}
	return e.read, err
}

// side returns the records of a side, at least those from from to to.
func (n *Join) side(c stream.Context, port int, from, to stream.Time) (*side, error) {
	s, ok := c.Cached(sideNames[port], nil).(*side)
	if ok && !s.part {
		return s, nil
	}
	if !ok {
		s = &side{}
		if err := s.read(c, port, nil, nil, sideMax+1); err != nil {
			return nil, err
		}
		s.rare = len(s.entries) == 0
		if s.keep(c, port); len(s.entries) <= sideMax {
			return s, nil
		}
	}
	s = &side{part: true}
	var end []byte
	if to < stream.TimeMax {
		end = appendTime(nil, to+1)
	}
	return s, s.read(c, port, appendTime(nil, from), end, math.MaxInt)
}

// read reads up to most records.
func (s *side) read(c stream.Context, port int, from, to []byte, most int) (err error) {
	c.State().Scan(sideNames[port], from, to, func(sub, v []byte) bool {
		if len(sub) < orderSize || len(v) == 0 {
			err = errAccumulator
			return false
		}
		at, _ := loadOrder(sub)
		s.entries = append(s.entries, joined{time: at, sub: sub, v: v, matched: v[0] == 1})
		s.bytes += weight(len(v))
		return len(s.entries) < most
	})
	return err
}

// between returns which records are from from to to, both inclusive; end is behind them.
func (s *side) between(from, to stream.Time) (begin, end int) {
	after := func(t stream.Time) int {
		return sort.Search(len(s.entries), func(i int) bool { return s.entries[i].time >= t })
	}
	if begin, end = after(from), len(s.entries); to < stream.TimeMax {
		end = after(to + 1)
	}
	return begin, end
}

// find returns where a sub is, or belongs.
func (s *side) find(sub []byte) (at int, there bool) {
	if n := len(s.entries); n == 0 || bytes.Compare(s.entries[n-1].sub, sub) < 0 {
		return n, false // most come in order
	}
	return slices.BinarySearchFunc(s.entries, sub, func(e joined, sub []byte) int { return bytes.Compare(e.sub, sub) })
}

// projected is an object's fields that are looked at; nil: all.
func projected(v value.Value, fields []string) value.Value {
	if fields == nil || v.Kind() != value.Object {
		return v
	}
	names, values := make([]string, 0, len(fields)), make([]value.Value, 0, len(fields))
	for _, name := range fields {
		if f, ok := v.Get(name); ok {
			names, values = append(names, name), append(values, f)
		}
	}
	return value.OfFields(names, values)
}
