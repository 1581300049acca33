package peer

import (
	"encoding/binary"
	"maps"
	"net"
	"slices"

	"github.com/heraldmq/herald/replication/peer/handshake"
	"github.com/heraldmq/herald/replication/peer/wire"
)

// host is where a node can be dialed. The record with the newest stamp, which is
// when that node's process began, is right.
type host struct {
	addr  string
	stamp uint64
}

const hostsMax = 256

// hostsMessage is what this node knows about where nodes are. Holds mu.
func (n *Network) hostsMessage() message {
	b := []byte{callHosts}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(n.known)))
	for name, h := range n.known {
		b = wire.AppendUint(wire.AppendString(wire.AppendString(b, name), h.addr), h.stamp)
	}
	return newMessage(b)
}

// learnAll takes in what a peer knows.
func (n *Network) learnAll(l *link, f *wire.Fields) {
	count := f.Uint32()
	if count > hostsMax {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	changed := false
	for range count {
		name, h := f.String(), host{f.String(), f.Uint()}
		if name != "" && h.addr != "" {
			changed = n.learn(name, h) || changed
		}
	}
	if changed {
		n.tellHosts()
	}
}

// learn notes where a node is and dials it. True when that was new. Holds mu.
func (n *Network) learn(name string, h host) bool {
	if name == n.o.Name || n.unwelcome[name] != "" || len(n.known) >= hostsMax || len(name) > 128 {
		return false
	}
	if old, ok := n.known[name]; ok && (old.stamp > h.stamp || old == h) {
		return false
	}
	if _, _, err := net.SplitHostPort(h.addr); err != nil {
		return false
	}
	old := n.known[name]
	n.known[name] = h
	if t := n.targets[old.addr]; t != nil && old.addr != h.addr && t.name == name {
		n.retire(t)
	}
	t := n.targets[h.addr]
	if t == nil {
		t = newTarget(h.addr, false)
		n.targets[h.addr] = t
		if n.started && !n.closed {
			n.work.Go(func() { n.keepDialing(t) })
		}
	}
	t.name = name
	return true
}

// retire ends dialing an address, unless it is a configured one. Holds mu.
func (n *Network) retire(t *target) {
	if t.route {
		t.name = ""
		return
	}
	delete(n.targets, t.addr)
	t.gone = true
	t.kick()
}

func (n *Network) tellHosts() {
	for _, l := range n.links {
		if l.greeted {
			_ = l.out.push(wire.Call, 0, n.hostsMessage())
		}
	}
}

// addrOf is where a node listens, as seen from here: who listens on all addresses
// can be dialed at the one it came from.
func addrOf(remote handshake.Self, conn net.Conn) string {
	h, port, err := net.SplitHostPort(remote.Addr)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(h); h == "" || ip != nil && ip.IsUnspecified() {
		if from, _, err := net.SplitHostPort(conn.RemoteAddr().String()); err == nil {
			return net.JoinHostPort(from, port)
		}
	}
	return remote.Addr
}

// Known returns the addresses of all nodes that this one has heard of, without its
// own.
func (n *Network) Known() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for h := range maps.Values(n.known) {
		out = append(out, h.addr)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Routes returns each configured route, by address.
func (n *Network) Routes() []Route {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []Route
	for _, addr := range n.o.Routes {
		t := n.targets[addr]
		r := Route{Addr: addr, Name: t.name, Self: t.self, Err: t.err}
		if l := n.links[t.name]; t.name != "" && l != nil && l.up {
			r.Connected = true
		}
		out = append(out, r)
	}
	return out
}

// Disconnect ends the connection to a node and refuses it, and what others say of
// it, until Allow. It is told why.
func (n *Network) Disconnect(name, why string) {
	if why == "" {
		why = "it was disconnected"
	}
	n.mu.Lock()
	n.unwelcome[name] = why
	l := n.links[name]
	if h, ok := n.known[name]; ok {
		delete(n.known, name)
		if t := n.targets[h.addr]; t != nil && !t.route {
			n.retire(t)
		}
	}
	n.mu.Unlock()
	if l != nil {
		l.leave(handshake.Unwelcome, why)
	}
}

// Allow undoes Disconnect.
func (n *Network) Allow(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.unwelcome, name)
	for _, t := range n.targets {
		t.kick()
	}
}
