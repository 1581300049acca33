package replication

import (
	"io"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/topics"
)

// machine is what raft sees of the state machine.
type machine struct {
	group *Group
	sm    StateMachine

	// Owned by raft's FSM goroutine.
	entries []Entry
}

var _ raft.BatchingFSM = (*machine)(nil)

// Apply implements raft.FSM; raft calls ApplyBatch.
func (m *machine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM. It passes on what the machine doesn't
// have yet.
func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	g := m.group
	if g.committer != nil {
		g.committer.Committed(logs[len(logs)-1].Index)
	}
	applied := g.applied.Load()
	m.entries = m.entries[:0]
	var bytes int64
	for _, l := range logs {
		bytes += int64(len(l.Data))
		if l.Type == raft.LogCommand && l.Index > applied {
			m.entries = append(m.entries, Entry{Index: topics.Index(l.Index), Term: l.Term, Data: l.Data})
		}
	}
	answers := make([]any, len(logs)) // raft wants one each; nobody reads them
	if len(m.entries) > 0 {
		results := m.sm.Apply(m.entries)
		if len(results) != len(m.entries) {
			panic("a state machine must answer every entry")
		}
		g.setApplied(max(applied, logs[len(logs)-1].Index))
		g.meters.entries.Add(float64(len(m.entries)))
		g.answer(m.entries, results)
		clear(m.entries)
	} else {
		g.setApplied(max(applied, logs[len(logs)-1].Index))
	}
	if g.backlog.Add(bytes) >= g.snapshotBytes() && g.complete() {
		signal(g.wanted)
	}
	return answers
}

// Snapshot implements raft.FSM.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	s, err := m.sm.Snapshot()
	if err != nil {
		return nil, err
	}
	return persister{s}, nil
}

// Restore implements raft.FSM: a snapshot was installed by the leader.
func (m *machine) Restore(r io.ReadCloser) error {
	if err := m.sm.Restore(r); err != nil {
		return err
	}
	m.group.restored()
	return nil
}

// restored takes note of what the machine has after a Restore.
func (g *Group) restored() {
	applied := uint64(g.machine.sm.Applied())
	g.setApplied(max(g.snapshot.Load(), applied))
	if g.complete() {
		return
	}
	g.flushMu.Lock()
	defer g.flushMu.Unlock()
	g.flushed, g.flushed1 = applied, applied
}

// persister is what raft sees of a Snapshot.
type persister struct{ Snapshot }

func (p persister) Persist(sink raft.SnapshotSink) error { return p.Snapshot.Persist(sink) }

// complete tells whether the machine's snapshots hold its whole state. Those of a
// data group's machine are manifests of its files: they are worth no more than
// what has been flushed.
func (g *Group) complete() bool { return g.id == topics.CatalogueGroup }
