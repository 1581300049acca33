package replication

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/guard"
	"github.com/heraldmq/herald/replication/snapshot"
	"github.com/heraldmq/herald/replication/stable"
	"github.com/heraldmq/herald/topics"
)

// noticeWithin is how long a follower may not know that an entry is committed, when
// no other follows. Clients wait for it: what they make shall be there on every node.
const noticeWithin = 2 * time.Millisecond

// joinMax is how long Start waits for a leader.
const joinMax = time.Minute

// start builds a group from its files up.
func (n *Node) start(id topics.GroupID, sm StateMachine, o StartOptions) (_ *Group, err error) {
	g := &Group{
		id: id, node: n,
		leadership: leadership{notify: make(chan bool), changes: make(chan bool, 1)},
		wanted:     make(chan struct{}, 1), more: make(chan struct{}, 1), stop: make(chan struct{}),
		review: make(chan struct{}, 1), reshaped: make(chan struct{}, 1), handing: make(chan struct{}, 1),
		care: care{damaged: make(chan error, 1)},
	}
	g.ctx, g.cancel = context.WithCancel(n.ctx)
	g.machine = &machine{group: g, sm: sm}
	g.meters = n.meters.group(id)
	g.empty.L = &g.mu
	g.stuck = time.AfterFunc(time.Hour, g.late)
	g.stuck.Stop()
	defer func() {
		if err != nil {
			err = errors.Join(err, g.shutdown())
		}
	}()
	if err := g.openLog(); err != nil {
		return nil, err
	}
	incarnation := ""
	if n.links != nil {
		incarnation = newIncarnation()
	}
	votes, err := g.openVotes(incarnation)
	if err != nil {
		return nil, err
	}
	g.closers = append(g.closers, votes)
	g.nameReplica(votes)
	if err := g.openSnapshots(); err != nil {
		return nil, err
	}
	if err := g.rebuild(sm, votes, o.Found); err != nil {
		return nil, err
	}
	return g, g.run(votes)
}

// openVotes opens term and vote; of group 0, in which they decide who steers the cluster,
// with a witness, which also notes how far its log has come.
func (g *Group) openVotes(incarnation string) (*stable.Store, error) {
	n := g.node
	dir := filepath.Join(n.cfg.Dir, "stable")
	if g.id != topics.CatalogueGroup {
		return stable.Open(n.cfg.FS, dir, n.cfg.NodeID, uint32(g.id), incarnation)
	}
	w, err := g.openWitness()
	if err != nil {
		return nil, err
	}
	g.logs = newFloor(g, g.logs, w)
	return stable.OpenWitnessed(n.cfg.FS, dir, n.cfg.NodeID, uint32(g.id), incarnation, voteWitness{w})
}

// newIncarnation returns what tells a new replica from earlier ones.
func newIncarnation() string {
	return fmt.Sprintf("%08x", rand.Uint32())
}

// nameReplica sets the replica's id. Those from before there were clusters have the
// plain identity of the node.
func (g *Group) nameReplica(votes *stable.Store) {
	g.replica = g.node.cfg.NodeID
	if i := votes.Incarnation(); i != "" {
		g.replica += "/" + i
	}
}

// openLog opens the bare log store.
func (g *Group) openLog() error {
	if g.id != topics.CatalogueGroup {
		g.wal = g.node.wal.Group(uint32(g.id))
		g.logs = g.wal
		return g.node.wal.Damage(uint32(g.id))
	}
	return g.openCatalogueLog()
}

func (g *Group) openSnapshots() error {
	dir, err := g.node.GroupDir(g.id)
	if err != nil {
		return err
	}
	g.anchor = &guard.Anchor{LogStore: &trimmer{LogStore: g.logs, group: g}}
	g.snapshots, err = snapshot.Open(snapshot.Options{
		FS: g.node.cfg.FS, Dir: filepath.Join(dir, "snapshots"), Log: g.node.cfg.Log,
		Created: func(index, term uint64) {
			g.anchor.Set(index, term)
			g.snapshot.Store(index)
		},
	})
	return err
}

// run starts raft and the group's goroutines and waits until it leads or knows
// who does.
func (g *Group) run(votes *stable.Store) error {
	n := g.node
	what := fmt.Sprintf("group %d", g.id)
	logs := &guard.Logs{LogStore: g.anchor, What: what, Fatal: n.fail, Storing: g.sendAhead, Stored: g.tips.stored}
	if g.id == topics.CatalogueGroup {
		// The write-ahead log has its own; this is also for what the witness is told.
		logs.Deadline, logs.Slow, logs.Slowed = n.cfg.WriteDeadline, n.cfg.SlowWrite, n.slowed
		logs.Appended = func(took time.Duration) { n.append.Observe(took.Seconds()) }
	}
	trans, loop, err := g.transport()
	if err != nil {
		return err
	}
	g.trans = trans
	g.running.Go(g.watch) // before raft starts, since raft waits for it
	r, err := raft.NewRaft(g.raftConfig(), g.machine, logs,
		&guard.Stable{StableStore: votes, What: what, Deadline: n.cfg.WriteDeadline, Slow: n.cfg.SlowWrite, Slowed: n.slowed, Fatal: n.fail},
		g.snapshots, trans)
	if err != nil {
		return err
	}
	g.raft = r
	if ahead, ok := trans.(guard.Transport).Transport.(aheadSender); ok && !n.cfg.WriteFirst {
		g.ahead.Store(&aheadOf{r, ahead})
	}
	g.running.Go(g.feed)
	g.running.Go(g.snap)
	g.running.Go(g.tend)
	if n.links != nil {
		g.running.Go(g.joinLoop)
		if g.soleVoter() {
			g.running.Go(g.Campaign) // there is nobody to wait for
		}
		return nil
	}
	return g.settle(loop)
}

