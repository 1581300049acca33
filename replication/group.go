package replication

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/guard"
	"github.com/heraldmq/herald/replication/snapshot"
	"github.com/heraldmq/herald/replication/wal"
	"github.com/heraldmq/herald/topics"
)

// Group is one replicated log with its state machine. Its methods may be called
// by any number of goroutines.
type Group struct {
	// Set at construction.
	id        topics.GroupID
	node      *Node
	machine   *machine
	raft      *raft.Raft
	logs      raft.LogStore // the bare store, without wrappers
	wal       *wal.Group    // logs, for a data group
	snapshots *snapshot.Store
	anchor    *guard.Anchor
	closers   []io.Closer
	notify    chan bool // raft's leadership changes, every one
	changes   chan bool // latest value

	applied   atomic.Uint64
	snapshot  atomic.Uint64 // index of the newest snapshot
	backlog   atomic.Int64  // bytes applied since
	wanted    chan struct{} // a snapshot is wanted
	more      chan struct{} // something waits in queue
	stop      chan struct{}
	running   sync.WaitGroup
	closeOnce sync.Once
	closeErr  error

	// mu guards what follows. It is not held while anything is sent or called.
	mu       sync.Mutex
	leading  bool
	closed   bool
	pending  []*Proposal // given to raft, oldest first; at most callerMax
	queue    []*Proposal // waiting for their turn
	bytes    int64       // of both
	stuck    *time.Timer // runs while pending is not empty
	flushed  uint64      // what the machine's own files hold
	flushed1 uint64      // the flush before
	empty    sync.Cond   // pending and queue became empty
}

