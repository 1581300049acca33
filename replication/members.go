package replication

import (
	"time"

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
	// LastContact is when the member last reported to this node; zero for never.
	LastContact time.Time
}

// SetMembers says which nodes shall hold the group: voters vote, others hold a copy.
// Whoever leads moves the configuration towards it, one change at a time and never
// below a quorum of healthy voters; it is kept until it is changed, and every node
// should be told the same. Before it is called the configuration stays as it is, and
// only replicas of nodes in it may come back. Without a network it does nothing.
func (g *Group) SetMembers(voters, others []string) {}

// Members returns the group's configuration, voters first, by node. What the members
// have is at most about a second old.
func (g *Group) Members() []Member { return nil }
