// Package fields is the layout of what is written to logs field by field: each field that
// is not zero as its tag and its value. A field that a program doesn't know is an error
// and not passed over: replicas that read the same entry must do the same.
//
//	field: key uvarint (tag << 1 | kind), then
//	  kind 0: value uvarint; signed values are zigzag-encoded
//	  kind 1: length uvarint, bytes
//
// A tag is never given to something else. Nothing in a list is left out for being zero.
package fields

import (
	"encoding/binary"
	"errors"
)

// Tag names a field of one kind of record.
type Tag uint8

const (
	kindNumber = 0
	kindBytes  = 1
)

// ErrBad is what is found wrong with the bytes of a record.
var ErrBad = errors.New("a field is cut short, of another kind than expected, or not known to this version")

func key(t Tag, kind uint64) uint64 { return uint64(t)<<1 | kind }

// Uint appends a number, unless it is zero.
func Uint(dst []byte, t Tag, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return binary.AppendUvarint(binary.AppendUvarint(dst, key(t, kindNumber)), v)
}

// Int appends a signed number, unless it is zero.
func Int(dst []byte, t Tag, v int64) []byte {
	return Uint(dst, t, uint64(v)<<1^uint64(v>>63))
}

// Bool appends a flag, if it is set.
func Bool(dst []byte, t Tag, v bool) []byte {
	if !v {
		return dst
	}
	return Uint(dst, t, 1)
}

// Text appends a text, unless it is empty.
func Text[S ~string](dst []byte, t Tag, s S) []byte {
	if s == "" {
		return dst
	}
	return Item(dst, t, s)
}

// Item appends a text or bytes, also when they are empty: one of a list.
func Item[S ~string | ~[]byte](dst []byte, t Tag, s S) []byte {
	dst = binary.AppendUvarint(dst, key(t, kindBytes))
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// Reader reads fields from the front. The first thing that is wrong sticks, and ends it.
type Reader struct {
	rest   []byte
	tag    Tag
	number uint64
	bytes  []byte
	kind   uint64
	bad    bool
}

// Read returns a reader of b, which it does not copy.
func Read(b []byte) Reader { return Reader{rest: b} }

// Next goes on to the next field; false at the end, and when something is wrong.
func (r *Reader) Next() bool {
	if r.bad || len(r.rest) == 0 {
		return false
	}
	k := r.uvarint()
	v := r.uvarint()
	if r.bad || k>>1 > 255 {
		r.bad = true
		return false
	}
	r.tag, r.kind, r.number, r.bytes = Tag(k>>1), k&1, v, nil
	if r.kind == kindBytes {
		if v > uint64(len(r.rest)) {
			r.bad = true
			return false
		}
		r.bytes, r.rest = r.rest[:v:v], r.rest[v:]
	}
	return true
}

func (r *Reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// Tag returns the tag of the field.
func (r *Reader) Tag() Tag { return r.tag }

func (r *Reader) is(kind uint64) bool {
	if r.kind != kind {
		r.bad = true
	}
	return !r.bad
}

// Uint returns the field's number.
func (r *Reader) Uint() uint64 {
	if !r.is(kindNumber) {
		return 0
	}
	return r.number
}

// Int returns the field's signed number.
func (r *Reader) Int() int64 {
	v := r.Uint()
	return int64(v>>1) ^ -int64(v&1)
}

// Bool returns the field's flag.
func (r *Reader) Bool() bool { return r.Uint() == 1 }

// Bytes returns the field's bytes, shared with what is read.
func (r *Reader) Bytes() []byte {
	if !r.is(kindBytes) {
		return nil
	}
	return r.bytes
}

// Text returns the field's text.
func (r *Reader) Text() string { return string(r.Bytes()) }

// Unknown says that the field's tag is not one of the record's.
func (r *Reader) Unknown() { r.bad = true }

// Err returns ErrBad if anything was wrong.
func (r *Reader) Err() error {
	if r.bad {
		return ErrBad
	}
	return nil
}
