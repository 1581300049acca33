package state

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/store"
)

// replica is this node's share of a data group: its files, the machine that
// applies to them, and the queue that proposes.
type replica struct {
	id      topics.GroupID
	group   *Group
	data    *store.Store
	machine *dataMachine
	queue   *queue
	acks    acker
	expiry  *expiry
	repl    atomic.Pointer[replication.Group] // nil until it has been started

	ctx     context.Context // ends when the replica does
	cancel  context.CancelFunc
	running sync.WaitGroup
	leads   bool        // what OnLeader was last told; its goroutine's
	usable  atomic.Bool // it leads, and has all that was committed before
	current atomic.Bool // it has had all that was committed when it was started
	ended   atomic.Bool // it may fail now, nobody cares
	stalled atomic.Bool // the store can't flush for want of space
}

// openReplica opens the store of a group and what works on it. The log is for the
// caller to start.
func (s *State) openReplica(g *Group) (*replica, error) {
	dir, err := s.node.GroupDir(g.id)
	if err != nil {
		return nil, fmt.Errorf("make the directory of group %d: %w", g.id, err)
	}
	if err := s.node.FinishRestore(g.id); err != nil {
		return nil, err
	}
	r := &replica{id: g.id, group: g}
	fatal := func(err error) {
		if !r.ended.Load() {
			s.fail(err)
		}
	}
	r.ctx, r.cancel = context.WithCancel(s.ctx)
	r.data, err = store.Open(store.Options{
		Dir: dir, TailBytes: s.o.TailBytes, FlushBytes: s.o.FlushBytes, FlushInterval: s.o.FlushInterval,
		Log: s.o.Log, Fatal: fatal,
		Before:  func(i topics.Index) { s.beforeFlush(g, i) },
		Flushed: func(i topics.Index) { r.flushed(i, s.logError) },
		Stalled: func(err error) { r.setStalled(err, s.o.Log) },
	})
	if err != nil {
		r.cancel()
		return nil, fmt.Errorf("open the store of group %d in %s: %w", g.id, filepath.Clean(dir), err)
	}
	r.machine = newDataMachine(g.id, r.data, fatal, s)
	r.acks = acker{replier: s.o.Replier, domain: s.o.Domain}
	r.expiry = newExpiry(r, s.now)
	r.queue = newQueue(&queue{
		log: r, cap: s.o.BatchBytes, most: s.o.InFlight, now: s.now, find: s.TopicByID, account: s.o.Account,
		pressed: r.pressed, stalled: r.stalled.Load, answer: r.answer, domain: s.o.Domain,
		staging: staging{limits: s.o.Batches.withDefaults(), counts: &s.batches},
		fasts:   fastBatches{limits: s.o.Batches.withDefaults(), counts: &s.batches},
		teller:  teller{replier: s.o.Replier},
	})
	if s.cl != nil {
		r.queue.group = g
	}
	if s.o.Limits != nil {
		r.queue.limits = func(account string) (storageLimit, bool) {
			l := s.o.Limits(account)
			if s.cl != nil && (l.FileBytes > 0 || l.MemoryBytes > 0) {
				elsewhere := s.usageElsewhere(account, g)
				l.FileBytes, l.MemoryBytes = rest(l.FileBytes, elsewhere.FileBytes), rest(l.MemoryBytes, elsewhere.MemoryBytes)
			}
			return storageLimit{account, l.FileBytes, l.MemoryBytes}, l.FileBytes > 0 || l.MemoryBytes > 0
		}
	}
	r.acks.republish = r.queue.republish
	if s.cl != nil {
		r.queue.handBack = g.handBack
		r.queue.term = func() uint64 {
			if log := r.repl.Load(); log != nil && r.usable.Load() {
				return log.Term()
			}
			return 0
		}
	}
	r.queue.start()
	return r, nil
}

// rest returns what is left of a limit. 0 or less is none, so what is used up is a
// limit of one byte.
func rest(limit int64, used uint64) int64 {
	if limit <= 0 {
		return limit
	}
	return max(limit-int64(min(used, 1<<62)), 1)
}

// isLeader tells whether this node leads, and has applied all that was committed
// before it did.
func (r *replica) isLeader() bool {
	log := r.repl.Load()
	if log == nil || r.group.s.cl != nil && !r.usable.Load() {
		return false
	}
	_, leads := log.Leader()
	return leads
}

// Propose implements proposer over the group's log. A leader that doesn't have all
// that was committed before proposes nothing: it doesn't know yet how late it was.
func (r *replica) Propose(entry []byte) proposal {
	log := r.repl.Load()
	if log == nil || r.group.s.cl != nil && !r.usable.Load() {
		return refusal{replication.ErrNotLeader}
	}
	return log.Propose(entry)
}

