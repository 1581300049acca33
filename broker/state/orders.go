package state

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// The bounds of orders.
const (
	ordersMax      = 8192    // commands that wait; more are refused with ErrBusy
	ordersBytesMax = 8 << 20 // and their bytes; also the most of an entry
	ordersInFlight = 2       // entries: one is written here while the others write the one before
	ordersLinger   = 10 * time.Millisecond
)

// orders is group 0's commands on their way: what comes while entries are being written
// and replicated goes out together in the next one. A command that is refused has no
// effect on its neighbours in the entry.
type orders struct {
	s *State

	mu       sync.Mutex
	open     []*order
	bytes    int  // of open
	urgent   bool // somebody waits for one of open
	inFlight int
	linger   *time.Timer // runs while open holds what nobody waits for
	closed   bool
	idle     chan struct{} // closed once nothing is on its way; nil unless drain waits
}

// order is one command.
type order struct {
	op   catalogue.Op
	body []byte
	done chan struct{} // closed at the end; nil: told is called instead
	told func(error)

	// Set before the end.
	index  topics.Index
	result catalogue.Result
	err    error
}

func (o *order) end() {
	if o.told != nil {
		o.told(o.err)
		return
	}
	close(o.done)
}

func (q *orders) start(s *State) {
	q.s = s
	q.linger = time.AfterFunc(time.Hour, q.lingered)
	q.linger.Stop()
}

// give adds a command and waits for its result. When ctx ends first the outcome is not
// known.
func (q *orders) give(ctx context.Context, cmd *catalogue.Command) (*order, error) {
	o, err := newOrder(cmd)
	if err != nil {
		return nil, err
	}
	o.done = make(chan struct{})
	if err := q.add(o, true); err != nil {
		return nil, err
	}
	select {
	case <-o.done:
		return o, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w: %w", cmd.Op, ErrUnknown, context.Cause(ctx))
	}
}

// leave adds a command for which nobody waits: it may go out with a later one. told is
// called with what became of it, on another goroutine.
func (q *orders) leave(cmd *catalogue.Command, told func(error)) error {
	o, err := newOrder(cmd)
	if err != nil {
		return err
	}
	o.told = told
	return q.add(o, false)
}

func newOrder(cmd *catalogue.Command) (*order, error) {
	if err := cmd.Check(); err != nil {
		return nil, err
	}
	body, err := cmd.Encode()
	if err != nil {
		return nil, err
	}
	return &order{op: cmd.Op, body: body}, nil
}

func (q *orders) add(o *order, urgent bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return ErrClosed
	case len(q.open) >= ordersMax, len(q.open) > 0 && q.bytes+len(o.body) > ordersBytesMax:
		return ErrBusy
	}
	q.open = append(q.open, o)
	q.bytes += len(o.body)
	q.urgent = q.urgent || urgent
	if q.urgent {
		q.proposeLocked()
	} else if len(q.open) == 1 {
		q.linger.Reset(ordersLinger)
	}
	return nil
}

// lingered is called when something has waited for company long enough.
func (q *orders) lingered() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.proposeLocked()
}

// proposeLocked proposes what is there, if it is its turn.
func (q *orders) proposeLocked() {
	if len(q.open) == 0 || q.inFlight >= ordersInFlight {
		return
	}
	batch := q.open
	q.open, q.bytes, q.urgent = nil, 0, false
	q.linger.Stop()
	bodies := make([][]byte, len(batch))
	for i, o := range batch {
		bodies[i] = o.body
	}
	meta := q.s.meta.Load()
	var p *replication.Proposal
	if meta != nil {
		p = meta.Propose(catalogue.AppendEntry(nil, q.s.now(), bodies))
	}
	q.inFlight++
	if !q.s.spawn(func() { q.complete(batch, p) }) {
		q.inFlight--
		for _, o := range batch {
			o.err = ErrClosed
			o.end()
		}
	}
}

// complete ends the commands of an entry once that has an outcome. It is a goroutine.
func (q *orders) complete(batch []*order, p *replication.Proposal) {
	var i topics.Index
	var result any
	err := error(replication.ErrNotLeader)
	if p != nil {
		i, result, err = p.Result()
	}
	q.mu.Lock()
	q.inFlight--
	q.proposeLocked()
	if q.inFlight == 0 && q.idle != nil {
		close(q.idle)
		q.idle = nil
	}
	q.mu.Unlock()
	results, ok := result.([]catalogue.Result)
	if err == nil && (!ok || len(results) != len(batch)) {
		err = ErrUnknown // applying it was fatal
	}
	for n, o := range batch {
		o.index = i
		switch {
		case err != nil:
			o.err = outcome(err)
		case results[n].Fault != nil:
			o.result, o.err = results[n], results[n].Fault
		default:
			o.result = results[n]
		}
		o.end()
	}
}

// drain proposes what is left and waits until it has an outcome, for a while. It is called
// once.
func (q *orders) drain(patience time.Duration) {
	q.mu.Lock()
	q.proposeLocked()
	if q.inFlight == 0 {
		q.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	q.idle = idle
	q.mu.Unlock()
	give := time.NewTimer(patience)
	defer give.Stop()
	select {
	case <-idle:
	case <-give.C:
	}
}

// close refuses what comes, and what has not been proposed.
func (q *orders) close() {
	q.mu.Lock()
	q.closed = true
	batch := q.open
	q.open = nil
	q.linger.Stop()
	q.mu.Unlock()
	for _, o := range batch {
		o.err = ErrClosed
		o.end()
	}
}
