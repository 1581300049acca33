package engine

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
)

// Recovery upstream and amnesia replicate how far an operator has come and nothing that
// its steps remember. Whoever takes over is hollow: it begins with nothing,
//
//   - upstream: at the newest mark of which all that was read before is forgotten. What
//     it gives until it is where the other had come has been given before, and says so.
//   - amnesia: where the other had come.
//
// A mark is a place in the inputs, and the newest event time read up to there. Once event
// time has come further by the graph's span, nothing that was read before matters. The
// results of windows that begin in front of the mark aren't whole, and are withheld: by
// upstream because they have been given, by amnesia because they would be wrong.

// place is one from which the inputs may be read again.
type place struct {
	ends    []topics.Sequence
	newest  stream.Time // greatest event time read so far; TimeMin: none
	reads   uint64      // records read so far
	tracker []byte
}

// rollback is what is kept for it. It is never changed: the next step has its own.
type rollback struct {
	reads  uint64
	places []place // oldest first; what was read before the first doesn't matter

	until []topics.Sequence // what comes of these comes again; nil: nothing does
	event stream.Time       // so far event time had come then
	clean stream.Time       // windows that end later are whole
}

const (
	placesMax = 64 // bounds the places that are kept
	// placesPer is how many places there are in a span, about.
	placesPer = 8
)

// forgetful tells whether what steps remember isn't replicated.
func forgetful(g *graph.Graph) bool {
	return g.Recovery == graph.Upstream || g.Recovery == graph.Amnesia
}

// newest is the greatest event time that any input gave.
func (m *moment) newest(inputs int) stream.Time {
	t := stream.TimeMin
	for i := range inputs {
		t = max(t, m.tracker.Newest(i))
	}
	return t
}

func (m *moment) place(reads uint64) place {
	return place{slices.Clone(m.ends), m.newest(len(m.ends)), reads, m.tracker.AppendTo(nil)}
}

// judge says what becomes of an output while what was lost is read again.
func (x *executor) judge() (keep, again bool) {
	b := x.now.back
	old := b.until != nil && (x.firing && x.event < b.event || !x.firing && x.at.Sequence <= b.until[x.at.Input])
	partial := x.event < b.clean && (x.firing || x.windows > 0)
	if partial && (old || x.i.graph.Recovery == graph.Amnesia) {
		return false, false
	}
	return true, old
}

// identity is an output's name, the same whenever it comes again: it follows from what
// it is and what it is made of, and from how many of its like came at once before.
func (x *executor) identity(sink int, r *stream.Record, out *graph.Out) string {
	d := xxhash.New()
	var n [8]byte
	number := func(v uint64) {
		binary.LittleEndian.PutUint64(n[:], v)
		_, _ = d.Write(n[:]) // never fails
	}
	part := func(b []byte) {
		number(uint64(len(b)))
		_, _ = d.Write(b)
	}
	number(uint64(r.Time))
	number(uint64(r.Origin.Input))
	number(uint64(r.Origin.Sequence))
	part([]byte(x.i.graph.Sinks[sink].Name))
	part(r.Key)
	part([]byte(out.Subject))
	part(out.Payload)
	sum := d.Sum64()
	if x.alike == nil {
		x.alike = map[uint64]uint64{}
	}
	number(x.alike[sum])
	x.alike[sum]++
	return hex.EncodeToString(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, sum), d.Sum64()))
}

// note takes down where the step has come.
func (x *executor) note() {
	b := *x.now.back
	for _, r := range x.reads {
		b.reads += uint64(r.Count)
	}
	w, span := x.now.tracker.Watermark(), x.i.graph.Span
	at := x.now.place(b.reads)
	switch last := b.places[len(b.places)-1]; {
	case span == 0:
		b.places = []place{at}
	case span > 0 && at.newest != stream.TimeMin && (last.newest == stream.TimeMin || at.newest >= later(last.newest, max(span/placesPer, 1))):
		if b.places = append(slices.Clone(b.places), at); len(b.places) > placesMax {
			b.places = thinned(b.places)
		}
	}
	for len(b.places) > 1 && later(b.places[1].newest, span) <= w {
		b.places = b.places[1:]
	}
	reached := w >= b.event
	for in, e := range b.until {
		reached = reached && x.now.ends[in] >= e
	}
	if reached {
		b.until, b.event = nil, stream.TimeMin
	}
	x.now.back = &b
	x.put(metaRollback, b.append(nil))
	x.put(metaPlaces, b.appendPlaces(nil))
}

