package front

import "time"

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
