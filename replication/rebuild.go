package replication

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/stable"
	"github.com/heraldmq/herald/topics"
)

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
	if noted := g.noted(); noted > max(last, snap.Index) {
		return &LostLogError{Group: g.id, Applied: topics.Index(noted), Last: topics.Index(max(last, snap.Index))}
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
		err := g.restore(sm, m.ID)
		if disk.IsNewer(err) {
			return 0, fmt.Errorf("restore snapshot %s: %w", m.ID, err)
		}
		if err != nil {
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
