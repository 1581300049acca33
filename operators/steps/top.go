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
	by   value.Value
	time stream.Time
	at   stream.Position
	sub  []byte
	v    []byte         // the record as state has it; nil: there is one
	read *stream.Record // once it was asked for

	names []string // of the record of its rank; once it was made
	size  int      // about what it takes in memory
}

// record returns the row's record.
func (it *ranked) record() (_ *stream.Record, err error) {
	if it.read == nil {
		it.read, err = loadRecord(it.v)
	}
	return it.read, err
}

// ranking is the rows of a key that has no others, in order.
type ranking struct {
	rows  []ranked
	bytes int // of rows, as kept
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

// single takes a record that is a row of its own: most aren't among the first N. Those that
// are kept are only read where they get another rank.
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
	k, err := n.ranking(c)
	if err != nil {
		return err
	}
	it := ranked{by: by, time: r.Time, at: r.Origin, read: r}
	at := len(k.rows)
	for at > 0 && n.compare(it, k.rows[at-1]) < 0 { // of equals the new one comes last
		at--
	}
	if at == n.N {
		return nil
	}
	v := appendRecord(appendByOf(nil, by), r)
	it.sub, it.size = keep(c.State(), stateIndex, n.sub(by, r, nil), v), weight(len(v))
	if len(k.rows) == n.N {
		last := &k.rows[n.N-1]
		c.State().Delete(stateIndex, last.sub)
		k.bytes -= last.size
		k.rows = k.rows[:n.N-1]
	}
	k.rows = slices.Insert(k.rows, at, it)
	k.bytes += it.size
	c.Cache(stateIndex, nil, k, k.bytes)
	for i := at; i < len(k.rows); i++ {
		out, err := n.row(c, r, &k.rows[i], i+1)
		if err != nil {
			return err
		}
		c.Emit(0, out)
	}
	return nil
}

// weight is about what a row takes in memory that takes size in state.
func weight(size int) int { return 256 + 4*size }

// ranking returns the rows that are kept.
func (n *Top) ranking(c stream.Context) (*ranking, error) {
	if k, ok := c.Cached(stateIndex, nil).(*ranking); ok {
		return k, nil
	}
	k := &ranking{rows: make([]ranked, 0, min(n.N, 16)+1)}
	var err error
	c.State().Scan(stateIndex, nil, nil, func(sub, v []byte) bool {
		var it ranked
		it, err = loadRanked(sub, v)
		k.rows = append(k.rows, it)
		k.bytes += it.size
		return err == nil
	})
	slices.SortStableFunc(k.rows, n.compare)
	return k, err
}

func appendByOf(dst []byte, by value.Value) []byte {
	var space [32]byte
	return appendBlock(dst, value.Append(space[:0], by))
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
	c.State().Put(stateIndex, sub, appendRecord(appendByOf(nil, by), r))
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
	t := compareInts(int64(a.time), int64(b.time))
	if t == 0 {
		t = compareInts(int64(a.at.Input), int64(b.at.Input))
	}
	if t == 0 {
		t = compareInts(int64(a.at.Sequence), int64(b.at.Sequence))
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
	if len(rest) < orderSize {
		return it, errAccumulator
	}
	it.time, it.at = loadOrder(rest)
	it.sub, it.v, it.size = bytes.Clone(sub), rest, weight(len(v))
	return it, nil
}

// tell emits the ranks that have changed.
func (n *Top) tell(c stream.Context, cause *stream.Record, before, after []ranked) error {
	for i := range max(len(before), len(after)) {
		if same, err := alike(before, after, i); err != nil || same {
			if err != nil {
				return err
			}
			continue
		}
		of, op := (*ranked)(nil), stream.Delete
		if i < len(after) {
			of, op = &after[i], stream.Upsert
		} else {
			of = &before[i]
		}
		out, err := n.row(c, cause, of, i+1)
		if err != nil {
			return err
		}
		out.Op = op
		c.Emit(0, out)
	}
	return nil
}

// alike tells whether a rank has the same row as before, with the same value.
func alike(before, after []ranked, i int) (bool, error) {
	if i >= len(before) || i >= len(after) || !bytes.Equal(before[i].sub, after[i].sub) {
		return false, nil
	}
	if bytes.Equal(before[i].v, after[i].v) {
		return true, nil
	}
	a, err := before[i].record()
	if err != nil {
		return false, err
	}
	b, err := after[i].record()
	return err == nil && value.Equal(a.Value, b.Value), err
}

// row makes the record of a rank: its number, then the fields of what has it.
func (n *Top) row(c stream.Context, cause *stream.Record, of *ranked, number int) (*stream.Record, error) {
	record, err := of.record()
	if err != nil {
		return nil, err
	}
	rank, v := value.OfInt(int64(number)), record.Value
	names, values := of.names, make([]value.Value, 1, v.Len()+2)
	values[0] = rank
	switch {
	case v.Kind() != value.Object:
		names, values = []string{"rank", "value"}, append(values, v)
	case names == nil:
		names = append(make([]string, 0, v.Len()+1), "rank")
		for i := range v.Len() {
			if f := v.Field(i); f.Name != "rank" {
				names, values = append(names, f.Name), append(values, f.Value)
			}
		}
		of.names = names
	default:
		for i := range v.Len() {
			if f := v.Field(i); f.Name != "rank" {
				values = append(values, f.Value)
			}
		}
	}
	var space [16]byte
	key := value.AppendKey(space[:0], rank)
	if len(c.Key()) > 0 {
		key = value.AppendListKey(make([]byte, 0, len(c.Key())+len(key)+2), c.Key(), key)
	} else {
		key = value.AppendListKey(nil, key)
	}
	return &stream.Record{Key: key, Time: cause.Time, Origin: cause.Origin, Value: value.OfFields(names, values)}, nil
}

// OnTimer implements stream.Node.
func (n *Top) OnTimer(c stream.Context, t stream.Timer) error {
	return expire(c, t, n.TTL, stateIndex, stateRows)
}
