package front

import "time"

// closedRing remembers the connections that closed last.
type closedRing struct {
	most int // negative: none
	list []ConnInfo
	next int // where the oldest is, once the ring is full
}

func (r *closedRing) add(c ConnInfo) {
	switch {
	case r.most <= 0:
	case len(r.list) < r.most:
		r.list = append(r.list, c)
	default:
		r.list[r.next] = c
		r.next = (r.next + 1) % r.most
	}
}

// appendTo appends them, the oldest first.
func (r *closedRing) appendTo(dst []ConnInfo) []ConnInfo {
	dst = append(dst, r.list[r.next:]...)
	return append(dst, r.list[:r.next]...)
}

// ended takes a session out of the books.
func (s *Server) ended(c *session) {
	info := c.connInfo(false)
	info.Stop = time.Now()
	if info.Reason == "" {
		info.Reason = ReasonClientClosed
	}
	s.mu.Lock()
	delete(s.sessions, c.id)
	s.recent.add(info)
	s.mu.Unlock()
	s.log.Debug("client closed", "cid", c.id, "reason", string(info.Reason))
	if a := c.acct.Load(); a != nil {
		a.conns.Add(-1)
		if f := s.opts().OnDisconnect; f != nil {
			f(c.client(), info)
		}
	}
}

// authFailed tells who wants to know that a connection is refused.
func (s *Server) authFailed(c *session) {
	s.log.Info("authentication failed", "cid", c.id, "host", c.info.Host)
	if f := s.opts().OnAuthError; f != nil {
		info := c.connInfo(false)
		info.Reason = ReasonAuthFailure
		f(c.client(), info)
	}
}
