package front

import (
	"cmp"
	"crypto/x509"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/heraldmq/herald/broker/auth"
	"github.com/heraldmq/herald/broker/wire"
)

// protocolMax is the newest client protocol: 1 takes INFO at any time.
const protocolMax = 1

// firstPing is how long after the start the round trip is measured first.
const firstPing = time.Second

// anonymous binds a client that sent no CONNECT, where that is allowed.
func (s *session) anonymous() bool {
	if !s.needsNoConnect() {
		return false
	}
	o := wire.DefaultConnect()
	return s.authenticate(&o)
}

// connectAs handles CONNECT.
func (s *session) connectAs(arg []byte) bool {
	o, err := wire.ParseConnect(arg)
	if err != nil {
		return s.fail("", ReasonParseError)
	}
	if o.Protocol < 0 || o.Protocol > protocolMax {
		return s.fail(wire.TextInvalidProtocol, ReasonBadProtocol)
	}
	o.Headers = o.Headers && !s.srv.opts().NoHeaders
	if o.NoResponders && !o.Headers {
		return s.fail(wire.TextNoRespondersHeader, ReasonNoResponders)
	}
	if o.Account != "" {
		return s.fail(wire.TextAuthorization, ReasonAuthFailure)
	}
	if s.ws != nil {
		s.ws.fill(&o)
	}
	if s.account != nil {
		s.unbind()
	}
	verbose, pedantic := o.Verbose, o.Pedantic
	if !s.authenticate(&o) {
		return false
	}
	s.connect.Verbose, s.connect.Pedantic = verbose, pedantic
	s.owesInfo = o.Protocol >= 1
	s.async.Store(o.Protocol >= 1)
	s.ok()
	return true
}

// authenticate finds out who the client is and binds it to its account. On
// failure it has told the client.
func (s *session) authenticate(o *wire.ConnectOptions) bool {
	creds := auth.Credentials{
		User: o.User, Pass: o.Pass, Token: o.Token, Nkey: o.Nkey, Sig: o.Sig, JWT: o.JWT,
		Nonce: s.nonce, Peer: s.peerCertificate(), Type: s.connectionType(), NoAuthUser: s.listenerNoAuthUser(),
	}
	id, err := s.srv.auth().Check(&creds)
	// What was shown is not kept.
	o.Pass, o.Token, o.Sig, o.JWT = "", "", "", ""
	s.connect = *o
	s.headers.Store(o.Headers)
	s.describe(id)
	if err != nil {
		s.srv.authFailed(s)
		return s.fail(wire.TextAuthorization, ReasonAuthFailure)
	}
	a := s.srv.Account(id.Account)
	if a == nil {
		return s.fail(wire.TextAccountFailure, ReasonMissingAccount)
	}
	if !a.admit() {
		return s.fail(wire.TextMaxAccountConns, ReasonMaxAccountConns)
	}
	s.rulesPtr.Store(id.Rules)
	s.identity.Store(id)
	s.account = a
	s.acct.Store(a)
	s.st.account = a
	s.mt.init(a, &s.st, s)
	s.pingSoon()
	s.srv.log.Debug("client connected", "cid", s.id, "account", a.name, "name", o.Name)
	if f := s.srv.opts().OnConnect; f != nil {
		f(s.info)
	}
	// A reload between Check and here didn't see this session.
	s.srv.recheck(s)
	return true
}

// admit counts a connection in; false when the account is full.
func (a *Account) admit() bool {
	if most := a.Limits().MaxConnections; a.conns.Add(1) > int64(most) && most > 0 {
		a.conns.Add(-1)
		return false
	}
	a.total.Add(1)
	return true
}

// unbind takes the session out of its account, with everything it had there.
func (s *session) unbind() {
	s.handOver()
	s.dropSubs()
	s.account.conns.Add(-1)
	s.account = nil
	s.acct.Store(nil)
	s.mu.Lock()
	s.replies = nil // what somebody else was asked
	s.mu.Unlock()
}

// describe sets what others are told of the client.
func (s *session) describe(id *auth.Identity) {
	info := *s.info
	o := &s.connect
	info.Name, info.Lang, info.Version = o.Name, o.Lang, o.Version
	if id != nil {
		info.User, info.Account = id.User, id.Account
	}
	s.info = &info
	s.named.Store(&info)
}

func (s *session) peerCertificate() *x509.Certificate {
	if s.tls == nil {
		return nil
	}
	// Only what was verified: an unverified certificate names nobody.
	if st := s.tls.ConnectionState(); len(st.VerifiedChains) > 0 && len(st.PeerCertificates) > 0 {
		return st.PeerCertificates[0]
	}
	return nil
}

func (s *session) connectionType() string {
	switch {
	case s.ws != nil || s.guest:
		return auth.TypeWebsocket
	case s.info.Kind == kindInProcess:
		return auth.TypeInProcess
	}
	return auth.TypeStandard
}

