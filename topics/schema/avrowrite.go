package schema

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/apd/v3"

	"github.com/heraldmq/herald/topics/value"
)

// encode writes with single object encoding's mark, unless the framing is raw.
func (s *avroSchema) encode(dst []byte, v value.Value) ([]byte, error) {
	out := dst
	if s.framing != Raw && s.framing != Confluent {
		out = append(out, s.mark[:]...)
	}
	w := &avroWriter{b: out, steps: StepsMax}
	if bad := w.value(s.root, v, 0); bad != nil {
		return dst, bad
	}
	return w.b, nil
}

type avroWriter struct {
	b     []byte
	steps int // unions may have to try a lot
}

// misfit is a value that isn't of the type.
func misfit(v value.Value, want string) *Invalid {
	return broken("type", "%s %s is no %s", v.Kind(), short(v), want)
}

func (w *avroWriter) long(n int64) { w.b = binary.AppendVarint(w.b, n) }

func (w *avroWriter) counted(s string) {
	w.long(int64(len(s)))
	w.b = append(w.b, s...)
}

func (w *avroWriter) value(t *avroType, v value.Value, depth int) *Invalid {
	if w.steps--; w.steps < 0 {
		return broken("cost", "writing it takes too much work: the unions are too intricate for it")
	}
	if depth > value.DepthMax {
		return broken("type", "more than %d levels", value.DepthMax)
	}
	switch t.kind {
	case avroNull:
		if !v.IsNull() {
			return misfit(v, "null")
		}
		return nil
	case avroBoolean:
		if v.Kind() != value.Bool {
			return misfit(v, "boolean")
		}
		one := byte(0)
		if v.Bool() {
			one = 1
		}
		w.b = append(w.b, one)
		return nil
	case avroInt, avroLong:
		return w.number(t, v)
	case avroFloat, avroDouble:
		f, bad := double(v, t.kind == avroFloat)
		if bad != nil {
			return bad
		}
		if t.kind == avroFloat {
			w.b = binary.LittleEndian.AppendUint32(w.b, math.Float32bits(float32(f)))
		} else {
			w.b = binary.LittleEndian.AppendUint64(w.b, math.Float64bits(f))
		}
		return nil
	case avroString:
		s, ok := text(v)
		if !ok {
			return misfit(v, "string")
		}
		w.counted(s)
		return nil
	case avroBytes, avroFixed:
		return w.bytes(t, v)
	case avroEnum:
		n, known := t.symbols[v.Str()]
		if v.Kind() != value.String || !known {
			return broken("enum", "%s is not one of %s", short(v), strings.Join(t.names[:min(len(t.names), 20)], ", "))
		}
		w.long(int64(n))
		return nil
	case avroUnion:
		return w.union(t, v, depth)
	case avroArray:
		return w.array(t, v, depth)
	case avroMap:
		return w.mapping(t, v, depth)
	}
	return w.record(t, v, depth)
}

func (w *avroWriter) record(t *avroType, v value.Value, depth int) *Invalid {
	if v.Kind() != value.Object {
		return misfit(v, "record "+t.name)
	}
	found := 0
	for i := range t.fields {
		f := &t.fields[i]
		part, there := v.Get(t.names[i])
		switch {
		case there:
			found++
		case f.optional:
			part = f.def
		default:
			return broken("required", "field %q is missing, and has no default in %s", t.names[i], t.name)
		}
		if bad := w.value(f.typ, part, depth+1); bad != nil {
			bad.Pointer = pointer(t.names[i], bad.Pointer)
			return bad
		}
	}
	if found == v.Len() {
		return nil
	}
	for i := range v.Len() {
		if name := v.Field(i).Name; !slices.Contains(t.names, name) {
			return broken("additionalProperties", "field %q is not in %s", name, t.name)
		}
	}
	return nil
}

func (w *avroWriter) array(t *avroType, v value.Value, depth int) *Invalid {
	if v.Kind() != value.List {
		return misfit(v, "array")
	}
	if items := v.List(); len(items) > 0 {
		w.long(int64(len(items)))
		for i, item := range items {
			if bad := w.value(t.items, item, depth+1); bad != nil {
				bad.Pointer = "/" + strconv.Itoa(i) + bad.Pointer
				return bad
			}
		}
	}
	w.long(0)
	return nil
}

