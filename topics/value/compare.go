package value

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Compare orders two values: numbers by what they say, whatever their kind,
// exactly; other values where they are of one kind, lists item by item. ok is
// false where there is no order: other kinds, objects, NaN.
func Compare(a, b Value) (c int, ok bool) {
	if a.kind.Number() && b.kind.Number() {
		return compareNumbers(a, b)
	}
	if a.kind != b.kind {
		return 0, false
	}
	switch a.kind {
	case Null:
		return 0, true
	case Bool:
		return cmp.Compare(a.num, b.num), true
	case String, Bytes:
		return strings.Compare(a.str, b.str), true
	case Time, Duration:
		return cmp.Compare(int64(a.num), int64(b.num)), true
	case List:
		x, y := a.List(), b.List()
		for i := range min(len(x), len(y)) {
			if c, ok = Compare(x[i], y[i]); !ok || c != 0 {
				return c, ok
			}
		}
		return cmp.Compare(len(x), len(y)), true
	}
	return 0, false
}

func compareNumbers(a, b Value) (int, bool) {
	switch {
	case a.kind == Int && b.kind == Int:
		return cmp.Compare(int64(a.num), int64(b.num)), true
	case a.kind == Uint && b.kind == Uint:
		return cmp.Compare(a.num, b.num), true
	case a.kind == Double && b.kind == Double:
		x, y := math.Float64frombits(a.num), math.Float64frombits(b.num)
		return cmp.Compare(x, y), x == x && y == y
	case a.kind == Int && b.kind == Uint:
		return -1, true // a Uint is above every Int
	case a.kind == Uint && b.kind == Int:
		return 1, true
	}
	if c, ok := compareInfinite(a, b); ok {
		return c, true
	}
	x, ok1 := a.Decimal()
	y, ok2 := b.Decimal()
	if !ok1 || !ok2 {
		return 0, false
	}
	return x.Cmp(y), true
}

// compareInfinite compares where one side is infinite.
func compareInfinite(a, b Value) (int, bool) {
	sign := func(v Value) int {
		f, ok := v.Double()
		switch {
		case ok && math.IsInf(f, 1):
			return 1
		case ok && math.IsInf(f, -1):
			return -1
		}
		return 0
	}
	x, y := sign(a), sign(b)
	if x == 0 && y == 0 {
		return 0, false
	}
	if f, ok := a.Double(); ok && math.IsNaN(f) {
		return 0, false
	}
	if f, ok := b.Double(); ok && math.IsNaN(f) {
		return 0, false
	}
	return cmp.Compare(x, y), true
}

// SortKeys returns an object's field names, sorted.
func (v Value) SortKeys() []string {
	o, ok := v.ref.(*fields)
	if !ok {
		return nil
	}
	names := slices.Clone(o.whole().names)
	slices.Sort(names)
	return names
}
