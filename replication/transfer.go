package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

const (
	catchUpMax  = 2 * time.Second // of a transfer: how long the other may take to have all entries
	stepDownMax = 2 * time.Second // and to be elected
)

// Transfer hands the lead to a node that votes in the group, "" for the one that is
// best placed. What is proposed meanwhile waits, and is refused with ErrNotLeader once
// the other leads. It returns when this node leads no more; after an error it leads
// on, unless the error Is ErrNotLeader. It ends by itself within a few seconds.
//
// It is not raft's own: after that one a node may refuse everything for ever (#696).
// Here all that has to be undone is that proposals wait.
func (g *Group) Transfer(ctx context.Context, to string) error {
	err := g.transfer(ctx, to)
	if err != nil {
		return fmt.Errorf("hand over the lead of group %d: %w", g.id, err)
	}
	return nil
}

func (g *Group) transfer(ctx context.Context, to string) error {
	select {
	case g.handing <- struct{}{}:
		defer func() { <-g.handing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	term, ok := g.hold()
	if !ok {
		return ErrNotLeader
	}
	defer g.resume()
	ctx, cancel := context.WithTimeout(ctx, catchUpMax)
	defer cancel()
	target, err := g.successor(ctx, to)
	if err != nil {
		return err
	}
	if err := g.awaitCaughtUp(ctx, target, term); err != nil {
		return err
	}
	req := g.timeoutNow()
	if err := g.trans.TimeoutNow(target.ID, target.Address, &req, &raft.TimeoutNowResponse{}); err != nil {
		return err
	}
	for end := time.Now().Add(stepDownMax); time.Now().Before(end); {
		g.mu.Lock()
		over := !g.leading || g.term != term
		g.mu.Unlock()
		if over {
			g.node.transfers.Inc()
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-g.stop:
			return ErrClosed
		}
	}
	return fmt.Errorf("%s was not elected within %s", target.Address, stepDownMax)
}

// leadsIn tells whether this node leads in a term.
func (g *Group) leadsIn(term uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leading && g.term == term && g.raft.State() == raft.Leader
}

// hold lets proposals wait, if this node leads.
func (g *Group) hold() (term uint64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.leading || g.closed || g.node.links == nil {
		return 0, false
	}
	g.held = true
	return g.term, true
}

// resume lets them go on.
func (g *Group) resume() {
	g.mu.Lock()
	g.held = false
	g.mu.Unlock()
	signal(g.more)
}

// successor returns the voter that shall lead.
func (g *Group) successor(ctx context.Context, to string) (raft.Server, error) {
	var voters []raft.Server
	for _, s := range g.servers() {
		if s.Suffrage != raft.Voter || string(s.ID) == g.replica {
			continue
		}
		if string(s.Address) == to {
			return s, nil
		}
		if g.node.links.Online(string(s.Address)) {
			voters = append(voters, s)
		}
	}
	if to != "" {
		return raft.Server{}, fmt.Errorf("%s has no vote in the group", to)
	}
	if len(voters) == 0 {
		return raft.Server{}, errors.New("no other node that votes is connected")
	}
	// Whoever answers, has space, and has most.
	full := g.noSpace()
	best := make([]report, 0, len(voters))
	of := map[string]raft.Server{}
	for _, s := range voters {
		asked, cancel := context.WithTimeout(ctx, catchUpMax/4)
		r, err := g.node.ask(asked, string(s.Address), g.id)
		cancel()
		if err == nil && r.replica == string(s.ID) && !(r.full && full) {
			best = append(best, r)
			of[r.replica] = s
		}
	}
	if len(best) == 0 {
		if full {
			return raft.Server{}, ErrNoSpace
		}
		return raft.Server{}, errors.New("no other node that votes answers")
	}
	slices.SortFunc(best, func(a, b report) int {
		return cmp.Or(boolCompare(a.full, b.full), cmp.Compare(b.lastTerm, a.lastTerm), cmp.Compare(b.last, a.last), cmp.Compare(b.applied, a.applied))
	})
	return of[best[0].replica], nil
}

// awaitCaughtUp waits until nothing is on its way and the target has all entries.
func (g *Group) awaitCaughtUp(ctx context.Context, target raft.Server, term uint64) error {
	for {
		if !g.leadsIn(term) {
			return ErrNotLeader
		}
		g.mu.Lock()
		idle := len(g.pending) == 0
		g.mu.Unlock()
		if idle {
			last, lastTerm := g.tip()
			r, err := g.node.ask(ctx, string(target.Address), g.id)
			if err == nil && r.replica == string(target.ID) && r.term == term && r.lastTerm == lastTerm && r.last >= last {
				return nil
			}
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s has not caught up: %w", target.Address, ctx.Err())
		case <-g.stop:
			return ErrClosed
		}
	}
}

// Campaign makes this node stand for election now, though there may be a leader: for
// when its process is known to be dead. It does nothing on a replica without a vote.
func (g *Group) Campaign() {
	if g.node.links == nil || g.raft.State() == raft.Leader {
		return
	}
	for _, s := range g.servers() {
		if string(s.ID) != g.replica || s.Suffrage != raft.Voter {
			continue
		}
		req := g.timeoutNow()
		if err := g.trans.TimeoutNow(s.ID, raft.ServerAddress(g.node.name()), &req, &raft.TimeoutNowResponse{}); err != nil {
			g.node.cfg.Log.Warn("could not stand for election", "group", g.id, "error", err)
		}
	}
}

// timeoutNow is what makes a voter stand for election.
func (g *Group) timeoutNow() raft.TimeoutNowRequest {
	return raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(g.replica), Addr: []byte(g.node.name()),
	}}
}
