package jetstream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// Network is what Nodes need of the connections to the peers; *peer.Network is one.
type Network interface {
	Name() string
	Call(ctx context.Context, to, method string, body []byte) ([]byte, error)
	Handle(method string, h func(ctx context.Context, from string, body []byte) ([]byte, error))
	OpenStream(ctx context.Context, to, method string, body []byte) (io.ReadCloser, error)
	HandleStream(method string, h func(ctx context.Context, from string, body []byte, w io.Writer) error)
}

// Forwarder hands messages to the services of other nodes; *mesh.Mesh is one.
type Forwarder interface {
	Forward(to string, m *front.Message) error
}

// Nodes is the cluster as the replicated state and the network know it: the Cluster
// of a real one.
type Nodes struct {
	state   *state.State
	network Network
	mesh    Forwarder
	start   time.Time
	ready   atomic.Bool // has been, once
}

// formingMost is how long a node that has just started waits for everything to be up
// to date before it answers what is about the catalogue. Later it answers while some
// of its replicas are being filled.
const formingMost = 30 * time.Second

var _ Cluster = (*Nodes)(nil)

// NewNodes joins the rooms. It is called before the network is started.
func NewNodes(s *state.State, n Network, m Forwarder) *Nodes {
	c := &Nodes{state: s, network: n, mesh: m, start: time.Now()}
	n.Handle(callCatalogue, c.onCatalogue)
	return c
}

// Name is this node's.
func (c *Nodes) Name() string { return c.network.Name() }

// Nodes are all that weren't removed.
func (c *Nodes) Nodes() (names []string) {
	for _, n := range c.state.Nodes() {
		if n.State != catalogue.Removed {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		names = []string{c.Name()}
	}
	return names
}

// Leader implements Cluster.
func (c *Nodes) Leader(g topics.GroupID) string {
	var leads bool
	var leader string
	if g == topics.CatalogueGroup {
		if leads = c.state.IsCatalogueLeader(); !leads {
			leader = c.state.CatalogueLeader()
		}
	} else if group := c.state.Group(g); group != nil {
		if leads = group.IsLeader(); !leads {
			leader = group.Leader()
		}
	}
	switch {
	case leads:
		return c.Name()
	case leader == c.Name():
		return "" // it will be
	}
	return leader
}

// Ready implements Cluster.
func (c *Nodes) Ready() bool {
	if c.ready.Load() {
		return true
	}
	ok, _ := c.state.Ready()
	if ok || time.Since(c.start) > formingMost {
		c.ready.Store(true)
		return true
	}
	return false
}

// Members implements Cluster.
func (c *Nodes) Members(g topics.GroupID) []Member {
	var list []replication.Member
	if g == topics.CatalogueGroup {
		list = c.state.CatalogueMembers()
	} else if group := c.state.Group(g); group != nil {
		list = group.Members()
	}
	out := make([]Member, 0, len(list))
	for _, m := range list {
		member := Member{Node: m.Node, Voter: m.Voter, Leader: m.Leader, Online: m.Online, Lag: m.Lag}
		if !m.LastContact.IsZero() {
			member.Active = time.Since(m.LastContact)
		}
		out = append(out, member)
	}
	return out
}

// Linearize implements Cluster.
func (c *Nodes) Linearize(ctx context.Context, g topics.GroupID) error {
	if g != topics.CatalogueGroup {
		group := c.state.Group(g)
		if group == nil {
			return replication.ErrNotLeader
		}
		return group.Linearize(ctx)
	}
	if c.state.IsCatalogueLeader() {
		return c.state.LinearizeCatalogue(ctx)
	}
	leader := c.Leader(g)
	if leader == "" {
		return replication.ErrNotLeader
	}
	b, err := c.network.Call(ctx, leader, callCatalogue, nil)
	if err != nil {
		return fmt.Errorf("ask %s how far the catalogue is: %w", leader, err)
	}
	if len(b) != 8 {
		return errors.New("how far the catalogue is: a bad answer")
	}
	return c.state.Reach(ctx, g, topics.Index(binary.LittleEndian.Uint64(b)))
}

// Reached implements Cluster.
func (c *Nodes) Reached(g topics.GroupID) topics.Index { return c.state.Reached(g) }

// Reach implements Cluster.
func (c *Nodes) Reach(ctx context.Context, g topics.GroupID, i topics.Index) error {
	return c.state.Reach(ctx, g, i)
}

// onCatalogue tells how far the catalogue is.
func (c *Nodes) onCatalogue(ctx context.Context, _ string, _ []byte) ([]byte, error) {
	if err := c.state.LinearizeCatalogue(ctx); err != nil {
		return nil, err
	}
	return binary.LittleEndian.AppendUint64(nil, uint64(c.state.Reached(topics.CatalogueGroup))), nil
}

// Transfer implements Cluster.
func (c *Nodes) Transfer(ctx context.Context, g topics.GroupID, to string) error {
	if g == topics.CatalogueGroup {
		return c.state.TransferCatalogue(ctx, to)
	}
	group := c.state.Group(g)
	if group == nil {
		return replication.ErrNotLeader
	}
	return group.Transfer(ctx, to)
}

// Forward implements Cluster.
func (c *Nodes) Forward(node string, m *front.Message) error { return c.mesh.Forward(node, m) }

// Call implements Cluster.
func (c *Nodes) Call(ctx context.Context, node, method string, body []byte) ([]byte, error) {
	return c.network.Call(ctx, node, method, body)
}

// Handle implements Cluster.
func (c *Nodes) Handle(method string, h func(ctx context.Context, from string, body []byte) ([]byte, error)) {
	c.network.Handle(method, h)
}

// OpenStream asks another node for an answer of any length.
func (c *Nodes) OpenStream(ctx context.Context, node, method string, body []byte) (io.ReadCloser, error) {
	return c.network.OpenStream(ctx, node, method, body)
}

// HandleStream has other nodes' requests for such answers answered.
func (c *Nodes) HandleStream(method string, h func(ctx context.Context, from string, body []byte, w io.Writer) error) {
	c.network.HandleStream(method, h)
}

// RemoveNode implements Cluster.
func (c *Nodes) RemoveNode(ctx context.Context, node string) error {
	return c.state.RemoveNode(ctx, node)
}

// DrainNode implements Cluster.
func (c *Nodes) DrainNode(ctx context.Context, node string) error {
	return c.state.DrainNode(ctx, node)
}
