package peer

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/heraldmq/herald/replication/peer/handshake"
	"github.com/heraldmq/herald/replication/peer/wire"
	"github.com/heraldmq/herald/topics"
)

// Network is this node's end of all its connections. Its methods may be called at
// once.
type Network struct {
	o       Options
	log     *slog.Logger
	shake   *handshake.Handshaker
	self    handshake.Self
	ln      net.Listener
	born    time.Time
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup
	waiting guests

	mu         sync.Mutex
	started    bool
	closed     bool
	links      map[string]*link
	connected  chan struct{}     // closed and replaced when a peer comes up
	unwelcome  map[string]string // names that are refused, and why
	known      map[string]host   // nodes by name, without this one
	targets    map[string]*target
	lost       map[string]bool // went down; nobody has found out yet whether somebody listens there
	greeting   map[string]bool // in a handshake that we began
	status     map[string][]byte
	handlers   map[string]Handler
	streams    map[string]func(ctx context.Context, from string, body []byte, w io.Writer) error
	channels   []channelRange
	receivers  map[receiverKey]*receiver
	transports map[topics.GroupID]*Transport
	snapshots  map[uint64]*outgoing
	complaints map[string]time.Time

	events events

	beatMu sync.Mutex
	beat   chan struct{} // closed at the next beat; nil when nobody waits for it
}

// Open binds the address. Nobody is dialed or let in until Start. Without a secret
// or certificates only addresses of this machine are allowed.
func Open(o Options) (*Network, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if strings.Contains(o.Name, "/") {
		return nil, fmt.Errorf("peer: the name of a node has no slash: %q", o.Name)
	}
	listen := net.JoinHostPort(strings.Trim(o.Host, "[]"), strconv.Itoa(o.Port))
	if o.Secret == "" && o.TLS == nil {
		for _, addr := range append([]string{listen}, o.Routes...) {
			if !handshake.Loopback(addr) {
				return nil, fmt.Errorf("peer: %s can be reached by others and nothing protects the cluster: %s", addr, handshake.Advice)
			}
		}
	}
	for _, r := range o.Routes {
		if _, _, err := net.SplitHostPort(r); err != nil {
			return nil, fmt.Errorf("peer: the route %q is no host:port: %w", r, err)
		}
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("peer: listen for other nodes: %w", err)
	}
	n := &Network{
		o: o, log: o.Log, ln: ln, born: time.Now(),
		links: map[string]*link{}, connected: make(chan struct{}), unwelcome: map[string]string{}, known: map[string]host{},
		targets: map[string]*target{}, lost: map[string]bool{}, greeting: map[string]bool{}, status: map[string][]byte{},
		handlers:  map[string]Handler{},
		streams:   map[string]func(ctx context.Context, from string, body []byte, w io.Writer) error{},
		receivers: map[receiverKey]*receiver{}, transports: map[topics.GroupID]*Transport{},
		snapshots: map[uint64]*outgoing{}, complaints: map[string]time.Time{},
	}
	n.events.wake.L = &n.events.mu
	n.ctx, n.cancel = context.WithCancel(context.Background())
	var boot [8]byte
	if _, err := rand.Read(boot[:]); err != nil {
		_ = ln.Close()
		return nil, fmt.Errorf("peer: %w", err)
	}
	n.self = handshake.Self{
		Name: o.Name, Addr: o.Advertise, Version: o.Version,
		Boot: binary.LittleEndian.Uint64(boot[:]), Stamp: uint64(n.born.UnixNano()),
	}
	if n.self.Addr == "" {
		n.self.Addr = ln.Addr().String()
	}
	n.shake, err = handshake.New(handshake.Config{
		Self: n.self, Cluster: o.Cluster, Format: o.Format, Secret: o.Secret, TLS: o.TLS, Wrap: o.Wrap,
	})
	if err != nil {
		_ = ln.Close()
		return nil, err
	}
	n.streams[snapshotMethod] = n.serveSnapshot
	for _, r := range o.Routes {
		n.targets[r] = newTarget(r, true)
	}
	return n, nil
}

// Start begins to accept and to dial. What handles is registered before.
func (n *Network) Start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.started || n.closed {
		return
	}
	n.started = true
	n.work.Go(n.accept)
	n.work.Go(n.tick)
	n.work.Go(n.events.run)
	for _, t := range n.targets {
		n.work.Go(func() { n.keepDialing(t) })
	}
}

// Close says goodbye to all peers, ends the connections and waits until every
// handler has returned. No event is reported afterwards.
func (n *Network) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		n.work.Wait()
		return nil
	}
	n.closed = true
	links := slices.Collect(maps.Values(n.links))
	transports := slices.Collect(maps.Values(n.transports))
	n.mu.Unlock()
	err := n.ln.Close()
	for _, t := range transports {
		_ = t.Close()
	}
	for _, l := range links {
		l.leave(handshake.OK, "it is shutting down")
	}
	n.cancel()
	n.events.close()
	n.waiting.closeAll()
	n.work.Wait()
	return err
}

