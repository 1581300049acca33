// Package eventtime follows how far event time has come, from the timestamps of
// records and nothing else; what only a wall clock can tell, that an input has gone
// quiet, comes in as a decision of the primary's that is in the log.
//
// The watermark is the smallest, over the inputs that aren't idle, of the greatest
// timestamp seen less the disorder that is allowed. No record that isn't late is
// older. It never goes back. When all inputs are idle it follows the logged clock from
// the greatest timestamp seen, so that the last windows close as well: a window closes
// at the latest when the clock has gone on by idle_after, the disorder and what was left
// of the window since the last record came.
package eventtime

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/heraldmq/herald/operators/stream"
)

// Config says how a graph's time behaves.
type Config struct {
	Disorder  time.Duration // how much older than the newest a record may be and still be in time
	IdleAfter time.Duration // an input that gave nothing for as long, with nothing waiting, is left out; 0: never
	MaxFuture time.Duration // a timestamp further ahead of the clock isn't believed; 0: any is
}

// Verdict is what is thought of a record's timestamp.
type Verdict uint8

// The verdicts.
const (
	InTime  Verdict = iota // it counts
	Suspect                // it is too far in the future: it doesn't move the watermark
	Behind                 // it is older than the watermark
)

// Flip is the decision that an input is idle, or no longer.
type Flip struct {
	Input int
	Idle  bool
}

// Tracker follows the inputs of one operator. For one goroutine; what it holds is
// state, written by AppendTo.
type Tracker struct {
	cfg       Config
	inputs    []input
	watermark stream.Time
	quiet     stream.Time // clock at which all inputs had become idle; TimeMax: not all are
}

type input struct {
	newest stream.Time // greatest timestamp believed; TimeMin before the first
	last   stream.Time // clock of the last record, or when the tracker began
	idle   bool
}

// New returns a tracker of n inputs, at a clock.
func New(cfg Config, n int, clock stream.Time) *Tracker {
	t := &Tracker{cfg: cfg, inputs: make([]input, n), watermark: stream.TimeMin, quiet: stream.TimeMax}
	for i := range t.inputs {
		t.inputs[i] = input{newest: stream.TimeMin, last: clock}
	}
	return t
}

// Observe takes the timestamp of a record of an input, in a step with that clock. An
// idle input that gives a record isn't idle any more.
func (t *Tracker) Observe(i int, at, clock stream.Time) Verdict {
	return t.ObserveBy(i, at, clock, clock)
}

// ObserveBy is Observe where another clock says which timestamps are believed: that by which
// the record was stored, say, so that all who read it agree.
func (t *Tracker) ObserveBy(i int, at, clock, by stream.Time) Verdict {
	t.Touch(i, clock)
	in := &t.inputs[i]
	if t.cfg.MaxFuture > 0 && at > later(by, t.cfg.MaxFuture) {
		return Suspect
	}
	in.newest = max(in.newest, at)
	if at < t.watermark {
		return Behind
	}
	return InTime
}

// Touch takes note that an input gave something that has no timestamp.
func (t *Tracker) Touch(i int, clock stream.Time) {
	t.inputs[i].last = clock
	if t.inputs[i].idle {
		t.Flip(Flip{i, false}, clock)
	}
}

// Clone returns a tracker of its own with the same state.
func (t *Tracker) Clone() *Tracker {
	c := *t
	c.inputs = slices.Clone(t.inputs)
	return &c
}

// CopyFrom makes the state that of another tracker of the same inputs.
func (t *Tracker) CopyFrom(o *Tracker) {
	inputs := append(t.inputs[:0], o.inputs...)
	*t = *o
	t.inputs = inputs
}

// Decide returns which inputs the primary has to call idle now: those that gave
// nothing for IdleAfter and have nothing waiting. An input that isn't read because
// something downstream is full has something waiting, and is never idle.
func (t *Tracker) Decide(clock stream.Time, waiting func(input int) bool) (flips []Flip) {
	if t.cfg.IdleAfter <= 0 {
		return nil
	}
	for i := range t.inputs {
		if in := &t.inputs[i]; !in.idle && clock >= later(in.last, t.cfg.IdleAfter) && !waiting(i) {
			flips = append(flips, Flip{i, true})
		}
	}
	return flips
}

// Flip carries a decision out.
func (t *Tracker) Flip(f Flip, clock stream.Time) {
	t.inputs[f.Input].idle = f.Idle
	t.quiet = clock
	for i := range t.inputs {
		if !t.inputs[i].idle {
			t.quiet = stream.TimeMax
		}
	}
}

