package engine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/heraldmq/herald/operators/eventtime"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
)

// Step is one execution of an operator: what is proposed, and committed or not.
type Step struct {
	Operator  uint64
	Partition uint32
	Epoch     uint64 // rises when state is reset; a step of another epoch is refused
	Seq       uint64 // dense, from 1

	Clock stream.Time
	Flips []eventtime.Flip
	Reads []Read // in the order in which records were taken
	// Ends is how far each input has been read after the step.
	Ends []topics.Sequence
	// Routes are by sink: the topic whose outputs wait in the outbox; 0 (or none): they
	// are committed with the step; RouteGone: there is no such topic.
	Routes []topics.TopicID
	// Sent is what became of what waited in the outbox.
	Sent []Sent
	// Halt is the number of a layout that takes over: see Instance.Halted. 0: none.
	Halt uint32

	// Delta is what changed in the state; nil in a step that standbys run again.
	Delta []byte
	// Progress: Delta has only how far the operator has come, not what its steps remember.
	Progress bool
	// Digest is of Delta and Outputs.
	Digest uint64
	// Sum is of the whole state after the step SumOf, which was committed before this one
	// was run; SumOf 0: it isn't said.
	SumOf, Sum uint64

	Outputs []Output
}

// Read is a run of records taken from one input, one after the other: those that its
// filter lets through from From to To, both inclusive.
type Read struct {
	Input    int
	From, To topics.Sequence
	Count    int
}

// Output is a message that becomes visible when the step is committed, or, with To, once
// the outbox has sent it to that topic.
type Output struct {
	Sink    int
	To      topics.TopicID
	Subject string
	Header  []byte
	Payload []byte
	// ID is the same when the output comes again, and Again tells that it may have come
	// before: both of recovery upstream only.
	ID    string
	Again bool
}

// ErrStep means that bytes are no step.
var ErrStep = errors.New("not a step of an operator")

// A step of format 2 has the routes and what was sent in front of its digest.
const (
	stepFormat       = 1
	stepFormatOutbox = 2
)

// What stands behind the digest: with stepSum a state's sum first, then the delta, of all
// or of how far the operator has come.
const (
	stepBare     = 0
	stepDelta    = 1
	stepProgress = 2
	stepSum      = 4
)

// Append appends the step but for its outputs.
func (s *Step) Append(dst []byte) []byte {
	format := byte(stepFormat)
	if len(s.Routes) > 0 || len(s.Sent) > 0 || s.Halt > 0 {
		format = stepFormatOutbox
	}
	dst = append(dst, format)
	for _, n := range []uint64{s.Operator, uint64(s.Partition), s.Epoch, s.Seq} {
		dst = binary.AppendUvarint(dst, n)
	}
	dst = binary.AppendVarint(dst, int64(s.Clock))
	dst = binary.AppendUvarint(dst, uint64(len(s.Flips)))
	for _, f := range s.Flips {
		n := uint64(f.Input) << 1
		if f.Idle {
			n |= 1
		}
		dst = binary.AppendUvarint(dst, n)
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.Reads)))
	for _, r := range s.Reads {
		dst = binary.AppendUvarint(dst, uint64(r.Input))
		dst = binary.AppendUvarint(dst, uint64(r.From))
		dst = binary.AppendUvarint(dst, uint64(r.To-r.From))
		dst = binary.AppendUvarint(dst, uint64(r.Count))
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.Ends)))
	for _, e := range s.Ends {
		dst = binary.AppendUvarint(dst, uint64(e))
	}
	if format == stepFormatOutbox {
		dst = binary.AppendUvarint(dst, uint64(len(s.Routes)))
		for _, r := range s.Routes {
			dst = binary.AppendUvarint(dst, uint64(r))
		}
		dst = binary.AppendUvarint(dst, uint64(len(s.Sent)))
		for i := range s.Sent {
			dst = s.Sent[i].append(dst)
		}
		dst = binary.AppendUvarint(dst, uint64(s.Halt))
	}
	dst = binary.LittleEndian.AppendUint64(dst, s.Digest)
	kind := byte(stepBare)
	switch {
	case s.Delta != nil && s.Progress:
		kind = stepProgress
	case s.Delta != nil:
		kind = stepDelta
	}
	if s.SumOf == 0 {
		dst = append(dst, kind)
	} else {
		dst = binary.AppendUvarint(append(dst, kind|stepSum), s.SumOf)
		dst = binary.LittleEndian.AppendUint64(dst, s.Sum)
	}
	if kind == stepBare {
		return dst
	}
	return append(dst, s.Delta...)
}

