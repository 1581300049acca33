package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/heraldmq/herald/topics"
)

// States of a node.
const (
	Active   = "active"   // holds topics
	Draining = "draining" // its groups are being moved away
	Drained  = "drained"  // none is left on it
	Removed  = "removed"
	Joining  = "joining" // connected, not yet in the table of nodes
	Live     = "live"    // carries live messages only: durable topics are off
)

// Status is the answer to STATUS.
type Status struct {
	Cluster string    `json:"cluster"`
	Server  string    `json:"server"` // who answered
	Time    time.Time `json:"time"`
	Healthy bool      `json:"healthy"`
	Nodes   []Node    `json:"nodes"`
	Groups  []Group   `json:"groups"`
	Damage  []Damage  `json:"damage"`
	Advice  []string  `json:"advice"` // what to do next, most urgent first
}

// Node is one node of the cluster.
type Node struct {
	Name    string        `json:"name"`
	ID      string        `json:"id,omitempty"` // server id
	State   string        `json:"state"`
	Online  bool          `json:"online"`
	Ready   bool          `json:"ready"`
	Reasons []string      `json:"reasons,omitempty"` // why it isn't ready
	Address string        `json:"address,omitempty"` // for other nodes
	Client  string        `json:"client_url,omitempty"`
	Version string        `json:"version,omitempty"`
	Started time.Time     `json:"started,omitzero"`
	RTT     time.Duration `json:"rtt_ns,omitempty"`
	Groups  int           `json:"groups"` // replicas of data groups it holds
	Leads   int           `json:"leads"`  // data groups it leads
}

// Group is one group of the cluster; 0 is the catalogue.
type Group struct {
	ID        topics.GroupID `json:"id"`
	Replicas  int            `json:"replicas"` // wanted
	Leader    string         `json:"leader,omitempty"`
	Term      uint64         `json:"term"`
	Topics    int            `json:"topics"`
	Last      topics.Index   `json:"last"`
	Committed topics.Index   `json:"committed"`
	Members   []Member       `json:"members"`
}

// Member is one replica of a group.
type Member struct {
	Node    string        `json:"node"`
	Replica string        `json:"replica,omitempty"`
	Voter   bool          `json:"voter"`
	Online  bool          `json:"online"`
	Applied topics.Index  `json:"applied"`
	Lag     uint64        `json:"lag"`                  // entries behind the leader
	Contact time.Duration `json:"contact_ns,omitempty"` // since it answered the leader
}

// Damage is something on a node's disk that can't be used.
type Damage struct {
	Node   string         `json:"node"`
	Group  topics.GroupID `json:"group"`
	What   string         `json:"what"`
	Action string         `json:"action"` // what the node did about it
	Files  string         `json:"files,omitempty"`
	Time   time.Time      `json:"time,omitzero"`
}

// Report is what one node knows: of itself, of the table of nodes, of its groups.
type Report struct {
	Node   Node     `json:"node"`
	Table  []Node   `json:"table"`
	Groups []Group  `json:"groups"` // Members only where this node leads
	Damage []Damage `json:"damage"`
}

// merge makes one status of the reports of all nodes that answered; the first is
// of the node that was asked. linked tells the round trip to connected peers.
func merge(reports []Report, linked map[string]time.Duration) Status {
	s := Status{Server: reports[0].Node.Name, Damage: []Damage{}, Advice: []string{}}
	nodes := map[string]*Node{}
	for i := range reports { // any table will do, as all of them become the same
		for _, n := range reports[i].Table {
			if nodes[n.Name] == nil {
				nodes[n.Name] = &n
			}
		}
	}
	for name, rtt := range linked {
		if nodes[name] == nil {
			nodes[name] = &Node{Name: name, State: Joining}
		}
		nodes[name].Online, nodes[name].RTT = true, rtt
	}
	groups := map[topics.GroupID]*Group{}
	source := map[topics.GroupID]string{} // who said what is in groups
	applied := map[topics.GroupID]map[string]topics.Index{}
	for _, r := range reports {
		n := r.Node
		n.Online, n.State = true, cmp.Or(n.State, Joining)
		if had := nodes[n.Name]; had != nil {
			if n.State != Live {
				n.State = had.State
			}
			n.RTT = had.RTT
			n.Address = cmp.Or(n.Address, had.Address)
		}
		nodes[n.Name] = &n
		s.Damage = append(s.Damage, r.Damage...)
		for _, g := range r.Groups {
			if applied[g.ID] == nil {
				applied[g.ID] = map[string]topics.Index{}
			}
			for _, m := range g.Members {
				if m.Node == n.Name {
					applied[g.ID][n.Name] = m.Applied
				}
			}
			if had := groups[g.ID]; had == nil || better(&g, n.Name, had, source[g.ID]) {
				groups[g.ID], source[g.ID] = &g, n.Name
			}
		}
	}
	for id, g := range groups {
		g.count(nodes, applied[id])
		s.Groups = append(s.Groups, *g)
	}
	for _, n := range nodes {
		if n.State == Draining && n.Groups == 0 {
			n.State = Drained
		}
		s.Nodes = append(s.Nodes, *n)
	}
	slices.SortFunc(s.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Groups, func(a, b Group) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(s.Damage, func(a, b Damage) int { return a.Time.Compare(b.Time) })
	s.Advice = advise(&s)
	s.Healthy = len(s.Advice) == 0
	return s
}

// count completes the members of a group from what is known of the nodes, and counts
// the group for each of them.
func (g *Group) count(nodes map[string]*Node, applied map[string]topics.Index) {
	for i := range g.Members {
		m := &g.Members[i]
		m.Applied = max(m.Applied, applied[m.Node])
		n := nodes[m.Node]
		m.Online = n != nil && n.Online
		if g.ID == 0 || n == nil {
			continue
		}
		n.Groups++
		if m.Node == g.Leader {
			n.Leads++
		}
	}
	slices.SortFunc(g.Members, func(a, b Member) int { return cmp.Compare(a.Node, b.Node) })
}

// better tells whether what a node says of a group is to be believed more than
// what was said before: who leads in the higher term knows.
func better(g *Group, from string, had *Group, hadFrom string) bool {
	if leads := g.Leader == from; leads != (had.Leader == hadFrom) {
		return leads
	}
	return g.Term > had.Term || g.Term == had.Term && had.Leader == "" && g.Leader != ""
}
