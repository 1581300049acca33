package steps

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/cockroachdb/apd/v3"

	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/value"
)

// accumulator is an aggregate on its way. What it holds is written to and read from
// state; two of a window that becomes one are merged. Adding in another order gives the
// same for all but first, last and collect, which say by what they order, and for the
// last digits of doubles.
type accumulator interface {
	// add takes what a record brings, its event time and where it came from.
	add(v args, time stream.Time, at stream.Position) error
	merge(o accumulator) error
	result() value.Value
	append(dst []byte) []byte
	// load reads what append wrote and returns the rest.
	load(b []byte) (rest []byte, err error)
}

var errAccumulator = errors.New("the state of an aggregate can't be read")

// ErrOverflow means that a sum of ints needs more than 64 bits.
var ErrOverflow = errors.New("the sum of ints needs more than 64 bits; sum(decimal(x)) has no bound")

func loadUvarint(b []byte) (uint64, []byte, error) {
	n, used := binary.Uvarint(b)
	if used <= 0 {
		return 0, nil, errAccumulator
	}
	return n, b[used:], nil
}

func appendBlock(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func loadBlock(b []byte) (block, rest []byte, err error) {
	n, rest, err := loadUvarint(b)
	if err != nil || n > uint64(len(rest)) {
		return nil, nil, errAccumulator
	}
	return rest[:n:n], rest[n:], nil
}

func appendFloat(dst []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
}

func loadFloat(b []byte) (float64, []byte, error) {
	if len(b) < 8 {
		return 0, nil, errAccumulator
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b)), b[8:], nil
}

// count counts values that aren't null.
type count struct{ n uint64 }

func (a *count) add(v args, _ stream.Time, _ stream.Position) error {
	if !v.arg.IsNull() {
		a.n++
	}
	return nil
}

func (a *count) merge(o accumulator) error { a.n += o.(*count).n; return nil }
func (a *count) result() value.Value       { return value.OfUint(a.n) }
func (a *count) append(dst []byte) []byte  { return binary.AppendUvarint(dst, a.n) }
func (a *count) load(b []byte) (rest []byte, err error) {
	a.n, rest, err = loadUvarint(b)
	return rest, err
}

// sum adds numbers up. Ints and decimals are added exactly, as decimals; once a double
// is among them the sum is a double, compensated (Neumaier 1974), of all of them. Null
// doesn't count.
type sum struct {
	n       uint64
	ints    apd.BigInt // of ints and uints
	exact   apd.Decimal
	decimal bool // a decimal was added
	double  bool // a double was
	total   float64
	lost    float64 // what total has lost to rounding
}

var exact = apd.Context{Precision: value.DigitsMax, MaxExponent: apd.MaxExponent, MinExponent: apd.MinExponent, Traps: apd.DefaultTraps | apd.Inexact, Rounding: apd.RoundHalfEven}

func (a *sum) add(got args, _ stream.Time, _ stream.Position) error {
	v := got.arg
	switch v.Kind() {
	case value.Null:
		return nil
	case value.Int:
		i, _ := v.Int()
		var big apd.BigInt
		a.ints.Add(&a.ints, big.SetInt64(i))
	case value.Uint:
		u, _ := v.Uint()
		var big apd.BigInt
		a.ints.Add(&a.ints, big.SetUint64(u))
	case value.Decimal:
		d, _ := v.Decimal()
		a.decimal = true
		if _, err := exact.Add(&a.exact, &a.exact, d); err != nil {
			return fmt.Errorf("sum: %w", err)
		}
	case value.Double:
		f, _ := v.Double()
		a.double = true
		a.addDouble(f)
	default:
		return fmt.Errorf("a sum of numbers was given a %s", v.Kind())
	}
	a.n++
	return nil
}

func (a *sum) addDouble(f float64) {
	t := a.total + f
	if math.Abs(a.total) >= math.Abs(f) {
		a.lost += (a.total - t) + f
	} else {
		a.lost += (f - t) + a.total
	}
	a.total = t
}

func (a *sum) merge(o accumulator) error {
	b := o.(*sum)
	a.n += b.n
	a.ints.Add(&a.ints, &b.ints)
	a.decimal, a.double = a.decimal || b.decimal, a.double || b.double
	if b.decimal {
		if _, err := exact.Add(&a.exact, &a.exact, &b.exact); err != nil {
			return fmt.Errorf("sum: %w", err)
		}
	}
	a.addDouble(b.total)
	a.lost += b.lost
	return nil
}

// check tells whether the sum so far can be said.
func (a *sum) check() error {
	if !a.double && !a.decimal && !a.ints.IsInt64() && !a.ints.IsUint64() {
		return ErrOverflow
	}
	return nil
}

// asDecimal is the exact part of the sum.
func (a *sum) asDecimal() *apd.Decimal {
	d := apd.NewWithBigInt(new(apd.BigInt).Set(&a.ints), 0)
	if a.decimal {
		if _, err := exact.Add(d, d, &a.exact); err != nil {
			return &a.exact
		}
	}
	return d
}

func (a *sum) asDouble() float64 {
	f, _ := new(big.Float).SetInt(a.ints.MathBigInt()).Float64()
	if a.decimal {
		if d, err := a.asDecimal().Float64(); err == nil {
			f = d
		}
	}
	c := sum{total: a.total, lost: a.lost}
	c.addDouble(f)
	return c.total + c.lost
}

