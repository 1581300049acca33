package front

import (
	"crypto/tls"
	"strings"
	"time"
)

// ConnState selects connections for Connections.
type ConnState int

const (
	ConnOpen ConnState = iota
	ConnClosed
	ConnAny
)

// Reason is why a connection closed; its text is that of connz.
type Reason string

const (
	ReasonClientClosed    Reason = "Client Closed"
	ReasonAuthTimeout     Reason = "Authentication Timeout"
	ReasonAuthFailure     Reason = "Authentication Failure"
	ReasonAuthExpired     Reason = "Authentication Expired"
	ReasonTLSError        Reason = "TLS Handshake Failure"
	ReasonSlowPending     Reason = "Slow Consumer (Pending Bytes)"
	ReasonSlowDeadline    Reason = "Slow Consumer (Write Deadline)"
	ReasonWriteError      Reason = "Write Error"
	ReasonReadError       Reason = "Read Error"
	ReasonParseError      Reason = "Parse Error"
	ReasonStale           Reason = "Stale Connection"
	ReasonProtocol        Reason = "Protocol Violation"
	ReasonBadProtocol     Reason = "Bad Client Protocol Version"
	ReasonMaxConnections  Reason = "Maximum Connections Exceeded"
	ReasonMaxAccountConns Reason = "Maximum Account Connections Exceeded"
	ReasonMaxPayload      Reason = "Maximum Message Payload Exceeded"
	ReasonMaxControlLine  Reason = "Maximum Control Line Exceeded"
	ReasonMaxSubs         Reason = "Maximum Subscriptions Exceeded"
	ReasonServerShutdown  Reason = "Server Shutdown"
	ReasonKicked          Reason = "Kicked"
	ReasonNoResponders    Reason = "No Responders Requires Headers"
	ReasonMissingAccount  Reason = "Missing Account"
	ReasonCredsRevoked    Reason = "Credentials Revoked"
	ReasonInternal        Reason = "Internal Client"
)

// ConnInfo is one connection as connz shows it.
type ConnInfo struct {
	ID             uint64
	Kind           string // "Client"
	Type           string // "nats" or "websocket"
	IP             string
	Port           int
	Start          time.Time
	LastActivity   time.Time
	Stop           time.Time // zero while open
	Reason         Reason    // "" while open
	RTT            time.Duration
	PendingBytes   int64
	InMsgs         int64
	OutMsgs        int64
	InBytes        int64
	OutBytes       int64
	Stalls         int64
	Subscriptions  int
	Name           string
	Lang           string
	Version        string
	TLSVersion     string
	TLSCipherSuite string
	TLSFirst       bool
	AuthorizedUser string // never a password or token
	Account        string
	Subs           []SubInfo // only when asked for
}

// SubInfo is one subscription of a connection.
type SubInfo struct {
	Account string
	Subject string
	Queue   string
	SID     string
	Msgs    int64
	Max     int64
	CID     uint64
}

// Counters are a server's or an account's running totals.
type Counters struct {
	InMsgs, InBytes   int64
	OutMsgs, OutBytes int64
}

// Stats are the server's counters as varz shows them.
type Stats struct {
	Start            time.Time
	Connections      int
	TotalConnections uint64
	Subscriptions    int
	Counters
	SlowConsumers    int64
	StaleConnections int64
	StalledClients   int64
	ConfigLoaded     time.Time
}

// SubsStats describe the interest index as subsz shows it.
type SubsStats struct {
	Subscriptions int
	CacheEntries  int
	Inserts       uint64
	Removes       uint64
	Matches       uint64
	CacheHits     uint64
	MaxFanout     int
	AvgFanout     float64
}

// AccountStats describe one account.
type AccountStats struct {
	Name             string
	Connections      int
	TotalConnections uint64
	Subscriptions    int
	SlowConsumers    int64
	Counters
}

// Stats returns the server's counters.
func (s *Server) Stats() Stats {
	st := Stats{
		Start: s.start, SlowConsumers: s.slowConsumers.Load(), StaleConnections: s.staleConnections.Load(),
		StalledClients: s.stalled.Load(), ConfigLoaded: time.Unix(0, s.loaded.Load()),
	}
	st.InMsgs, st.InBytes = s.in.load()
	st.OutMsgs, st.OutBytes = s.out.load()
	s.mu.Lock()
	st.Connections, st.TotalConnections = len(s.sessions), s.total
	s.mu.Unlock()
	for _, a := range s.Accounts() {
		st.Subscriptions += a.index.Len()
	}
	return st
}

// Connections returns open connections, closed ones (oldest first, as many as
// are remembered) or both; subs adds the open ones' subscriptions.
func (s *Server) Connections(state ConnState, subs bool) []ConnInfo {
	var all []ConnInfo
	s.mu.Lock()
	if state != ConnOpen {
		all = s.recent.appendTo(all)
	}
	var open []*session
	if state != ConnClosed {
		open = s.openLocked()
	}
	s.mu.Unlock()
	for _, c := range open {
		all = append(all, c.connInfo(subs))
	}
	return all
}

// connInfo describes the session. Any goroutine.
func (s *session) connInfo(subs bool) ConnInfo {
	client := s.client()
	i := ConnInfo{
		ID: s.id, Kind: kindClient, Type: client.Type, IP: client.Host, Port: client.Port,
		Start: s.start, LastActivity: time.Unix(0, s.lastSeen.Load()), RTT: s.rtt(),
		PendingBytes: s.out.pending.Load(), Stalls: s.stalls.Load(),
		Subscriptions: int(s.subCount.Load()),
		Name:          client.Name, Lang: client.Lang, Version: client.Version,
		AuthorizedUser: client.User, Account: client.Account,
	}
	i.InMsgs, i.InBytes = s.in.load()
	i.OutMsgs, i.OutBytes = s.out.counters()
	s.mu.Lock()
	i.Reason = s.reason
	if subs {
		for _, u := range s.subs {
			i.Subs = append(i.Subs, u.info())
		}
	}
	t := s.tls
	s.mu.Unlock()
	if t != nil {
		st := t.ConnectionState()
		i.TLSVersion = tlsVersionText(st.Version)
		i.TLSCipherSuite = tls.CipherSuiteName(st.CipherSuite)
		i.TLSFirst = s.tlsFirst
	}
	return i
}

// tlsVersionText is how connz writes a version: "1.3".
func tlsVersionText(v uint16) string {
	_, number, _ := strings.Cut(tls.VersionName(v), " ")
	return number
}

func (u *sub) info() SubInfo {
	i := SubInfo{
		Account: u.account.name, Subject: u.subject, Queue: u.queue, SID: u.sid,
		Msgs: u.delivered.Load(), Max: u.max.Load(),
	}
	if u.sess != nil {
		i.CID = u.sess.id
	}
	return i
}

// Subscriptions calls f for each subscription of clients until it returns
// false. It must not subscribe.
func (s *Server) Subscriptions(f func(SubInfo) bool) {
	for _, a := range s.Accounts() {
		more := true
		a.index.Each(func(u *sub) bool {
			if u.sess != nil {
				more = f(u.info())
			}
			return more
		})
		if !more {
			return
		}
	}
}

// SubsStats describes the interest index of all accounts together.
func (s *Server) SubsStats() SubsStats {
	var st SubsStats
	for _, a := range s.Accounts() {
		i := a.index.Stats()
		st.Subscriptions += i.Values
		st.Inserts += i.Inserts
		st.Removes += i.Removes
		st.Matches += i.Matches
	}
	return st
}
