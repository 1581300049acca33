package guard

import (
	"errors"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// Anchor is a log store that answers the index of the newest snapshot with the
// snapshot's term, whatever the log holds there. A snapshot's last entry is
// committed, so an entry of another term at that index is a leftover that was
// never committed; raft compares the next append with it and refuses (#697).
// With the anchor the append is taken, and clears the leftovers behind it.
type Anchor struct {
	raft.LogStore
	at atomic.Pointer[raft.SnapshotMeta]
}

// Set says which snapshot is the newest. It may be called at any time.
func (a *Anchor) Set(index, term uint64) {
	a.at.Store(&raft.SnapshotMeta{Index: index, Term: term})
}

// At returns the newest snapshot's index and term; zeros without one.
func (a *Anchor) At() (index, term uint64) {
	if at := a.at.Load(); at != nil {
		return at.Index, at.Term
	}
	return 0, 0
}

// GetLog implements raft.LogStore.
func (a *Anchor) GetLog(index uint64, log *raft.Log) error {
	err := a.LogStore.GetLog(index, log)
	at := a.at.Load()
	if at == nil || at.Index != index || at.Index == 0 {
		return err
	}
	if err != nil && !errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	if err != nil || log.Term != at.Term {
		*log = raft.Log{Index: index, Term: at.Term, Type: raft.LogNoop}
	}
	return nil
}
