package peer

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/topics"
)

var errStub = errors.New("peer: not implemented yet")

// Network is this node's end of all its connections. All methods may be called at
// once, the Handle functions only before Start.
type Network struct{ name string }

// Open binds the address and dials nobody until Start is called.
func Open(o Options) (*Network, error) { return nil, errStub }

// Start begins to accept and to dial. Handlers are registered before.
func (n *Network) Start() {}

// Close ends all connections and waits for every handler to return.
func (n *Network) Close() error { return nil }

// Addr is where the network listens.
func (n *Network) Addr() net.Addr { return nil }

// Name is this node's.
func (n *Network) Name() string { return n.name }

// SetStatus tells all peers a value, now and when they connect. nil removes it.
func (n *Network) SetStatus(key string, value []byte) {}

// Peers returns who is connected, by name.
func (n *Network) Peers() []Peer { return nil }

// Peer returns one connected peer.
func (n *Network) Peer(name string) (Peer, bool) { return Peer{}, false }

// Routes returns each configured route.
func (n *Network) Routes() []Route { return nil }

// OnChange registers who is told of changes: in order, on one goroutine, which the
// listeners share. Before Start.
func (n *Network) OnChange(f func(Event)) {}

// Known returns the addresses of all nodes that this one has heard of.
func (n *Network) Known() []string { return nil }

// Disconnect ends the connection to a node and refuses it until Allow.
func (n *Network) Disconnect(name, why string) {}

// Allow undoes Disconnect.
func (n *Network) Allow(name string) {}

// Handle registers who answers a request.
func (n *Network) Handle(method string, h func(ctx context.Context, from string, body []byte) ([]byte, error)) {
}

// Call asks a peer.
func (n *Network) Call(ctx context.Context, to, method string, body []byte) ([]byte, error) {
	return nil, errStub
}

// HandleStream registers who writes a long answer.
func (n *Network) HandleStream(method string, h func(ctx context.Context, from string, body []byte, w io.Writer) error) {
}

// OpenStream asks a peer for a long answer.
func (n *Network) OpenStream(ctx context.Context, to, method string, body []byte) (io.ReadCloser, error) {
	return nil, errStub
}

// HandleChannel registers who gets the chunks of the channels lo to hi.
func (n *Network) HandleChannel(lo, hi Channel, h func(from string, c Channel, chunk []byte)) {}

// Send queues a chunk.
func (n *Network) Send(to string, c Channel, chunk []byte) error { return errStub }

// Queued is how many bytes of a channel wait to be sent to a peer.
func (n *Network) Queued(to string, c Channel) int64 { return 0 }

// WaitRoom waits until fewer than below bytes are Queued.
func (n *Network) WaitRoom(ctx context.Context, to string, c Channel, below int64) error {
	return errStub
}

// Transport is the raft transport of one replica: a raft.Transport, raft.WithPreVote
// and raft.WithClose.
type Transport struct {
	raft.Transport
	// Prefetch is called on a follower with the bytes of a snapshot before raft gets
	// them. Set before raft is started.
	Prefetch func(ctx context.Context, from string, manifest []byte) error
}

// Transport makes the transport of a replica of a group.
func (n *Network) Transport(group topics.GroupID, replica string) *Transport { return &Transport{} }

// RequestPreVote implements raft.WithPreVote.
func (t *Transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return errStub
}

// Close refuses RPCs from now on and fails those on their way.
func (t *Transport) Close() error { return nil }
