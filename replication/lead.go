package replication

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/topics"
)

// leadership is what is known of who leads. Fields are guarded by proposals.mu where
// nothing else is said.
type leadership struct {
	notify  chan bool // raft's leadership changes, every one
	changes chan bool // latest value

	term      uint64    // in which this node leads
	elections uint64    // how often it began to
	makingWay bool      // the lead goes to a node that has space
	inVain    time.Time // when that was tried in vain
}

// watch follows raft's leadership. Every change must be taken at once: raft's main
// goroutine waits for it. It is a goroutine.
//
// In a cluster a new leader is told of only once it has applied everything that was
// committed before: when the first entry of its own term is committed, and what is
// below is applied. hashicorp/raft's Barrier does the same with one more entry, and
// may wait for ever when the node is closed meanwhile (#498).
func (g *Group) watch() {
	poll := time.NewTicker(time.Millisecond)
	poll.Stop()
	for {
		select {
		case lead := <-g.notify:
			switch {
			case !lead:
				poll.Stop()
				g.tell(false, 0)
			case g.node.links == nil:
				g.tell(true, g.raft.CurrentTerm())
			default:
				poll.Reset(time.Millisecond)
			}
		case <-poll.C:
			if term := g.raft.CurrentTerm(); g.inOffice(term) {
				poll.Stop()
				if g.committer != nil {
					g.committer.Committed(g.raft.CommitIndex()) // of what begins its term
				}
				g.tell(true, term)
			}
		case <-g.stop:
			poll.Stop()
			return
		}
	}
}

// inOffice tells whether this node, which was elected, has applied everything that
// was committed before its term.
func (g *Group) inOffice(term uint64) bool {
	index, noopTerm := g.noop()
	return noopTerm == term && g.raft.State() == raft.Leader && g.reached(index)
}

// tell makes it known that this node leads, or doesn't.
func (g *Group) tell(lead bool, term uint64) {
	g.mu.Lock()
	if lead && !g.leading {
		g.elections++
	}
	g.leading, g.term = lead, term
	g.mu.Unlock()
	if lead {
		g.lead(term)
	} else {
		g.unlead()
		g.abandon(ErrNotLeader)
	}
	select {
	case <-g.changes:
	default:
	}
	g.changes <- lead // one deep, and only this goroutine fills it
}

// Leader returns the name of the node that leads ("" when nobody is known to) and
// whether it is this node. A node that was elected and isn't ready yet is not named
// on itself.
func (g *Group) Leader() (node string, isLeader bool) {
	addr, id := g.raft.LeaderWithID()
	g.mu.Lock()
	leading := g.leading
	g.mu.Unlock()
	if g.node.links == nil {
		return string(id), leading
	}
	if !leading && string(id) == g.replica {
		return "", false
	}
	return string(addr), leading
}

// reached tells whether everything up to entry i, if it is committed, has been
// applied. Not every entry is one for the state machine.
func (g *Group) reached(i uint64) bool {
	applied := g.applied.Load()
	if i > applied && g.raft.CommitIndex() < i {
		return false
	}
	for ; i > applied; i-- {
		var l raft.Log
		if err := g.logs.GetLog(i, &l); err != nil || l.Type == raft.LogCommand {
			return g.applied.Load() >= i
		}
	}
	return true
}

// appliedEvery is how often those who wait for an entry look again: entries that are
// not for the state machine wake nobody.
const appliedEvery = 5 * time.Millisecond

// WaitApplied returns once entry i, which must be committed, has been applied here.
func (g *Group) WaitApplied(ctx context.Context, i topics.Index) error {
	if g.reached(uint64(i)) {
		return nil
	}
	tick := time.NewTicker(appliedEvery)
	defer tick.Stop()
	for {
		woken := g.nextApply()
		if g.reached(uint64(i)) {
			return nil
		}
		select {
		case <-woken:
		case <-tick.C:
		case <-g.stop:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// nextApply returns what is closed after the next Apply.
func (p *progress) nextApply() <-chan struct{} {
	p.wakeMu.Lock()
	defer p.wakeMu.Unlock()
	if p.wake == nil {
		p.wake = make(chan struct{})
		p.waiting.Store(true)
	}
	return p.wake
}

// setApplied notes how far the state machine is.
func (p *progress) setApplied(i uint64) {
	p.applied.Store(i)
	if !p.waiting.Load() {
		return
	}
	p.wakeMu.Lock()
	defer p.wakeMu.Unlock()
	if p.wake != nil {
		close(p.wake)
		p.wake = nil
		p.waiting.Store(false)
	}
}
