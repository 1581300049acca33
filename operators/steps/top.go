package steps

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/expr"
	"github.com/heraldmq/herald/topics/value"
)

// Top ranks the records of a key and tells the first N: a changelog by key and rank,
// with an update for each rank whose row changes.
//
// Each record is a row of its own, and what is not among the first N is forgotten. With
// Row the records are rows of a changelog that Row tells apart within the key: a new
// one replaces the old, and all rows are kept, since one that is behind the first N may
// come up when another is gone.
type Top struct {
	N      int
	By     *expr.Program
	Rising bool // the least first, else the greatest
	Latest bool // of equals the latest first, else the earliest
	Row    *Key // nil: each record is a row
	TTL    time.Duration
}

// State: "i" by, order, row → by, record; "r" row → its sub under "i".
const (
	stateIndex = "i"
	stateRows  = "r"
)

// ranked is a row with what it is ranked by.
type ranked struct {
	by     value.Value
	record *stream.Record
	sub    []byte
}

// Process implements stream.Node.
func (n *Top) Process(c stream.Context, _ int, r *stream.Record) error {
	before, err := n.first(c, n.N)
	if err != nil {
		return err
	}
	var row []byte
	if n.Row != nil {
		if row, err = n.Row.key(c, r); err != nil {
			return err
		}
		if old, there := c.State().Get(stateRows, row); there {
			c.State().Delete(stateIndex, bytes.Clone(old))
			c.State().Delete(stateRows, row)
		}
	}
	if r.Op == stream.Upsert {
		if err := n.put(c, r, row); err != nil {
			return err
		}
	}
	after, err := n.first(c, n.N)
	if err != nil {
		return err
	}
	if n.Row == nil {
		if err := n.trim(c); err != nil {
			return err
		}
	}
	touch(c, n.TTL)
	return n.tell(c, r, before, after)
}

// put keeps a row.
func (n *Top) put(c stream.Context, r *stream.Record, row []byte) error {
	by, err := eval(n.By, c, r)
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	if by.IsNull() {
		return nil // it has no rank
	}
	sub := n.sub(by, r, row)
	if n.Row != nil {
		c.State().Put(stateRows, row, sub)
	}
	v := appendRecord(appendBlock(nil, value.Append(nil, by)), r)
	if n.Row == nil {
		keep(c.State(), stateIndex, sub, v)
		return nil
	}
	c.State().Put(stateIndex, sub, v)
	return nil
}

// sub is under which bytes a row is kept, so that rows are in their order: but for
// numbers that are equal as doubles, which first sorts.
func (n *Top) sub(by value.Value, r *stream.Record, row []byte) []byte {
	prefix, _ := rank(by)
	if !n.Rising {
		for i := range prefix {
			prefix[i] = ^prefix[i]
		}
	}
	at := len(prefix)
	sub := appendOrder(prefix, r.Time, r.Origin)
	if n.Latest {
		for i := at; i < len(sub); i++ {
			sub[i] = ^sub[i]
		}
	}
	return append(sub, row...)
}

// rank is bytes that sort as values do, and whether other values can't have the same.
func rank(v value.Value) (prefix []byte, exact bool) {
	if !v.Kind().Number() {
		return value.AppendKey(nil, v), true
	}
	f, isDouble := v.Double()
	exact = isDouble
	if !isDouble {
		if i, isInt := v.Int(); isInt {
			f, exact = float64(i), i > -1<<53 && i < 1<<53
		} else if d, ok := v.Decimal(); ok {
			f, _ = d.Float64() // infinite where it is out of range, which sorts well enough
		}
	}
	if f == 0 {
		f = 0 // not −0
	}
	bits := math.Float64bits(f)
	if bits>>63 != 0 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	return binary.BigEndian.AppendUint64([]byte{0x20}, bits), exact
}

// first returns the first rows, in order.
func (n *Top) first(c stream.Context, most int) ([]ranked, error) {
	var all []ranked
	var last []byte
	exact := true
	var err error
	c.State().Scan(stateIndex, nil, nil, func(sub, v []byte) bool {
		var it ranked
		if it, err = loadRanked(sub, v); err != nil {
			return false
		}
		prefix, one := rank(it.by)
		if len(all) >= most && (exact && one || !bytes.Equal(prefix, last)) {
			return false
		}
		exact, last = one && (exact || !bytes.Equal(prefix, last)), prefix
		all = append(all, it)
		return true
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b ranked) int {
		by, _ := value.Compare(a.by, b.by)
		if !n.Rising {
			by = -by
		}
		if by != 0 {
			return by
		}
		t := compareInts(int64(a.record.Time), int64(b.record.Time))
		if t == 0 {
			t = compareInts(int64(a.record.Origin.Input), int64(b.record.Origin.Input))
		}
		if t == 0 {
			t = compareInts(int64(a.record.Origin.Sequence), int64(b.record.Origin.Sequence))
		}
		if n.Latest {
			t = -t
		}
		return t
	})
	return all[:min(len(all), most)], nil
}

func loadRanked(sub, v []byte) (it ranked, err error) {
	block, rest, err := loadBlock(v)
	if err != nil {
		return it, err
	}
	if it.by, err = value.Load(block); err != nil {
		return it, err
	}
	it.sub = bytes.Clone(sub)
	it.record, err = loadRecord(rest)
	return it, err
}

// trim forgets what is behind the first rows.
func (n *Top) trim(c stream.Context) error {
	all, err := n.first(c, math.MaxInt)
	if err != nil {
		return err
	}
	for _, it := range all[min(len(all), n.N):] {
		c.State().Delete(stateIndex, it.sub)
	}
	return nil
}

// tell emits the ranks that have changed.
func (n *Top) tell(c stream.Context, cause *stream.Record, before, after []ranked) error {
	for i := range max(len(before), len(after)) {
		if i < len(before) && i < len(after) && bytes.Equal(before[i].sub, after[i].sub) && value.Equal(before[i].record.Value, after[i].record.Value) {
			continue
		}
		var of ranked
		op := stream.Upsert
		if i < len(after) {
			of = after[i]
		} else {
			op, of = stream.Delete, before[i]
		}
		out, err := n.row(c, cause, of.record, i+1)
		if err != nil {
			return err
		}
		out.Op = op
		c.Emit(0, out)
	}
	return nil
}

// row makes the record of a rank: its number, then the fields of what has it.
func (n *Top) row(c stream.Context, cause, of *stream.Record, number int) (*stream.Record, error) {
	list := []value.Field{{Name: "rank", Value: value.OfInt(int64(number))}}
	if of.Value.Kind() == value.Object {
		for i := range of.Value.Len() {
			if f := of.Value.Field(i); f.Name != "rank" {
				list = append(list, f)
			}
		}
	} else {
		list = append(list, value.Field{Name: "value", Value: of.Value})
	}
	parts := []value.Value{list[0].Value}
	if len(c.Key()) > 0 {
		k, _, err := value.FromKey(c.Key())
		if err != nil {
			return nil, fmt.Errorf("a record's key: %w", err)
		}
		parts = []value.Value{k, list[0].Value}
	}
	return &stream.Record{
		Key: value.AppendKey(nil, value.OfList(parts)), Time: cause.Time, Origin: cause.Origin,
		Value: value.OfObject(list...),
	}, nil
}

// OnTimer implements stream.Node.
func (n *Top) OnTimer(c stream.Context, t stream.Timer) error {
	return expire(c, t, n.TTL, stateIndex, stateRows)
}
