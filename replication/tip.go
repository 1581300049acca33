package replication

import (
	"sync"

	"github.com/hashicorp/raft"
)

// tip is what was stored last in a group's log. raft doesn't tell, or only on its
// main goroutine.
type tip struct {
	mu          sync.Mutex
	last, term  uint64 // the last entry
	noop, since uint64 // the last that began a term, and that term
}

// stored is called with what was appended to the log.
func (t *tip) stored(logs []*raft.Log) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range logs {
		if l.Type == raft.LogNoop {
			t.noop, t.since = l.Index, l.Term
		}
	}
	if n := len(logs); n > 0 {
		t.last, t.term = logs[n-1].Index, logs[n-1].Term
	}
}

// tip returns the last entry of the log, or of a snapshot beyond it, and its term.
func (g *Group) tip() (last, term uint64) {
	g.tips.mu.Lock()
	last, term = g.tips.last, g.tips.term
	g.tips.mu.Unlock()
	if i, t := g.anchor.At(); i > last {
		return i, t
	}
	return last, term
}

// noop returns the last entry in the log that began a term, and that term.
func (g *Group) noop() (index, term uint64) {
	g.tips.mu.Lock()
	defer g.tips.mu.Unlock()
	return g.tips.noop, g.tips.since
}

// servers returns the latest configuration in the log, committed or not.
func (g *Group) servers() []raft.Server {
	// Answered from memory: it can't fail.
	return g.raft.GetConfiguration().Configuration().Servers
}
