package replication

import "github.com/hashicorp/raft"

// aheadOf is what is needed to send entries ahead.
type aheadOf struct {
	raft *raft.Raft
	to   aheadSender
}

// sendAhead sends what is about to be written to the log to the followers, if it was
// proposed here; peer.Transport.Ahead says why that is allowed. It is called on raft's
// main goroutine, by which state and term change: while it runs they stand still.
//
// What isn't a proposal (the entry that begins a term, a configuration) goes the
// ordinary way: it is rare, and raft uses a configuration only once it has written it.
func (g *Group) sendAhead(logs []*raft.Log) {
	a := g.ahead.Load()
	if a == nil || len(logs) == 0 || a.raft.State() != raft.Leader {
		return
	}
	term := a.raft.CurrentTerm()
	for _, l := range logs {
		if l.Term != term || l.Type != raft.LogCommand {
			return
		}
	}
	a.to.Ahead(logs)
}