// refusal is a proposal that has ended before it began.
type refusal struct{ err error }

var closedChannel = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (r refusal) Done() <-chan struct{}              { return closedChannel }
func (r refusal) Result() (topics.Index, any, error) { return 0, nil, r.err }

// answer implements the queue's answering: whoever waits for b is told.
func (r *replica) answer(b *batch, result any, err error) {
	res, ok := result.(*results)
	if err == nil && !ok {
		err = ErrUnknown // applying it was fatal
	}
	r.acks.answer(b, res, err)
	if b.fasts > 0 {
		r.queue.fastAnswered(b, res, err)
	}
	if ok {
		r.machine.pool.put(res)
	}
}

// setStalled is told by the store that it can't flush for want of space (err),
// or that it can again (nil).
func (r *replica) setStalled(err error, log *slog.Logger) {
	r.stalled.Store(err != nil)
	if err != nil {
		log.Error("messages can't go to data files; publishes are refused once memory is full, and taken again by themselves when there is space",
			"group", r.id, "error", err)
	} else {
		log.Info("messages go to data files again", "group", r.id)
	}
	r.queue.relieve()
}

func (r *replica) topic(id topics.TopicID) (*Topic, bool) { return r.queue.find(id) }

func (r *replica) topicIDs() []topics.TopicID {
	var ids []topics.TopicID
	r.data.Topics(func(t *store.Topic) bool {
		ids = append(ids, t.ID())
		return true
	})
	return ids
}

// pressed tells whether the store has more in memory than it can flush.
func (r *replica) pressed() bool {
	held, bound := r.data.Pressure()
	return held > bound
}

// flushed passes on that the store's files hold everything up to i.
func (r *replica) flushed(i topics.Index, logError func(error)) {
	r.queue.relieve()
	log := r.repl.Load()
	if log == nil {
		return // the next flush tells
	}
	if err := log.Flushed(i); err != nil {
		logError(fmt.Errorf("recycle the log of group %d up to %d: %w", r.id, i, err))
	}
}

// serve begins to lead where this node leads. The replica's log has been started.
func (s *State) serve(r *replica) error {
	r.queue.onGone = s.hooks.OnBatchAbandoned
	r.running.Go(func() { r.expiry.run(r.ctx) })
	r.running.Go(func() { r.queue.sweep(r.ctx) })
	r.running.Go(func() { r.queue.runAgain(r.ctx) })
	if s.cl != nil {
		r.running.Go(func() { s.cl.follow(r) })
		return nil
	}
	if err := s.forgetOnce(r); err != nil {
		return err
	}
	s.lead(r, r.isLeader())
	r.running.Go(func() { s.follow(r) })
	return nil
}

func (s *State) forgetOnce(r *replica) error {
	err := s.forget(r)
	if err != nil && !refused(err) {
		return err
	}
	if err != nil {
		s.logError(err) // the disk is full, say: reading goes on
	}
	return nil
}

// follow tells of changes of a group's leader.
func (s *State) follow(r *replica) {
	changes := r.repl.Load().LeaderChanges()
	for {
		select {
		case leads := <-changes:
			s.lead(r, leads)
		case <-r.ctx.Done():
			return
		}
	}
}

// follow tells of changes of a group's leader in a cluster, of the lead of this node
// only once it is usable.
func (c *cluster) follow(r *replica) {
	log := r.repl.Load()
	changes := log.LeaderChanges()
	_, leads := log.Leader()
	first := true
	for {
		if leads && !r.leads {
			if leads = c.usable(r.ctx, log); leads {
				r.queue.resume(topics.Nanos(r.machine.last.Load()))
				r.awaitSettled() // what was captured in an earlier term goes first
				r.usable.Store(true)
				if first {
					first = false
					if err := c.s.forgetOnce(r); err != nil {
						c.s.logError(err)
					}
				}
			}
		}
		if leads != r.leads {
			r.usable.Store(leads)
			c.s.lead(r, leads)
			c.tellStatus()
			c.changed()
		}
		select {
		case leads = <-changes:
		case <-log.MembersChanged():
			c.tellStatus()
			c.changed()
		case <-r.ctx.Done():
			r.usable.Store(false)
			return
		}
	}
}

func (s *State) lead(r *replica, leads bool) {
	if leads == r.leads {
		return
	}
	r.leads = leads
	r.queue.resume(topics.Nanos(r.machine.last.Load()))
	if !leads {
		r.queue.dropBatches()
	}
	r.expiry.lead(leads)
	if s.hooks.OnLeader != nil {
		s.hooks.OnLeader(r.group, leads)
	}
}
