package front

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/heraldmq/herald/broker/wire"
)

// LameDuck stops listening, tells clients to go elsewhere, closes them spread
// over the configured time and returns when all have gone or ctx is done. The
// caller still has to Close.
func (s *Server) LameDuck(ctx context.Context) {
	if s.lame.Swap(true) {
		return
	}
	s.mu.Lock()
	l, ws := s.listener, s.websocket
	s.mu.Unlock()
	if l != nil {
		_ = l.Close() // nothing is lost by it
	}
	if ws != nil {
		_ = ws.l.Close()
	}
	if c := s.joined(); c != nil {
		c.AddressChanged() // first, so that the addresses told next are those of others
	}
	s.tellInfo()
	o := s.opts()
	if !pause(ctx, o.LameDuckGrace) {
		return
	}
	s.mu.Lock()
	open := s.openLocked()
	s.mu.Unlock()
	rand.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	for i, c := range open {
		s.sendOff(c)
		if i < len(open)-1 && !pause(ctx, o.LameDuckDuration/time.Duration(len(open))) {
			return
		}
	}
}

// awayGrace is how long clients that are sent away have to hear what was on its way.
const awayGrace = 250 * time.Millisecond

// SendAway tells all clients to go elsewhere, closes them a moment later and takes no
// others until TakeIn. Connections within the process stay. It doesn't block.
func (s *Server) SendAway() {
	if s.away.Swap(true) {
		return
	}
	if c := s.joined(); c != nil {
		c.AddressChanged()
	}
	s.tellInfo()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.wait.Go(func() {
		pause(context.Background(), awayGrace)
		s.mu.Lock()
		open := s.openLocked()
		s.mu.Unlock()
		if s.away.Load() {
			s.part(slices.DeleteFunc(open, func(c *session) bool { return c.info.Kind != kindClient }), ReasonServerShutdown)
		}
	})
}

// sendOff closes a connection. It doesn't block.
func (s *Server) sendOff(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.wait.Go(func() { s.part([]*session{c}, ReasonServerShutdown) })
	}
}

// TakeIn undoes SendAway.
func (s *Server) TakeIn() {
	if !s.away.Swap(false) {
		return
	}
	if c := s.joined(); c != nil {
		c.AddressChanged()
	}
	s.tellInfo()
}

// pause waits; false when ctx ended it.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// SetConnectURLs sets the addresses of the cluster's listeners and tells
// connected clients.
func (s *Server) SetConnectURLs(urls, websocket []string) {
	s.urls.Store(&gossip{client: urls, websocket: websocket})
	s.tellInfo()
}

// tellInfo sends INFO to every client that takes it at any time.
func (s *Server) tellInfo() {
	s.mu.Lock()
	open := s.openLocked()
	s.mu.Unlock()
	for _, c := range open {
		c.tellInfo(s.IsLameDuck())
	}
}

func (s *session) tellInfo(lame bool) {
	if !s.async.Load() {
		return
	}
	o := s.srv.opts()
	i := s.srv.baseInfo(o, s.ws != nil)
	i.ClientID, i.ClientIP, i.LameDuckMode = s.id, s.client().Host, lame
	if a := s.acct.Load(); a != nil {
		if most := a.Limits().MaxPayload; most > 0 && (i.MaxPayload <= 0 || most < i.MaxPayload) {
			i.MaxPayload = most
		}
	}
	s.inject(wire.AppendInfo(nil, &i))
}

func (s *Server) session(cid uint64) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[cid]
}

// Kick closes one client; false when there is no such connection.
func (s *Server) Kick(cid uint64) bool {
	c := s.session(cid)
	if c == nil {
		return false
	}
	c.kick("", ReasonKicked)
	return true
}

// LDM tells one client to go elsewhere; false when there is no such connection.
func (s *Server) LDM(cid uint64) bool {
	c := s.session(cid)
	if c == nil {
		return false
	}
	c.tellInfo(true)
	return true
}
