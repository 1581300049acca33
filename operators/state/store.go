// Package state keeps what the nodes of an operator remember: ordered bytes, below
// the typed primitives that process functions use.
//
// A Store holds what is committed, up to a sequence. A step runs on an Overlay above
// it, or above the overlay of the step before, which isn't committed yet either. What
// the overlay holds in the end is the step's Delta, bytes that say the same on every
// replica; committing is applying it to the Store.
//
//	step n+1 ─► Overlay ─┐ reads through
//	step n   ─► Overlay ─┤
//	committed   Store  ◄─┘ ◄── Apply(delta, seq)
//
// A Store that lives in memory is as lasting as the snapshots that are made of it;
// one in files holds a prefix of the steps after a crash, and says which (Seq).
package state

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Reader is ordered bytes that can be read.
type Reader interface {
	// Get returns the value of a key, and whether there is one. It must not be
	// changed; it stays valid.
	Get(key []byte) ([]byte, bool, error)
	// Scan calls f with what is from from (inclusive) to to (exclusive; nil: the
	// end), in order, until it returns false. f must not change what it gets, and
	// must not write; keys and values stay valid.
	Scan(from, to []byte, f func(key, v []byte) bool) error
}

// pairSum is a pair's part of a state's Sum.
func pairSum(key, v []byte) uint64 {
	k := xxhash.Sum64(key)
	var d xxhash.Digest
	d.ResetWithSeed(k)
	_, _ = d.Write(v) // never fails
	return d.Sum64()*0x9e3779b97f4a7c15 ^ k
}

// First returns the first key and value of a Reader from from (inclusive) to to
// (exclusive; nil: the end), and whether there is one.
func First(r Reader, from, to []byte) (key, v []byte, ok bool, err error) {
	if f, is := r.(interface {
		First(from, to []byte) (key, v []byte, ok bool, err error)
	}); is {
		return f.First(from, to)
	}
	err = r.Scan(from, to, func(k, b []byte) bool {
		key, v, ok = k, b, true
		return false
	})
	return key, v, ok, err
}

// Store is what is committed. Apply, Replace and Close are called by one goroutine,
// the rest by any number.
type Store interface {
	Reader
	// Apply carries out a delta and notes the step it is of, both or neither.
	Apply(delta []byte, seq uint64) error
	// Seq returns the step up to which everything is in the store.
	Seq() uint64
	// Size returns how many keys there are, and the bytes of keys and values.
	Size() (keys, bytes int64)
	// Steps returns the same by step, of those that have something; together they are Size.
	Steps() []StepSize
	// Sum returns a figure of all keys and values: equal for equal states.
	Sum() uint64
	// Snapshot returns the state as it is now, which later steps don't change. It
	// must be closed.
	Snapshot() (Snapshot, error)
	// Replace makes the store what a snapshot holds, with its Seq.
	Replace(from Reader, seq uint64) error
	// Flush makes what was applied durable, where the store is in files.
	Flush() error
	Close() error
}

// Snapshot is a Store at one step.
type Snapshot interface {
	Reader
	Seq() uint64
	Close() error
}

// ErrDelta means that bytes are no delta: the entry they came in is damaged, or made
// by something else.
var ErrDelta = errors.New("not a delta of operator state")

// ErrDamaged means that files of a state say something else than was written to them, or are
// gone. The state is of no use any more: its files are to be put aside (PutAside).
var ErrDamaged = errors.New("the files of an operator's state are damaged")

// Delta is what a step changes, as bytes: for each key, in order, its length and
// bytes, then 0 for a removal, or the value's length plus one and its bytes.

// AppendChange appends one change to a delta; a delta has its keys in order.
func AppendChange(dst, key, v []byte, deleted bool) []byte {
	return appendChange(dst, string(key), v, deleted)
}

func appendChange(dst []byte, key string, v []byte, deleted bool) []byte {
	dst = append(binary.AppendUvarint(dst, uint64(len(key))), key...)
	if deleted {
		return binary.AppendUvarint(dst, 0)
	}
	return append(binary.AppendUvarint(dst, uint64(len(v))+1), v...)
}

// EachChange calls f with each change of a delta, in order of the keys. The slices
// are parts of delta.
func EachChange(delta []byte, f func(key, v []byte, deleted bool) error) error {
	for len(delta) > 0 {
		key, rest, err := cut(delta, 0)
		if err != nil {
			return err
		}
		n, used := binary.Uvarint(rest)
		if used <= 0 {
			return fmt.Errorf("%w: no length of a value", ErrDelta)
		}
		if n == 0 {
			delta = rest[used:]
			if err := f(key, nil, true); err != nil {
				return err
			}
			continue
		}
		v, rest, err := cut(rest, 1)
		if err != nil {
			return err
		}
		delta = rest
		if err := f(key, v, false); err != nil {
			return err
		}
	}
	return nil
}

// cut takes a length, less by sub, and as many bytes off b.
func cut(b []byte, sub uint64) (part, rest []byte, err error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n < sub || n-sub > uint64(len(b)-used) {
		return nil, nil, fmt.Errorf("%w: it ends too early", ErrDelta)
	}
	end := used + int(n-sub)
	return b[used:end:end], b[end:], nil
}
