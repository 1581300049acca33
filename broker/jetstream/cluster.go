package jetstream

import (
	"context"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics"
)

// Cluster is what a service needs of the nodes beside its own; group 0 is the
// catalogue. Its methods are safe for any number of callers.
type Cluster interface {
	// Name is this node's.
	Name() string
	// Nodes are those that may hold replicas, reachable or not, this one included.
	Nodes() []string
	// Leader is the node that leads a group; "" when none is known, or when the one
	// that does is this one and isn't ready yet.
	Leader(g topics.GroupID) string
	// Ready tells whether the cluster has been formed, so that streams can be made.
	Ready() bool
	// Members are the replicas of a group, as this node sees them. Only its leader
	// knows how far the others have come.
	Members(g topics.GroupID) []Member
	// Linearize waits until this node has applied what anybody may have been told
	// of a group's state. For the catalogue it works on any node, else on the leader.
	Linearize(ctx context.Context, g topics.GroupID) error
	// Reached is how far this node's replica of a group is; where it has none, a number
	// that makes Reach ask the leader.
	Reached(g topics.GroupID) topics.Index
	// Reach waits until this node's replica of a group, if it has one, is as far.
	Reach(ctx context.Context, g topics.GroupID, i topics.Index) error
	// Transfer hands the lead of a group over, "" to whom suits best. Leader only.
	Transfer(ctx context.Context, g topics.GroupID, to string) error

	// Forward hands a message to the internal services of another node, as if it had
	// been published there; it doesn't block. What a client asked for before comes
	// before it, and so does its interest in the answer.
	Forward(node string, m *front.Message) error
	// Call asks another node and waits; both ways at most 1 MiB.
	Call(ctx context.Context, node, method string, body []byte) ([]byte, error)
	// Handle has other nodes' calls answered. It is called before the first can come.
	Handle(method string, h func(ctx context.Context, from string, body []byte) ([]byte, error))

	// RemoveNode takes a node out of the cluster, DrainNode only moves its replicas
	// elsewhere. Leader of the catalogue only.
	RemoveNode(ctx context.Context, node string) error
	DrainNode(ctx context.Context, node string) error
}

// Member is one replica of a group.
type Member struct {
	Node          string
	Voter, Leader bool
	Online        bool
	Lag           uint64        // entries behind the leader
	Active        time.Duration // since it was last heard of
}

// Patience of what needs another node.
const (
	leaderPatience = 4 * time.Second // for somebody to lead
	callPatience   = 3 * time.Second // for a node to answer
	seenPatience   = 2 * time.Second // for the asking client's node to see a change
	seenElsewhere  = 250 * time.Millisecond
)

// hopHeader is on a message that was handed on a second time: there is no third.
const hopHeader = "Herald-Forwarded"

// clustered tells whether there is more than one node, or may be.
func (s *Service) clustered() bool { return s.o.Peers != nil }

// leads tells whether this node answers for a group.
func (s *Service) leads(g topics.GroupID) bool {
	return s.o.Peers == nil || s.o.Peers.Leader(g) == s.o.Peers.Name()
}

// forward hands a message to the node that answers it; false when that can't be
// reached, or the message has been handed on twice.
func (s *Service) forward(node string, m *front.Message) bool {
	if m.Forwarded != "" {
		if hasHop(m.Header) {
			return false
		}
		c := *m
		c.Header, c.Forwarded = withHop(m.Header), ""
		m = &c
	}
	return s.o.Peers.Forward(node, m) == nil
}
