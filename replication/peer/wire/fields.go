package wire

import (
	"encoding/binary"
	"fmt"
)

// AppendString appends a string of at most 64 KiB with its length.
func AppendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// AppendBytes appends bytes with their length.
func AppendBytes(b, v []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
	return append(b, v...)
}

// AppendUint appends a number.
func AppendUint(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

// Fields reads what the Append functions wrote. After the first thing that can't be
// there, everything is zero and Err says so.
type Fields struct {
	b   []byte
	err error
}

// NewFields reads b, which the slices that Bytes returns alias.
func NewFields(b []byte) *Fields { return &Fields{b: b} }

func (f *Fields) take(n int) []byte {
	if f.err == nil && n > len(f.b) {
		f.err = fmt.Errorf("%w: %d bytes are missing", ErrFrame, n-len(f.b))
	}
	if f.err != nil {
		return nil
	}
	v := f.b[:n:n]
	f.b = f.b[n:]
	return v
}

// Byte reads one byte.
func (f *Fields) Byte() byte {
	if v := f.take(1); v != nil {
		return v[0]
	}
	return 0
}

// Uint reads a number.
func (f *Fields) Uint() uint64 {
	if v := f.take(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

// Uint32 reads a number of four bytes.
func (f *Fields) Uint32() uint32 {
	if v := f.take(4); v != nil {
		return binary.LittleEndian.Uint32(v)
	}
	return 0
}

// String reads a string.
func (f *Fields) String() string {
	if v := f.take(2); v != nil {
		return string(f.take(int(binary.LittleEndian.Uint16(v))))
	}
	return ""
}

// Bytes reads bytes; nil when there are none.
func (f *Fields) Bytes() []byte {
	if v := f.take(4); v != nil {
		if n := int(binary.LittleEndian.Uint32(v)); n > 0 {
			return f.take(n)
		}
	}
	return nil
}

// Rest returns what is left.
func (f *Fields) Rest() []byte { return f.take(len(f.b)) }

// Fail makes err the error, unless there is one already.
func (f *Fields) Fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// Len is how many bytes are left.
func (f *Fields) Len() int { return len(f.b) }

// Err is the first error, or that something is left.
func (f *Fields) Err() error {
	if f.err == nil && len(f.b) > 0 {
		return fmt.Errorf("%w: %d bytes too many", ErrFrame, len(f.b))
	}
	return f.err
}
