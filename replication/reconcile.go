package replication

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/topics"
)

// joinRequest is what a replica that wants to be let in, or taken out, sends to the
// leader; joinAnswer is the answer.
type joinRequest struct {
	Group   topics.GroupID
	Replica string
}

type joinAnswer struct {
	Leader string // who to ask; "" when it isn't known
	In     bool   // it is a member
}

const (
	joinEvery    = 200 * time.Millisecond
	joinRarely   = 2 * time.Second // where it is a member, as far as it knows
	joinerFresh  = 3 * time.Second // how long a request counts
	reviewSoon   = 50 * time.Millisecond
	reviewRarely = 2 * time.Second
	changeMax    = 5 * time.Second
)

// joinLoop asks to be let in for as long as this replica isn't a member, or hears
// nothing from a leader: then it may have been taken out without learning of it. It is
// a goroutine.
func (g *Group) joinLoop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	heard := time.Now()
	for {
		select {
		case <-timer.C:
		case <-g.stop:
			return
		}
		if leader, _ := g.Leader(); leader != "" {
			heard = time.Now()
		}
		next := joinRarely
		in := g.isMember()
		if in && g.id == topics.CatalogueGroup {
			g.node.formed()
		}
		switch {
		case !in:
			next = joinEvery
			g.askIn()
		case time.Since(heard) > joinRarely && g.raft.State() != raft.Leader:
			g.askIn()
		}
		timer.Reset(next)
	}
}

// isMember tells whether this replica is in its configuration, by its node's name.
func (g *Group) isMember() bool {
	for _, s := range g.servers() {
		if string(s.ID) == g.replica && string(s.Address) == g.node.name() {
			return true
		}
	}
	return false
}

// askIn asks whoever may lead to let this replica in.
func (g *Group) askIn() {
	leader, _ := g.Leader()
	for range 2 {
		nodes := []string{leader}
		if leader == "" || leader == g.node.name() || !g.node.links.Online(leader) {
			nodes = g.node.links.Peers()
		}
		leader = ""
		for _, node := range nodes {
			a, err := g.request(g.ctx, node, methodJoin)
			if err != nil {
				continue
			}
			if a.Leader == node {
				return
			}
			if leader == "" {
				leader = a.Leader
			}
		}
		if leader == "" {
			return
		}
	}
}

// request sends a join or leave request.
func (g *Group) request(ctx context.Context, node, method string) (a joinAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	body, err := json.Marshal(joinRequest{Group: g.id, Replica: g.replica})
	if err != nil {
		return a, err
	}
	b, err := g.node.links.Call(ctx, node, method, body)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(b, &a)
}

// answerJoin notes on the leader that a replica wants to be let in.
func (n *Node) answerJoin(_ context.Context, from string, body []byte) ([]byte, error) {
	g, req, a, err := n.asked(from, body)
	if err != nil || g == nil || a.Leader != n.name() {
		return marshalAnswer(a, err)
	}
	for _, s := range g.servers() {
		a.In = a.In || string(s.ID) == req.Replica && string(s.Address) == from
	}
	if !a.In {
		m := &g.membership
		m.mu.Lock()
		if m.joiners == nil {
			m.joiners = map[string]joiner{}
		}
		m.joiners[from] = joiner{replica: req.Replica, at: time.Now()}
		m.mu.Unlock()
		signal(g.review)
	}
	return marshalAnswer(a, nil)
}

// answerLeave notes on the leader that a replica wants to be taken out.
func (n *Node) answerLeave(_ context.Context, from string, body []byte) ([]byte, error) {
	g, req, a, err := n.asked(from, body)
	if err != nil || g == nil || a.Leader != n.name() {
		return marshalAnswer(a, err)
	}
	for _, s := range g.servers() {
		a.In = a.In || string(s.ID) == req.Replica
	}
	m := &g.membership
	m.mu.Lock()
	if m.leaving == nil {
		m.leaving = map[string]bool{}
	}
	m.leaving[req.Replica] = true
	delete(m.joiners, from)
	m.mu.Unlock()
	signal(g.review)
	return marshalAnswer(a, nil)
}

func (n *Node) asked(from string, body []byte) (g *Group, req joinRequest, a joinAnswer, err error) {
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, req, a, fmt.Errorf("read what %s asks: %w", from, err)
	}
	if g = n.group(req.Group); g != nil {
		a.Leader, _ = g.Leader()
	}
	return g, req, a, nil
}

