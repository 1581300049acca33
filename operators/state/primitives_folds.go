package state

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/heraldmq/herald/operators/stream"
)

// List is values in the order in which they were added, for each key.
type List[T any] struct {
	Name  string
	Codec Codec[T]
	TTL   time.Duration // of each, from when it was added
}

// Add adds a value at the end.
func (p List[T]) Add(c stream.Context, v T) {
	next := uint64(0)
	count := "\x00n " + p.Name
	if b, there := c.State().Get(count, nil); there && len(b) == 8 {
		next = binary.BigEndian.Uint64(b)
	}
	write(c, p.Name, binary.BigEndian.AppendUint64(nil, next), p.Codec.Append(head(c, p.TTL), v), p.TTL)
	c.State().Put(count, nil, binary.BigEndian.AppendUint64(nil, next+1))
}

// All returns the values.
func (p List[T]) All(c stream.Context) (all []T, err error) {
	c.State().Scan(p.Name, nil, nil, func(_, b []byte) bool {
		b, lives := body(c, b)
		if !lives {
			return true
		}
		v, bad := p.Codec.Load(b)
		if bad != nil {
			err = fmt.Errorf("read state %s: %w", p.Name, bad)
			return false
		}
		all = append(all, v)
		return true
	})
	return all, err
}

// Clear removes them all.
func (p List[T]) Clear(c stream.Context) {
	var all [][]byte
	c.State().Scan(p.Name, nil, nil, func(sub, _ []byte) bool {
		all = append(all, append([]byte(nil), sub...))
		return true
	})
	for _, sub := range all {
		c.State().Delete(p.Name, sub)
	}
	c.State().Delete("\x00n "+p.Name, nil)
}

// Reducing is one value for each key into which others are reduced.
type Reducing[T any] struct {
	Name   string
	Codec  Codec[T]
	Reduce func(sum, v T) T
	TTL    time.Duration // from the last Add
}

// Add reduces a value into what is there; the first is taken as it is.
func (p Reducing[T]) Add(c stream.Context, v T) (T, error) {
	own := Value[T]{p.Name, p.Codec, p.TTL}
	sum, there, err := own.Get(c)
	if err != nil {
		return sum, err
	}
	if there {
		v = p.Reduce(sum, v)
	}
	own.Set(c, v)
	return v, nil
}

// Get returns what they came to, and whether there were any.
func (p Reducing[T]) Get(c stream.Context) (T, bool, error) {
	return Value[T]{p.Name, p.Codec, p.TTL}.Get(c)
}

// Clear removes it.
func (p Reducing[T]) Clear(c stream.Context) { c.State().Delete(p.Name, nil) }

// Aggregating is an accumulator A for each key, to which I are added and of which O is
// the result.
type Aggregating[I, A, O any] struct {
	Name   string
	Codec  Codec[A]
	Empty  A
	Insert func(sum A, v I) A
	Result func(sum A) O
	TTL    time.Duration // from the last Add
}

// Add adds a value.
func (p Aggregating[I, A, O]) Add(c stream.Context, v I) error {
	own := Value[A]{p.Name, p.Codec, p.TTL}
	sum, there, err := own.Get(c)
	if err != nil {
		return err
	}
	if !there {
		sum = p.Empty
	}
	own.Set(c, p.Insert(sum, v))
	return nil
}

// Get returns the result; of Empty where nothing was added.
func (p Aggregating[I, A, O]) Get(c stream.Context) (out O, err error) {
	sum, there, err := Value[A]{p.Name, p.Codec, p.TTL}.Get(c)
	if err != nil {
		return out, err
	}
	if !there {
		sum = p.Empty
	}
	return p.Result(sum), nil
}

// Clear removes it.
func (p Aggregating[I, A, O]) Clear(c stream.Context) { c.State().Delete(p.Name, nil) }
