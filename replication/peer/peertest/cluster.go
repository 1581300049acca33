package peertest

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/replication/peer"
)

// Cluster is the networks of some nodes on this machine, and what is wrong between
// them.
type Cluster struct {
	*Faults
	t      testing.TB
	names  []string
	addrs  map[string]*net.TCPAddr
	mu     sync.Mutex
	nets   map[string]*peer.Network
	change func(*peer.Options)
}

// New opens a network for each name; all have each other as routes. They are closed
// with the test.
func New(t testing.TB, names ...string) *Cluster {
	t.Helper()
	c := NewUnopened(t, names...)
	for _, name := range names {
		c.Reopen(name)
	}
	return c
}

// NewUnopened reserves an address for each name and opens none: Options tells how.
func NewUnopened(t testing.TB, names ...string) *Cluster {
	t.Helper()
	c := &Cluster{Faults: NewFaults(), t: t, names: names, addrs: map[string]*net.TCPAddr{}, nets: map[string]*peer.Network{}}
	var reserved []net.Listener
	for _, name := range names {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c.addrs[name] = ln.Addr().(*net.TCPAddr)
		reserved = append(reserved, ln)
	}
	for _, ln := range reserved {
		_ = ln.Close()
	}
	t.Cleanup(c.CloseAll)
	return c
}

// Change lets f change the options of all networks opened from now on.
func (c *Cluster) Change(f func(*peer.Options)) { c.change = f }

// Options is what the network of a node is opened with.
func (c *Cluster) Options(name string) peer.Options {
	o := peer.Options{
		Name: name, Cluster: "test", Port: c.addrs[name].Port, Secret: "user:password",
		Version: "test", Format: 1, Wrap: c.Wrap(name), Log: slog.New(slog.DiscardHandler),
	}
	for _, other := range c.names {
		if other != name {
			o.Routes = append(o.Routes, c.addrs[other].String())
		}
	}
	if c.change != nil {
		c.change(&o)
	}
	return o
}

// Addr is where a node listens.
func (c *Cluster) Addr(name string) string { return c.addrs[name].String() }

// Net is the network of a node.
func (c *Cluster) Net(name string) *peer.Network {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nets[name]
}

// Reopen opens a node's network, which is closed or was never open, as a new process
// would. It is not started.
func (c *Cluster) Reopen(name string) *peer.Network {
	c.t.Helper()
	return c.Open(name, c.Options(name))
}

// Open is Reopen with options that differ.
func (c *Cluster) Open(name string, o peer.Options) *peer.Network {
	c.t.Helper()
	n, err := peer.Open(o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nets[name] = n
	return n
}

// Kill closes a node's network: its peers see the connections end, and nobody
// listens any more.
func (c *Cluster) Kill(name string) {
	c.mu.Lock()
	n := c.nets[name]
	delete(c.nets, name)
	c.mu.Unlock()
	if n != nil {
		_ = n.Close()
	}
}

// CloseAll closes all networks.
func (c *Cluster) CloseAll() {
	c.HealAll()
	for _, name := range c.names {
		c.Kill(name)
	}
}

// Start starts all networks and waits until they are connected.
func (c *Cluster) Start() {
	c.t.Helper()
	for _, name := range c.names {
		if n := c.Net(name); n != nil {
			n.Start()
		}
	}
	c.WaitConnected(c.names...)
}

// WaitConnected waits until the named nodes all have each other as peers.
func (c *Cluster) WaitConnected(names ...string) {
	c.t.Helper()
	for _, a := range names {
		for _, b := range names {
			if a != b {
				c.WaitPeer(a, b, true)
			}
		}
	}
}

// WaitPeer waits until a has b as a peer, or hasn't.
func (c *Cluster) WaitPeer(a, b string, connected bool) {
	c.t.Helper()
	c.Wait(a+" and "+b, func() bool {
		_, ok := c.Net(a).Peer(b)
		return ok == connected
	})
}

// Wait waits for a condition, at most 20 s.
func (c *Cluster) Wait(what string, cond func() bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for !cond() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			c.t.Fatalf("still waiting for: %s", what)
		}
	}
}
