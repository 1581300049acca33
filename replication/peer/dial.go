package peer

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	"github.com/heraldmq/herald/replication/peer/handshake"
)

const (
	backoffMin     = 50 * time.Millisecond
	backoffMax     = time.Second
	backoffRefused = 5 * time.Second // by people's mistake: nothing is gained by haste
	connectTimeout = 2 * time.Second
)

// target is an address that is dialed whenever its node isn't connected. All but
// addr and route is guarded by Network.mu.
type target struct {
	addr    string
	route   bool
	name    string // of the node there, "" not known yet
	self    bool
	gone    bool
	refused bool   // since the node was lost
	err     string // of the last attempt
	wake    chan struct{}
}

func newTarget(addr string, route bool) *target {
	return &target{addr: addr, route: route, wake: make(chan struct{}, 1)}
}

// kick lets the goroutine look again at once.
func (t *target) kick() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// wanted says whether a target is to be dialed, and whether it ever will be.
func (n *Network) wanted(t *target) (now, ever bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.gone || n.closed {
		return false, false
	}
	if t.self {
		return false, true
	}
	return t.name == "" || n.links[t.name] == nil && n.unwelcome[t.name] == "", true
}

func (n *Network) keepDialing(t *target) {
	backoff := backoffMin
	for {
		now, ever := n.wanted(t)
		if !ever {
			return
		}
		if !now {
			backoff = backoffMin
			select {
			case <-t.wake:
				continue
			case <-n.ctx.Done():
				return
			}
		}
		most := n.attempt(t)
		if most == 0 {
			backoff = backoffMin
			continue
		}
		backoff = min(backoff, most)
		if most == backoffRefused {
			backoff = most
		}
		timer := time.NewTimer(backoff*3/4 + rand.N(backoff/2))
		select {
		case <-timer.C:
			backoff = min(backoff*8/5, most)
		case <-t.wake:
			backoff = backoffMin
		case <-n.ctx.Done():
		}
		timer.Stop()
		if n.ctx.Err() != nil {
			return
		}
	}
}

// attempt dials once and returns the longest backoff that is due: none when a link
// came of it, and has ended again.
func (n *Network) attempt(t *target) time.Duration {
	linked, err := n.dial(t)
	select {
	case <-t.wake: // it was about this very attempt
	default:
	}
	n.mu.Lock()
	t.err = ""
	if err != nil {
		t.err = err.Error()
	}
	n.mu.Unlock()
	if err == nil && linked {
		return 0
	}
	var r *handshake.Refusal
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		n.noteRefused(t)
	case errors.As(err, &r) && r.Code == handshake.Already:
		return backoffMax
	case errors.As(err, &r):
		n.refusedBy(err, t.addr)
		if unwelcome(err) {
			n.events.add(Event{Kind: Unwelcome, Peer: Peer{Name: r.Remote, Addr: t.addr}, Err: err})
		}
		return backoffRefused
	default:
		n.log.Debug("can't reach a peer", "addr", t.addr, "error", err)
	}
	return backoffMax
}

// unwelcome tells whether a peer says that this node has been removed.
func unwelcome(err error) bool {
	var r *handshake.Refusal
	return errors.As(err, &r) && r.Code == handshake.Unwelcome && !r.Ours
}

// noteRefused reports that nobody listens where a lost peer was.
func (n *Network) noteRefused(t *target) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t.refused = true
	if t.name == "" || !n.lost[t.name] {
		return
	}
	for _, other := range n.targets {
		if other.name == t.name && !other.refused {
			return
		}
	}
	delete(n.lost, t.name)
	n.events.add(Event{Kind: Refused, Peer: Peer{Name: t.name, Addr: t.addr}})
}

// dial connects and serves the link until it ends. It returns at once when no link
// came of it; false also when the link ended at once.
func (n *Network) dial(t *target) (linked bool, err error) {
	addr, many := n.resolve(t.addr)
	d := net.Dialer{Timeout: connectTimeout}
	conn, err := d.DialContext(n.ctx, "tcp", addr)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	stop := context.AfterFunc(n.ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	host, _, _ := net.SplitHostPort(t.addr)
	s, err := n.shake.Greet(conn, host)
	if s != nil && s.Remote.Name != "" {
		if n.named(t, s, err, many) {
			return false, &handshake.Refusal{Code: handshake.Already, Remote: s.Remote.Name, Text: "there is a connection"}
		}
		if err == nil {
			defer n.greeted(s.Remote.Name)
		}
	}
	if err != nil {
		return false, err
	}
	if err := s.Prove(); err != nil {
		return false, err
	}
	if !stop() {
		return false, n.ctx.Err()
	}
	tune(conn)
	l := newLink(n, s, n.o.Name)
	if refusal := n.admit(l); refusal != nil {
		refusal.Ours = true
		l.discard()
		return false, refusal
	}
	n.greeted(l.name)
	l.run()
	return time.Since(l.since) > backoffMax, nil
}

// greeted lets other addresses of a node be dialed again.
func (n *Network) greeted(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.greeting, name)
}

// named notes who answered at an address, and says whether that one is connected
// already, or about to be over another address.
func (n *Network) named(t *target, s *handshake.Session, err error, many bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	var r *handshake.Refusal
	if errors.As(err, &r) {
		t.self = r.Code == handshake.Itself && !many
		return false
	}
	if err != nil {
		return false
	}
	t.name = s.Remote.Name
	l := n.links[t.name]
	if n.greeting[t.name] || l != nil && l.remote.Boot == s.Remote.Boot {
		return true
	}
	n.greeting[t.name] = true
	return false
}

// resolve picks one of the addresses of a name that has several, as the seeds of a
// cluster may have; otherwise addr is left to the dialer.
func (n *Network) resolve(addr string) (string, bool) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || net.ParseIP(host) != nil || host == "localhost" {
		return addr, false
	}
	ctx, cancel := context.WithTimeout(n.ctx, connectTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupIP(ctx, "ip4", host)
	if err != nil || len(ips) < 2 {
		return addr, false
	}
	return net.JoinHostPort(ips[rand.N(len(ips))].String(), port), true
}
