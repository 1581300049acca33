package replication

import (
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/topics"
)

// Proposal is an entry on its way. It always ends: done, refused, or with
// ErrOutcomeUnknown when leadership is lost or the node closes first.
type Proposal struct {
	done  chan struct{}
	ended atomic.Bool

	// Set by the one who ends it, before done is closed.
	index  topics.Index
	result any
	err    error

	// Owned by the group.
	data  []byte
	since time.Time
}

// Done is closed when the proposal has ended.
func (p *Proposal) Done() <-chan struct{} { return p.done }

// Result waits for the end and returns the entry's index, what the state machine
// answered, and why it was not committed. The error Is one of those in errors.go.
func (p *Proposal) Result() (topics.Index, any, error) {
	<-p.done
	return p.index, p.result, p.err
}

// finish ends the proposal; only the first call counts.
func (p *Proposal) finish(index topics.Index, result any, err error) {
	if p.ended.Swap(true) {
		return
	}
	p.index, p.result, p.err = index, result, err
	close(p.done)
}

// refused returns a proposal that has ended before it began.
func refused(err error) *Proposal {
	p := &Proposal{done: make(chan struct{})}
	p.finish(0, nil, err)
	return p
}
