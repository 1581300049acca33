package replication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/boltlog"
	"github.com/heraldmq/herald/replication/guard"
	"github.com/heraldmq/herald/replication/snapshot"
	"github.com/heraldmq/herald/replication/stable"
	"github.com/heraldmq/herald/topics"
)

// joinMax is how long Start waits for a leader.
const joinMax = time.Minute

// start builds a group from its files up.
func (n *Node) start(id topics.GroupID, sm StateMachine, o StartOptions) (_ *Group, err error) {
	g := &Group{
		id: id, node: n,
		leadership: leadership{notify: make(chan bool), changes: make(chan bool, 1)},
		wanted:     make(chan struct{}, 1), more: make(chan struct{}, 1), stop: make(chan struct{}),
		review: make(chan struct{}, 1), handing: make(chan struct{}, 1),
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
	votes, err := stable.Open(n.cfg.FS, filepath.Join(n.cfg.Dir, "stable"), n.cfg.NodeID, uint32(id), incarnation)
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
	dir := filepath.Join(g.node.cfg.Dir, "meta")
	if err := g.node.cfg.FS.MkdirAll(dir); err != nil { // a reset takes it away
		return fmt.Errorf("open the catalogue's log: %w", err)
	}
	l, err := boltlog.Open(g.node.cfg.FS, dir)
	if err != nil {
		return err
	}
	g.logs = l
	g.closers = append(g.closers, l)
	return nil
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
	logs := &guard.Logs{LogStore: g.anchor, What: what, Fatal: n.fail, Stored: g.tips.stored}
	if g.wal == nil {
		logs.Deadline = n.cfg.WriteDeadline // the write-ahead log has its own
		logs.Appended = func(took time.Duration) { n.append.Observe(took.Seconds()) }
	}
	trans, loop, err := g.transport()
	if err != nil {
		return err
	}
	g.trans = trans
	g.running.Go(g.watch) // before raft starts, since raft waits for it
	r, err := raft.NewRaft(g.raftConfig(), g.machine, logs,
		&guard.Stable{StableStore: votes, What: what, Deadline: n.cfg.WriteDeadline, Fatal: n.fail},
		g.snapshots, trans)
	if err != nil {
		return err
	}
	g.raft = r
	g.running.Go(g.feed)
	g.running.Go(g.snap)
	g.running.Go(g.tend)
	if n.links != nil {
		g.running.Go(g.joinLoop)
		return nil
	}
	return g.settle(loop)
}

// transport returns what raft sends by; the loopback, if it is one.
func (g *Group) transport() (raft.Transport, *guard.Loopback, error) {
	n := g.node
	switch {
	case n.links != nil:
		return guard.Transport{Transport: n.links.Transport(g.id, g.replica, g.prefetch)}, nil, nil
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
	conf.LeaderLeaseTimeout = max(n.cfg.HeartbeatTimeout/2, 5*time.Millisecond)
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

// rebuild brings the state machine up to the newest snapshot at least, from its
// own files, the snapshots and the log; raft replays the log from there. It makes
// sure that they fit together, and bootstraps a group that is new.
//
//	machine's files  |--------A|
//	snapshots        |------S|        (or behind A)
//	log                 |F-----------L|
func (g *Group) rebuild(sm StateMachine, votes *stable.Store, found bool) error {
	metas, err := g.snapshots.List()
	if err != nil {
		return err
	}
	first, err := g.logs.FirstIndex()
	if err != nil {
		return err
	}
	last, err := g.logs.LastIndex()
	if err != nil {
		return err
	}
	applied := uint64(sm.Applied())
	g.flushed, g.flushed1 = applied, applied
	var snap raft.SnapshotMeta
	if len(metas) > 0 {
		snap = *metas[0]
		g.anchor.Set(snap.Index, snap.Term)
		g.snapshot.Store(snap.Index)
	}
	if err := g.checkVotes(votes, snap.Term, last); err != nil {
		return err
	}
	if last == 0 && snap.Index == 0 {
		return g.bootstrap(applied, votes, found)
	}
	taken, err := g.takenOver()
	if err != nil {
		return err
	}
	if applied > max(last, snap.Index, taken) {
		return &LostLogError{Group: g.id, Applied: topics.Index(applied), Last: topics.Index(max(last, snap.Index))}
	}
	if applied < snap.Index {
		if applied, err = g.catchUp(sm, metas, applied, first); err != nil {
			return err
		}
		applied = max(applied, uint64(sm.Applied())) // a Restore may bring more
	}
	if last > snap.Index && first > snap.Index+1 {
		return &GapError{Group: g.id, Applied: topics.Index(snap.Index), First: topics.Index(first)}
	}
	if g.wal == nil {
		// The write-ahead log has been read as a whole. This one hasn't, and raft
		// would panic over damage.
		for i := snap.Index + 1; i <= last; i++ {
			if err := g.logs.GetLog(i, new(raft.Log)); err != nil {
				return fmt.Errorf("read entry %d of the log: %w", i, err)
			}
		}
	}
	g.applied.Store(applied)
	return g.inherit(applied, last)
}

// inherit notes the last entry of the log that the state machine has to get before
// Start may return.
func (g *Group) inherit(applied, last uint64) error {
	for i := last; i > applied; i-- {
		var l raft.Log
		if err := g.logs.GetLog(i, &l); err != nil {
			return fmt.Errorf("read entry %d of the log: %w", i, err)
		}
		if l.Type == raft.LogCommand {
			g.inherited = i
			return nil
		}
	}
	return nil
}

// checkVotes notices a vote file that is older than the log or the snapshot.
func (g *Group) checkVotes(votes *stable.Store, term, last uint64) error {
	if last > 0 {
		var l raft.Log
		if err := g.logs.GetLog(last, &l); err != nil {
			return err
		}
		term = max(term, l.Term)
		g.tips.last, g.tips.term = last, l.Term
	}
	return votes.CheckLog(term)
}

// bootstrap writes the first entry of a new group. raft's own function refuses
// when a crash interrupted it the first time.
func (g *Group) bootstrap(applied uint64, votes *stable.Store, found bool) error {
	term, err := votes.GetUint64([]byte("CurrentTerm"))
	if lost := err == nil && term > 1; lost || applied > 0 {
		if applied > 0 || g.node.links == nil || votes.Voted() {
			return &LostLogError{Group: g.id, Applied: topics.Index(applied)}
		}
		// It has heard of a leader and has no entry of it yet; or had some, and lost
		// them. Under a new name both are the same.
		if err := votes.Renew(newIncarnation()); err != nil {
			return err
		}
		g.nameReplica(votes)
	}
	if g.node.links != nil {
		if !found {
			return nil // it joins others
		}
		return g.begin(votes, raft.Configuration{Servers: []raft.Server{
			{Suffrage: raft.Voter, ID: raft.ServerID(g.replica), Address: raft.ServerAddress(g.node.name())},
		}})
	}
	me := false
	conf := raft.Configuration{Servers: g.node.cfg.Voters}
	for _, s := range conf.Servers {
		me = me || s.ID == raft.ServerID(g.node.cfg.NodeID)
	}
	if len(conf.Servers) == 0 {
		me = true
		id := g.node.cfg.NodeID
		conf.Servers = []raft.Server{{Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(id)}}
	}
	if !me {
		return nil // it joins others
	}
	return g.begin(votes, conf)
}

func (g *Group) begin(votes *stable.Store, conf raft.Configuration) error {
	if err := votes.SetUint64([]byte("CurrentTerm"), 1); err != nil {
		return err
	}
	g.tips.last, g.tips.term = 1, 1
	return g.logs.StoreLog(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(conf)})
}

// catchUp brings a machine whose own files end before the newest snapshot up to
// it, and returns that index. Everything up to a snapshot is committed, so the
// log can be replayed; where it doesn't reach back, a snapshot is restored.
func (g *Group) catchUp(sm StateMachine, metas []*raft.SnapshotMeta, applied, first uint64) (uint64, error) {
	target := metas[0].Index
	if applied > 0 && first != 0 && first <= applied+1 {
		return target, g.replay(sm, applied+1, target)
	}
	var cause error
	for _, m := range metas {
		if m.Index <= applied {
			break
		}
		if err := g.restore(sm, m.ID); err != nil {
			cause = errors.Join(cause, err)
			g.node.cfg.Log.Warn("a snapshot could not be restored", "group", g.id, "index", m.Index, "error", err)
			continue
		}
		if m.Index == target {
			return target, nil
		}
		applied = m.Index
		break
	}
	if first != 0 && first <= applied+1 {
		return target, g.replay(sm, applied+1, target)
	}
	return 0, &GapError{Group: g.id, Applied: topics.Index(applied), First: topics.Index(first), Cause: cause}
}

func (g *Group) restore(sm StateMachine, id string) error {
	_, body, err := g.snapshots.Open(id)
	if err != nil {
		return err
	}
	err = sm.Restore(body)
	if err == nil {
		_, err = io.Copy(io.Discard, body)
	}
	return errors.Join(err, body.Close())
}

// replay applies entries of the log that are known to be committed.
func (g *Group) replay(sm StateMachine, from, to uint64) error {
	for i := from; i <= to; i++ {
		var l raft.Log
		if err := g.logs.GetLog(i, &l); err != nil {
			return fmt.Errorf("replay entry %d: %w", i, err)
		}
		if l.Type == raft.LogCommand {
			sm.Apply([]Entry{{Index: topics.Index(i), Term: l.Term, Data: l.Data}})
		}
	}
	return nil
}
