package replication

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/topics"
)

// verifier shares the question whether this node still leads.
type verifier struct {
	mu      sync.Mutex
	next    *round // those who wait for the round after the running one
	running bool
}

type round struct {
	done chan struct{}
	err  error
}

const verifyTimeout = time.Second

// Linearize returns nil when a read of the state machine that begins afterwards sees
// everything that was acknowledged before the call: this node still led when asked,
// confirmed by a majority, and has applied what was committed. Callers share the
// question to the others. With one voter it costs nothing. The error Is ErrNotLeader,
// ErrClosed, or the context's.
//
// The question is not raft's own VerifyLeader. That counts answers to heartbeats sent
// before it was asked, which is wrong on a node that was stopped in between; and
// heartbeats may be answered by the transport. Here voters are asked for their term:
// where a majority has none newer, nobody newer had been elected.
func (g *Group) Linearize(ctx context.Context) error {
	for {
		g.mu.Lock()
		leading, closed, term := g.leading, g.closed, g.term
		g.mu.Unlock()
		if closed {
			return fmt.Errorf("read from group %d: %w", g.id, ErrClosed)
		}
		if !leading {
			return fmt.Errorf("read from group %d: %w", g.id, ErrNotLeader)
		}
		committed := topics.Index(g.raft.CommitIndex())
		if g.soleVoter() {
			return g.WaitApplied(ctx, committed)
		}
		r := g.verify.join(g)
		select {
		case <-r.done:
		case <-g.stop:
			return fmt.Errorf("read from group %d: %w", g.id, ErrClosed)
		case <-ctx.Done():
			return fmt.Errorf("read from group %d: %w", g.id, ctx.Err())
		}
		if r.err != nil {
			continue // it may lead no more; or a majority was slow, and is asked again
		}
		g.mu.Lock()
		same := g.leading && g.term == term
		g.mu.Unlock()
		if same {
			return g.WaitApplied(ctx, committed)
		}
	}
}

// soleVoter tells whether this replica alone decides.
func (g *Group) soleVoter() bool {
	for _, s := range g.servers() {
		if s.Suffrage == raft.Voter && string(s.ID) != g.replica {
			return false
		}
	}
	return true
}

// join returns the round that begins after the call.
func (v *verifier) join(g *Group) *round {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.next == nil {
		v.next = &round{done: make(chan struct{})}
	}
	r := v.next
	if !v.running {
		v.running = true
		g.spawn(func() { v.run(g) })
	}
	return r
}

// run makes rounds for as long as somebody waits. It is a goroutine.
func (v *verifier) run(g *Group) {
	for {
		v.mu.Lock()
		r := v.next
		v.next = nil
		if r == nil {
			v.running = false
			v.mu.Unlock()
			return
		}
		v.mu.Unlock()
		r.err = g.stillLeads()
		close(r.done)
	}
}

// stillLeads asks the voters whether there is a newer term.
func (g *Group) stillLeads() error {
	g.mu.Lock()
	leading, term := g.leading, g.term
	g.mu.Unlock()
	if !leading {
		return ErrNotLeader
	}
	ctx, cancel := context.WithTimeout(g.ctx, verifyTimeout)
	defer cancel()
	voters, need := 0, 0
	answers := make(chan bool)
	for _, s := range g.servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if string(s.ID) == g.replica {
			continue
		}
		g.running.Go(func() {
			r, err := g.node.ask(ctx, string(s.Address), g.id)
			yes := err == nil && r.replica == string(s.ID) && r.term <= term
			select {
			case answers <- yes:
			case <-ctx.Done():
			}
		})
	}
	need = voters / 2 // this one is the rest of a majority
	for others := voters - 1; need > 0; others-- {
		if others < need {
			return pause(ctx, fmt.Errorf("no majority confirms: %w", ErrNotLeader))
		}
		select {
		case yes := <-answers:
			if yes {
				need--
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// pause returns err a little later: the same question is asked again at once.
func pause(ctx context.Context, err error) error {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	}
	return err
}
