// Package value holds what a message's payload says as typed values, exactly:
// integers of 64 bits stay integers, what needs more digits becomes a decimal, and
// a number that is only passed on keeps the text it came with.
//
//	JSON ──Parse──► Value ──AppendJSON──► JSON
//	                  └─────AppendKey───► bytes that are equal where values are
//
// A Value is immutable: whoever makes one from parts gives the parts away.
package value

import (
	"bytes"
	"math"
	"math/big"
	"time"

	"github.com/cockroachdb/apd/v3"
)

// Kind says what a Value is.
type Kind uint8

// The kinds. Int, Uint, Double and Decimal are numbers.
const (
	Null Kind = iota
	Bool
	Int      // 64 bits, signed
	Uint     // 64 bits, for what Int can't hold
	Double   // IEEE 754, 64 bits; never NaN or infinite when it comes from JSON
	Decimal  // exact, any number of digits up to DigitsMax
	String   // valid UTF-8
	Bytes    // base64 in JSON
	Time     // nanoseconds since 1970, RFC 3339 in JSON
	Duration // nanoseconds, as Go writes them in JSON
	List
	Object // fields in the order they came in, each name once
)

var kindNames = [...]string{"null", "bool", "int", "uint", "double", "decimal", "string", "bytes", "timestamp", "duration", "list", "object"}

// String returns the kind's name as messages to people say it.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Number tells whether values of the kind are numbers.
func (k Kind) Number() bool { return k >= Int && k <= Decimal }

// Value is one typed value. The zero Value is null. It may be used by any number
// of goroutines.
type Value struct {
	kind Kind
	num  uint64 // of Bool, Int, Uint, Double, Time, Duration
	str  string // of String and Bytes; the text a Double or a Decimal came with
	ref  any    // of Decimal: *apd.Decimal, List: []Value, Object: *fields
}

type fields struct {
	names  []string
	values []Value
	source *source // nil: made from parts
}

// Field is a named part of an object.
type Field struct {
	Name  string
	Value Value
}

// OfBool makes a bool.
func OfBool(b bool) Value {
	v := Value{kind: Bool}
	if b {
		v.num = 1
	}
	return v
}

// OfInt makes an int.
func OfInt(i int64) Value { return Value{kind: Int, num: uint64(i)} }

// OfUint makes an int where it fits, else a uint: a number has one kind.
func OfUint(u uint64) Value {
	if u <= math.MaxInt64 {
		return OfInt(int64(u))
	}
	return Value{kind: Uint, num: u}
}

// OfDouble makes a double.
func OfDouble(f float64) Value { return Value{kind: Double, num: math.Float64bits(f)} }

// OfDecimal makes a decimal, which must be finite and not be changed any more.
func OfDecimal(d *apd.Decimal) Value { return Value{kind: Decimal, ref: d} }

// OfString makes a string.
func OfString(s string) Value { return Value{kind: String, str: s} }

// OfBytes makes bytes from a copy of b.
func OfBytes(b []byte) Value { return Value{kind: Bytes, str: string(b)} }

// OfTime makes a timestamp; years outside 1678 to 2261 don't fit and wrap.
func OfTime(t time.Time) Value { return Value{kind: Time, num: uint64(t.UnixNano())} }

// OfNanos makes a timestamp from nanoseconds since 1970.
func OfNanos(ns int64) Value { return Value{kind: Time, num: uint64(ns)} }

// OfDuration makes a duration.
func OfDuration(d time.Duration) Value { return Value{kind: Duration, num: uint64(d)} }

// OfList makes a list and keeps items.
func OfList(items []Value) Value { return Value{kind: List, ref: items} }

// OfObject makes an object. Of fields with the same name the last counts, in the
// place of the first.
func OfObject(list ...Field) Value {
	o := &fields{names: make([]string, 0, len(list)), values: make([]Value, 0, len(list))}
	for _, f := range list {
		if i := o.index(f.Name); i >= 0 {
			o.values[i] = f.Value
			continue
		}
		o.names, o.values = append(o.names, f.Name), append(o.values, f.Value)
	}
	return Value{kind: Object, ref: o}
}

// OfFields makes an object of fields with different names, and as many values. It keeps
// both; names may be shared with other objects.
func OfFields(names []string, values []Value) Value {
	return Value{kind: Object, ref: &fields{names: names, values: values}}
}

func (o *fields) index(name string) int {
	for i, n := range o.names {
		if n == name {
			return i
		}
	}
	return -1
}

// Kind returns the value's kind.
func (v Value) Kind() Kind { return v.kind }

