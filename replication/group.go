package replication

import (
	"context"
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
	wal       *wal.Group    // the same
	own       *wal.Log      // the log it is in, of group 0; data groups share the node's
	snapshots *snapshot.Store
	anchor    *guard.Anchor
	closers   []io.Closer
	replica   string // its id in raft's configuration
	trans     raft.Transport
	committer committer               // the same, or nil
	ahead     atomic.Pointer[aheadOf] // nil: nothing is sent ahead
	ctx       context.Context         // ends with the group
	cancel    context.CancelFunc
	meters    groupMeters
	inherited uint64 // last entry for the machine that was in the log at the start

	wanted    chan struct{} // a snapshot is wanted
	more      chan struct{} // something waits in queue
	review    chan struct{} // the members are to be looked at
	reshaped  chan struct{} // this node, as leader, has changed the members
	handing   chan struct{} // held by the transfer that is going on
	stop      chan struct{}
	running   sync.WaitGroup
	closeOnce sync.Once
	closeErr  error

	progress
	proposals
	care
	leadership
	membership membership
	verify     verifier
	tips       tip
	endTenure  context.CancelFunc // owned by watch
}

// progress is how far the state machine is.
type progress struct {
	applied  atomic.Uint64
	snapshot atomic.Uint64 // index of the newest snapshot
	backlog  atomic.Int64  // bytes applied since

	flushMu  sync.Mutex
	flushed  uint64 // what the machine's own files hold
	flushed1 uint64 // the flush before

	wakeMu  sync.Mutex
	wake    chan struct{} // closed at the next Apply; nil when nobody waits
	waiting atomic.Bool   // somebody does
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

// Voters returns how many members of the group vote.
func (g *Group) Voters() int {
	n := 0
	for _, s := range g.servers() {
		if s.Suffrage == raft.Voter {
			n++
		}
	}
	return n
}

// Term returns the current term.
func (g *Group) Term() uint64 { return g.raft.CurrentTerm() }

// LeaderChanges carries whether this node leads. It holds the latest value only:
// a slow reader misses flips, never the last state. For one reader.
func (g *Group) LeaderChanges() <-chan bool { return g.changes }

// MembersChanged tells, on the node that leads, that a change of the members has been
// committed. Several that nobody read of are told of once. For one reader.
func (g *Group) MembersChanged() <-chan struct{} { return g.reshaped }

// LastIndex returns the last index of the log here, committed or not.
func (g *Group) LastIndex() topics.Index { return topics.Index(g.raft.LastIndex()) }

// Committed returns the last index known to be committed.
func (g *Group) Committed() topics.Index { return topics.Index(g.raft.CommitIndex()) }

// Applied returns the last index that has been applied here.
func (g *Group) Applied() topics.Index { return topics.Index(g.applied.Load()) }

// Entry returns an entry's data if it is still in memory. It is shared: it must
// not be changed, and stays valid for as long as it is referenced.
func (g *Group) Entry(i topics.Index) ([]byte, bool) {
	return g.wal.Entry(uint64(i))
}

// Flushed tells that the state machine's own files hold everything up to i,
// durably. The log below the flush before this one may then be recycled, after
// the next snapshot. It does not wait for that. A data group's log grows until its
// machine calls it. The machine of group 0 has no files, its snapshots are
// complete and are taken by themselves: it need not call it.
func (g *Group) Flushed(i topics.Index) error {
	// What is being applied may be flushed before Apply has returned.
	if committed := g.raft.CommitIndex(); uint64(i) > committed {
		return fmt.Errorf("group %d: flushed up to %d, but only committed up to %d", g.id, i, committed)
	}
	g.flushMu.Lock()
	if uint64(i) > g.flushed {
		g.flushed1, g.flushed = g.flushed, uint64(i)
	}
	g.flushMu.Unlock()
	g.wal.Release(uint64(i))
	if g.backlog.Load() >= g.snapshotBytes() {
		signal(g.wanted)
	}
	return nil
}

func (g *Group) snapshotBytes() int64 {
	if g.complete() {
		// A snapshot holds the whole state. Taken after as much log as it is big,
		// it costs no more than a constant factor of what was proposed.
		return max(g.node.cfg.CatalogBytes, g.snapshots.Size())
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
	// SnapshotTaken is when the newest snapshot was made; zero without one.
	SnapshotTaken time.Time
	Pending       int   // proposals without outcome
	NoSpace       bool  // proposals are refused for want of disk space
	LogBytes      int64 // of the node's write-ahead log, live segments
}

// Stats returns the group's state.
func (g *Group) Stats() Stats {
	leader, _ := g.Leader()
	first, _ := g.logs.FirstIndex() // damage is reported where entries are read
	g.flushMu.Lock()
	flushed := g.flushed
	g.flushMu.Unlock()
	g.mu.Lock()
	pending := len(g.pending) + len(g.queue)
	g.mu.Unlock()
	return Stats{
		Group: g.id, State: g.raft.State().String(), Leader: leader, Term: g.Term(),
		First: topics.Index(first), Last: g.LastIndex(), Committed: g.Committed(),
		Applied: topics.Index(g.applied.Load()), Flushed: topics.Index(flushed),
		Snapshot: topics.Index(g.snapshot.Load()), SnapshotTaken: g.snapshots.Taken(), Pending: pending,
		NoSpace: g.noSpace(), LogBytes: g.node.wal.Stats().Bytes,
	}
}

// spawn starts a goroutine of the group, unless it is closing.
func (g *Group) spawn(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.running.Go(f)
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
	if c, ok := g.trans.(raft.WithClose); ok && g.node.links != nil {
		errs = append(errs, c.Close()) // first: raft waits for what is on its way
	}
	if g.raft != nil {
		errs = append(errs, g.raft.Shutdown().Error())
	}
	g.cancel()
	close(g.stop)
	g.running.Wait()
	g.abandon(ErrClosed)
	for _, c := range g.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
