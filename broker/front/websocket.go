package front

import (
	"compress/flate"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/heraldmq/herald/broker/wire"
)

const (
	wsBuffer = 4 << 10
	// A websocket message may carry this many of the largest NATS messages,
	// and never more than wsMessageMax bytes, compressed or not.
	wsPayloads   = 8
	wsMessageMax = 64 << 20
	// Frames below this size aren't worth compressing.
	wsCompressMin      = 64
	wsHandshakeTimeout = 2 * time.Second
)

// wsListener is the HTTP server that upgrades connections.
type wsListener struct {
	l    net.Listener
	http *http.Server
}

func (w *wsListener) addr() net.Addr { return w.l.Addr() }

func (w *wsListener) close() error {
	return errors.Join(w.http.Close(), ignoreClosed(w.l.Close()))
}

func (s *Server) startWebsocket(o *Options) error {
	w := o.Websocket
	host := w.Host
	if host == "" {
		host = o.Host
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(max(w.Port, 0))))
	if err != nil {
		return fmt.Errorf("front: listen for websocket clients: %w", err)
	}
	timeout := w.HandshakeTimeout
	if timeout <= 0 {
		timeout = wsHandshakeTimeout
	}
	ws := &wsListener{l: l, http: &http.Server{
		Handler:           s.WebsocketHandler(),
		ReadHeaderTimeout: timeout,
		IdleTimeout:       timeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}}
	serve := l
	if w.TLS != nil {
		cfg := tlsConfig(w.TLS)
		cfg.NextProtos = []string{"http/1.1"} // websocket needs the connection
		serve = tls.NewListener(l, cfg)
	}
	s.mu.Lock()
	s.websocket = ws
	s.mu.Unlock()
	s.wait.Go(func() {
		// It ends with http.ErrServerClosed.
		_ = ws.http.Serve(serve)
	})
	return nil
}

// WebsocketHandler upgrades requests to NATS over websocket, under the options
// of the websocket listener. It can be mounted elsewhere too.
func (s *Server) WebsocketHandler() http.Handler {
	return http.HandlerFunc(s.upgrade)
}

func (s *Server) upgrade(rw http.ResponseWriter, r *http.Request) {
	o := s.opts()
	w := o.Websocket
	if w == nil {
		w = &WebsocketOptions{}
	}
	if strings.HasSuffix(r.URL.Path, "/leafnode") || strings.HasSuffix(r.URL.Path, "/mqtt") {
		http.Error(rw, "not served here", http.StatusNotFound)
		return
	}
	up := websocket.Upgrader{
		HandshakeTimeout:  wsHandshakeTimeout,
		ReadBufferSize:    wsBuffer,
		WriteBufferSize:   wsBuffer,
		WriteBufferPool:   &s.wsBuffers,
		EnableCompression: w.Compression,
		CheckOrigin:       w.originAllowed,
	}
	conn, err := up.Upgrade(rw, r, w.Headers)
	if err != nil {
		return // the upgrader has answered
	}
	c := newWSConn(conn, o, w, r)
	s.spawnHere(func() {
		sess := s.newSession(c, kindClient, typeWebsocket)
		sess.ws, sess.sock = c, conn.NetConn()
		if t, ok := conn.NetConn().(*tls.Conn); ok {
			sess.tls, sess.sock = t, t.NetConn()
		}
		if host := forwardedFor(r); host != "" {
			info := *sess.info
			info.Host = host
			sess.info = &info
			sess.named.Store(&info)
		}
		s.serve(sess)
	}, conn.NetConn())
}

// spawnHere is spawn on the caller's goroutine.
func (s *Server) spawnHere(f func(), conn net.Conn) {
	if s.enter(conn) {
		defer s.wait.Done()
		f()
	}
}

// forwardedFor is the client's address as a proxy in front of us names it.
func forwardedFor(r *http.Request) string {
	first, _, _ := strings.Cut(r.Header.Get("X-Forwarded-For"), ",")
	if ip := net.ParseIP(strings.TrimSpace(first)); ip != nil {
		return ip.String()
	}
	return ""
}

