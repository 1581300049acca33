package replication

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// rankEvery separates the candidates for the place of a leader that is dead: the
	// best placed should be elected before the next one stands.
	rankEvery = 150 * time.Millisecond
	rankAsk   = 100 * time.Millisecond
)

// peerUp is told that a node was connected.
func (n *Node) peerUp(node string) {
	for _, g := range n.running() {
		if _, leads := g.Leader(); leads {
			signal(g.review)
		}
	}
	n.forming.kick()
}

// peerDead is told that the process of a node has ended: whoever it led needn't wait
// for the heartbeat timeout, which is there to tell slow from dead.
func (n *Node) peerDead(node string) {
	for _, g := range n.running() {
		if leader, _ := g.Leader(); leader == node {
			g.spawn(func() { g.succeed(node) })
		}
	}
}

// succeed stands for election in the place of a dead leader, unless there is another
// one by then. Of several nodes the one with the longest log goes first.
func (g *Group) succeed(dead string) {
	term := g.raft.CurrentTerm()
	rank := g.rank(dead)
	select {
	case <-time.After(time.Duration(rank) * rankEvery):
	case <-g.stop:
		return
	}
	if leader, _ := g.Leader(); leader != dead && leader != "" || g.raft.CurrentTerm() != term {
		return
	}
	g.node.cfg.Log.Info("the leader's process has ended: standing for election", "group", g.id, "leader", dead, "rank", rank)
	g.Campaign()
}

// rank returns how many of the other voters are better placed to lead.
func (g *Group) rank(dead string) int {
	last, term := g.tip()
	servers := g.servers()
	if g.noSpace() {
		return len(servers) // only if nobody else does
	}
	ctx, cancel := context.WithTimeout(g.ctx, rankAsk)
	defer cancel()
	better := make(chan bool, len(servers))
	for _, s := range servers {
		node := string(s.Address)
		if s.Suffrage != raft.Voter || string(s.ID) == g.replica || node == dead || !g.node.links.Online(node) {
			better <- false
			continue
		}
		g.running.Go(func() {
			r, err := g.node.ask(ctx, node, g.id)
			switch {
			case err != nil || r.replica != string(s.ID):
				better <- false
			case r.lastTerm != term:
				better <- r.lastTerm > term
			case r.last != last:
				better <- r.last > last
			default:
				better <- node < g.node.name()
			}
		})
	}
	rank := 0
	for range servers {
		if <-better {
			rank++
		}
	}
	return rank
}
