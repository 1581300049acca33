// Package bursts is a process function, with state and timers: the example of the
// broker in tests/operators/brokerd.
package bursts

import (
	"errors"

	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/steps"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/value"
)

// Functions are the process functions of the example, for a broker and for tests.
var Functions = map[string]steps.Factory{"bursts": Bursts}

// burst is what is kept of a key.
type burst struct {
	K      string
	N, Sum int64
	Until  stream.Time // when it is over, if nothing comes
}

// Bursts makes the function of a step.
func Bursts(with value.Value) (steps.Function, error) {
	given, _ := with.Get("quiet_ms")
	ms, ok := given.Int()
	if !ok || ms <= 0 {
		return steps.Function{}, errors.New("bursts wants with: {quiet_ms: a number of milliseconds}")
	}
	quiet := stream.Time(ms) * 1e6
	kept := state.Value[burst]{Name: "burst", Codec: state.JSON[burst]{}}
	return steps.Function{
		Class: stream.Deterministic,
		Process: func(c stream.Context, r *stream.Record) error {
			b, _, err := kept.Get(c)
			if err != nil {
				return err
			}
			v, _ := r.Value.Get("v")
			n, ok := v.Int()
			if !ok {
				return errors.New("v is no whole number")
			}
			if until := r.Time + quiet; until > b.Until {
				if b.N > 0 {
					c.DeleteTimer(stream.Timer{Kind: stream.EventTime, At: b.Until, Name: "quiet"})
				}
				c.SetTimer(stream.Timer{Kind: stream.EventTime, At: until, Name: "quiet"})
				b.Until = until
			}
			k, _ := r.Value.Get("k")
			b.K = k.Str()
			b.N, b.Sum = b.N+1, b.Sum+n
			kept.Set(c, b)
			return nil
		},
		Timer: func(c stream.Context, t stream.Timer) error {
			b, _, err := kept.Get(c)
			if err != nil {
				return err
			}
			kept.Clear(c)
			c.Emit(0, &stream.Record{Key: c.Key(), Time: t.At, Value: value.OfObject(
				value.Field{Name: "k", Value: value.OfString(b.K)}, value.Field{Name: "n", Value: value.OfInt(b.N)},
				value.Field{Name: "sum", Value: value.OfInt(b.Sum)},
				value.Field{Name: "until", Value: value.OfInt(int64(t.At) / 1e6)})})
			return nil
		},
	}, nil
}
