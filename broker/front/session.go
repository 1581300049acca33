package front

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/auth"
	"github.com/heraldmq/herald/broker/wire"
)

// session is one client connection: a reader goroutine that owns it, and a
// flusher that writes what the outbox holds.
type session struct {
	// Set before the reader starts.
	srv      *Server
	id       uint64
	conn     net.Conn // what bytes go through: the socket, TLS or websocket
	sock     net.Conn // the socket itself, closed to cut the connection off
	ws       *wsConn  // nil unless websocket
	tls      *tls.Conn
	tlsFirst bool
	guest    bool // see Invite
	info     *ClientInfo
	nonce    []byte
	start    time.Time

	// Owned by the reader.
	buf        readBuffer
	st         stager
	mt         matcher
	account    *Account // nil until authenticated
	owesInfo   bool     // the INFO that answers CONNECT is still to come
	ident      []byte   // see identBytes
	identOf    *ClientInfo
	identRules bool
	judged     Message   // scratch of passes
	refusedAt  time.Time // when the client was told of a refused message last
	inMsgs     int64     // of this batch
	inBytes    int64
	connect    wire.ConnectOptions

	out       outbox
	rulesPtr  atomic.Pointer[auth.Rules]
	identity  atomic.Pointer[auth.Identity]
	acct      atomic.Pointer[Account] // the same as account, for others
	named     atomic.Pointer[ClientInfo]
	async     atomic.Bool // takes INFO at any time
	headers   atomic.Bool // of connect, for those who match its subscriptions
	reset     atomic.Bool // permissions changed: matches are stale
	ended     atomic.Bool
	stuckAt   atomic.Int64 // see waitForSlow
	stalls    atomic.Int64
	held      atomic.Pointer[holding] // changed under mu
	parting   atomic.Pointer[parting] // it is sent away, see parting.go
	in        counters
	lastSeen  atomic.Int64 // unix nanoseconds of the last read
	roundTrip atomic.Int64
	subCount  atomic.Int64

	mu       sync.Mutex
	subs     map[string]*sub
	replies  map[string]*expectedReply
	reason   Reason
	closing  bool
	timer    *time.Timer // authentication, then pings
	pingsOut int
	pingSent time.Time
}

// run serves the connection until it ends. The caller's goroutine is the
// reader.
func (s *session) run() {
	defer s.finish()
	go s.out.flush()
	s.startTimer()
	s.buf.init(&s.srv.chunks)
	r := newReader(s.conn)
	for {
		n, err := r.read(&s.buf)
		if n > 0 {
			s.buf.to += n
			s.lastSeen.Store(time.Now().UnixNano())
			if !s.buf.short() && !s.batch() {
				return
			}
		}
		if err != nil {
			s.setReason(readReason(err))
			return
		}
	}
}

// batch handles every complete operation that was read and hands over what
// came of it. false ends the session.
func (s *session) batch() bool {
	if s.reset.Swap(false) {
		s.mt.reset()
	}
	c := outgoing{src: s.buf.c}
	limits := s.limits()
	alive, buf, need := true, s.buf.bytes(), 0
	for alive && len(buf) > 0 {
		n, whole, err := wire.Next(buf, &c.Command, limits)
		if err != nil {
			s.parseError(err)
			alive = false
			break
		}
		if n == 0 {
			need = whole
			break
		}
		buf = buf[n:]
		if alive = s.command(&c); c.Verb == wire.Connect {
			limits = s.limits()
		}
		if s.st.staged >= stagedMax {
			s.handOver()
		}
	}
	s.handOver()
	s.buf.handled(len(buf), need)
	return alive
}

// handOver ends a read batch, or a part of one.
func (s *session) handOver() {
	if s.inMsgs > 0 {
		s.in.add(s.inMsgs, s.inBytes)
		s.srv.countIn(s.account, s.inMsgs, s.inBytes)
		s.inMsgs, s.inBytes = 0, 0
	}
	if len(s.st.tallied) > 0 {
		s.st.handOverTallies()
	}
	s.st.flush()
}

// limits are those of the parser: before authentication no message is taken.
func (s *session) limits() wire.Limits {
	o := s.srv.opts()
	l := wire.Limits{ControlLine: o.MaxControlLine, Payload: o.MaxPayload}
	if s.account != nil {
		if most := s.account.Limits().MaxPayload; most > 0 && (l.Payload <= 0 || most < l.Payload) {
			l.Payload = most
		}
	} else if !s.needsNoConnect() {
		// A message before CONNECT is refused before its bytes are kept.
		l.Payload = 1
	}
	return l
}

// needsNoConnect tells whether the connection may do without CONNECT.
func (s *session) needsNoConnect() bool {
	return s.srv.auth().Optional(s.listenerNoAuthUser(), s.connectionType())
}

