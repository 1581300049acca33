package replication

import (
	"fmt"
	"sync"
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

// proposals is what a group's callers wait for.
type proposals struct {
	// mu is not held while anything is sent or called.
	mu      sync.Mutex
	leading bool // this node leads and has applied all that was committed before
	held    bool // everything waits in queue: the lead is being handed over
	closed  bool
	pending []*Proposal // given to raft, oldest first; at most callerMax
	queue   []*Proposal // waiting for their turn
	bytes   int64       // of both
	stuck   *time.Timer // runs while pending is not empty
	empty   sync.Cond   // pending and queue became empty
}

// Propose asks for data to be committed. It never waits for the disk: it refuses
// with a typed error what can't be taken now. The group keeps data; nobody may
// change it any more.
func (g *Group) Propose(data []byte) *Proposal {
	if len(data) == 0 {
		return refused(ErrBadProposal)
	}
	full := g.noSpace()
	if full && !g.makeWay() {
		return refused(fmt.Errorf("propose to group %d: %w", g.id, ErrNoSpace))
	}
	p := &Proposal{done: make(chan struct{}), data: data, since: time.Now()}
	cfg := &g.node.cfg
	g.mu.Lock()
	var refusal error
	switch {
	case g.closed:
		refusal = ErrClosed
	case !g.leading:
		refusal = ErrNotLeader
	case len(g.pending)+len(g.queue) >= cfg.QueueMax || g.bytes > 0 && g.bytes+int64(len(data)) > cfg.QueueBytesMax:
		refusal = ErrBusy
	}
	if refusal != nil {
		g.mu.Unlock()
		return refused(fmt.Errorf("propose to group %d: %w", g.id, refusal))
	}
	g.bytes += int64(len(data))
	if len(g.pending) >= callerMax || len(g.queue) > 0 || g.held || full {
		g.queue = append(g.queue, p)
		g.mu.Unlock()
		signal(g.more)
		return p
	}
	g.admitLocked(p)
	g.mu.Unlock()
	g.raft.Apply(data, 0) // raft's queue has room for callerMax
	return p
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// noSpace tells whether the disk is too full for more. Group 0's log is written to too
// rarely to know by itself, so it has a look first.
func (g *Group) noSpace() bool {
	if g.own == nil {
		return g.node.wal.NoSpace()
	}
	g.node.wal.CheckSpace()
	return g.node.wal.NoSpace() || g.own.NoSpace()
}

// admitLocked counts a proposal as given to raft.
func (g *Group) admitLocked(p *Proposal) {
	if len(g.pending) == 0 {
		g.stuck.Reset(g.node.cfg.StuckDeadline)
	}
	g.pending = append(g.pending, p)
}

// feed gives raft what waited in the queue. It is a goroutine.
func (g *Group) feed() {
	for {
		select {
		case <-g.more:
		case <-g.stop:
			return
		}
		for {
			g.mu.Lock()
			if len(g.queue) == 0 || len(g.pending) >= callerMax || g.held {
				g.mu.Unlock()
				break
			}
			p := g.queue[0]
			g.queue[0] = nil
			g.queue = g.queue[1:]
			if full := g.noSpace(); full { // nobody else could take the lead
				g.bytes -= int64(len(p.data))
				g.mu.Unlock()
				p.finish(0, nil, fmt.Errorf("propose to group %d: %w", g.id, ErrNoSpace))
				continue
			}
			g.admitLocked(p)
			g.mu.Unlock()
			g.raft.Apply(p.data, 0)
		}
	}
}

// answer ends the proposals that were committed by these entries. An entry is a
// proposal's when it is the very same bytes: on the leader raft hands the
// proposer's slice through.
func (g *Group) answer(entries []Entry, results []any) {
	g.mu.Lock()
	ended := make([]*Proposal, len(entries))
	for i := range entries {
		for j, p := range g.pending {
			if len(entries[i].Data) == len(p.data) && &p.data[0] == &entries[i].Data[0] {
				ended[i] = p
				g.pending = append(g.pending[:j], g.pending[j+1:]...)
				g.bytes -= int64(len(p.data))
				break
			}
		}
	}
	if len(g.pending) == 0 {
		g.stuck.Stop()
	} else {
		g.stuck.Reset(time.Until(g.pending[0].since.Add(g.node.cfg.StuckDeadline)))
	}
	waiting := len(g.queue) > 0
	if len(g.pending) == 0 && !waiting {
		g.empty.Broadcast()
	}
	g.mu.Unlock()
	if waiting {
		signal(g.more)
	}
	now := time.Now()
	discarder, _ := g.machine.sm.(Discarder)
	for i, p := range ended {
		switch {
		case p != nil:
			g.meters.commit.Observe(now.Sub(p.since).Seconds())
			g.meters.size.Observe(float64(len(p.data)))
			p.finish(entries[i].Index, results[i], nil)
		case discarder != nil:
			discarder.Discard(results[i])
		}
	}
}

// abandonPending ends the proposals that raft has got.
func (g *Group) abandonPending(why error) {
	g.mu.Lock()
	pending := g.pending
	g.pending = nil
	for _, p := range pending {
		g.bytes -= int64(len(p.data))
	}
	g.stuck.Stop()
	g.mu.Unlock()
	for _, p := range pending {
		p.finish(0, nil, fmt.Errorf("propose to group %d: %w (%w)", g.id, ErrOutcomeUnknown, why))
	}
}

// abandon ends all proposals: what raft has got may still be committed.
func (g *Group) abandon(why error) {
	g.mu.Lock()
	pending, queue := g.pending, g.queue
	g.pending, g.queue, g.bytes = nil, nil, 0
	g.stuck.Stop()
	g.empty.Broadcast()
	g.mu.Unlock()
	for _, p := range pending {
		p.finish(0, nil, fmt.Errorf("propose to group %d: %w (%w)", g.id, ErrOutcomeUnknown, why))
	}
	for _, p := range queue {
		p.finish(0, nil, fmt.Errorf("propose to group %d: %w", g.id, why))
	}
}

// late is called when the oldest proposal has had no outcome for too long. In a
// cluster that may have reasons which an end of the process doesn't cure, such as
// followers that can't store; another node shall try.
func (g *Group) late() {
	g.mu.Lock()
	n := len(g.pending)
	g.mu.Unlock()
	switch {
	case n == 0:
	case g.node.links != nil:
		g.node.cfg.Log.Error("proposals have had no outcome for too long", "group", g.id, "waiting", n, "for", g.node.cfg.StuckDeadline)
		g.abandonPending(ErrStuck)
		g.spawn(func() {
			if err := g.Transfer(g.ctx, ""); err != nil {
				g.node.cfg.Log.Warn("the lead was not handed over", "group", g.id, "error", err)
			}
		})
	default:
		g.node.fail(fmt.Errorf("group %d: %w: %d wait, the oldest for %s", g.id, ErrStuck, n, g.node.cfg.StuckDeadline))
	}
}