// put writes what isn't there yet; what only this replica has is written once more.
func (x *executor) put(key, v []byte) {
	if old, ok, _ := x.overlay.Get(key); !ok || x.i.rewound || !bytes.Equal(old, v) { // a failure is seen at the end
		x.overlay.Put(key, v)
	}
}

// thinned drops every other place but the first and the last.
func thinned(all []place) (rest []place) {
	for i := range all {
		if i%2 == 0 || i == len(all)-1 {
			rest = append(rest, all[i])
		}
	}
	return rest
}

func (b *rollback) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, b.reads)
	dst = binary.AppendVarint(dst, int64(b.event))
	dst = binary.AppendVarint(dst, int64(b.clean))
	return appendEnds(dst, b.until)
}

func appendEnds(dst []byte, ends []topics.Sequence) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ends)))
	for _, e := range ends {
		dst = binary.AppendUvarint(dst, uint64(e))
	}
	return dst
}

func (b *rollback) appendPlaces(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b.places)))
	for i := range b.places {
		p := &b.places[i]
		dst = appendEnds(dst, p.ends)
		dst = binary.AppendVarint(dst, int64(p.newest))
		dst = binary.AppendUvarint(dst, p.reads)
		dst = append(binary.AppendUvarint(dst, uint64(len(p.tracker))), p.tracker...)
	}
	return dst
}

func (p *stepParser) ends() (ends []topics.Sequence) {
	for range p.count() {
		ends = append(ends, topics.Sequence(p.uint()))
	}
	return ends
}

// loadBack takes what is kept for a rollback from the store.
func (i *Instance) loadBack(m *moment) error {
	if !forgetful(i.graph) {
		return nil
	}
	b := &rollback{event: stream.TimeMin, clean: stream.TimeMin}
	raw, ok, err := i.store.Get(metaRollback)
	if err != nil {
		return err
	}
	if ok {
		p := stepParser{b: raw}
		b.reads, b.event, b.clean, b.until = p.uint(), stream.Time(p.int()), stream.Time(p.int()), p.ends()
		if p.bad || len(b.until) > 0 && len(b.until) != len(m.ends) {
			return ErrState
		}
	}
	if raw, ok, err = i.store.Get(metaPlaces); err != nil {
		return err
	}
	if ok {
		p := stepParser{b: raw}
		for range p.count() {
			at := place{ends: p.ends(), newest: stream.Time(p.int()), reads: p.uint()}
			n := p.count()
			if p.bad || len(at.ends) != len(m.ends) {
				return ErrState
			}
			at.tracker, p.b = p.b[:n:n], p.b[n:]
			b.places = append(b.places, at)
		}
	}
	if len(b.places) == 0 { // from the beginning, where all is read again
		first := moment{ends: make([]topics.Sequence, len(m.ends)), tracker: i.tracker()}
		b.places = []place{first.place(0)}
	}
	m.back = b
	return nil
}

// Progress is what is left of a delta when what steps remember is left out.
func Progress(delta []byte) (rest []byte) {
	rest = []byte{}
	_ = state.EachChange(delta, func(key, v []byte, deleted bool) error { // made by an overlay
		if key[0] == spaceMeta || key[0] == spaceOutbox {
			rest = state.AppendChange(rest, key, v, deleted)
		}
		return nil
	})
	return rest
}

// hollowed is a state without what steps remember.
type hollowed struct{ state.Reader }

func (h hollowed) Scan(from, to []byte, f func(key, v []byte) bool) error {
	told, more := false, true
	tell := func() {
		told = true
		if bytes.Compare(metaHollow, from) >= 0 && (to == nil || bytes.Compare(metaHollow, to) < 0) {
			more = f(metaHollow, nil)
		}
	}
	err := h.Reader.Scan(from, to, func(key, v []byte) bool {
		if key[0] != spaceMeta && key[0] != spaceOutbox || bytes.Equal(key, metaHollow) {
			return true
		}
		if !told && bytes.Compare(key, metaHollow) > 0 {
			tell()
		}
		more = more && f(key, v)
		return more
	})
	if err == nil && more && !told {
		tell()
	}
	return err
}

