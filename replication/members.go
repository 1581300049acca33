package replication

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/topics"
)

// Member is one replica in a group's configuration.
type Member struct {
	Node    string // the name its peers know it by
	Replica string // its Raft id: name/incarnation
	Voter   bool
	Leader  bool
	Online  bool         // connected to this node, or this node itself
	Match   topics.Index // last entry of its log, as far as this node knows; the leader knows best
	Applied topics.Index // likewise
	// Lag is how many entries this node had more when it asked the member; of use on the
	// leader. What came since then doesn't count, unless the member isn't online.
	Lag uint64
	// LastContact is when the member last reported to this node; zero for never.
	LastContact time.Time
}

// membership is what the members of a group should be.
type membership struct {
	mu      sync.Mutex
	set     bool
	voters  []string
	others  []string
	joiners map[string]joiner // by node: replicas that ask to be let in
	leaving map[string]bool   // replicas that ask to be taken out
}

// joiner is a replica that asks to be let in.
type joiner struct {
	replica string
	at      time.Time
}

// SetMembers says which nodes shall hold the group: voters vote, others hold a copy.
// Whoever leads moves the configuration towards it, one change at a time and never
// below a quorum of healthy voters; it is kept until it is changed, and every node
// should be told the same. Before it is called the configuration stays as it is.
// Without a network it does nothing.
func (g *Group) SetMembers(voters, others []string) {
	m := &g.membership
	m.mu.Lock()
	same := m.set && slices.Equal(m.voters, voters) && slices.Equal(m.others, others)
	m.set, m.voters, m.others = true, slices.Clone(voters), slices.Clone(others)
	m.mu.Unlock()
	if !same {
		signal(g.review)
	}
}

// Members returns the group's configuration, voters first, by node. What the members
// have is at most about a second old.
func (g *Group) Members() []Member {
	leader, _ := g.Leader()
	var members []Member
	for _, s := range g.servers() {
		node := string(s.Address)
		m := Member{Node: node, Replica: string(s.ID), Voter: s.Suffrage == raft.Voter, Leader: node == leader}
		switch {
		case m.Replica == g.replica:
			last, _ := g.tip()
			m.Online, m.Match, m.Applied, m.LastContact = true, topics.Index(last), topics.Index(g.applied.Load()), time.Now()
		case g.node.links != nil:
			m.Online = g.node.links.Online(node)
			if r, ok := g.node.reports.get(node, g.id); ok && r.replica == m.Replica {
				m.Match, m.Applied, m.LastContact = topics.Index(r.last), topics.Index(r.applied), r.at
				if !m.Online {
					r.mine, _ = g.tip()
				}
				m.Lag = r.mine - min(r.mine, r.last)
			}
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b Member) int {
		if a.Voter != b.Voter {
			if a.Voter {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Node, b.Node)
	})
	return members
}
