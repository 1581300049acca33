package state

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/store"
)

// Group is one data group: its topics' store and the way into its log. All
// methods are safe for any number of callers.
type Group struct {
	id      topics.GroupID
	data    *store.Store
	machine *dataMachine
	queue   *queue
	acks    acker
	expiry  *expiry
	repl    atomic.Pointer[replication.Group] // nil until Open has started it

	leads   bool        // what OnLeader was last told; its goroutine's
	stalled atomic.Bool // the store can't flush for want of space
}

// ID returns the group's number, from 1.
func (g *Group) ID() topics.GroupID { return g.id }

// Store returns the messages and consumers of the group's topics.
func (g *Group) Store() *store.Store { return g.data }

// IsLeader tells whether this node may propose to the group.
func (g *Group) IsLeader() bool {
	r := g.repl.Load()
	if r == nil {
		return false
	}
	_, leads := r.Leader()
	return leads
}

// Leader returns the node that leads the group, "" when none is known.
func (g *Group) Leader() string {
	r := g.repl.Load()
	if r == nil {
		return ""
	}
	id, _ := r.Leader()
	return id
}

// Stats returns the state of the group's log, for monitoring.
func (g *Group) Stats() replication.Stats {
	r := g.repl.Load()
	if r == nil {
		return replication.Stats{Group: g.id}
	}
	return r.Stats()
}

// Capture proposes messages for the group's topics, in order. It is a
// front.Sink: the bytes are copied, and a full group makes the caller wait, so
// that what can't be written is not read from the sockets either. Publishers
// are answered through Options.Replier once the messages are on disk.
func (g *Group) Capture(batch []front.Captured) { g.queue.capture(batch) }

// Settle waits until all that was captured and submitted before the call has
// been applied or refused, or ctx ends: what is read afterwards holds it. With
// nothing under way it returns at once.
func (g *Group) Settle(ctx context.Context) {
	if done := g.queue.settle(); done != nil {
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
func (g *Group) Submit(kind topics.RecordKind, body []byte, done func(result any, err error)) {
	g.queue.submit(kind, body, done)
}

// ask submits a record and waits for what it gave. When ctx ends first the
// outcome is not known.
func (g *Group) ask(ctx context.Context, kind topics.RecordKind, body []byte) (any, error) {
	type answer struct {
		result any
		err    error
	}
	answered := make(chan answer, 1)
	g.queue.submit(kind, body, func(result any, err error) { answered <- answer{result, err} })
	select {
	case a := <-answered:
		return a.result, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
	}
}

// Propose implements proposer over the group's log.
func (g *Group) Propose(entry []byte) proposal {
	r := g.repl.Load()
	if r == nil {
		return refusal{replication.ErrNotLeader}
	}
	return r.Propose(entry)
}

// refusal is a proposal that has ended before it began.
type refusal struct{ err error }

var closedChannel = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (r refusal) Done() <-chan struct{}              { return closedChannel }
func (r refusal) Result() (topics.Index, any, error) { return 0, nil, r.err }

// answer implements the queue's answering: whoever waits for b is told.
func (g *Group) answer(b *batch, result any, err error) {
	res, ok := result.(*results)
	if err == nil && !ok {
		err = ErrUnknown // applying it was fatal
	}
	g.acks.answer(b, res, err)
	if b.fasts > 0 {
		g.queue.fastAnswered(b, res, err)
	}
	if ok {
		g.machine.pool.put(res)
	}
}

// setStalled is told by the store that it can't flush for want of space (err),
// or that it can again (nil).
func (g *Group) setStalled(err error, log *slog.Logger) {
	g.stalled.Store(err != nil)
	if err != nil {
		log.Error("messages can't go to data files; publishes are refused once memory is full, and taken again by themselves when there is space",
			"group", g.id, "error", err)
	} else {
		log.Info("messages go to data files again", "group", g.id)
	}
	g.queue.relieve()
}

func (g *Group) topic(id topics.TopicID) (*Topic, bool) { return g.queue.find(id) }

func (g *Group) topicIDs() []topics.TopicID {
	var ids []topics.TopicID
	g.data.Topics(func(t *store.Topic) bool {
		ids = append(ids, t.ID())
		return true
	})
	return ids
}

// pressed tells whether the store has more in memory than it can flush.
func (g *Group) pressed() bool {
	held, bound := g.data.Pressure()
	return held > bound
}

// flushed passes on that the store's files hold everything up to i.
func (g *Group) flushed(i topics.Index, logError func(error)) {
	g.queue.relieve()
	r := g.repl.Load()
	if r == nil {
		return // the next flush tells
	}
	if err := r.Flushed(i); err != nil {
		logError(fmt.Errorf("recycle the log of group %d up to %d: %w", g.id, i, err))
	}
}