func marshalAnswer(a joinAnswer, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

// lead begins to look after the members, unlead ends it. Both are called by watch.
func (g *Group) lead(term uint64) {
	if g.node.links == nil {
		return
	}
	ctx, cancel := context.WithCancel(g.ctx)
	g.endTenure = cancel
	g.running.Go(func() { g.reconcile(ctx, term) })
}

func (g *Group) unlead() {
	if g.endTenure != nil {
		g.endTenure()
		g.endTenure = nil
	}
}

// reconcile moves the configuration towards what is wanted, for as long as this node
// leads. It is a goroutine.
func (g *Group) reconcile(ctx context.Context, term uint64) {
	timer := time.NewTimer(reviewSoon)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-g.review:
		case <-ctx.Done():
			return
		}
		a := decide(g.view(false))
		if a.what != nothing {
			a = decide(g.view(true))
		}
		next := reviewRarely
		if a.what != nothing {
			next = reviewSoon
		}
		if err := g.act(ctx, a); err != nil && ctx.Err() == nil {
			g.node.cfg.Log.Warn("a change of members failed", "group", g.id, "change", a.what.String(), "node", a.node, "replica", a.id, "error", err)
			next = 10 * reviewSoon
		}
		timer.Reset(next)
	}
}

// view gathers what decide needs; fresh asks the members first.
func (g *Group) view(fresh bool) *view {
	v := &view{self: g.replica, node: g.node.name(), joiners: map[string]string{}, leaving: map[string]bool{}}
	last, _ := g.tip()
	servers := g.servers()
	if fresh {
		g.askAll(servers)
	}
	for _, s := range servers {
		m := server{id: string(s.ID), node: string(s.Address), voter: s.Suffrage == raft.Voter}
		if m.id == g.replica {
			m.healthy, m.caughtUp = true, true
		} else if r, ok := g.node.reports.get(m.node, g.id); ok && r.replica == m.id && g.node.links.Online(m.node) {
			m.healthy = time.Since(r.at) < healthyMax
			_, term := g.tip()
			m.caughtUp = m.healthy && r.lastTerm == term && r.last+caughtUpBy >= last && r.applied+2*caughtUpBy >= g.applied.Load()
		}
		v.servers = append(v.servers, m)
	}
	m := &g.membership
	m.mu.Lock()
	defer m.mu.Unlock()
	v.set, v.voters, v.others = m.set, m.voters, m.others
	for node, j := range m.joiners {
		if time.Since(j.at) > joinerFresh {
			delete(m.joiners, node)
			continue
		}
		v.joiners[node] = j.replica
	}
	for id := range m.leaving {
		v.leaving[id] = true
	}
	return v
}

// askAll brings the reports of the members up to date.
func (g *Group) askAll(servers []raft.Server) {
	ctx, cancel := context.WithTimeout(g.ctx, askTimeout/4)
	defer cancel()
	done := make(chan struct{}, len(servers))
	for _, s := range servers {
		g.running.Go(func() {
			if node := string(s.Address); node != g.node.name() && g.node.links.Online(node) {
				_, _ = g.node.ask(ctx, node, g.id) // silence says enough
			}
			done <- struct{}{}
		})
	}
	for range servers {
		<-done
	}
}

// act makes one change and waits until it is committed.
func (g *Group) act(ctx context.Context, a action) error {
	if a.what == nothing || a.what == wait {
		return nil
	}
	g.node.cfg.Log.Info("changing the members of a group", "group", g.id, "change", a.what.String(), "node", a.node, "replica", a.id)
	id, addr := raft.ServerID(a.id), raft.ServerAddress(a.node)
	var f raft.IndexFuture
	switch a.what {
	case add:
		f = g.raft.AddNonvoter(id, addr, 0, changeMax)
	case promote, readdr:
		f = g.raft.AddVoter(id, addr, 0, changeMax)
	case demote:
		f = g.raft.DemoteVoter(id, 0, changeMax)
	case takeOut:
		f = g.raft.RemoveServer(id, 0, changeMax)
	case handOver:
		return g.transfer(ctx, a.node)
	}
	err := g.await(ctx, f)
	if err == nil && a.what == takeOut {
		g.membership.mu.Lock()
		delete(g.membership.leaving, a.id)
		g.membership.mu.Unlock()
	}
	if err == nil {
		signal(g.reshaped)
	}
	return err
}

// await waits for a future of raft, which may never come (#498).
func (g *Group) await(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }() // ends with raft, at the latest
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
