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
	if n.Row == nil {
		return n.single(c, r)
	}
	before, err := n.first(c, n.N)
	if err != nil {
		return err
	}
	row, err := n.Row.key(c, r)
	if err != nil {
		return err
	}
	if old, there := c.State().Get(stateRows, row); there {
		c.State().Delete(stateIndex, bytes.Clone(old))
		c.State().Delete(stateRows, row)
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
	touch(c, n.TTL)
	return n.tell(c, r, before, after)
}

// single takes a record that is a row of its own: most aren't among the first N, which
// shows without reading those.
func (n *Top) single(c stream.Context, r *stream.Record) error {
	touch(c, n.TTL)
	if r.Op == stream.Delete {
		return nil
	}
	by, err := eval(n.By, c, r)
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	if by.IsNull() {
		return nil // it has no rank
	}
	sub := n.sub(by, r, nil)
	kept := n.kept(c)
	if behind, err := n.behind(kept, by, sub); err != nil || behind {
		return err
	}
	before := make([]ranked, len(kept), len(kept)+1)
	for i, k := range kept {
		if before[i], err = loadRanked(k.sub, k.v); err != nil {
			return err
		}
	}
	slices.SortStableFunc(before, n.compare)
	it := ranked{by: by, record: r}
	at, _ := slices.BinarySearchFunc(before, it, func(x, y ranked) int {
		if n.compare(x, y) > 0 {
			return 1
		}
		return -1 // of equals the new one comes last
	})
	if at == n.N {
		return nil
	}
	it.sub = keep(c.State(), stateIndex, sub, appendRecord(appendBlock(nil, value.Append(nil, by)), r))
	after := slices.Insert(slices.Clone(before), at, it)
	if len(after) > n.N {
		c.State().Delete(stateIndex, after[n.N].sub)
		after = after[:n.N]
	}
	return n.tell(c, r, before, after)
}

// keptRow is a row as state has it.
type keptRow struct{ sub, v []byte }

// kept returns all rows, by their subs.
func (n *Top) kept(c stream.Context) []keptRow {
	all := make([]keptRow, 0, min(n.N, 16))
	c.State().Scan(stateIndex, nil, nil, func(sub, v []byte) bool {
		all = append(all, keptRow{sub, v})
		return true
	})
	return all
}

// behind tells whether a row comes behind N others for certain.
func (n *Top) behind(kept []keptRow, by value.Value, sub []byte) (bool, error) {
	if len(kept) < n.N {
		return false, nil
	}
	last := kept[len(kept)-1]
	if _, exact := rank(by); !exact || bytes.Compare(sub, last.sub) <= 0 {
		return false, nil
	}
	block, _, err := loadBlock(last.v)
	if err != nil {
		return false, err
	}
	least, err := value.Load(block)
	if err != nil {
		return false, err
	}
	_, exact := rank(least)
	return exact, nil
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
	c.State().Put(stateRows, row, sub)
	c.State().Put(stateIndex, sub, appendRecord(appendBlock(nil, value.Append(nil, by)), r))
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
	slices.SortStableFunc(all, n.compare)
	return all[:min(len(all), most)], nil
}

// compare tells which of two rows comes first.
func (n *Top) compare(a, b ranked) int {
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

// tell emits the ranks that have changed.
func (n *Top) tell(c stream.Context, cause *stream.Record, before, after []ranked) error {
	for i := range max(len(before), len(after)) {
		if i < len(before) && i < len(after) && bytes.Equal(before[i].sub, after[i].sub) && (n.Row == nil || value.Equal(before[i].record.Value, after[i].record.Value)) {
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