// Advance moves the watermark as far as it goes at a clock and returns it, and whether
// it moved.
func (t *Tracker) Advance(clock stream.Time) (stream.Time, bool) {
	w := stream.TimeMax
	newest := stream.TimeMin
	for i := range t.inputs {
		in := &t.inputs[i]
		newest = max(newest, in.newest)
		if !in.idle {
			w = min(w, earlier(in.newest, t.cfg.Disorder))
		}
	}
	if w == stream.TimeMax { // all are idle
		if w = newest; newest != stream.TimeMin && clock > t.quiet {
			w = later(newest, time.Duration(clock-t.quiet))
		}
	}
	if w <= t.watermark {
		return t.watermark, false
	}
	t.watermark = w
	return w, true
}

// Next returns the clock at which Decide or Advance has something to do though no
// record comes, TimeMax when never.
func (t *Tracker) Next() stream.Time {
	if t.cfg.IdleAfter <= 0 {
		return stream.TimeMax
	}
	next := stream.TimeMax
	for i := range t.inputs {
		if !t.inputs[i].idle {
			next = min(next, later(t.inputs[i].last, t.cfg.IdleAfter))
		}
	}
	return next
}

// Due returns the clock at which the watermark will have reached a time by itself,
// because all inputs are idle; TimeMax when it won't.
func (t *Tracker) Due(at stream.Time) stream.Time {
	newest := stream.TimeMin
	for i := range t.inputs {
		newest = max(newest, t.inputs[i].newest)
	}
	if t.quiet == stream.TimeMax || newest == stream.TimeMin || at == stream.TimeMax {
		return stream.TimeMax
	}
	return later(t.quiet, time.Duration(max(at-newest, 0)))
}

// Watermark returns how far event time has come.
func (t *Tracker) Watermark() stream.Time { return t.watermark }

// Idle tells whether an input is left out.
func (t *Tracker) Idle(i int) bool { return t.inputs[i].idle }

// Newest returns the greatest timestamp an input gave, TimeMin before the first.
func (t *Tracker) Newest(i int) stream.Time { return t.inputs[i].newest }

// later and earlier add without running over the ends of time.
func later(t stream.Time, d time.Duration) stream.Time {
	if d > 0 && t > stream.TimeMax-stream.Time(d) {
		return stream.TimeMax
	}
	return t + stream.Time(d)
}

func earlier(t stream.Time, d time.Duration) stream.Time {
	if d > 0 && t < stream.TimeMin+stream.Time(d) {
		return stream.TimeMin
	}
	return t - stream.Time(d)
}

// ErrState means that bytes are no tracker's.
var ErrState = errors.New("not the state of event time")

// AppendTo appends the tracker's state.
func (t *Tracker) AppendTo(dst []byte) []byte {
	dst = binary.AppendVarint(dst, int64(t.watermark))
	dst = binary.AppendVarint(dst, int64(t.quiet))
	dst = binary.AppendUvarint(dst, uint64(len(t.inputs)))
	for _, in := range t.inputs {
		dst = binary.AppendVarint(dst, int64(in.newest))
		dst = binary.AppendVarint(dst, int64(in.last))
		dst = append(dst, 0)
		if in.idle {
			dst[len(dst)-1] = 1
		}
	}
	return dst
}

// Load replaces the state by what AppendTo wrote. Inputs that are new since then begin
// at clock; those that are gone are forgotten.
func (t *Tracker) Load(b []byte, clock stream.Time) error {
	bad := false
	number := func() int64 {
		v, n := binary.Varint(b)
		if n <= 0 {
			bad = true
			return 0
		}
		b = b[n:]
		return v
	}
	watermark, quiet := stream.Time(number()), stream.Time(number())
	count, n := binary.Uvarint(b)
	if bad || n <= 0 || count > 1<<16 {
		return ErrState
	}
	b = b[n:]
	fresh := New(t.cfg, len(t.inputs), clock)
	for i := range count {
		in := input{newest: stream.Time(number()), last: stream.Time(number())}
		if bad || len(b) == 0 || b[0] > 1 {
			return ErrState
		}
		in.idle, b = b[0] == 1, b[1:]
		if i < uint64(len(fresh.inputs)) {
			fresh.inputs[i] = in
		}
	}
	if len(b) > 0 {
		return ErrState
	}
	fresh.watermark, fresh.quiet = watermark, quiet
	if count < uint64(len(fresh.inputs)) {
		fresh.quiet = stream.TimeMax
	}
	*t = *fresh
	return nil
}

// Merge makes the tracker one for all that others have followed, each the same inputs: as
// far as the farthest of them. An input is idle when it is for all.
func (t *Tracker) Merge(others ...*Tracker) {
	for _, o := range others {
		t.watermark = max(t.watermark, o.watermark)
		t.quiet = max(t.quiet, o.quiet) // TimeMax where not all of its inputs are idle
		for i := range t.inputs {
			if i < len(o.inputs) {
				in, other := &t.inputs[i], &o.inputs[i]
				in.newest, in.last, in.idle = max(in.newest, other.newest), max(in.last, other.last), in.idle && other.idle
			}
		}
	}
}
