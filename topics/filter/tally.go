package filter

import (
	"errors"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/heraldmq/herald/topics/expr"
)

// Reason says in a word why a filter could not be evaluated.
type Reason string

// The reasons.
const (
	Payload    Reason = "payload"    // it isn't what the codec reads
	Missing    Reason = "missing"    // a field, key or place in a list isn't there
	Type       Reason = "type"       // types don't fit: a text compared with a number
	Arithmetic Reason = "arithmetic" // overflow, division by zero
	Cost       Reason = "cost"       // too much work for one message
	Other      Reason = "other"
)

var reasons = [...]Reason{Payload, Missing, Type, Arithmetic, Cost, Other}

// Error is why a filter could not be evaluated over a message.
type Error struct {
	Reason Reason
	Err    error
}

func (e *Error) Error() string { return string(e.Reason) + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func newError(err error) *Error { return &Error{reasonOf(err), err} }

// reasonOf sorts an error by what cel-go says, which has no types for it.
func reasonOf(err error) Reason {
	var p *payloadError
	if errors.As(err, &p) {
		return Payload
	}
	text := err.Error()
	has := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(text, part) {
				return true
			}
		}
		return false
	}
	switch {
	case has("cost limit exceeded", "operation cancelled"):
		return Cost
	case has("no such key", "no such attribute", "no such field", "index out of bounds", "out of range", "optional.none()"):
		return Missing
	case has("overflow", "by zero", "division", "not a number"):
		return Arithmetic
	case errors.Is(err, expr.ErrType), has("no such overload", "no matching overload", "type conversion", "unexpected type", "unsupported"):
		return Type
	}
	return Other
}

// Tally counts what a filter did for one who uses it. The zero value is ready; any
// number of goroutines may use it.
type Tally struct {
	scanned, matched, delivered atomic.Uint64
	errors                      [len(reasons)]atomic.Uint64
	first                       atomic.Pointer[Example]
}

// Example is a message that a filter could not be evaluated over.
type Example struct {
	Reason   Reason `json:"reason"`
	Error    string `json:"error"`
	Subject  string `json:"subject"`
	Sequence uint64 `json:"seq,omitempty"`
	Payload  string `json:"payload"` // the first exampleBytes of it
}

const exampleBytes = 256

// Stats are the counts of a Tally.
type Stats struct {
	Scanned   uint64            `json:"scanned"`   // messages looked at
	Matched   uint64            `json:"matched"`   // of them: the condition is true
	Delivered uint64            `json:"delivered"` // of those: somebody was there to take it
	Errors    uint64            `json:"errors"`    // of the scanned: the condition could not be evaluated
	ByReason  map[Reason]uint64 `json:"errors_by_reason,omitempty"`
	First     *Example          `json:"first_error,omitempty"`
}

// Count notes a result of Match. It keeps no bytes of the message.
func (t *Tally) Count(m *Message, ok bool, err error) {
	t.scanned.Add(1)
	if ok {
		t.matched.Add(1)
	}
	if err == nil {
		return
	}
	reason := Other
	var e *Error
	if errors.As(err, &e) {
		reason = e.Reason
	}
	for i, r := range reasons {
		if r == reason {
			t.errors[i].Add(1)
		}
	}
	if t.first.Load() == nil {
		t.first.CompareAndSwap(nil, &Example{reason, err.Error(), strings.Clone(m.subject), m.seq, excerpt(m.payload)})
	}
}

// Deliver notes that a message that matched was taken.
func (t *Tally) Deliver() { t.delivered.Add(1) }

// Stats returns the counts so far.
func (t *Tally) Stats() Stats {
	s := Stats{Scanned: t.scanned.Load(), Matched: t.matched.Load(), Delivered: t.delivered.Load(), First: t.first.Load()}
	for i, r := range reasons {
		if n := t.errors[i].Load(); n > 0 {
			if s.ByReason == nil {
				s.ByReason = map[Reason]uint64{}
			}
			s.ByReason[r] = n
			s.Errors += n
		}
	}
	return s
}

// Add adds what another node counted.
func (s *Stats) Add(o Stats) {
	s.Scanned += o.Scanned
	s.Matched += o.Matched
	s.Delivered += o.Delivered
	s.Errors += o.Errors
	for r, n := range o.ByReason {
		if s.ByReason == nil {
			s.ByReason = map[Reason]uint64{}
		}
		s.ByReason[r] += n
	}
	if s.First == nil {
		s.First = o.First
	}
}

// excerpt is the beginning of a payload as text.
func excerpt(b []byte) string {
	s := string(b[:min(len(b), exampleBytes)])
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "�")
	}
	return s
}