// IsNull tells whether the value is null.
func (v Value) IsNull() bool { return v.kind == Null }

// Bool returns a bool; false for another kind.
func (v Value) Bool() bool { return v.kind == Bool && v.num != 0 }

// Int returns an int, and whether the value is one.
func (v Value) Int() (int64, bool) { return int64(v.num), v.kind == Int }

// Uint returns a number that is not negative and has no fraction beyond 64 bits.
func (v Value) Uint() (uint64, bool) {
	return v.num, v.kind == Uint || v.kind == Int && int64(v.num) >= 0
}

// Double returns a double, and whether the value is one.
func (v Value) Double() (float64, bool) {
	return math.Float64frombits(v.num), v.kind == Double
}

// Str returns a string's or bytes' contents, "" for another kind.
func (v Value) Str() string {
	if v.kind == String || v.kind == Bytes {
		return v.str
	}
	return ""
}

// Nanos returns a timestamp or a duration in nanoseconds, and whether the value is
// one.
func (v Value) Nanos() (int64, bool) { return int64(v.num), v.kind == Time || v.kind == Duration }

// Decimal returns a number as a decimal, and whether the value is a finite number:
// exactly, but for a double with a fraction, which says the fewest digits that read
// back as it (0.1 is a tenth). The result must not be changed.
func (v Value) Decimal() (*apd.Decimal, bool) {
	switch v.kind {
	case Decimal:
		return v.ref.(*apd.Decimal), true
	case Int:
		return apd.New(int64(v.num), 0), true
	case Uint:
		d := new(apd.Decimal)
		d.Coeff.SetUint64(v.num)
		return d, true
	case Double:
		d := new(apd.Decimal)
		f := math.Float64frombits(v.num)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, false
		}
		if f == math.Trunc(f) {
			whole, _ := new(big.Float).SetFloat64(f).Int(nil)
			d.Negative = whole.Sign() < 0
			d.Coeff.SetMathBigInt(whole.Abs(whole))
			return d, true
		}
		_, err := d.SetFloat64(f)
		return d, err == nil
	}
	return nil, false
}

// List returns a list's items, nil for another kind. They must not be changed.
func (v Value) List() []Value {
	l, _ := v.ref.([]Value)
	return l
}

// Len returns how many items or fields, bytes of a string; 0 for another kind.
func (v Value) Len() int {
	switch v.kind {
	case List:
		return len(v.List())
	case Object:
		return len(v.ref.(*fields).whole().names)
	case String, Bytes:
		return len(v.str)
	}
	return 0
}

// Get returns an object's field, and whether there is one.
func (v Value) Get(name string) (Value, bool) {
	o, ok := v.ref.(*fields)
	if !ok {
		return Value{}, false
	}
	i := o.index(name)
	if i < 0 && o.partial() && !o.source.looksFor(name) {
		o = o.whole()
		i = o.index(name)
	}
	if i >= 0 {
		return o.values[i], true
	}
	return Value{}, false
}

// Field returns an object's i-th field.
func (v Value) Field(i int) Field {
	o := v.ref.(*fields).whole()
	return Field{o.names[i], o.values[i]}
}

// With returns the object with a field set, the others shared. Anything but an
// object becomes an object of one field.
func (v Value) With(name string, field Value) Value {
	o, ok := v.ref.(*fields)
	if !ok {
		return OfObject(Field{name, field})
	}
	o = o.whole()
	c := &fields{names: o.names, values: bytesFree(o.values)}
	if i := o.index(name); i >= 0 {
		c.values[i] = field
		return Value{kind: Object, ref: c}
	}
	c.names = append(o.names[:len(o.names):len(o.names)], name)
	c.values = append(c.values, field)
	return Value{kind: Object, ref: c}
}

func bytesFree(values []Value) []Value { return append(make([]Value, 0, len(values)+1), values...) }

// Without returns the object without a field.
func (v Value) Without(name string) Value {
	o, ok := v.ref.(*fields)
	if !ok {
		return v
	}
	if o = o.whole(); o.index(name) < 0 {
		return v
	}
	c := &fields{}
	for i, n := range o.names {
		if n != name {
			c.names, c.values = append(c.names, n), append(c.values, o.values[i])
		}
	}
	return Value{kind: Object, ref: c}
}

// Equal tells whether two values are the same: numbers by what they say, whatever
// their kind, objects whatever the order of their fields.
func Equal(a, b Value) bool {
	if a.kind.Number() && b.kind.Number() {
		c, ok := Compare(a, b)
		return ok && c == 0
	}
	return a.kind == b.kind && bytes.Equal(AppendKey(nil, a), AppendKey(nil, b))
}
