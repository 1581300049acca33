package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/heraldmq/herald/operators/eventtime"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
)

// The instances of an operator can be replaced by others, more or fewer: once all have read
// up to the same place, and nothing waits to be sent, each of those that come takes the keys
// of its share over from all of those that go.

// part is what of a state is of a share.
type part struct {
	state.Reader
	share Share
}

// Part returns what an instance with a share takes over of another one's state.
func Part(r state.Reader, share Share) state.Reader { return part{r, share} }

func (p part) Scan(from, to []byte, f func(key, v []byte) bool) error {
	return p.Reader.Scan(from, to, func(key, v []byte) bool {
		if !p.has(key) {
			return true
		}
		return f(key, v)
	})
}

func (p part) has(key []byte) bool {
	switch {
	case len(key) == 0 || key[0] == spaceOutbox:
		return false
	case key[0] == spaceState && len(key) >= 5:
		return p.share.HasGroup(binary.BigEndian.Uint16(key[1:]))
	case key[0] == spaceTimer:
		_, k, _, ok := parseTimerKey(key)
		return ok && p.share.Has(k)
	case bytes.HasPrefix(key, metaCounts):
		return p.share.Index == 0 // one goes on with what all have counted
	}
	return true
}

// Inherit makes the state of an instance of what Part gives of all those that it comes
// after. The error is ErrOrder where they have not read up to the same place.
func Inherit(g *graph.Graph, parts ...state.Reader) (*state.Memory, error) {
	h := heir{g: g, counts: map[string]uint64{}, clock: stream.TimeMin}
	for _, p := range parts {
		var bad error
		err := p.Scan(nil, nil, func(key, v []byte) bool {
			bad = h.take(key, v)
			return bad == nil
		})
		if err == nil {
			err = bad
		}
		if err == nil {
			err = h.next()
		}
		if err != nil {
			return nil, fmt.Errorf("take over the state of operator %s: %w", g.Name, err)
		}
	}
	m := state.NewMemory()
	if h.read > 0 {
		h.set(metaClock, binary.AppendVarint(nil, int64(h.clock)))
		h.set(metaInputs, encodeEnds(h.ends))
		if h.tracker != nil {
			h.set(metaTracker, h.tracker.AppendTo(nil))
		}
	}
	for key, n := range h.counts {
		h.set([]byte(key), binary.AppendUvarint(nil, n))
	}
	return m, m.Apply(h.delta, 0)
}

// heir gathers a state.
type heir struct {
	g       *graph.Graph
	delta   []byte
	counts  map[string]uint64
	clock   stream.Time
	tracker *eventtime.Tracker
	ends    []topics.Sequence
	read    int // how many have read something

	own struct { // of the part that is taken
		tracker, ends []byte
		clock         stream.Time
		some          bool
	}
}

func (h *heir) set(key, v []byte) { h.delta = state.AppendChange(h.delta, key, v, false) }

func (h *heir) take(key, v []byte) error {
	switch {
	case bytes.Equal(key, metaClock):
		c, n := binary.Varint(v)
		if n <= 0 {
			return ErrState
		}
		h.own.clock, h.own.some = stream.Time(c), true
	case bytes.Equal(key, metaTracker):
		h.own.tracker = v
	case bytes.Equal(key, metaInputs):
		h.own.ends = v
	case bytes.HasPrefix(key, metaCounts):
		n, used := binary.Uvarint(v)
		if used <= 0 {
			return ErrState
		}
		h.counts[string(key)] += n
	case key[0] != spaceMeta:
		h.set(key, v)
	}
	return nil
}

// next ends a part.
func (h *heir) next() error {
	own := h.own
	h.own.tracker, h.own.ends, h.own.some = nil, nil, false
	if !own.some {
		return nil // it has not run a step
	}
	ends, err := decodeEnds(own.ends)
	if err != nil {
		return err
	}
	h.clock = max(h.clock, own.clock)
	if h.read++; h.read == 1 {
		h.ends = ends
	} else if !slices.Equal(h.ends, ends) {
		return fmt.Errorf("%w: one has read up to %v, another up to %v", ErrOrder, h.ends, ends)
	}
	t := eventtime.New(h.g.Time, len(h.g.Inputs), own.clock)
	if err := t.Load(own.tracker, own.clock); err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	if h.tracker == nil {
		h.tracker = t
	} else {
		h.tracker.Merge(t)
	}
	return nil
}

// halt notes that the operator's instances are about to be replaced.
func (x *executor) halt(layout uint32) {
	if layout > 0 {
		x.overlay.Put(metaHalt, binary.AppendUvarint(nil, uint64(layout)))
		x.trimmed = true // the step is not empty
	}
}

// Halted returns the number of the layout that the last steps, uncommitted ones included,
// have made way for: from then on nothing is read but up to where all are to come.
func (i *Instance) Halted() (uint32, error) { return halted(i.top()) }

func halted(r state.Reader) (uint32, error) {
	v, _, err := r.Get(metaHalt)
	if err != nil || len(v) == 0 {
		return 0, err
	}
	n, used := binary.Uvarint(v)
	if used <= 0 {
		return 0, ErrState
	}
	return uint32(n), nil
}

// Standing is how far an instance has come in making way for others.
type Standing struct {
	Halted uint32            `json:"halted"`
	Ends   []topics.Sequence `json:"ends"`  // by input: read up to there
	Waits  bool              `json:"waits"` // something waits to be sent
}

// StandingOf reads it from a state.
func StandingOf(r state.Reader) (s Standing, err error) {
	if s.Halted, err = halted(r); err != nil {
		return s, err
	}
	b, _, err := r.Get(metaInputs)
	if err != nil {
		return s, err
	}
	if s.Ends, err = decodeEnds(b); err != nil {
		return s, err
	}
	_, _, s.Waits, err = state.First(r, []byte{spaceOutbox, 'r'}, []byte{spaceOutbox, 's'})
	return s, err
}

// Renewed returns the value of a key of an instance's state, with the place in some inputs
// put back to their beginning. What can't be read is left as it is.
func Renewed(key, v []byte, inputs []int) []byte {
	if !bytes.Equal(key, metaInputs) {
		return v
	}
	ends, err := decodeEnds(v)
	if err != nil {
		return v // it is told where the state is opened
	}
	for _, i := range inputs {
		if i < len(ends) {
			ends[i] = 0
		}
	}
	return encodeEnds(ends)
}

func decodeEnds(b []byte) (ends []topics.Sequence, err error) {
	for len(b) > 0 {
		e, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, ErrState
		}
		ends, b = append(ends, topics.Sequence(e)), b[n:]
	}
	return ends, nil
}