// ParseStep reads what Append wrote. Delta is a part of b.
func ParseStep(b []byte) (*Step, error) {
	p := stepParser{b: b}
	format := p.byte()
	if format != stepFormat && format != stepFormatOutbox {
		return nil, fmt.Errorf("%w: unknown format", ErrStep)
	}
	s := &Step{Operator: p.uint(), Partition: uint32(p.uint()), Epoch: p.uint(), Seq: p.uint(), Clock: stream.Time(p.int())}
	for range p.count() {
		n := p.uint()
		s.Flips = append(s.Flips, eventtime.Flip{Input: int(n >> 1), Idle: n&1 != 0})
	}
	for range p.count() {
		r := Read{Input: int(p.uint()), From: topics.Sequence(p.uint())}
		r.To = r.From + topics.Sequence(p.uint())
		r.Count = int(p.uint())
		s.Reads = append(s.Reads, r)
	}
	for range p.count() {
		s.Ends = append(s.Ends, topics.Sequence(p.uint()))
	}
	if format == stepFormatOutbox {
		for range p.count() {
			s.Routes = append(s.Routes, topics.TopicID(p.uint()))
		}
		for range p.count() {
			s.Sent = append(s.Sent, p.sent())
		}
		s.Halt = uint32(p.uint())
	}
	if len(p.b) < 9 {
		p.bad = true
	}
	if p.bad {
		return nil, fmt.Errorf("%w: it ends too early", ErrStep)
	}
	s.Digest = binary.LittleEndian.Uint64(p.b)
	kind := p.b[8]
	p.b = p.b[9:]
	if kind&stepSum != 0 {
		if s.SumOf = p.uint(); p.bad || len(p.b) < 8 || s.SumOf == 0 {
			return nil, fmt.Errorf("%w: it ends too early", ErrStep)
		}
		s.Sum, p.b = binary.LittleEndian.Uint64(p.b), p.b[8:]
	}
	switch kind &^ stepSum {
	case stepBare:
		if len(p.b) > 0 {
			return nil, fmt.Errorf("%w: something follows it", ErrStep)
		}
	case stepDelta, stepProgress:
		s.Progress = kind&stepProgress != 0
		s.Delta = p.b[:len(p.b):len(p.b)]
	default:
		return nil, fmt.Errorf("%w: neither with nor without a delta", ErrStep)
	}
	return s, nil
}

type stepParser struct {
	b   []byte
	bad bool
}

func (p *stepParser) byte() byte {
	if len(p.b) == 0 {
		p.bad = true
		return 0
	}
	c := p.b[0]
	p.b = p.b[1:]
	return c
}

func (p *stepParser) uint() uint64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 {
		p.bad = true
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *stepParser) int() int64 {
	v, n := binary.Varint(p.b)
	if n <= 0 {
		p.bad = true
		return 0
	}
	p.b = p.b[n:]
	return v
}

// count reads how many items follow; each takes a byte at least.
func (p *stepParser) count() int {
	n := p.uint()
	if n > uint64(len(p.b)) {
		p.bad = true
		return 0
	}
	return int(n)
}

// digest is a figure of a step's effects.
func digest(delta []byte, outputs []Output) uint64 {
	d := xxhash.New()
	var head [8]byte
	part := func(b []byte) {
		binary.LittleEndian.PutUint64(head[:], uint64(len(b)))
		_, _ = d.Write(head[:]) // never fails
		_, _ = d.Write(b)
	}
	part(delta)
	for i := range outputs {
		o := &outputs[i]
		binary.LittleEndian.PutUint64(head[:], uint64(o.Sink))
		_, _ = d.Write(head[:])
		part([]byte(o.Subject))
		part(o.Header)
		part(o.Payload)
	}
	return d.Sum64()
}
