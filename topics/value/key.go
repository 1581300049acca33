package value

import (
	"encoding/binary"
	"math"

	"github.com/cockroachdb/apd/v3"
)

// Tags of AppendKey's encoding, in the order in which kinds sort.
const (
	tagNull     = 0x08
	tagFalse    = 0x10
	tagTrue     = 0x11
	tagInt      = 0x20 // 8 bytes big endian, sign bit flipped
	tagUint     = 0x21 // 8 bytes big endian
	tagDouble   = 0x22 // 8 bytes, ordered; never a whole number below 2^63
	tagDecimal  = 0x23 // text, reduced; never a whole number of 64 bits
	tagString   = 0x30
	tagBytes    = 0x31
	tagTime     = 0x38
	tagDuration = 0x39
	tagList     = 0x40
	tagObject   = 0x50
	tagEnd      = 0x01
)

// AppendKey appends an encoding that is equal for two values exactly if Equal says
// so, that no other value's encoding begins with, and that sorts as Compare does
// within a kind (decimals and objects apart). A whole number is encoded as such,
// whatever its kind. It is what keys of state and digests are made of, so it must
// never change.
func AppendKey(dst []byte, v Value) []byte {
	switch v.kind {
	case Null:
		return append(dst, tagNull)
	case Bool:
		return append(dst, tagFalse+byte(v.num))
	case Int:
		return binary.BigEndian.AppendUint64(append(dst, tagInt), v.num^1<<63)
	case Uint:
		return binary.BigEndian.AppendUint64(append(dst, tagUint), v.num)
	case Double:
		return appendDouble(dst, math.Float64frombits(v.num))
	case Decimal:
		return appendDecimal(dst, v.ref.(*apd.Decimal))
	case String:
		return appendText(append(dst, tagString), v.str)
	case Bytes:
		return appendText(append(dst, tagBytes), v.str)
	case Time:
		return binary.BigEndian.AppendUint64(append(dst, tagTime), v.num^1<<63)
	case Duration:
		return binary.BigEndian.AppendUint64(append(dst, tagDuration), v.num^1<<63)
	case List:
		dst = append(dst, tagList)
		for _, item := range v.List() {
			dst = AppendKey(dst, item)
		}
		return append(dst, tagEnd)
	}
	dst = append(dst, tagObject)
	for _, name := range v.SortKeys() {
		field, _ := v.Get(name)
		dst = AppendKey(appendText(append(dst, tagString), name), field)
	}
	return append(dst, tagEnd)
}

// AppendListKey appends what AppendKey makes of a list, given what it makes of the items.
func AppendListKey(dst []byte, items ...[]byte) []byte {
	dst = append(dst, tagList)
	for _, item := range items {
		dst = append(dst, item...)
	}
	return append(dst, tagEnd)
}

func appendDouble(dst []byte, f float64) []byte {
	if f == math.Trunc(f) {
		switch {
		case f >= -1<<63 && f < 1<<63:
			return AppendKey(dst, OfInt(int64(f))) // -0 is 0
		case f >= 1<<63 && f < 1<<64:
			return AppendKey(dst, Value{kind: Uint, num: uint64(f)})
		}
	}
	bits := math.Float64bits(f)
	if f != f {
		bits = 0x7ff8000000000001 // one NaN
	} else if d, ok := OfDouble(f).Decimal(); ok && f == math.Trunc(f) {
		return appendDecimal(dst, d) // a whole number that only a decimal can share
	}
	if bits>>63 != 0 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	return binary.BigEndian.AppendUint64(append(dst, tagDouble), bits)
}

func appendDecimal(dst []byte, d *apd.Decimal) []byte {
	r, _ := new(apd.Decimal).Reduce(d)
	if r.Exponent >= 0 && r.Exponent < 20 {
		if i, err := r.Int64(); err == nil {
			return AppendKey(dst, OfInt(i))
		}
		if u, ok := wholeUint(r); ok {
			return AppendKey(dst, Value{kind: Uint, num: u})
		}
	}
	if f, err := r.Float64(); err == nil && r.Exponent < 0 {
		// 0.5 says the same as a double and as a decimal.
		if e, ok := OfDouble(f).Decimal(); ok && e.Cmp(r) == 0 {
			return appendDouble(dst, f)
		}
	}
	return appendText(append(dst, tagDecimal), r.Text('E'))
}

