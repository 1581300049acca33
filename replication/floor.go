package replication

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/heraldmq/herald/replication/stable"
	"github.com/heraldmq/herald/replication/witness"
)

// The keys of group 0's witness.
const (
	keyVote  = "vote"
	keyFloor = "floor" // index u64: so far the log has come at least
)

// openWitness opens group 0's second account.
func (g *Group) openWitness() (*witness.Store, error) {
	name := filepath.Join(g.node.cfg.Dir, "stable", "0.bolt")
	w, why, err := witness.Open(name)
	if err != nil {
		return nil, err
	}
	if why != nil {
		g.node.cfg.Log.Warn("the second account of group 0's vote could not be read, and is made anew", "error", why)
	}
	g.closers = append(g.closers, w)
	return w, nil
}

// voteWitness is the part of a witness that package stable sees.
type voteWitness struct{ *witness.Store }

var _ stable.Witness = voteWitness{}

func (w voteWitness) Get() []byte             { return w.Store.Get(keyVote) }
func (w voteWitness) Set(record []byte) error { return w.Store.Set(keyVote, record) }

// floor is group 0's log with a note, kept elsewhere, of an entry that it has beyond the
// newest snapshot: a log that was deleted as a whole would otherwise look like one that a
// snapshot has just begun anew. The note is written with the first entry behind a
// snapshot, not with each.
type floor struct {
	raft.LogStore
	group *Group
	to    *witness.Store

	mu sync.Mutex
	at uint64
}

func newFloor(g *Group, logs raft.LogStore, w *witness.Store) *floor {
	f := &floor{LogStore: logs, group: g, to: w}
	if b := w.Get(keyFloor); len(b) == 8 {
		f.at = binary.LittleEndian.Uint64(b)
	}
	return f
}

// StoreLog implements raft.LogStore.
func (f *floor) StoreLog(log *raft.Log) error { return f.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (f *floor) StoreLogs(logs []*raft.Log) error {
	if err := f.LogStore.StoreLogs(logs); err != nil || len(logs) == 0 {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := logs[len(logs)-1].Index; f.at <= f.group.snapshot.Load() && last > f.at {
		return f.noteLocked(last)
	}
	return nil
}

// DeleteRange implements raft.LogStore. The note is lowered before the entry that it names
// is deleted, or a crash in between would look like a loss.
func (f *floor) DeleteRange(from, to uint64) error {
	last, err := f.LastIndex()
	if err != nil {
		return err
	}
	f.mu.Lock()
	if to >= last && from <= f.at {
		err = f.noteLocked(from - 1)
	}
	f.mu.Unlock()
	return errors.Join(err, f.LogStore.DeleteRange(from, to))
}

func (f *floor) noteLocked(at uint64) error {
	if err := f.to.Set(keyFloor, binary.LittleEndian.AppendUint64(nil, at)); err != nil {
		return fmt.Errorf("note how far the catalogue's log has come: %w", err)
	}
	f.at = at
	return nil
}

// noted returns how far the log has come at least; 0 where that isn't noted.
func (g *Group) noted() uint64 {
	f, ok := g.logs.(*floor)
	if !ok {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}