// transport returns what raft sends by; the loopback, if it is one.
func (g *Group) transport() (raft.Transport, *guard.Loopback, error) {
	n := g.node
	switch {
	case n.links != nil:
		o := transportOptions{prefetch: g.prefetch, entry: g.logs.GetLog, notice: noticeWithin, hung: n.hung}
		if n.cfg.HeartbeatTimeout >= time.Second {
			o.beat = n.cfg.HeartbeatTimeout / 3
		}
		t := n.links.Transport(g.id, g.replica, o)
		g.committer, _ = t.(committer)
		return guard.Transport{Transport: t, Hung: n.hung}, nil, nil
	case n.cfg.Transport != nil:
		t, err := n.cfg.Transport(g.id, n.cfg.NodeID)
		return guard.Transport{Transport: t}, nil, err
	}
	loop := guard.NewLoopback(n.cfg.NodeID)
	return guard.Transport{Transport: loop}, loop, nil
}

func (g *Group) raftConfig() *raft.Config {
	n := g.node
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(g.replica)
	conf.HeartbeatTimeout = n.cfg.HeartbeatTimeout
	conf.ElectionTimeout = n.cfg.HeartbeatTimeout
	// No read relies on the lease, see Linearize: it only says when a leader that is cut
	// off gives up. Heartbeats are a third of it apart.
	conf.LeaderLeaseTimeout = max(n.cfg.HeartbeatTimeout, 5*time.Millisecond)
	if g.committer != nil {
		conf.CommitTimeout = max(n.cfg.HeartbeatTimeout, conf.CommitTimeout) // only where a notice was lost
	}
	conf.MaxAppendEntries = callerMax
	conf.BatchApplyCh = true
	conf.NoSnapshotRestoreOnStart = true
	conf.NoLegacyTelemetry = true
	conf.ShutdownOnRemove = false // a replica that was taken out may be let in again
	conf.TrailingLogs = trailingMin
	// Snapshots are taken by bytes, see Flushed and ApplyBatch.
	conf.SnapshotInterval = 365 * 24 * time.Hour
	conf.SnapshotThreshold = 1 << 62
	conf.NotifyCh = g.notify
	conf.Logger = newRaftLog(n.cfg.Log.With("group", g.id))
	return conf
}

// settle waits until the group leads or knows its leader.
func (g *Group) settle(loop *guard.Loopback) error {
	deadline := time.NewTimer(joinMax)
	defer deadline.Stop()
	conf := g.raft.GetConfiguration()
	if err := conf.Error(); err != nil {
		return err
	}
	alone := true
	for _, s := range conf.Configuration().Servers {
		alone = alone && s.ID == raft.ServerID(g.node.cfg.NodeID)
	}
	alone = alone && g.node.cfg.Transport == nil
	if alone {
		loop.Campaign()
	}
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		if alone && g.raft.State() == raft.Leader {
			return g.awaitLead(deadline.C)
		} else if g.raft.State() == raft.Leader {
			err := g.raft.Barrier(0).Error()
			if err == nil {
				return g.awaitLead(deadline.C)
			}
			if !errors.Is(err, raft.ErrLeadershipLost) && !errors.Is(err, raft.ErrNotLeader) {
				return err
			}
		} else if _, id := g.raft.LeaderWithID(); id != "" && !alone {
			return nil
		}
		select {
		case <-poll.C:
		case <-deadline.C:
			return fmt.Errorf("no leader within %s", joinMax)
		}
	}
}

// awaitLead waits until the watcher has seen that this node leads and the state
// machine has what was in the log before. With one voter that needs no barrier: the
// first entry of the leader's term commits all of it, and one sync of the log is
// spared at every start.
func (g *Group) awaitLead(deadline <-chan time.Time) error {
	poll := time.NewTicker(100 * time.Microsecond)
	defer poll.Stop()
	for {
		if _, leads := g.Leader(); leads && g.applied.Load() >= g.inherited {
			return nil
		}
		select {
		case <-poll.C:
		case <-deadline:
			return fmt.Errorf("no leader within %s", joinMax)
		}
	}
}
