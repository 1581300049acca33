package mesh

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/heraldmq/herald/replication/peer"
)

// fakeHub joins fake networks in one process, so that a test can break, pause and
// heal what is between them.
type fakeHub struct {
	mu    sync.Mutex
	nodes map[string]*fakeNet
	cut   map[[2]string]bool
	wait  sync.WaitGroup
}

func newFakeHub() *fakeHub {
	return &fakeHub{nodes: map[string]*fakeNet{}, cut: map[[2]string]bool{}}
}

// fakeNet is one node's network. Chunks to one peer go through a queue, which a
// goroutine empties into the peer's handler.
type fakeNet struct {
	hub    *fakeHub
	name   string
	events chan peer.Event
	on     func(peer.Event)
	handle func(from string, c peer.Channel, chunk []byte)

	mu     sync.Mutex
	status map[string][]byte
	out    map[string]*fakeLink
}

type fakeLink struct {
	mu     sync.Mutex
	room   *sync.Cond
	queue  [][]byte
	bytes  int64
	paused bool
	slow   time.Duration // for each chunk
	closed bool
	done   chan struct{}
}

func (h *fakeHub) node(name string) *fakeNet {
	n := &fakeNet{hub: h, name: name, status: map[string][]byte{}, out: map[string]*fakeLink{}, events: make(chan peer.Event, 1024)}
	return n
}

// start connects the node with all that started before.
func (n *fakeNet) start() {
	h := n.hub
	h.wait.Go(func() {
		for e := range n.events {
			n.on(e)
		}
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, other := range h.nodes {
		h.joinLocked(n, other)
	}
	h.nodes[n.name] = n
}

func (h *fakeHub) joinLocked(a, b *fakeNet) {
	a.open(b)
	b.open(a)
	a.events <- peer.Event{Kind: peer.Up, Peer: b.describe()}
	b.events <- peer.Event{Kind: peer.Up, Peer: a.describe()}
}

func (n *fakeNet) open(to *fakeNet) {
	l := &fakeLink{done: make(chan struct{})}
	l.room = sync.NewCond(&l.mu)
	n.mu.Lock()
	n.out[to.name] = l
	n.mu.Unlock()
	n.hub.wait.Go(func() { l.run(n.name, to) })
}

func (l *fakeLink) run(from string, to *fakeNet) {
	defer close(l.done)
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed {
		if l.paused || len(l.queue) == 0 {
			l.room.Wait()
			continue
		}
		c := l.queue[0]
		l.queue = l.queue[1:]
		l.bytes -= int64(len(c))
		l.room.Broadcast()
		slow := l.slow
		l.mu.Unlock()
		<-time.After(slow)
		to.handle(from, peer.ChannelMesh, bytes.Clone(c)) // as if it had been sent
		l.mu.Lock()
	}
}

func (n *fakeNet) close(to string) {
	n.mu.Lock()
	l := n.out[to]
	delete(n.out, to)
	n.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock()
	l.closed, l.queue, l.bytes = true, nil, 0
	l.room.Broadcast()
	l.mu.Unlock()
	<-l.done
}

// part breaks the connection of two nodes, heal makes it again.
func (h *fakeHub) part(a, b string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x, y := h.nodes[a], h.nodes[b]
	x.close(b)
	y.close(a)
	x.events <- peer.Event{Kind: peer.Down, Peer: y.describe()}
	y.events <- peer.Event{Kind: peer.Down, Peer: x.describe()}
}

func (h *fakeHub) heal(a, b string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.joinLocked(h.nodes[a], h.nodes[b])
}

func (h *fakeHub) closeAll() {
	h.mu.Lock()
	names := slices.Sorted(maps.Keys(h.nodes))
	h.mu.Unlock()
	for _, a := range names {
		for _, b := range names {
			h.nodes[a].close(b)
		}
		close(h.nodes[a].events)
	}
	h.wait.Wait()
}

// set changes how chunks go from n to a peer.
func (n *fakeNet) set(to string, f func(l *fakeLink)) {
	l := n.link(to)
	l.mu.Lock()
	f(l)
	l.room.Broadcast()
	l.mu.Unlock()
}

func (n *fakeNet) link(to string) *fakeLink {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.out[to]
}

func (n *fakeNet) describe() peer.Peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return peer.Peer{Name: n.name, Status: maps.Clone(n.status), Addr: n.name + ":1"}
}

func (n *fakeNet) Name() string { return n.name }

func (n *fakeNet) SetStatus(key string, value []byte) {
	n.mu.Lock()
	n.status[key] = value
	n.mu.Unlock()
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	for _, p := range n.hub.nodes {
		if p != n && p.link(n.name) != nil {
			p.events <- peer.Event{Kind: peer.Status, Peer: n.describe(), Key: key}
		}
	}
}

func (n *fakeNet) Peers() (all []peer.Peer) {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(n.hub.nodes)) {
		if n.link(name) != nil {
			all = append(all, n.hub.nodes[name].describe())
		}
	}
	return all
}

func (n *fakeNet) OnChange(f func(peer.Event)) { n.on = f }

func (n *fakeNet) HandleChannel(_, _ peer.Channel, h func(from string, c peer.Channel, chunk []byte)) {
	n.handle = h
}

func (n *fakeNet) Send(to string, _ peer.Channel, chunk []byte) error {
	l := n.link(to)
	if l == nil {
		return peer.ErrNoPeer
	}
	if len(chunk) > peer.ChunkBytesMax {
		return peer.ErrTooLarge
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes+int64(len(chunk)) > peer.QueueBytesMax {
		return peer.ErrFull
	}
	l.queue = append(l.queue, chunk)
	l.bytes += int64(len(chunk))
	l.room.Broadcast()
	return nil
}

func (n *fakeNet) Queued(to string, _ peer.Channel) int64 {
	l := n.link(to)
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

func (n *fakeNet) WaitRoom(ctx context.Context, to string, c peer.Channel, below int64) error {
	for n.Queued(to, c) >= below {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}