func (w *avroWriter) mapping(t *avroType, v value.Value, depth int) *Invalid {
	if v.Kind() != value.Object {
		return misfit(v, "map")
	}
	if v.Len() > 0 {
		w.long(int64(v.Len()))
		for i := range v.Len() {
			f := v.Field(i)
			w.counted(f.Name)
			if bad := w.value(t.items, f.Value, depth+1); bad != nil {
				bad.Pointer = pointer(f.Name, bad.Pointer)
				return bad
			}
		}
	}
	w.long(0)
	return nil
}

// union writes the first branch that the value is of.
func (w *avroWriter) union(t *avroType, v value.Value, depth int) *Invalid {
	begun := len(w.b)
	var nearest *Invalid
	for i, branch := range t.of {
		if (branch.kind == avroNull) != v.IsNull() {
			continue
		}
		w.long(int64(i))
		bad := w.value(branch, v, depth)
		if bad == nil || bad.Keyword == "cost" {
			return bad
		}
		w.b = w.b[:begun]
		if nearest == nil || len(bad.Pointer) > len(nearest.Pointer) {
			nearest = bad
		}
	}
	if nearest == nil || nearest.Pointer == "" && len(t.of) > 2 {
		var names []string
		for _, branch := range t.of {
			names = append(names, branch.name)
		}
		return misfit(v, strings.Join(names, " or "))
	}
	return nearest
}

func (w *avroWriter) number(t *avroType, v value.Value) *Invalid {
	n, ok := v.Int()
	if !ok && t.means != plainly {
		var bad *Invalid
		if n, bad = ticks(t, v); bad != nil {
			return bad
		}
	} else if !ok {
		return misfit(v, t.name)
	}
	if t.kind == avroInt && (n < math.MinInt32 || n > math.MaxInt32) {
		return broken("type", "%d is no int of 32 bits", n)
	}
	w.long(n)
	return nil
}

// ticks is a time in the type's units: exactly, or it is refused.
func ticks(t *avroType, v value.Value) (int64, *Invalid) {
	unit, want := int64(1), "timestamp"
	switch t.means {
	case asDate:
		unit, want = int64(24*time.Hour), "date"
	case asMillis:
		unit = int64(time.Millisecond)
	case asMicros:
		unit = int64(time.Microsecond)
	case asTimeMillis:
		unit, want = int64(time.Millisecond), "time of day"
	case asTimeMicros:
		unit, want = int64(time.Microsecond), "time of day"
	}
	ns, ok := v.Nanos()
	ok = ok && (v.Kind() == value.Duration) == (want == "time of day")
	seconds, nanos := ns/1e9, ns%1e9
	if !ok && v.Kind() == value.String && want != "time of day" {
		seconds, nanos, ok = instant(v.Str())
	}
	if !ok {
		return 0, misfit(v, want)
	}
	if nanos%min(unit, 1e9) != 0 || unit > 1e9 && (nanos != 0 || seconds%(unit/1e9) != 0) {
		return 0, broken("type", "%s is more precise than a %s of %s", short(v), want, time.Duration(unit))
	}
	if unit > 1e9 {
		return seconds / (unit / 1e9), nil
	}
	each := int64(1e9) / unit
	if seconds > math.MaxInt64/each-1 || seconds < math.MinInt64/each+1 {
		return 0, broken("type", "%s is out of range: years 1678 to 2261", short(v))
	}
	return seconds*each + nanos/unit, nil
}

// instant reads a time as in RFC 3339, or a date.
func instant(s string) (seconds, nanos int64, ok bool) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		if t, err = time.Parse(time.DateOnly, s); err != nil {
			return 0, 0, false
		}
	}
	return t.Unix(), int64(t.Nanosecond()), t.Year() >= 1
}

// text is a string, or a timestamp or duration as JSON has it.
func text(v value.Value) (string, bool) {
	switch v.Kind() {
	case value.String:
		return v.Str(), true
	case value.Time, value.Duration:
		return strings.Trim(v.String(), `"`), true
	}
	return "", false
}