// Propose asks for data to be committed. It never waits for the disk: it refuses
// with a typed error what can't be taken now. The group keeps data; nobody may
// change it any more.
func (g *Group) Propose(data []byte) *Proposal {
	if len(data) == 0 {
		return refused(ErrBadProposal)
	}
	if g.noSpace() {
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
	if len(g.pending) >= callerMax || len(g.queue) > 0 {
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

// noSpace tells whether the disk is too full for more. The log of group 0 has no
// reserve of its own and nobody who watches for it, so it has a look itself.
func (g *Group) noSpace() bool {
	if g.wal == nil {
		g.node.wal.CheckSpace()
	}
	return g.node.wal.NoSpace()
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
			if len(g.queue) == 0 || len(g.pending) >= callerMax {
				g.mu.Unlock()
				break
			}
			p := g.queue[0]
			g.queue[0] = nil
			g.queue = g.queue[1:]
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
	for i, p := range ended {
		if p != nil {
			p.finish(entries[i].Index, results[i], nil)
		}
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

// late is called when the oldest proposal has had no outcome for too long.
func (g *Group) late() {
	g.mu.Lock()
	n := len(g.pending)
	g.mu.Unlock()
	if n > 0 {
		g.node.fail(fmt.Errorf("group %d: %w: %d wait, the oldest for %s", g.id, ErrStuck, n, g.node.cfg.StuckDeadline))
	}
}

// watch follows raft's leadership. Every change must be taken at once: raft's main
// goroutine waits for it. It is a goroutine.
func (g *Group) watch() {
	for {
		var lead bool
		select {
		case lead = <-g.notify:
		case <-g.stop:
			return
		}
		g.mu.Lock()
		g.leading = lead
		g.mu.Unlock()
		if !lead {
			g.abandon(ErrNotLeader)
		}
		select {
		case <-g.changes:
		default:
		}
		g.changes <- lead // one deep, and only this goroutine fills it
	}
}

// snap takes snapshots when they are wanted. It is a goroutine.
func (g *Group) snap() {
	for {
		select {
		case <-g.wanted:
		case <-g.stop:
			return
		}
		backlog := g.backlog.Load()
		err := g.raft.Snapshot().Error()
		switch {
		case err == nil:
			g.backlog.Add(-backlog)
		case errors.Is(err, raft.ErrNothingNewToSnapshot), errors.Is(err, raft.ErrRaftShutdown):
		default:
			g.node.cfg.Log.Warn("no snapshot was taken", "group", g.id, "error", err)
		}
	}
}

// Leader returns who leads ("" when nobody is known to) and whether it is this
// node.
func (g *Group) Leader() (id string, isLeader bool) {
	_, who := g.raft.LeaderWithID()
	g.mu.Lock()
	defer g.mu.Unlock()
	return string(who), g.leading
}

// Term returns the current term.
func (g *Group) Term() uint64 { return g.raft.CurrentTerm() }

// LeaderChanges carries whether this node leads. It holds the latest value only:
// a slow reader misses flips, never the last state. For one reader.
func (g *Group) LeaderChanges() <-chan bool { return g.changes }

// LastIndex returns the last index of the log here, committed or not.
func (g *Group) LastIndex() topics.Index { return topics.Index(g.raft.LastIndex()) }

// Committed returns the last index known to be committed.
func (g *Group) Committed() topics.Index { return topics.Index(g.raft.CommitIndex()) }

// Entry returns an entry's data if it is still in memory. It is shared: it must
// not be changed, and stays valid for as long as it is referenced. Group 0 keeps
// none.
func (g *Group) Entry(i topics.Index) ([]byte, bool) {
	if g.wal == nil {
		return nil, false
	}
	return g.wal.Entry(uint64(i))
}

// Flushed tells that the state machine's own files hold everything up to i,
// durably. The log below the flush before this one may then be recycled, after
// the next snapshot. It does not wait for that. A data group's log grows until its
// machine calls it. The machine of group 0 has no files, its snapshots are
// complete and are taken by themselves: it need not call it.
func (g *Group) Flushed(i topics.Index) error {
	if applied := g.applied.Load(); uint64(i) > applied {
		return fmt.Errorf("group %d: flushed up to %d, but only applied up to %d", g.id, i, applied)
	}
	g.mu.Lock()
	if uint64(i) > g.flushed {
		g.flushed1, g.flushed = g.flushed, uint64(i)
	}
	g.mu.Unlock()
	if g.wal != nil {
		g.wal.Release(uint64(i))
	}
	if g.backlog.Load() >= g.snapshotBytes() {
		signal(g.wanted)
	}
	return nil
}

func (g *Group) snapshotBytes() int64 {
	if g.wal == nil {
		return g.node.cfg.CatalogBytes
	}
	return g.node.cfg.SnapshotBytes
}

// Stats is a group's state for monitoring.
type Stats struct {
	Group     topics.GroupID
	State     string // "Leader", "Follower", "Candidate", "Shutdown"
	Leader    string
	Term      uint64
	First     topics.Index // first entry in the log, 0 when it is empty
	Last      topics.Index
	Committed topics.Index
	Applied   topics.Index
	Flushed   topics.Index
	Snapshot  topics.Index // index of the newest snapshot
	Pending   int          // proposals without outcome
	NoSpace   bool         // proposals are refused for want of disk space
	LogBytes  int64        // of the node's write-ahead log, live segments
}

// Stats returns the group's state.
func (g *Group) Stats() Stats {
	leader, _ := g.Leader()
	first, _ := g.logs.FirstIndex() // damage is reported where entries are read
	g.mu.Lock()
	flushed, pending := g.flushed, len(g.pending)+len(g.queue)
	g.mu.Unlock()
	return Stats{
		Group: g.id, State: g.raft.State().String(), Leader: leader, Term: g.Term(),
		First: topics.Index(first), Last: g.LastIndex(), Committed: g.Committed(),
		Applied: topics.Index(g.applied.Load()), Flushed: topics.Index(flushed),
		Snapshot: topics.Index(g.snapshot.Load()), Pending: pending,
		NoSpace: g.noSpace(), LogBytes: g.node.wal.Stats().Bytes,
	}
}

// graceMax is how long Close waits for proposals on their way.
const graceMax = time.Second

func (g *Group) close() error {
	g.closeOnce.Do(func() {
		g.mu.Lock()
		g.closed = true
		give := time.AfterFunc(graceMax, func() { g.abandon(ErrClosed) })
		for len(g.pending)+len(g.queue) > 0 {
			g.empty.Wait()
		}
		g.mu.Unlock()
		give.Stop()
		g.closeErr = g.shutdown()
	})
	return g.closeErr
}

// shutdown stops raft and the goroutines, and closes the files.
func (g *Group) shutdown() error {
	var errs []error
	if g.raft != nil {
		errs = append(errs, g.raft.Shutdown().Error())
	}
	close(g.stop)
	g.running.Wait()
	g.abandon(ErrClosed)
	for _, c := range g.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
