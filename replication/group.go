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
	meters    groupMeters
	inherited uint64 // last entry for the machine that was in the log at the start

	wanted    chan struct{} // a snapshot is wanted
	more      chan struct{} // something waits in queue
	stop      chan struct{}
	running   sync.WaitGroup
	closeOnce sync.Once
	closeErr  error

	progress
	proposals
	care
}

// progress is how far the state machine is.
type progress struct {
	applied  atomic.Uint64
	snapshot atomic.Uint64 // index of the newest snapshot
	backlog  atomic.Int64  // bytes applied since

	flushMu  sync.Mutex
	flushed  uint64 // what the machine's own files hold
	flushed1 uint64 // the flush before
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

// Voters returns how many members of the group vote, 0 when that can't be told.
func (g *Group) Voters() int {
	f := g.raft.GetConfiguration()
	if f.Error() != nil {
		return 0
	}
	n := 0
	for _, s := range f.Configuration().Servers {
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
	// What is being applied may be flushed before Apply has returned.
	if committed := g.raft.CommitIndex(); uint64(i) > committed {
		return fmt.Errorf("group %d: flushed up to %d, but only committed up to %d", g.id, i, committed)
	}
	g.flushMu.Lock()
	if uint64(i) > g.flushed {
		g.flushed1, g.flushed = g.flushed, uint64(i)
	}
	g.flushMu.Unlock()
	if g.wal != nil {
		g.wal.Release(uint64(i))
	}
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