// double is a number as a double: an int only where that holds it.
func double(v value.Value, single bool) (float64, *Invalid) {
	f, ok := v.Double()
	if !ok {
		d, isNumber := v.Decimal()
		if !isNumber {
			return 0, misfit(v, "number")
		}
		var err error
		if f, err = strconv.ParseFloat(d.Text('E'), 64); err != nil {
			return 0, broken("type", "%s is beyond what a double holds", short(v))
		}
		if v.Kind() != value.Decimal && !value.Equal(value.OfDouble(f), v) {
			return 0, broken("type", "%s is not exact as a double", short(v))
		}
	}
	if single && math.Abs(f) > math.MaxFloat32 && !math.IsInf(f, 0) {
		return 0, broken("type", "%s is beyond what a float holds", short(v))
	}
	return f, nil
}

func (w *avroWriter) bytes(t *avroType, v value.Value) *Invalid {
	var b []byte
	var bad *Invalid
	switch {
	case v.Kind() == value.Bytes:
		b = []byte(v.Str())
	case t.means == asDecimal && v.Kind().Number():
		b, bad = unscaled(v, t)
	case t.means == asUUID && v.Kind() == value.String:
		var err error
		if b, err = hex.DecodeString(strings.ReplaceAll(v.Str(), "-", "")); err != nil || len(v.Str()) != 36 {
			bad = misfit(v, "UUID")
		}
	case t.means == asDuration && v.Kind() == value.Object && v.Len() == 3:
		for _, name := range durationNames {
			part, _ := v.Get(name)
			n, ok := part.Int()
			if !ok || n < 0 || n > math.MaxUint32 {
				return misfit(v, "duration {months, days, millis}")
			}
			b = binary.LittleEndian.AppendUint32(b, uint32(n))
		}
	default:
		bad = misfit(v, t.name)
	}
	switch {
	case bad != nil:
		return bad
	case t.kind == avroBytes:
		w.long(int64(len(b)))
	case len(b) != t.size:
		return broken("type", "it has %d bytes, not the %d of %s", len(b), t.size, t.name)
	}
	w.b = append(w.b, b...)
	return nil
}

// unscaled is a number times ten to the scale, in two's complement.
func unscaled(v value.Value, t *avroType) ([]byte, *Invalid) {
	d, ok := v.Decimal()
	if !ok {
		return nil, misfit(v, "decimal")
	}
	ctx := apd.Context{Precision: uint32(max(t.precision, 1)), MaxExponent: apd.MaxExponent, MinExponent: apd.MinExponent}
	q := new(apd.Decimal)
	cond, err := ctx.Quantize(q, d, -int32(t.scale))
	if err != nil || cond.Inexact() || cond.InvalidOperation() || q.Form != apd.Finite {
		return nil, broken("type", "%s does not fit a decimal of %d digits, %d of them behind the point", short(v), t.precision, t.scale)
	}
	b := q.Coeff.Bytes()
	if t.kind == avroBytes {
		b = slices.Concat([]byte{0}, b)
	} else {
		if len(b) > t.size {
			return nil, broken("type", "%s does not fit %d bytes", short(v), t.size)
		}
		b = slices.Concat(make([]byte, t.size-len(b)), b)
	}
	if q.Negative && q.Coeff.Sign() != 0 {
		for i := range b {
			b[i] = ^b[i]
		}
		for i := len(b) - 1; i >= 0; i-- {
			if b[i]++; b[i] != 0 {
				break
			}
		}
	}
	negative := q.Negative && q.Coeff.Sign() != 0
	if len(b) > 0 && negative != (b[0] >= 0x80) {
		return nil, broken("type", "%s does not fit %d bytes", short(v), t.size)
	}
	if t.kind == avroBytes { // the fewest that say the same
		for len(b) > 1 && (b[0] == 0 && b[1] < 0x80 || b[0] == 0xff && b[1] >= 0x80) {
			b = b[1:]
		}
	}
	return b, nil
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
