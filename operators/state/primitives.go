package state

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/value"
)

// What process functions keep by key, typed: Value, List, Map, Reducing, Aggregating.
// Each is declared once, with a name of its own within the step, and used through the
// Context of a call:
//
//	visits := state.Reducing[int64]{Name: "visits", Codec: state.Ints{}, Reduce: add, TTL: time.Hour}
//	…
//	if err := visits.Add(c, 1); err != nil { … }
//
// With a TTL what was written longer ago, by the logged clock, isn't there any more, and
// is removed by a timer.

// Codec writes values to state and reads them. What Append writes must be the same for
// equal values, on every machine.
type Codec[T any] interface {
	Append(dst []byte, v T) []byte
	Load(b []byte) (T, error)
}

// ErrCodec means that state holds something else than what is read from it.
var ErrCodec = errors.New("the state holds something else")

// Ints are int64s.
type Ints struct{}

// Append implements Codec.
func (Ints) Append(dst []byte, v int64) []byte { return binary.AppendVarint(dst, v) }

// Load implements Codec.
func (Ints) Load(b []byte) (int64, error) {
	v, n := binary.Varint(b)
	if n != len(b) || n <= 0 {
		return 0, ErrCodec
	}
	return v, nil
}

// Strings are strings.
type Strings struct{}

// Append implements Codec.
func (Strings) Append(dst []byte, v string) []byte { return append(dst, v...) }

// Load implements Codec.
func (Strings) Load(b []byte) (string, error) { return string(b), nil }

// Values are values.
type Values struct{}

// Append implements Codec.
func (Values) Append(dst []byte, v value.Value) []byte { return value.Append(dst, v) }

// Load implements Codec.
func (Values) Load(b []byte) (value.Value, error) { return value.Load(b) }

// JSON is any type by encoding/json, whose maps are sorted.
type JSON[T any] struct{}

// Append implements Codec. What json can't write becomes null.
func (JSON[T]) Append(dst []byte, v T) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		b = []byte("null")
	}
	return append(dst, b...)
}

// Load implements Codec.
func (JSON[T]) Load(b []byte) (v T, err error) {
	err = json.Unmarshal(b, &v)
	return v, err
}

// In state each value stands behind the clock at which it is over, 0 for never.

const ttlTimer = "\x00ttl "

// write puts a value, with its end.
func write(c stream.Context, name string, sub, v []byte, ttl time.Duration) {
	c.State().Put(name, sub, v)
	if ttl <= 0 {
		return
	}
	armed := ttlTimer + name
	if _, there := c.State().Get(armed, nil); !there {
		c.State().Put(armed, nil, nil)
		c.SetTimer(stream.Timer{Kind: stream.Processing, At: c.Clock() + stream.Time(ttl), Name: armed})
	}
}

// head begins what is written.
func head(c stream.Context, ttl time.Duration) []byte {
	if ttl <= 0 {
		return make([]byte, 8, 24)
	}
	return binary.BigEndian.AppendUint64(make([]byte, 0, 24), uint64(c.Clock()+stream.Time(ttl)))
}

// body is what stands behind the end, and whether that isn't over.
func body(c stream.Context, b []byte) ([]byte, bool) {
	if len(b) < 8 {
		return nil, false
	}
	end := stream.Time(binary.BigEndian.Uint64(b))
	return b[8:], end == 0 || end > c.Clock()
}

// Expire removes what is over when a timer of a TTL fires, and tells whether it was one.
func Expire(c stream.Context, t stream.Timer) bool {
	if len(t.Name) < len(ttlTimer) || t.Name[:len(ttlTimer)] != ttlTimer {
		return false
	}
	name := t.Name[len(ttlTimer):]
	next := stream.TimeMax
	var over [][]byte
	c.State().Scan(name, nil, nil, func(sub, v []byte) bool {
		if _, lives := body(c, v); !lives {
			over = append(over, append([]byte(nil), sub...))
		} else if end := stream.Time(binary.BigEndian.Uint64(v)); end > 0 {
			next = min(next, end)
		}
		return true
	})
	for _, sub := range over {
		c.State().Delete(name, sub)
	}
	if next < stream.TimeMax {
		c.SetTimer(stream.Timer{Kind: stream.Processing, At: next, Name: t.Name})
	} else {
		c.State().Delete(t.Name, nil)
	}
	return true
}

// Value is one value for each key.
type Value[T any] struct {
	Name  string
	Codec Codec[T]
	TTL   time.Duration // 0: for ever
}

// Get returns the value, and whether there is one.
func (p Value[T]) Get(c stream.Context) (v T, there bool, err error) {
	return get(c, p.Name, nil, p.Codec)
}

// Set sets it.
func (p Value[T]) Set(c stream.Context, v T) {
	write(c, p.Name, nil, p.Codec.Append(head(c, p.TTL), v), p.TTL)
}

// Clear removes it.
func (p Value[T]) Clear(c stream.Context) { c.State().Delete(p.Name, nil) }

func get[T any](c stream.Context, name string, sub []byte, codec Codec[T]) (v T, there bool, err error) {
	b, there := c.State().Get(name, sub)
	if !there {
		return v, false, nil
	}
	if b, there = body(c, b); !there {
		return v, false, nil
	}
	if v, err = codec.Load(b); err != nil {
		return v, false, fmt.Errorf("read state %s: %w", name, err)
	}
	return v, true, nil
}

// Map is values by a name, for each key.
type Map[T any] struct {
	Name  string
	Codec Codec[T]
	TTL   time.Duration // of each entry, from when it was put
}

// Get returns an entry, and whether there is one.
func (p Map[T]) Get(c stream.Context, name string) (v T, there bool, err error) {
	return get(c, p.Name, []byte(name), p.Codec)
}

// Put sets an entry.
func (p Map[T]) Put(c stream.Context, name string, v T) {
	write(c, p.Name, []byte(name), p.Codec.Append(head(c, p.TTL), v), p.TTL)
}

// Delete removes an entry.
func (p Map[T]) Delete(c stream.Context, name string) { c.State().Delete(p.Name, []byte(name)) }

// Each calls f with each entry, by the bytes of their names, until it returns false.
func (p Map[T]) Each(c stream.Context, f func(name string, v T) bool) (err error) {
	c.State().Scan(p.Name, nil, nil, func(sub, b []byte) bool {
		b, lives := body(c, b)
		if !lives {
			return true
		}
		v, bad := p.Codec.Load(b)
		if bad != nil {
			err = fmt.Errorf("read state %s: %w", p.Name, bad)
			return false
		}
		return f(string(sub), v)
	})
	return err
}
