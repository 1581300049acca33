package front

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/auth"
	"github.com/heraldmq/herald/broker/wire"
)

// Kinds of ClientInfo.
const (
	kindClient    = "Client"
	kindInProcess = "In-Process"
	typeNATS      = "nats"
	typeWebsocket = "websocket"
)

// tlsHandshakeByte begins every TLS connection.
const tlsHandshakeByte = 0x16

var clientAuthVerified = []tls.ClientAuthType{tls.RequireAndVerifyClientCert}

// newSession makes the session of a fresh connection.
func (s *Server) newSession(conn net.Conn, kind, typ string) *session {
	c := &session{
		srv: s, id: s.nextCID.Add(1), conn: conn, sock: conn, start: time.Now(),
		subs: map[string]*sub{}, connect: wire.DefaultConnect(),
	}
	host, port, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		host, port = conn.RemoteAddr().String(), "0"
	}
	n, _ := strconv.Atoi(port) // 0 where there is no port
	c.info = &ClientInfo{ID: c.id, Kind: kind, Type: typ, Host: host, Port: n, Start: c.start, sess: c}
	c.named.Store(c.info)
	c.lastSeen.Store(c.start.UnixNano())
	if s.auth().NeedsNonce() {
		c.nonce = auth.NewNonce()
	}
	c.out.init(c)
	c.st.init(s, nil, c)
	return c
}

// register makes the session known; false when there are too many.
func (s *Server) register(c *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total++
	most := s.opts().MaxConnections
	full := most > 0 && len(s.sessions) >= most
	if full || s.closed {
		return false
	}
	s.sessions[c.id] = c
	return true
}

// serveTCP runs one connection of the client listener.
func (s *Server) serveTCP(conn net.Conn) {
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetNoDelay(true)
	}
	s.serve(s.newSession(conn, kindClient, typeNATS))
}

// serve brings the connection to where it speaks the protocol, and runs it.
func (s *Server) serve(c *session) {
	if !s.register(c) {
		_ = c.greet(c.infoLine(false))
		_ = c.greet(wire.AppendErr(nil, wire.TextMaxConnections))
		c.setReason(ReasonMaxConnections)
		_ = c.sock.Close()
		return
	}
	if s.away.Load() && c.info.Kind == kindClient {
		_ = c.greet(c.infoLine(false))
		c.setReason(ReasonServerShutdown)
		_ = c.sock.Close()
		s.ended(c)
		return
	}
	if r := c.open(); r != "" {
		c.setReason(r)
		_ = c.sock.Close()
		s.ended(c)
		return
	}
	if c.tls == nil && c.ws == nil {
		c.out.raw = newInlineWriter(c.sock)
	}
	c.run()
}

// open sends INFO and does the TLS handshake, in the configured order. It
// returns why the connection must close, "" when it goes on.
func (c *session) open() Reason {
	t := c.srv.opts().TLS
	if c.ws != nil || c.info.Kind == kindInProcess {
		t = nil // what TLS there is was done before
	}
	if t != nil && t.HandshakeFirst {
		first := true
		if t.HandshakeFallback > 0 {
			b, err := c.peek(t.HandshakeFallback)
			if err != nil && !isTimeout(err) {
				return ReasonClientClosed
			}
			first = err == nil && b == tlsHandshakeByte
		}
		if first {
			if r := c.handshake(t); r != "" {
				return r
			}
			c.tlsFirst, t = true, nil
		}
	}
	if err := c.greet(c.infoLine(false)); err != nil {
		return ReasonWriteError
	}
	if t == nil {
		return ""
	}
	if c.srv.opts().AllowNonTLS {
		b, err := c.peek(c.srv.opts().Auth.Timeout)
		switch {
		case err != nil && !isTimeout(err):
			return ReasonClientClosed
		case err != nil || b != tlsHandshakeByte:
			return "" // it speaks plainly, or will
		}
	}
	return c.handshake(t)
}

// greet writes before the flusher runs.
func (c *session) greet(line []byte) error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(lingerTime))
	_, err := c.conn.Write(line)
	return errors.Join(err, c.conn.SetWriteDeadline(time.Time{}))
}

