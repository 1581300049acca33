package replication

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// A leader that can't store anything is of no use while others can. With a full disk
// it hands its leads over as soon as somebody proposes, and what is proposed meanwhile
// waits; with a disk that hangs it can't even step down, since raft waits for the disk,
// so it stops sending heartbeats and asks another one to stand.

const (
	wayMax   = 5 * time.Second
	wayAgain = time.Second // after an attempt in vain
)

// makeWay has another node lead that has space, and tells whether that is under way:
// then proposals should wait.
func (g *Group) makeWay() bool {
	if g.node.links == nil || !g.othersHaveSpace() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.makingWay {
		return true
	}
	if !g.leading || g.closed || time.Since(g.inVain) < wayAgain {
		return false
	}
	g.makingWay, g.held = true, true
	g.running.Go(func() {
		ctx, cancel := context.WithTimeout(g.ctx, wayMax)
		defer cancel()
		err := g.Transfer(ctx, "")
		g.mu.Lock()
		g.makingWay = false
		if err != nil && !errors.Is(err, ErrNotLeader) {
			g.inVain = time.Now()
		}
		g.mu.Unlock()
		g.resume()
		if err == nil {
			g.node.cfg.Log.Warn("the disk is full: another node leads", "group", g.id)
		} else if !errors.Is(err, ErrNotLeader) && g.ctx.Err() == nil {
			g.node.cfg.Log.Warn("the disk is full, and no other node could take the lead", "group", g.id, "error", err)
		}
	})
	return true
}

// othersHaveSpace tells whether another voter may have space, as far as is known.
func (g *Group) othersHaveSpace() bool {
	for _, s := range g.servers() {
		if s.Suffrage != raft.Voter || string(s.ID) == g.replica || !g.node.links.Online(string(s.Address)) {
			continue
		}
		if r, ok := g.node.reports.get(string(s.Address), g.id); !ok || !r.full {
			return true
		}
	}
	return false
}

// NoSpace tells whether the node's disk is too full for more.
func (n *Node) NoSpace() bool { return n.wal.NoSpace() }

// hung tells whether a write is taking so long that the disk may hang.
func (n *Node) hung() bool { return n.slow.Load() > 0 }

// slowed is told of writes that take too long, and of their end.
func (n *Node) slowed(by int) {
	if n.slow.Add(int32(by)) <= 0 || by < 0 || n.links == nil {
		return
	}
	for _, g := range n.running() {
		if _, leads := g.Leader(); leads {
			g.spawn(g.flee)
		}
	}
}

// flee asks another node to stand for election, though this one can't step down. It
// has told nothing to anybody since the disk hangs, so nobody's log is behind for it.
func (g *Group) flee() {
	ctx, cancel := context.WithTimeout(g.ctx, catchUpMax)
	defer cancel()
	target, err := g.successor(ctx, "")
	if err == nil {
		req := g.timeoutNow()
		err = g.trans.TimeoutNow(target.ID, target.Address, &req, &raft.TimeoutNowResponse{})
	}
	if err != nil && g.ctx.Err() == nil {
		g.node.cfg.Log.Warn("the disk hangs, and the lead could not be handed over; the others will notice", "group", g.id, "error", err)
		return
	}
	g.node.cfg.Log.Warn("the disk hangs: another node was asked to lead", "group", g.id, "node", string(target.Address))
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