// listenerType is the type of the connections a listener takes.
func listenerType(websocket bool) string {
	if websocket {
		return auth.TypeWebsocket
	}
	return auth.TypeStandard
}

// infoLine is INFO as this client gets it.
func (s *session) infoLine(afterConnect bool) []byte {
	o := s.srv.opts()
	i := s.srv.baseInfo(o, s.ws != nil)
	i.ClientID, i.ClientIP = s.id, s.info.Host
	i.Nonce = string(s.nonce)
	if s.account != nil {
		if most := s.account.Limits().MaxPayload; most > 0 && (i.MaxPayload <= 0 || most < i.MaxPayload) {
			i.MaxPayload = most
		}
	}
	if afterConnect && s.account != nil {
		i.ConnectInfo = true
		i.RemoteAccount = s.account.name
		i.AccountIsSystem = s.account.system
	}
	return wire.AppendInfo(nil, &i)
}

// baseInfo is what INFO says to everybody.
func (s *Server) baseInfo(o *Options, websocket bool) wire.ServerInfo {
	i := wire.ServerInfo{
		ID: o.ServerID, Name: o.ServerName, Version: o.Version, Proto: 1,
		Herald: o.Herald, GitCommit: o.GitCommit, Go: runtime.Version(), Headers: !o.NoHeaders,
		Host: o.Host, Port: s.port(), MaxPayload: o.MaxPayload,
		JetStream: o.JetStream, Cluster: o.Cluster, Domain: o.Domain, APILevel: o.APILevel,
		AuthRequired: !s.auth().Optional(noAuthUser(o, websocket), listenerType(websocket)), LameDuckMode: s.IsLameDuck(),
	}
	urls := s.urls.Load()
	if urls != nil {
		i.ConnectURLs, i.WSConnectURLs = urls.client, urls.websocket
		if websocket {
			i.ConnectURLs = urls.websocket
		}
	}
	t, advertise := o.TLS, o.ClientAdvertise
	if websocket {
		i.Port = s.websocketPort()
		if w := o.Websocket; w != nil {
			t, advertise = w.TLS, w.Advertise
			i.Host = cmp.Or(w.Host, o.Host)
		}
		i.TLSRequired = t != nil
		advertised(&i, advertise)
		return i
	}
	advertised(&i, advertise)
	if t != nil {
		i.TLSRequired, i.TLSAvailable = !o.AllowNonTLS, o.AllowNonTLS
		i.TLSVerify = verifies(t)
	}
	return i
}

// advertised puts the address that clients are to use in place of our own.
func advertised(i *wire.ServerInfo, hostPort string) {
	if hostPort == "" {
		return
	}
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		i.Host = hostPort // without a port
		return
	}
	i.Host = host
	if n, err := strconv.Atoi(port); err == nil && n > 0 {
		i.Port = n
	}
}

// startTimer begins the time for CONNECT.
func (s *session) startTimer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.needsNoConnect() {
		// Nothing is asked for, so nothing is late.
		s.timer = time.AfterFunc(s.firstPingDelay(), s.onTimer)
		return
	}
	s.timer = time.AfterFunc(s.srv.opts().Auth.Timeout, s.onTimer)
}

// firstPingDelay spreads the first pings of clients that came together.
func (s *session) firstPingDelay() time.Duration {
	d := min(firstPing, s.pingInterval())
	return d + rand.N(d/4+1)
}

func (s *session) pingInterval() time.Duration {
	o := s.srv.opts()
	if s.ws != nil && o.Websocket != nil && o.Websocket.PingInterval > 0 {
		return o.Websocket.PingInterval
	}
	return o.PingInterval
}

// pingSoon replaces the time for CONNECT by the time to the first ping.
func (s *session) pingSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil && !s.closing {
		s.timer.Reset(s.firstPingDelay())
	}
}

// onTimer cuts off who didn't authenticate, pings who is quiet, and cuts off
// who doesn't answer.
func (s *session) onTimer() {
	if s.acct.Load() == nil && !s.needsNoConnect() {
		s.kick(wire.TextAuthTimeout, ReasonAuthTimeout)
		return
	}
	interval := s.pingInterval()
	quiet := time.Since(time.Unix(0, s.lastSeen.Load()))
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return
	}
	if s.pingsOut >= s.srv.opts().PingMax {
		s.mu.Unlock()
		s.srv.staleConnections.Add(1)
		s.kick(wire.TextStale, ReasonStale)
		return
	}
	send := s.rtt() == 0 || quiet >= interval*9/10
	if send {
		s.pingsOut++
		s.pingSent = time.Now()
	} else {
		// Whoever sends is alive.
		s.pingsOut = 0
	}
	s.timer.Reset(interval)
	s.mu.Unlock()
	if send {
		s.inject(wire.PingLine)
	}
}

// verifies tells whether clients must show a certificate.
func verifies(t *TLSOptions) bool {
	return t != nil && t.Config != nil && slices.Contains(clientAuthVerified, t.Config.ClientAuth)
}