// begin counts one more goroutine in, unless the network is closed. Not for those
// that hold mu.
func (n *Network) begin() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.work.Add(1)
	return true
}

// Addr is where the network listens.
func (n *Network) Addr() net.Addr { return n.ln.Addr() }

// Name is this node's.
func (n *Network) Name() string { return n.o.Name }

// Cluster is the name of the cluster.
func (n *Network) Cluster() string { return n.o.Cluster }

// Advertised is the address that others are told.
func (n *Network) Advertised() string { return n.self.Addr }

func (n *Network) uptime() time.Duration { return time.Since(n.born) }

// link returns the link to a peer that is up, or nil.
func (n *Network) link(name string) *link {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.links[name]; l != nil && l.up {
		return l
	}
	return nil
}

func (n *Network) tick() {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case now := <-ticker.C:
			n.mu.Lock()
			links := slices.Collect(maps.Values(n.links))
			n.mu.Unlock()
			for _, l := range links {
				l.tick(now)
			}
		}
	}
}

// complain logs what may happen again and again, once a minute for each key.
func (n *Network) complain(key, text string, args ...any) {
	n.mu.Lock()
	now := time.Now()
	quiet := now.Sub(n.complaints[key]) < time.Minute
	if !quiet {
		if len(n.complaints) > 1000 {
			clear(n.complaints)
		}
		n.complaints[key] = now
	}
	n.mu.Unlock()
	if !quiet {
		n.log.Warn(text, args...)
	}
}

// SetStatus tells all peers a value of at most StatusBytesMax bytes, now and when
// they connect; nil removes it. A longer value panics: what is told is small and
// bounded by whoever tells it.
func (n *Network) SetStatus(key string, value []byte) {
	if len(value) > StatusBytesMax || len(key) > 256 {
		panic(fmt.Sprintf("peer: the status %q has %d bytes, at most %d are allowed", key, len(value), StatusBytesMax))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	old, there := n.status[key]
	if value == nil && !there || value != nil && there && bytes.Equal(old, value) {
		return
	}
	if value == nil {
		delete(n.status, key)
	} else {
		value = append([]byte{}, value...)
		n.status[key] = value
	}
	for _, l := range n.links {
		if l.greeted {
			_ = l.out.push(wire.Call, 0, statusMessage(key, value))
		}
	}
}

func statusMessage(key string, value []byte) message {
	b := wire.AppendString([]byte{callStatus}, key)
	if value == nil {
		return newMessage(append(b, 0))
	}
	return newMessage(append(append(b, 1), value...))
}

// greet tells a new peer what it should know of this node and the cluster.
func (l *link) greet() {
	n := l.n
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, value := range n.status {
		_ = l.out.push(wire.Call, 0, statusMessage(key, value))
	}
	_ = l.out.push(wire.Call, 0, n.hostsMessage())
	_ = l.out.push(wire.Call, 0, newMessage([]byte{callReady}))
	l.greeted = true
}

// statusOf keeps what a peer tells of itself.
func (n *Network) statusOf(l *link, key string, there bool, value []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.gone || len(value) > StatusBytesMax || len(l.status) >= 256 && l.status[key] == nil {
		return
	}
	if there {
		l.status[key] = value
	} else {
		delete(l.status, key)
	}
	if l.up {
		n.events.add(Event{Kind: Status, Peer: l.peer(), Key: key})
	}
}

// linkUp reports a peer once it has said everything that it says first.
func (n *Network) linkUp(l *link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.gone || l.up {
		return
	}
	l.up = true
	close(n.connected)
	n.connected = make(chan struct{})
	delete(n.lost, l.name)
	n.log.Info("connected to a peer", "peer", l.name, "addr", l.remote.Addr, "version", l.remote.Version, "dialed_by", l.dialer)
	n.events.add(Event{Kind: Up, Peer: l.peer()})
}

// peer describes the other side. Holds Network.mu.
func (l *link) peer() Peer {
	return Peer{
		Name: l.name, Addr: l.remote.Addr, Version: l.remote.Version, Status: maps.Clone(l.status),
		Since: l.since, RTT: time.Duration(l.rtt.Load()), Silent: l.missed.Load() >= silentPings,
	}
}

// Peers returns who is connected, by name.
func (n *Network) Peers() []Peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []Peer
	for _, l := range n.links {
		if l.up {
			out = append(out, l.peer())
		}
	}
	slices.SortFunc(out, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Peer returns one connected peer.
func (n *Network) Peer(name string) (Peer, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.links[name]; l != nil && l.up {
		return l.peer(), true
	}
	return Peer{}, false
}

// OnChange registers who is told of changes: in the order they happened in, on one
// goroutine that all listeners share. Before Start.
func (n *Network) OnChange(f func(Event)) {
	n.events.mu.Lock()
	defer n.events.mu.Unlock()
	n.events.listeners = append(n.events.listeners, f)
}