// Hollow returns a state without what steps remember, for a replica that is to know only
// how far an operator has come.
func Hollow(r state.Reader) state.Reader { return hollowed{r} }

// TakeIn carries out what a step that another replica ran says of the state: its delta, or
// only how far it has come, which leaves the replica hollow. It takes no graph.
func TakeIn(st state.Store, s *Step) error {
	if s.Progress {
		_, is, err := st.Get(metaHollow)
		if err == nil && !is {
			err = st.Replace(hollowed{st}, st.Seq())
		}
		if err != nil {
			return fmt.Errorf("take in how far step %d has come: %w", s.Seq, err)
		}
	}
	if err := st.Apply(s.Delta, s.Seq); err != nil {
		return fmt.Errorf("take in step %d: %w", s.Seq, err)
	}
	return nil
}

// IsHollow tells whether a state has only how far an operator has come.
func IsHollow(r state.Reader) (bool, error) {
	_, is, err := r.Get(metaHollow)
	return is, err
}

// Rewound says what beginning with nothing means.
type Rewound struct {
	From  []topics.Sequence // by input: what is behind is read
	Again uint64            // records that are read again
	Lost  uint64            // records that mattered and aren't read again
}

// Rewind gets a replica that is hollow ready to run, and returns nil when it isn't. What it
// changes is only here, until the next step.
func (i *Instance) Rewind() (*Rewound, error) {
	_, is, err := i.store.Get(metaHollow)
	if err != nil || !is {
		return nil, err
	}
	if i.now.back == nil || len(i.open) > 0 {
		return nil, fmt.Errorf("rewind operator %s: %w", i.graph.Name, ErrOrder)
	}
	b, m, w := *i.now.back, i.now, i.now.tracker.Watermark()
	out := &Rewound{}
	first := b.places[0]
	if i.graph.Recovery == graph.Amnesia {
		out.Lost = b.reads - first.reads
		if out.Lost > 0 && i.graph.Span > 0 {
			b.clean = later(m.newest(len(m.ends)), i.graph.Span)
		}
		b.places = []place{m.place(b.reads)}
	} else if i.graph.Span != 0 {
		out.Again = b.reads - first.reads
		if b.until == nil {
			b.until = slices.Clone(m.ends)
		}
		for in := range b.until {
			b.until[in] = max(b.until[in], m.ends[in])
		}
		b.event = max(b.event, w)
		if first.newest != stream.TimeMin && i.graph.Span > 0 {
			b.clean = later(first.newest, i.graph.Span)
		}
		b.places, b.reads = []place{first}, first.reads
		m.ends = first.ends
		if err := m.tracker.Load(first.tracker, m.clock); err != nil {
			return nil, fmt.Errorf("rewind operator %s: %w", i.graph.Name, errors.Join(ErrState, err))
		}
	}
	out.From = slices.Clone(m.ends)
	var d []byte
	d = state.AppendChange(d, metaHollow, nil, true)
	d = state.AppendChange(d, metaInputs, encodeEnds(m.ends), false)
	d = state.AppendChange(d, metaPlaces, b.appendPlaces(nil), false)
	d = state.AppendChange(d, metaRollback, b.append(nil), false)
	d = state.AppendChange(d, metaTracker, m.tracker.AppendTo(nil), false)
	if err := i.store.Apply(d, i.store.Seq()); err != nil {
		return nil, fmt.Errorf("rewind operator %s: %w", i.graph.Name, err)
	}
	if err := i.reload(); err != nil {
		return nil, err
	}
	i.rewound = true
	return out, nil
}

// later adds without running over the end of time.
func later[D ~int64](t stream.Time, d D) stream.Time {
	if t > stream.TimeMax-stream.Time(d) {
		return stream.TimeMax
	}
	return t + stream.Time(d)
}

func encodeEnds(ends []topics.Sequence) (b []byte) {
	for _, e := range ends {
		b = binary.AppendUvarint(b, uint64(e))
	}
	return b
}
