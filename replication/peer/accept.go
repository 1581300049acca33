package peer

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/heraldmq/herald/replication/peer/handshake"
)

const (
	guestsMax     = 64 // connections that haven't said who they are
	guestsHostMax = 32 // of these from one address
)

// guests are connections of whoever came in and has not proved anything yet.
type guests struct {
	mu     sync.Mutex
	conns  map[net.Conn]string
	from   map[string]int
	closed bool
}

func (g *guests) add(c net.Conn) bool {
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || len(g.conns) >= guestsMax || g.from[host] >= guestsHostMax {
		return false
	}
	if g.conns == nil {
		g.conns, g.from = map[net.Conn]string{}, map[string]int{}
	}
	g.conns[c] = host
	g.from[host]++
	return true
}

func (g *guests) remove(c net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	host, ok := g.conns[c]
	if !ok {
		return
	}
	delete(g.conns, c)
	if g.from[host]--; g.from[host] == 0 {
		delete(g.from, host)
	}
}

func (g *guests) closeAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for c := range g.conns {
		_ = c.Close()
	}
}

func (n *Network) accept() {
	for {
		conn, err := n.ln.Accept()
		if err != nil {
			if n.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			n.complain("accept", "can't accept connections of peers", "error", err)
			select {
			case <-time.After(50 * time.Millisecond):
			case <-n.ctx.Done():
				return
			}
			continue
		}
		if !n.waiting.add(conn) || !n.begin() {
			n.waiting.remove(conn)
			n.complain("guests", "too many connections that don't say who they are: one is refused", "from", conn.RemoteAddr())
			_ = conn.Close()
			continue
		}
		go func() {
			defer n.work.Done()
			n.welcome(conn)
		}()
	}
}

// welcome finds out who has come, and serves it until it leaves.
func (n *Network) welcome(conn net.Conn) {
	defer conn.Close()
	s, err := n.shake.Accept(conn)
	if err != nil {
		n.waiting.remove(conn)
		n.refusedBy(err, conn.RemoteAddr().String())
		return
	}
	tune(conn)
	l := newLink(n, s, s.Remote.Name)
	refusal := n.admit(l)
	n.waiting.remove(conn)
	if refusal != nil {
		_ = s.Verdict(refusal.Code, refusal.Text)
		refusal.Ours = true
		n.refusedBy(refusal, conn.RemoteAddr().String())
		l.discard()
		return
	}
	if err := s.Verdict(handshake.OK, ""); err != nil {
		l.end(err, false)
		return
	}
	l.run()
}

// refusedBy logs why two nodes don't connect, where that is for people to know.
func (n *Network) refusedBy(err error, addr string) {
	var r *handshake.Refusal
	switch {
	case !errors.As(err, &r):
		n.log.Debug("a connection to or from a peer failed", "addr", addr, "error", err)
	case r.Code == handshake.Itself || r.Code == handshake.Already:
	default:
		host, _, _ := net.SplitHostPort(addr)
		n.complain("refused "+host+" "+r.Error(), "not connected to a peer", "addr", addr, "error", r)
	}
}

// discard gives up a link that was never admitted.
func (l *link) discard() {
	l.cancel()
	l.out.close()
	_ = l.conn.Close()
}

// admit makes l the link of its name. When there is one already that is up, both
// sides have it, and it stays unless it is dead. Of two that are both new, the newer
// one of those dialed by the same side, or the one that the smaller name dialed,
// stays, so that both sides decide alike. A connection of another process under the
// same name stays only when the older one is dead.
func (n *Network) admit(l *link) *handshake.Refusal {
	for {
		n.mu.Lock()
		if n.closed {
			n.mu.Unlock()
			return &handshake.Refusal{Code: handshake.Already, Remote: l.name, Text: "this node is shutting down"}
		}
		if why := n.unwelcome[l.name]; why != "" {
			n.mu.Unlock()
			return &handshake.Refusal{Code: handshake.Unwelcome, Remote: l.name, Text: why}
		}
		old := n.links[l.name]
		sameProcess := old != nil && old.remote.Boot == l.remote.Boot
		if old == nil || sameProcess && !old.up && (old.dialer == l.dialer || l.dialer < old.dialer) {
			if old != nil {
				n.unlinkLocked(old, errReplaced, false)
			}
			n.links[l.name] = l
			if n.learn(l.name, host{addrOf(l.remote, l.conn), l.remote.Stamp}) {
				n.tellHosts()
			}
			n.mu.Unlock()
			if old != nil {
				old.end(errReplaced, false)
			}
			return nil
		}
		n.mu.Unlock()
		if old.alive(n.ctx) {
			if sameProcess {
				return &handshake.Refusal{Code: handshake.Already, Remote: l.name, Text: "there is a connection"}
			}
			return &handshake.Refusal{
				Code: handshake.Duplicate, Remote: l.name,
				Text: "another node with the name " + l.name + " is connected: give each node a server_name of its own",
			}
		}
		old.end(errSilent, false)
	}
}

// unlink takes a link that has ended out of the table.
func (n *Network) unlink(l *link, why error, reset bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unlinkLocked(l, why, reset)
}

func (n *Network) unlinkLocked(l *link, why error, reset bool) {
	if l.gone {
		return
	}
	l.gone = true
	if n.links[l.name] == l {
		delete(n.links, l.name)
	}
	if l.up {
		l.up = false
		n.log.Info("lost a peer", "peer", l.name, "reset", reset, "error", why)
		n.lost[l.name] = true
		n.events.add(Event{Kind: Down, Peer: l.peer(), Reset: reset, Err: why})
	}
	if unwelcome(why) {
		n.events.add(Event{Kind: Unwelcome, Peer: l.peer(), Err: why})
	}
	for _, t := range n.targets {
		if t.name == l.name {
			t.refused = false
			t.kick()
		}
	}
}