func (a *sum) result() value.Value {
	switch {
	case a.n == 0:
		return value.Value{}
	case a.double:
		return value.OfDouble(a.asDouble())
	case a.decimal:
		return value.OfDecimal(a.asDecimal())
	case a.ints.IsInt64():
		return value.OfInt(a.ints.Int64())
	}
	return value.OfUint(a.ints.Uint64())
}

func (a *sum) append(dst []byte) []byte {
	flags := byte(0)
	if a.decimal {
		flags |= 1
	}
	if a.double {
		flags |= 2
	}
	dst = append(binary.AppendUvarint(dst, a.n), flags)
	if a.ints.IsInt64() {
		var space [20]byte
		dst = appendBlock(dst, strconv.AppendInt(space[:0], a.ints.Int64(), 10))
	} else {
		dst = appendBlock(dst, []byte(a.ints.String()))
	}
	if a.decimal {
		dst = appendBlock(dst, []byte(a.exact.Text('E')))
	}
	if a.double {
		dst = appendFloat(appendFloat(dst, a.total), a.lost)
	}
	return dst
}

func (a *sum) load(b []byte) (_ []byte, err error) {
	if a.n, b, err = loadUvarint(b); err != nil || len(b) == 0 || b[0] > 3 {
		return nil, errAccumulator
	}
	a.decimal, a.double = b[0]&1 != 0, b[0]&2 != 0
	text, b, err := loadBlock(b[1:])
	if err != nil {
		return nil, err
	}
	if i, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		a.ints.SetInt64(i)
	} else if _, ok := a.ints.SetString(string(text), 10); !ok {
		return nil, errAccumulator
	}
	if a.decimal {
		if text, b, err = loadBlock(b); err != nil {
			return nil, err
		}
		if _, _, err := a.exact.SetString(string(text)); err != nil {
			return nil, errAccumulator
		}
	}
	if a.double {
		if a.total, b, err = loadFloat(b); err != nil {
			return nil, err
		}
		if a.lost, b, err = loadFloat(b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// avg is the mean: a decimal of 34 digits where all values are decimals or ints and
// one is a decimal, else a double.
type avg struct{ sum }

var mean = apd.Context{Precision: 34, MaxExponent: apd.MaxExponent, MinExponent: apd.MinExponent, Traps: apd.DefaultTraps, Rounding: apd.RoundHalfEven}

func (a *avg) merge(o accumulator) error { return a.sum.merge(&o.(*avg).sum) }
func (a *avg) check() error              { return nil }

func (a *avg) result() value.Value {
	if a.n == 0 {
		return value.Value{}
	}
	if a.decimal && !a.double {
		d := new(apd.Decimal)
		n, _ := value.OfUint(a.n).Decimal()
		if _, err := mean.Quo(d, a.asDecimal(), n); err == nil {
			r, _ := d.Reduce(d)
			return value.OfDecimal(r)
		}
	}
	return value.OfDouble(a.asDouble() / float64(a.n))
}

// variance is that of the population, by Welford's method; two are merged by Chan's.
// The naive sum of squares gives −128 for 1e9 + {4, 7, 13, 16}; this gives 22.5.
type variance struct {
	n        uint64
	mean, m2 float64
	sample   bool // divide by n−1
	root     bool // the standard deviation
}

func (a *variance) add(got args, _ stream.Time, _ stream.Position) error {
	v := got.arg
	if v.IsNull() {
		return nil
	}
	d, ok := v.Decimal()
	if !ok {
		return fmt.Errorf("a variance of numbers was given a %s", v.Kind())
	}
	x, isDouble := v.Double()
	if !isDouble {
		var err error
		if x, err = d.Float64(); err != nil {
			return fmt.Errorf("variance: %w", err)
		}
	}
	a.n++
	delta := x - a.mean
	a.mean += delta / float64(a.n)
	// The conversions keep compilers from fusing a multiplication with an addition,
	// which would round differently on another machine.
	a.m2 += float64(delta * (x - a.mean))
	return nil
}

func (a *variance) merge(o accumulator) error {
	b := o.(*variance)
	if b.n == 0 {
		return nil
	}
	if a.n == 0 {
		a.n, a.mean, a.m2 = b.n, b.mean, b.m2
		return nil
	}
	na, nb := float64(a.n), float64(b.n)
	delta := b.mean - a.mean
	a.mean += float64(delta * nb / (na + nb))
	a.m2 += b.m2 + float64(delta*delta*float64(na*nb/(na+nb)))
	a.n += b.n
	return nil
}

func (a *variance) result() value.Value {
	n := float64(a.n)
	if a.sample {
		n--
	}
	if n < 1 {
		return value.Value{}
	}
	f := a.m2 / n
	if a.root {
		f = math.Sqrt(f)
	}
	return value.OfDouble(f)
}

func (a *variance) append(dst []byte) []byte {
	return appendFloat(appendFloat(binary.AppendUvarint(dst, a.n), a.mean), a.m2)
}

func (a *variance) load(b []byte) (_ []byte, err error) {
	if a.n, b, err = loadUvarint(b); err != nil {
		return nil, err
	}
	if a.mean, b, err = loadFloat(b); err != nil {
		return nil, err
	}
	a.m2, b, err = loadFloat(b)
	return b, err
}

func appendUvarint(dst []byte, n uint64) []byte { return binary.AppendUvarint(dst, n) }
