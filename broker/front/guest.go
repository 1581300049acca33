package front

import "net"

// Guest is a connection that another room of the broker has accepted, and for which it
// speaks the protocol.
type Guest struct {
	Host string // where it comes from
	Port int
}

// Invite returns a connection for a guest, which is a client like any other: it
// authenticates by CONNECT (as of type WEBSOCKET), has a user's permissions, counts
// and is shown. client tells who it is; it is that from CONNECT on.
func (s *Server) Invite(g Guest) (conn net.Conn, client func() *ClientInfo, err error) {
	mine, theirs := net.Pipe()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil, nil, net.ErrClosed
	}
	c := s.newSession(theirs, kindInProcess, typeWebsocket)
	c.guest = true
	info := *c.info
	info.Host, info.Port = g.Host, g.Port
	c.info = &info
	c.named.Store(&info)
	s.spawn(func() { s.serve(c) }, theirs)
	return mine, c.named.Load, nil
}
