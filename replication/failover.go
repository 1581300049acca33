package replication

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// rankEvery separates the candidates for the place of a leader that is dead: the
	// best placed should be elected before the next one stands.
	rankEvery = 150 * time.Millisecond
	rankAsk   = 100 * time.Millisecond
	// rankSettle lets what the dead leader sent last be stored before logs are compared: two
	// that compare at different times would both think theirs the longest, and nobody wins.
	rankSettle = 10 * time.Millisecond
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
// for the heartbeat timeout, which is there to tell slow from dead. A group without a
// leader may be one that another node has already stood for.
func (n *Node) peerDead(node string) {
	for _, g := range n.running() {
		if leader, _ := g.Leader(); leader == node || leader == "" {
			g.spawn(func() { g.succeed(node, leader == "") })
		}
	}
}

// succeed stands for election in the place of a dead leader until there is another one, for
// about as long as it would take without. Of several nodes the one with the longest log
// goes first. Which one that is may have been misjudged, since what the dead leader sent is
// still being stored: then the others have the term of one who can't be elected, or two
// stood at once, and it is tried again. Somebody who has stood already is given time first.
func (g *Group) succeed(dead string, stood bool) {
	first := g.raft.CurrentTerm()
	settle := rankSettle
	if stood {
		settle = rankEvery
	}
	if !g.wait(settle) {
		return
	}
	for end := time.Now().Add(2 * g.node.cfg.HeartbeatTimeout); time.Now().Before(end); {
		term := g.raft.CurrentTerm()
		rank := g.rank(dead)
		if !g.wait(time.Duration(rank)*rankEvery) || g.succeeded(dead, first) {
			return
		}
		if g.raft.CurrentTerm() == term {
			g.node.cfg.Log.Info("the leader's process has ended: standing for election", "group", g.id, "leader", dead, "rank", rank, "term", term)
			g.Campaign()
		}
		// Whoever stood is to be left in peace until it leads.
		if !g.wait(rankEvery+rand.N(rankEvery/2)) || g.succeeded(dead, first) {
			return
		}
	}
}

// succeeded tells whether there is a leader again, which may be the dead one's next process.
func (g *Group) succeeded(dead string, first uint64) bool {
	leader, _ := g.Leader()
	return leader != "" && (leader != dead || g.raft.CurrentTerm() > first)
}

// wait returns false if the group is closed meanwhile.
func (g *Group) wait(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-g.stop:
		return false
	}
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
