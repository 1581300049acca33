package schema

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"

	"github.com/heraldmq/herald/topics/value"
)

// avroReader reads one payload. Once bad is set nothing more is read.
type avroReader struct {
	b    []byte
	s    string // a copy of b, of which strings are parts
	i    int
	left int // values that may still be made
	path []string
	bad  *Invalid
}

func (r *avroReader) fail(format string, args ...any) value.Value {
	if r.bad == nil {
		at := ""
		for _, step := range r.path {
			at += pointer(step, "")
		}
		r.bad = &Invalid{Pointer: at, Keyword: "encoding", Message: fmt.Sprintf("at byte %d: ", r.i+1) + fmt.Sprintf(format, args...)}
	}
	return value.Value{}
}

// long reads a zigzag number of at most 64 bits.
func (r *avroReader) long() int64 {
	n, used := binary.Varint(r.b[r.i:])
	if used <= 0 {
		r.fail("it ends in a number, or the number has more than 64 bits")
		return 0
	}
	r.i += used
	return n
}

// take returns the next n bytes, as positions.
func (r *avroReader) take(n int64) (from, to int, ok bool) {
	if r.bad != nil {
		return 0, 0, false
	}
	if n < 0 || n > int64(len(r.b)-r.i) {
		r.fail("it has %d bytes left where %d should be", len(r.b)-r.i, n)
		return 0, 0, false
	}
	from = r.i
	r.i += int(n)
	return from, r.i, true
}

func (r *avroReader) value(t *avroType, depth int) value.Value {
	if r.left--; r.left < 0 {
		return r.fail("it says that it has more values than its bytes can")
	}
	if t.resolved != nil {
		return r.resolve(t, depth)
	}
	return r.plain(t, depth)
}

// plain reads a value as its own type says.
func (r *avroReader) plain(t *avroType, depth int) value.Value {
	switch t.kind {
	case avroNull:
		return value.Value{}
	case avroBoolean:
		from, _, ok := r.take(1)
		if ok && r.b[from] > 1 {
			return r.fail("%d is no boolean", r.b[from])
		}
		return value.OfBool(ok && r.b[from] == 1)
	case avroInt, avroLong:
		return r.number(t)
	case avroFloat:
		from, to, ok := r.take(4)
		if !ok {
			return value.Value{}
		}
		return value.OfDouble(float64(math.Float32frombits(binary.LittleEndian.Uint32(r.b[from:to]))))
	case avroDouble:
		from, to, ok := r.take(8)
		if !ok {
			return value.Value{}
		}
		return value.OfDouble(math.Float64frombits(binary.LittleEndian.Uint64(r.b[from:to])))
	case avroString:
		return value.OfString(r.text())
	case avroBytes:
		return r.bytes(t, r.long())
	case avroFixed:
		return r.bytes(t, int64(t.size))
	case avroEnum:
		n := r.long()
		if n < 0 || n >= int64(len(t.names)) {
			return r.fail("there is no symbol %d in %s", n, t.name)
		}
		return value.OfString(t.names[n])
	case avroUnion:
		n := r.long()
		if n < 0 || n >= int64(len(t.of)) {
			return r.fail("there is no branch %d in the union", n)
		}
		return r.value(t.of[n], depth)
	}
	if depth >= value.DepthMax {
		return r.fail("more than %d levels", value.DepthMax)
	}
	switch t.kind {
	case avroRecord:
		values := make([]value.Value, len(t.fields))
		for i := range t.fields {
			if values[i] = r.at(t.names[i], t.fields[i].typ, depth); r.bad != nil {
				return value.Value{}
			}
		}
		return value.OfFields(t.names, values)
	case avroArray:
		return r.array(t, depth)
	}
	return r.mapping(t, depth)
}

// at reads a part of a value.
func (r *avroReader) at(step string, t *avroType, depth int) value.Value {
	r.path = append(r.path, step)
	v := r.value(t, depth+1)
	r.path = r.path[:len(r.path)-1]
	return v
}

func (r *avroReader) text() string {
	from, to, ok := r.take(r.long())
	if ok && !utf8.ValidString(r.s[from:to]) {
		r.fail("a string that is not UTF-8")
		return ""
	}
	return r.s[from:to]
}