// peek returns the first byte the client sends, which stays to be read.
func (c *session) peek(wait time.Duration) (byte, error) {
	_ = c.sock.SetReadDeadline(time.Now().Add(wait))
	defer c.sock.SetReadDeadline(time.Time{})
	if p, ok := c.conn.(*peekedConn); ok && len(p.first) > 0 {
		return p.first[0], nil
	}
	var b [1]byte
	if _, err := c.sock.Read(b[:]); err != nil {
		return 0, err
	}
	c.conn = &peekedConn{Conn: c.sock, first: b[:]}
	return b[0], nil
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// peekedConn gives back a byte that was read ahead.
type peekedConn struct {
	net.Conn
	first []byte
}

func (p *peekedConn) Read(b []byte) (int, error) {
	if len(p.first) > 0 {
		n := copy(b, p.first)
		p.first = p.first[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// handshake makes the connection TLS.
func (c *session) handshake(t *TLSOptions) Reason {
	if t.RateLimit > 0 && !c.srv.handshakes.allow(t.RateLimit) {
		_ = c.greet(wire.AppendErr(nil, wire.TextThrottled))
		return ReasonTLSError
	}
	limit := t.Timeout
	if limit <= 0 {
		limit = defaultTLSTimeout
	}
	b, err := c.peek(limit)
	if err != nil {
		return ReasonTLSError
	}
	if b != tlsHandshakeByte {
		_ = c.greet(wire.AppendErr(nil, wire.TextTLSRequired))
		c.lastWordsNow()
		return ReasonTLSError
	}
	conn := tls.Server(c.conn, tlsConfig(t))
	_ = c.sock.SetDeadline(time.Now().Add(limit))
	if err := conn.Handshake(); err != nil {
		c.srv.log.Debug("TLS handshake", "cid", c.id, "err", err)
		return ReasonTLSError
	}
	_ = c.sock.SetDeadline(time.Time{})
	c.conn = conn
	c.mu.Lock()
	c.tls = conn
	c.mu.Unlock()
	return ""
}

// lastWordsNow lets what was written arrive before the socket closes.
func (c *session) lastWordsNow() {
	c.setReason(ReasonTLSError)
	c.lastWords()
}

// tlsConfig is t's configuration with the check for pinned keys.
func tlsConfig(t *TLSOptions) *tls.Config {
	cfg := t.Config.Clone()
	if cfg.MinVersion == 0 {
		cfg.MinVersion = tls.VersionTLS12
	}
	if len(t.PinnedCerts) == 0 {
		return cfg
	}
	pins := make([]string, len(t.PinnedCerts))
	for i, p := range t.PinnedCerts {
		pins[i] = strings.ToLower(strings.TrimSpace(p))
	}
	cfg.VerifyConnection = func(st tls.ConnectionState) error {
		if len(st.PeerCertificates) == 0 || !slices.Contains(pins, keySum(st.PeerCertificates[0])) {
			return errors.New("front: the client's certificate isn't one of the pinned ones")
		}
		return nil
	}
	return cfg
}

func keySum(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// throttle bounds events per second.
type throttle struct {
	mu    sync.Mutex
	since time.Time
	n     int64
}

func (t *throttle) allow(perSecond int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); now.Sub(t.since) >= time.Second {
		t.since, t.n = now, 0
	}
	t.n++
	return t.n <= perSecond
}

// writeAll sends all buffers. Only the holder of outbox.writing calls it.
func (s *session) writeAll(vec net.Buffers) error {
	switch {
	case s.ws != nil:
		return s.ws.writeBuffers(vec)
	case s.tls != nil:
		for _, b := range vec {
			if _, err := s.tls.Write(b); err != nil {
				return err
			}
		}
		return nil
	}
	_, err := vec.WriteTo(s.sock)
	return err
}

// InProcess returns a connection to the server without a socket, for clients
// in the same process.
func (s *Server) InProcess() (net.Conn, error) {
	client, server := net.Pipe()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil, net.ErrClosed
	}
	s.spawn(func() { s.serve(s.newSession(server, kindInProcess, typeNATS)) }, server)
	return client, nil
}