func wholeUint(r *apd.Decimal) (uint64, bool) {
	if r.Negative || r.Exponent < 0 {
		return 0, false
	}
	whole := new(apd.Decimal)
	ctx := apd.BaseContext.WithPrecision(25)
	if _, err := ctx.Quantize(whole, r, 0); err != nil || !whole.Coeff.IsUint64() {
		return 0, false
	}
	return whole.Coeff.Uint64(), true
}

// appendText appends text so that no text's encoding begins another's: a zero byte
// becomes 00 FF, and 00 00 ends it.
func appendText(dst []byte, s string) []byte {
	for i := range len(s) {
		dst = append(dst, s[i])
		if s[i] == 0 {
			dst = append(dst, 0xff)
		}
	}
	return append(dst, 0, 0)
}

// FromKey reads what AppendKey wrote and returns the rest: a value that is Equal to the
// one it was made of, though a number may have another kind.
func FromKey(b []byte) (v Value, rest []byte, err error) {
	if len(b) == 0 {
		return Value{}, nil, ErrBinary
	}
	tag, b := b[0], b[1:]
	switch tag {
	case tagNull:
		return Value{}, b, nil
	case tagFalse, tagTrue:
		return OfBool(tag == tagTrue), b, nil
	case tagInt, tagUint, tagDouble, tagTime, tagDuration:
		if len(b) < 8 {
			return Value{}, nil, ErrBinary
		}
		return fixedFromKey(tag, binary.BigEndian.Uint64(b)), b[8:], nil
	case tagDecimal, tagString, tagBytes:
		s, rest, ok := textFromKey(b)
		if !ok {
			return Value{}, nil, ErrBinary
		}
		switch tag {
		case tagString:
			return OfString(s), rest, nil
		case tagBytes:
			return OfBytes([]byte(s)), rest, nil
		}
		d, _, err := apd.NewFromString(s)
		if err != nil {
			return Value{}, nil, ErrBinary
		}
		return OfDecimal(d), rest, nil
	case tagList:
		items := []Value{}
		for len(b) > 0 && b[0] != tagEnd {
			if v, b, err = FromKey(b); err != nil {
				return Value{}, nil, err
			}
			items = append(items, v)
		}
		if len(b) == 0 {
			return Value{}, nil, ErrBinary
		}
		return OfList(items), b[1:], nil
	case tagObject:
		var list []Field
		for len(b) > 0 && b[0] != tagEnd {
			var name Value
			if name, b, err = FromKey(b); err != nil {
				return Value{}, nil, err
			}
			if v, b, err = FromKey(b); err != nil {
				return Value{}, nil, err
			}
			list = append(list, Field{name.Str(), v})
		}
		if len(b) == 0 {
			return Value{}, nil, ErrBinary
		}
		return OfObject(list...), b[1:], nil
	}
	return Value{}, nil, ErrBinary
}

func fixedFromKey(tag byte, n uint64) Value {
	switch tag {
	case tagInt:
		return OfInt(int64(n ^ 1<<63))
	case tagUint:
		return Value{kind: Uint, num: n}
	case tagTime:
		return Value{kind: Time, num: n ^ 1<<63}
	case tagDuration:
		return Value{kind: Duration, num: n ^ 1<<63}
	}
	if n>>63 != 0 {
		n &^= 1 << 63
	} else {
		n = ^n
	}
	return Value{kind: Double, num: n}
}

func textFromKey(b []byte) (s string, rest []byte, ok bool) {
	var text []byte
	for i := 0; i+1 < len(b); i++ {
		if b[i] != 0 {
			text = append(text, b[i])
			continue
		}
		switch b[i+1] {
		case 0:
			return string(text), b[i+2:], true
		case 0xff:
			text = append(text, 0)
			i++
		default:
			return "", nil, false
		}
	}
	return "", nil, false
}
