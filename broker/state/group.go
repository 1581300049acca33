package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/store"
)

// Group is one data group of the cluster, whether or not this node has a replica
// of it: its topics' store, where there is one, and the way into its log. It is
// the same for as long as the State is open. All methods are safe for any number
// of callers.
type Group struct {
	id    topics.GroupID
	s     *State
	local atomic.Pointer[replica] // nil where this node has none

	// Only in a cluster.
	entry   atomic.Pointer[catalogue.Group] // nil before the catalogue has it
	forward *forwarder
	why     atomic.Pointer[string] // why the replica here can't be served; nil where it can
	left    atomic.Bool            // a topic has moved away from it since the start
}

// ID returns the group's number, from 1.
func (g *Group) ID() topics.GroupID { return g.id }

// Local tells whether this node has a replica of the group.
func (g *Group) Local() bool { return g.local.Load() != nil }

// Store returns the messages and consumers of the group's topics; nil where this
// node has no replica of the group.
func (g *Group) Store() *store.Store {
	if r := g.local.Load(); r != nil {
		return r.data
	}
	return nil
}

// IsLeader tells whether this node may propose to the group.
func (g *Group) IsLeader() bool {
	r := g.local.Load()
	return r != nil && r.isLeader()
}

// Stats returns the state of the group's log on this node, for monitoring.
func (g *Group) Stats() replication.Stats {
	if r := g.local.Load(); r != nil {
		if log := r.repl.Load(); log != nil {
			return log.Stats()
		}
	}
	return replication.Stats{Group: g.id, Leader: g.Leader()}
}

// Capture proposes messages for the group's topics, in order. It is a
// front.Sink: the bytes are copied, and a full group makes the caller wait, so
// that what can't be written is not read from the sockets either. Publishers
// are answered through Options.Replier once the messages are on disk. Where another
// node leads, or gets to while they wait, they are forwarded, in order; what nobody
// takes is answered 503.
func (g *Group) Capture(batch []front.Captured) {
	if batch = g.strayed(batch); len(batch) == 0 {
		return
	}
	r := g.local.Load()
	if g.forward == nil || r != nil && r.isLeader() && g.forward.idle() {
		r.queue.capture(batch, origin{})
		return
	}
	g.forward.capture(batch)
}

// Settle waits until all that was captured and submitted before the call has
// been applied or refused, or ctx ends: what is read afterwards holds it. With
// nothing under way it returns at once. Where another node leads it waits until all
// has been sent there.
func (g *Group) Settle(ctx context.Context) {
	if g.forward != nil {
		g.forward.settle(ctx)
	}
	r := g.local.Load()
	if r == nil {
		return
	}
	if done := r.queue.settle(); done != nil {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
}

// Submit proposes one record. It never blocks and copies body. done, which may
// be nil, is called once, on the group's acker goroutine, in the order of the
// submissions: with what applying the record gave (for RecordDelivered and
// RecordAcked: nil, or a *topics.Fault when the consumer is gone), or with an
// error: ErrBusy, ErrUnknown, ErrClosed, replication.ErrNotLeader or a
// *topics.Fault when the disk is full. It must not block; it may Submit. After
// Close it is called by Submit itself.
//
// Where another node leads, the record is sent there, in no order, and done runs on
// a goroutine of its own; but what was delivered, and what becomes of dead letters, is for
// the leader to say, and is refused elsewhere.
func (g *Group) Submit(kind topics.RecordKind, body []byte, done func(result any, err error)) {
	if done == nil {
		done = func(any, error) {}
	}
	r := g.local.Load()
	c := g.s.cl
	own := kind == topics.RecordDelivered || kind == topics.RecordLetters
	switch {
	case r != nil && (c == nil || own || r.isLeader()):
		r.queue.submit(kind, body, done)
	case c == nil || own:
		done(nil, replication.ErrNotLeader)
	default:
		c.submit(g, kind, bytes.Clone(body), done)
	}
}

// ask submits a record where the group is led and waits for what it gave. When ctx
// ends first the outcome is not known.
func (g *Group) ask(ctx context.Context, kind topics.RecordKind, body []byte) (any, error) {
	if c := g.s.cl; c != nil {
		return c.ask(ctx, g, kind, body)
	}
	return g.askHere(ctx, kind, body)
}

// askAgain is ask for records that do no harm the second time: in a cluster it asks
// again when the outcome isn't known, for as long as ctx allows.
func (g *Group) askAgain(ctx context.Context, kind topics.RecordKind, body []byte) (any, error) {
	for {
		result, err := g.ask(ctx, kind, body)
		if g.s.cl == nil || !errors.Is(err, ErrUnknown) || !g.s.cl.pause(ctx, 50*time.Millisecond) {
			return result, err
		}
	}
}

// askHere is ask where this node leads.
func (g *Group) askHere(ctx context.Context, kind topics.RecordKind, body []byte) (any, error) {
	r := g.local.Load()
	if r == nil {
		return nil, replication.ErrNotLeader
	}
	type answer struct {
		result any
		err    error
	}
	answered := make(chan answer, 1)
	r.queue.submit(kind, body, func(result any, err error) { answered <- answer{result, err} })
	select {
	case a := <-answered:
		return a.result, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
	}
}