// block reads how many items come next; 0 at the end.
func (r *avroReader) block() int64 {
	n := r.long()
	if n < 0 {
		if n == math.MinInt64 {
			r.fail("a block of %d items", n)
			return 0
		}
		n = -n
		if size := r.long(); size < 0 || size > int64(len(r.b)-r.i) {
			r.fail("a block of %d bytes", size)
		}
	}
	if n > int64(r.left) {
		r.fail("a block of %d items, which its bytes can't have", n)
	}
	if r.bad != nil {
		return 0
	}
	return n
}

func (r *avroReader) array(t *avroType, depth int) value.Value {
	items := []value.Value{}
	for n := r.block(); n > 0; n = r.block() {
		if len(items) == 0 {
			items = make([]value.Value, 0, min(n, int64(len(r.b)-r.i)+1))
		}
		for range n {
			v := r.at(strconv.Itoa(len(items)), t.items, depth)
			if r.bad != nil {
				return value.Value{}
			}
			items = append(items, v)
		}
	}
	return value.OfList(items)
}

func (r *avroReader) mapping(t *avroType, depth int) value.Value {
	var names []string
	var values []value.Value
	var seen map[string]bool
	for n := r.block(); n > 0; n = r.block() {
		for range n {
			name := r.text()
			if r.bad == nil && seen[name] {
				r.fail("field %q is there twice", name)
			}
			if seen == nil {
				seen = map[string]bool{}
			}
			seen[name] = true
			v := r.at(name, t.items, depth)
			if r.bad != nil {
				return value.Value{}
			}
			names, values = append(names, name), append(values, v)
		}
	}
	return value.OfFields(names, values)
}

func (r *avroReader) number(t *avroType) value.Value {
	n := r.long()
	if t.kind == avroInt && (n < math.MinInt32 || n > math.MaxInt32) {
		return r.fail("%d is no int of 32 bits", n)
	}
	unit := int64(0)
	switch t.means {
	case asDate:
		unit = int64(24 * time.Hour)
	case asMillis, asTimeMillis:
		unit = int64(time.Millisecond)
	case asMicros, asTimeMicros:
		unit = int64(time.Microsecond)
	case asNanos:
		unit = 1
	default:
		return value.OfInt(n)
	}
	if n <= math.MaxInt64/unit && n >= math.MinInt64/unit {
		if t.means == asTimeMillis || t.means == asTimeMicros {
			return value.OfDuration(time.Duration(n * unit))
		}
		return value.OfNanos(n * unit)
	}
	if t.means == asTimeMillis || t.means == asTimeMicros {
		return r.fail("the time of day %d is out of range", n)
	}
	var seconds, nanos int64
	if each := int64(1e9) / unit; each > 0 {
		if seconds, nanos = n/each, n%each*unit; nanos < 0 {
			seconds, nanos = seconds-1, nanos+1e9
		}
	} else {
		seconds = n * (unit / 1e9)
	}
	v, bad := timeOrText(seconds, nanos)
	if bad != nil {
		return r.fail("%s", bad.Message)
	}
	return v
}

// decimalBytesMax is what value.DigitsMax digits need.
const decimalBytesMax = 416

func (r *avroReader) bytes(t *avroType, n int64) value.Value {
	from, to, ok := r.take(n)
	if !ok {
		return value.Value{}
	}
	b := r.b[from:to]
	switch t.means {
	case asDecimal:
		if len(b) > decimalBytesMax {
			return r.fail("a decimal of %d bytes, at most %d are read", len(b), decimalBytesMax)
		}
		return decimalOf(b, t.scale)
	case asUUID:
		h := hex.EncodeToString(b)
		return value.OfString(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])
	case asDuration:
		return value.OfFields(durationNames, []value.Value{
			value.OfInt(int64(binary.LittleEndian.Uint32(b))), value.OfInt(int64(binary.LittleEndian.Uint32(b[4:]))), value.OfInt(int64(binary.LittleEndian.Uint32(b[8:]))),
		})
	}
	return value.OfBytes(b)
}

var durationNames = []string{"months", "days", "millis"}

// decimalOf reads a number in two's complement, big end first.
func decimalOf(b []byte, scale int) value.Value {
	d := &apd.Decimal{Exponent: -int32(scale)}
	if len(b) > 0 && b[0] >= 0x80 {
		flipped := make([]byte, len(b))
		for i := range b {
			flipped[i] = ^b[i]
		}
		d.Coeff.SetBytes(flipped)
		d.Coeff.Add(&d.Coeff, apd.NewBigInt(1))
		d.Negative = true
	} else {
		d.Coeff.SetBytes(b)
	}
	return value.OfDecimal(d)
}