// originAllowed keeps foreign web pages out: a browser sends its page's
// origin, and its user's cookies. Without an Origin it isn't a browser.
func (w *WebsocketOptions) originAllowed(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || w.AnyOrigin {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	if sameHost(u, r.Host, scheme) && strings.EqualFold(u.Scheme, scheme) {
		return true
	}
	for _, allowed := range w.AllowedOrigins {
		a, err := url.Parse(allowed)
		if err == nil && strings.EqualFold(a.Scheme, u.Scheme) && sameHost(u, a.Host, a.Scheme) {
			return true
		}
	}
	return false
}

// sameHost compares host and port, where the port may be the scheme's own.
func sameHost(u *url.URL, host, scheme string) bool {
	other := &url.URL{Host: host}
	return strings.EqualFold(u.Hostname(), other.Hostname()) &&
		portOr(u.Port(), u.Scheme) == portOr(other.Port(), scheme)
}

func portOr(port, scheme string) int {
	if n, err := strconv.Atoi(port); err == nil {
		return n
	}
	if strings.EqualFold(scheme, "https") {
		return 443
	}
	return 80
}

// wsConn makes a websocket connection a stream of bytes. Frame borders mean
// nothing to the protocol.
type wsConn struct {
	*websocket.Conn
	compress bool
	most     int64 // bytes of one message, decompressed

	// Owned by the reader.
	message io.Reader
	left    int64

	user, pass, token string // from cookies
}

func newWSConn(conn *websocket.Conn, o *Options, w *WebsocketOptions, r *http.Request) *wsConn {
	c := &wsConn{Conn: conn, compress: w.Compression, most: wsMessageMax}
	if o.MaxPayload > 0 {
		c.most = min(c.most, int64(o.MaxPayload)*wsPayloads)
	}
	conn.SetReadLimit(c.most)
	if w.Compression {
		_ = conn.SetCompressionLevel(flate.BestSpeed)
	}
	cookie := func(name string) string {
		if name == "" {
			return ""
		}
		if k, err := r.Cookie(name); err == nil {
			return k.Value
		}
		return ""
	}
	c.user, c.pass, c.token = cookie(w.UserCookie), cookie(w.PassCookie), cookie(w.TokenCookie)
	return c
}

// fill puts cookies in for credentials that CONNECT doesn't have.
func (c *wsConn) fill(o *wire.ConnectOptions) {
	if o.User == "" && o.Pass == "" && c.user != "" {
		o.User, o.Pass = c.user, c.pass
	}
	if o.Token == "" {
		o.Token = c.token
	}
}

// errMessageTooBig ends a connection whose message is larger than allowed once
// decompressed.
var errMessageTooBig = errors.New("front: websocket message too big")

// Read returns the next bytes, of whatever message they are.
func (c *wsConn) Read(b []byte) (int, error) {
	for {
		if c.message == nil {
			kind, r, err := c.NextReader()
			if err != nil {
				return 0, wsReadError(err)
			}
			if kind != websocket.BinaryMessage && kind != websocket.TextMessage {
				continue
			}
			c.message, c.left = r, c.most
		}
		n, err := c.message.Read(b)
		if c.left -= int64(n); c.left < 0 {
			return 0, errMessageTooBig
		}
		if err == io.EOF {
			c.message, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, wsReadError(err)
		}
	}
}

func wsReadError(err error) error {
	if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway, websocket.CloseNoStatusReceived) {
		return io.EOF
	}
	return err
}

// Write sends b as one message.
func (c *wsConn) Write(b []byte) (int, error) {
	if err := c.writeBuffers(net.Buffers{b}); err != nil {
		return 0, err
	}
	return len(b), nil
}

// writeBuffers sends all of vec as one message.
func (c *wsConn) writeBuffers(vec net.Buffers) error {
	size := 0
	for _, b := range vec {
		size += len(b)
	}
	if c.compress {
		c.EnableWriteCompression(size >= wsCompressMin)
	}
	if len(vec) == 1 {
		return c.WriteMessage(websocket.BinaryMessage, vec[0])
	}
	w, err := c.NextWriter(websocket.BinaryMessage)
	if err != nil {
		return err
	}
	for _, b := range vec {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return w.Close()
}

// SetDeadline sets both deadlines.
func (c *wsConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// closeFrame says why, as websocket does.
func (c *wsConn) closeFrame(r Reason) {
	code := websocket.CloseProtocolError
	switch r {
	case ReasonClientClosed:
		code = websocket.CloseNormalClosure
	case ReasonServerShutdown:
		code = websocket.CloseGoingAway
	case ReasonAuthFailure, ReasonAuthTimeout, ReasonMaxConnections, ReasonMaxAccountConns,
		ReasonSlowPending, ReasonSlowDeadline, ReasonMaxSubs, ReasonStale:
		code = websocket.ClosePolicyViolation
	case ReasonMaxPayload:
		code = websocket.CloseMessageTooBig
	case ReasonTLSError:
		code = websocket.CloseTLSHandshake
	case ReasonWriteError, ReasonReadError, ReasonInternal:
		code = websocket.CloseInternalServerErr
	}
	// The connection closes whether or not it gets through.
	_ = c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(lingerTime/10))
}