func (s *session) listenerNoAuthUser() string {
	return noAuthUser(s.srv.opts(), s.ws != nil)
}

// noAuthUser is the listener's own, where it has one.
func noAuthUser(o *Options, websocket bool) string {
	if websocket && o.Websocket != nil {
		return o.Websocket.NoAuthUser
	}
	return ""
}

// send stages a protocol line for the client itself. Reader only.
func (s *session) send(line []byte) {
	if s.st.fan != nil {
		s.st.leaveFan()
	}
	s.st.append(s.st.stageFor(s), line, nil)
}

// sendErr stages an -ERR line. Reader only.
func (s *session) sendErr(text string) {
	s.srv.log.Debug("client error", "cid", s.id, "text", text)
	s.send(wire.AppendErr(nil, text))
}

// fail tells the client why and ends the session. It returns false, for the
// command loop. Reader only.
func (s *session) fail(text string, r Reason) bool {
	s.setReason(r)
	if text != "" {
		s.sendErr(text)
	}
	return false
}

// inject queues bytes for the client from any goroutine.
func (s *session) inject(line []byte) {
	var sp spool
	sp.append2(&s.srv.chunks, line, nil)
	s.out.push(sp.take(nil), len(line), 0)
}

// kick tells the client why and closes the connection once that is sent. Any
// goroutine.
func (s *session) kick(text string, r Reason) {
	s.setReason(r)
	if text != "" {
		s.inject(wire.AppendErr(nil, text))
	}
	s.out.close(true) // the flusher wakes the reader when it is done
}

// cutOff closes the connection at once. Any goroutine; it doesn't block.
func (s *session) cutOff(r Reason) {
	if s.setReason(r) {
		switch r {
		case ReasonSlowPending, ReasonSlowDeadline:
			s.srv.slowConsumers.Add(1)
			if a := s.acct.Load(); a != nil {
				a.slow.Add(1)
			}
			s.srv.log.Info("slow consumer", "cid", s.id, "reason", string(r), "pending", s.out.pending.Load())
		}
	}
	s.out.close(false)
	_ = s.sock.Close()
}

// setReason keeps the first reason; false when there was one.
func (s *session) setReason(r Reason) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != "" {
		return false
	}
	s.reason = r
	return true
}

func (s *session) rules() *auth.Rules { return s.rulesPtr.Load() }

func (s *session) rtt() time.Duration { return time.Duration(s.roundTrip.Load()) }

func (s *session) mayPublish(subject string) bool { return s.rules().Publish(subject) }

func (s *session) maySubscribe(pattern, queue string) bool {
	return s.rules().Subscribe(pattern, queue)
}

// client is what others are told of the session.
func (s *session) client() *ClientInfo { return s.named.Load() }

const (
	// lingerTime is how long a closed connection has to take its last words.
	lingerTime = 2 * time.Second
	// drainBytesMax is how much of what the client still sends is read, so
	// that the socket's reset doesn't overtake the last words.
	drainBytesMax = 1 << 20
)

// finish ends the session: last words, subscriptions, counts, memory.
func (s *session) finish() {
	s.mu.Lock()
	s.closing = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	if p := s.parting.Load(); p != nil {
		_ = s.sock.Close()
		<-p.over // until then what comes for its inboxes is kept
	}
	s.dropSubs()
	s.out.close(true)
	stuck := time.AfterFunc(lingerTime, func() { _ = s.sock.Close() })
	<-s.out.done
	stuck.Stop()
	s.ended.Store(true)
	s.lastWords()
	_ = s.sock.Close()
	s.srv.ended(s)
	// Publishers may know the session for a while yet: what is large goes.
	s.buf.release()
	s.mt, s.st = matcher{}, stager{}
}

// lastWords lets an error line reach a client that is still sending: closing a
// socket with unread bytes resets it, and the reset discards what is on its
// way.
func (s *session) lastWords() {
	s.mu.Lock()
	reason := s.reason
	s.mu.Unlock()
	if s.ws != nil {
		s.ws.closeFrame(reason)
		return
	}
	switch reason {
	case ReasonClientClosed, ReasonReadError, ReasonWriteError, ReasonSlowPending, ReasonSlowDeadline,
		ReasonServerShutdown:
		return
	}
	cw, ok := s.sock.(interface{ CloseWrite() error })
	if !ok || cw.CloseWrite() != nil {
		return
	}
	_ = s.sock.SetReadDeadline(time.Now().Add(lingerTime / 10))
	var sink [4096]byte
	for total := 0; total < drainBytesMax; {
		n, err := s.sock.Read(sink[:])
		if err != nil {
			return
		}
		total += n
	}
}
