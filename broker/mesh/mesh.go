package mesh

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication/peer"
)

// Errors of Forward.
var (
	// ErrNoPeer: there is no connection to that node, or it is this one.
	ErrNoPeer = errors.New("mesh: not connected to the node")
	// ErrFull: too much waits for that node.
	ErrFull = errors.New("mesh: too much is waiting for the node")
	// ErrForwarded: the message came from another node already.
	ErrForwarded = errors.New("mesh: the message was forwarded before")
)

// Network is what the mesh needs of a peer.Network.
type Network interface {
	Name() string
	SetStatus(key string, value []byte)
	Peers() []peer.Peer
	OnChange(f func(peer.Event))
	HandleChannel(lo, hi peer.Channel, h func(from string, c peer.Channel, chunk []byte))
	Send(to string, c peer.Channel, chunk []byte) error
	Queued(to string, c peer.Channel) int64
	WaitRoom(ctx context.Context, to string, c peer.Channel, below int64) error
}

// Options of a Mesh. Network and Server are required.
type Options struct {
	Network Network // not started yet
	Server  *front.Server
	// NoAdvertise keeps the addresses for clients from the other nodes, and theirs
	// from clients.
	NoAdvertise bool
	Log         *slog.Logger // nil discards
}

// Mesh is this node's part of the cluster's live messages.
type Mesh struct {
	o    Options
	net  Network
	srv  *front.Server
	log  *slog.Logger
	told atomic.Uint64 // changes of interest that were sent
	wake chan struct{} // holds at most one signal

	stop chan struct{}
	wait sync.WaitGroup

	// telling makes changes of interest leave one after another. It is taken
	// before a peer's locks.
	telling sync.Mutex

	gossiping sync.Mutex
	gossiped  status
	recent    map[string]recent // what peers that are or were connected told, by name

	mu     sync.Mutex
	peers  map[string]*link
	warned map[string]bool // accounts that this node doesn't know
}

// New registers with the network and the server. Both are started afterwards.
func New(o Options) *Mesh {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Mesh{
		o: o, net: o.Network, srv: o.Server, log: o.Log,
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
		recent: map[string]recent{}, peers: map[string]*link{}, warned: map[string]bool{},
	}
	m.net.OnChange(m.changed)
	m.net.HandleChannel(peer.ChannelMesh, peer.ChannelMesh, m.receive)
	m.srv.Join((*hooks)(m))
	return m
}

// Start begins to tell the other nodes. Call it once the server listens, so that
// its address is known.
func (m *Mesh) Start() {
	m.tellStatus()
	m.wait.Go(m.run)
}

// Close stops it, before the network and the server are closed.
func (m *Mesh) Close() {
	m.mu.Lock()
	if !m.stopping() {
		close(m.stop)
	}
	m.mu.Unlock()
	m.wait.Wait()
}

// spawn runs f unless the mesh is closed.
func (m *Mesh) spawn(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.stopping() {
		m.wait.Go(f)
	}
}

func (m *Mesh) stopping() bool {
	select {
	case <-m.stop:
		return true
	default:
		return false
	}
}

// Forward hands a message to the internal services of another node, as if it had
// been published there by the same client. The message's permissions have been
// checked here. It never blocks; the bytes are copied.
func (m *Mesh) Forward(to string, msg *front.Message) error {
	if msg.Forwarded != "" {
		return ErrForwarded
	}
	m.mu.Lock()
	l := m.peers[to]
	m.mu.Unlock()
	if l == nil {
		return ErrNoPeer
	}
	return l.forward(front.AppendForward(nil, msg))
}

// Route describes the connection to one peer, for monitoring.
type Route struct {
	Name, ServerID, Version string
	Addr                    string // where it says that it listens
	Since                   time.Time
	RTT                     time.Duration
	InMsgs, InBytes         int64
	OutMsgs, OutBytes       int64
	Pending                 int64 // bytes
	Subscriptions           int   // subjects and queue groups that it listens to
	Dropped                 int64 // messages, because it took none
}
