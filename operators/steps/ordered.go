package steps

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/value"
)

// item is a value with what it is ordered by.
type item struct {
	by    value.Value
	time  stream.Time
	at    stream.Position
	value value.Value
}

// order compares two items: by what they are ordered by, then event time, then where
// they came from, so that no two records are equal.
func order(a, b *item) (int, error) {
	c, ok := value.Compare(a.by, b.by)
	if !ok {
		return 0, fmt.Errorf("a %s and a %s have no order", a.by.Kind(), b.by.Kind())
	}
	switch {
	case c != 0:
		return c, nil
	case a.time != b.time:
		return compareInts(int64(a.time), int64(b.time)), nil
	case a.at.Input != b.at.Input:
		return compareInts(int64(a.at.Input), int64(b.at.Input)), nil
	}
	return compareInts(int64(a.at.Sequence), int64(b.at.Sequence)), nil
}

func compareInts(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// direction is which items come first.
type direction uint8

const (
	ascending  direction = iota // the least, of equals the earliest
	descending                  // the greatest, of equals the earliest
	latest                      // the latest
)

// best keeps the n items that come first: min, max, first, last, top and collect.
type best struct {
	items     []item // in order
	n         int
	direction direction
	untold    bool // only time counts, not the values
	list      bool // the result is a list
	full      bool // one more than n is an error, not left out
}

// before tells whether x comes in front of y.
func (a *best) before(x, y *item) (bool, error) {
	c, err := order(x, y)
	switch {
	case err != nil || a.direction == ascending:
		return c < 0, err
	case a.direction == latest:
		return c > 0, nil
	}
	if by, _ := value.Compare(x.by, y.by); by != 0 {
		return by > 0, nil
	}
	return c < 0, nil
}

func (a *best) add(v args, time stream.Time, at stream.Position) error {
	if v.by.IsNull() {
		return nil
	}
	it := item{by: v.by, time: time, at: at, value: v.arg}
	if a.untold {
		it.by = value.Value{}
	}
	return a.insert(it)
}

func (a *best) insert(it item) error {
	i := len(a.items)
	for i > 0 {
		first, err := a.before(&it, &a.items[i-1])
		if err != nil {
			return err
		}
		if !first {
			break
		}
		i--
	}
	if len(a.items) == a.n {
		if a.full {
			return fmt.Errorf("more than %d values to collect", a.n)
		}
		if i == a.n {
			return nil
		}
		a.items = a.items[:a.n-1]
	}
	a.items = slices.Insert(a.items, i, it)
	return nil
}

func (a *best) merge(o accumulator) error {
	for _, it := range o.(*best).items {
		if err := a.insert(it); err != nil {
			return err
		}
	}
	return nil
}

func (a *best) result() value.Value {
	if !a.list {
		if len(a.items) == 0 {
			return value.Value{}
		}
		return a.items[0].value
	}
	list := make([]value.Value, len(a.items))
	for i := range a.items {
		list[i] = a.items[i].value
	}
	return value.OfList(list)
}

func (a *best) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(a.items)))
	for i := range a.items {
		dst = appendItem(dst, &a.items[i])
	}
	return dst
}

func (a *best) load(b []byte) ([]byte, error) {
	n, b, err := loadUvarint(b)
	if err != nil || n > uint64(len(b)) {
		return nil, errAccumulator
	}
	a.items = make([]item, n)
	for i := range a.items {
		if b, err = loadItem(b, &a.items[i]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func appendItem(dst []byte, it *item) []byte {
	dst = appendBlock(dst, value.Append(nil, it.by))
	dst = binary.AppendVarint(dst, int64(it.time))
	dst = binary.AppendUvarint(dst, uint64(it.at.Input))
	dst = binary.AppendUvarint(dst, uint64(it.at.Sequence))
	return appendBlock(dst, value.Append(nil, it.value))
}

func loadItem(b []byte, it *item) (_ []byte, err error) {
	block, b, err := loadBlock(b)
	if err != nil {
		return nil, err
	}
	if it.by, err = value.Load(block); err != nil {
		return nil, err
	}
	at, used := binary.Varint(b)
	if used <= 0 {
		return nil, errAccumulator
	}
	it.time = stream.Time(at)
	in, b, err := loadUvarint(b[used:])
	if err != nil {
		return nil, err
	}
	seq, b, err := loadUvarint(b)
	if err != nil {
		return nil, err
	}
	it.at = stream.Position{Input: int(in), Sequence: topics.Sequence(seq)}
	if block, b, err = loadBlock(b); err != nil {
		return nil, err
	}
	it.value, err = value.Load(block)
	return b, err
}

// distinct counts different values, exactly.
type distinct struct {
	seen map[string]struct{}
	max  int
}

func (a *distinct) add(v args, _ stream.Time, _ stream.Position) error {
	if v.arg.IsNull() {
		return nil
	}
	return a.insert(string(value.AppendKey(nil, v.arg)))
}

func (a *distinct) insert(key string) error {
	if a.seen == nil {
		a.seen = map[string]struct{}{}
	}
	if _, ok := a.seen[key]; !ok && len(a.seen) == a.max {
		return fmt.Errorf("more than %d distinct values", a.max)
	}
	a.seen[key] = struct{}{}
	return nil
}

func (a *distinct) merge(o accumulator) error {
	for _, key := range o.(*distinct).sorted() {
		if err := a.insert(key); err != nil {
			return err
		}
	}
	return nil
}

func (a *distinct) sorted() []string {
	keys := make([]string, 0, len(a.seen))
	for k := range a.seen {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (a *distinct) result() value.Value { return value.OfUint(uint64(len(a.seen))) }

func (a *distinct) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(a.seen)))
	for _, k := range a.sorted() {
		dst = appendBlock(dst, []byte(k))
	}
	return dst
}

func (a *distinct) load(b []byte) ([]byte, error) {
	n, b, err := loadUvarint(b)
	if err != nil || n > uint64(len(b)) {
		return nil, errAccumulator
	}
	a.seen = make(map[string]struct{}, n)
	for range n {
		var key []byte
		if key, b, err = loadBlock(b); err != nil {
			return nil, err
		}
		a.seen[string(key)] = struct{}{}
	}
	return b, nil
}
