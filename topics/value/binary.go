package value

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/apd/v3"
)

// ErrBinary means that bytes are not what Append wrote.
var ErrBinary = errors.New("not an encoded value")

// Append appends a value so that Load gives back the very same: its kind, the order
// of fields, the text a number came with. It never changes: state is made of it.
func Append(dst []byte, v Value) []byte {
	dst = append(dst, byte(v.kind))
	switch v.kind {
	case Bool:
		return append(dst, byte(v.num))
	case Int, Time, Duration:
		return binary.AppendVarint(dst, int64(v.num))
	case Uint:
		return binary.AppendUvarint(dst, v.num)
	case Double:
		dst = binary.LittleEndian.AppendUint64(dst, v.num)
		return appendCounted(dst, v.str)
	case Decimal:
		dst = appendCounted(dst, v.ref.(*apd.Decimal).Text('E'))
		return appendCounted(dst, v.str)
	case String, Bytes:
		return appendCounted(dst, v.str)
	case List:
		dst = binary.AppendUvarint(dst, uint64(len(v.List())))
		for _, item := range v.List() {
			dst = Append(dst, item)
		}
	case Object:
		o := v.ref.(*fields).whole()
		dst = binary.AppendUvarint(dst, uint64(len(o.names)))
		for i, name := range o.names {
			dst = Append(appendCounted(dst, name), o.values[i])
		}
	}
	return dst
}

func appendCounted(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// Load reads one value and nothing behind it. The error Is ErrBinary.
func Load(b []byte) (Value, error) {
	l := loader{b: b}
	v := l.value(0)
	if l.bad || len(l.b) > 0 {
		return Value{}, ErrBinary
	}
	return v, nil
}

type loader struct {
	b   []byte
	bad bool
}

func (l *loader) fail() Value {
	l.bad = true
	return Value{}
}

func (l *loader) uvarint() uint64 {
	n, used := binary.Uvarint(l.b)
	if used <= 0 {
		l.bad, l.b = true, nil
		return 0
	}
	l.b = l.b[used:]
	return n
}

func (l *loader) text() string {
	n := l.uvarint()
	if n > uint64(len(l.b)) {
		l.bad = true
		return ""
	}
	s := string(l.b[:n])
	l.b = l.b[n:]
	return s
}

func (l *loader) value(depth int) Value {
	if len(l.b) == 0 || depth > DepthMax+1 || l.bad {
		return l.fail()
	}
	v := Value{kind: Kind(l.b[0])}
	l.b = l.b[1:]
	switch v.kind {
	case Null:
	case Bool:
		if len(l.b) == 0 || l.b[0] > 1 {
			return l.fail()
		}
		v.num, l.b = uint64(l.b[0]), l.b[1:]
	case Int, Time, Duration:
		n, used := binary.Varint(l.b)
		if used <= 0 {
			return l.fail()
		}
		v.num, l.b = uint64(n), l.b[used:]
	case Uint:
		v.num = l.uvarint()
	case Double:
		if len(l.b) < 8 {
			return l.fail()
		}
		v.num, l.b = binary.LittleEndian.Uint64(l.b), l.b[8:]
		v.str = l.text()
	case Decimal:
		d, _, err := apd.NewFromString(l.text())
		if err != nil {
			return l.fail()
		}
		v.ref, v.str = d, l.text()
	case String, Bytes:
		v.str = l.text()
	case List:
		n := l.uvarint()
		if n > uint64(len(l.b)) {
			return l.fail()
		}
		items := make([]Value, 0, n)
		for range n {
			items = append(items, l.value(depth+1))
		}
		v.ref = items
	case Object:
		n := l.uvarint()
		if n > uint64(len(l.b)) {
			return l.fail()
		}
		o := &fields{names: make([]string, 0, n), values: make([]Value, 0, n)}
		for range n {
			o.names = append(o.names, l.text())
			o.values = append(o.values, l.value(depth+1))
		}
		v.ref = o
	default:
		return l.fail()
	}
	return v
}
