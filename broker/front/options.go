package front

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"

	"github.com/heraldmq/herald/broker/auth"
)

// Options configure a Server. The zero value listens on a random port of the
// loopback interface and lets everybody in.
type Options struct {
	// Host and Port of the client listener; "" is 127.0.0.1, 0 a free port.
	Host string
	Port int
	// NoListen starts no TCP listener (websocket or Serve only).
	NoListen bool

	// What INFO says.
	ServerID        string // 56 characters, "N…"; made up when empty
	ServerName      string // "" is the ServerID
	Version         string // must look like "2.15.2"; clients gate features on it
	Herald          string // Herald's own version
	GitCommit       string
	Cluster         string // name, "" outside a cluster
	Domain          string // JetStream domain
	ClientAdvertise string // host:port shown instead of Host:Port
	JetStream       bool
	APILevel        int  // JetStream API level
	NoHeaders       bool // no_header_support

	// Limits. 0 takes the default named; negative means no limit.
	MaxPayload       int   // bytes; 1 MiB
	MaxControlLine   int   // bytes; 4096
	MaxConnections   int   // 65536
	MaxSubscriptions int   // per connection; no limit
	MaxSubTokens     int   // tokens per subscription subject; no limit
	MaxPending       int64 // bytes per connection; 64 MiB
	MaxClosedClients int   // connections remembered after they closed; 10000

	// Times. 0 takes the default named.
	WriteDeadline    time.Duration // 10 s
	PingInterval     time.Duration // 2 min
	PingMax          int           // unanswered pings; 2
	LameDuckDuration time.Duration // 2 min
	LameDuckGrace    time.Duration // 10 s

	NoFastProducerStall bool

	Auth        auth.Config
	TLS         *TLSOptions // nil: plain
	AllowNonTLS bool        // with TLS: plain connections are let in as well
	Websocket   *WebsocketOptions

	// Log gets connection events at debug level and, when Trace is set, every
	// operation of a client at LevelTrace. nil discards.
	Log             *slog.Logger
	Trace           bool
	MaxTracedMsgLen int // bytes of payload shown in a trace; 0: all

	// OnAccount is called once for each account, before any of its users is
	// let in: the place to Subscribe services. May be nil.
	OnAccount func(*Account)
	// OnConnect and OnDisconnect follow authenticated clients, on the
	// session's goroutine; they must not block. May be nil.
	OnConnect    func(*ClientInfo)
	OnDisconnect func(*ClientInfo, ConnInfo)
	// OnAuthError is told of each refused connection. May be nil.
	OnAuthError func(*ClientInfo, ConnInfo)
}

// LevelTrace is the level of protocol traces, below debug.
const LevelTrace = slog.LevelDebug - 4

// TLSOptions say how a listener speaks TLS.
type TLSOptions struct {
	// Config holds certificates, client CAs, versions and suites. It is cloned.
	Config *tls.Config
	// Timeout of a handshake; 0 is 2 s.
	Timeout time.Duration
	// HandshakeFirst expects the client's hello before INFO; with
	// HandshakeFallback > 0, INFO is sent when none came by then.
	HandshakeFirst    bool
	HandshakeFallback time.Duration
	// PinnedCerts, when not empty, lists hex SHA-256 sums of the public keys
	// of clients that may connect.
	PinnedCerts []string
	// RateLimit bounds handshakes per second; 0 has no bound.
	RateLimit int64
}

// WebsocketOptions configure the websocket listener. Without TLS it must say
// NoTLS.
type WebsocketOptions struct {
	Host      string
	Port      int
	Advertise string
	NoTLS     bool
	TLS       *TLSOptions
	// Compression accepts permessage-deflate from clients that offer it.
	Compression bool
	// AnyOrigin lets browsers in from everywhere. Otherwise an Origin header
	// must be the host itself or one of AllowedOrigins.
	AnyOrigin        bool
	AllowedOrigins   []string
	HandshakeTimeout time.Duration // 2 s
	Headers          http.Header   // added to the 101 answer
	// Names of cookies that stand in for CONNECT fields; "" for none.
	UserCookie, PassCookie, TokenCookie string
	// Auth of this listener where it differs from Options.Auth.
	NoAuthUser   string
	PingInterval time.Duration
}

const (
	defaultVersion        = "2.15.2"
	defaultMaxPayload     = 1 << 20
	defaultMaxControlLine = 4096
	defaultMaxConnections = 64 << 10
	defaultMaxPending     = 64 << 20
	defaultMaxClosed      = 10000
	defaultWriteDeadline  = 10 * time.Second
	defaultPingInterval   = 2 * time.Minute
	defaultPingMax        = 2
	defaultLameDuck       = 2 * time.Minute
	defaultLameDuckGrace  = 10 * time.Second
	defaultAuthTimeout    = 2 * time.Second
	defaultTLSTimeout     = 2 * time.Second
)

func or[T int | int64 | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

func (o Options) withDefaults() Options {
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.ServerID == "" {
		o.ServerID = newServerID()
	}
	if o.ServerName == "" {
		o.ServerName = o.ServerID
	}
	if o.Version == "" {
		o.Version = defaultVersion
	}
	o.MaxPayload = or(o.MaxPayload, defaultMaxPayload)
	o.MaxControlLine = or(o.MaxControlLine, defaultMaxControlLine)
	o.MaxConnections = or(o.MaxConnections, defaultMaxConnections)
	o.MaxPending = or(o.MaxPending, int64(defaultMaxPending))
	o.MaxClosedClients = or(o.MaxClosedClients, defaultMaxClosed)
	o.WriteDeadline = or(o.WriteDeadline, defaultWriteDeadline)
	o.PingInterval = or(o.PingInterval, defaultPingInterval)
	o.PingMax = or(o.PingMax, defaultPingMax)
	o.LameDuckDuration = or(o.LameDuckDuration, defaultLameDuck)
	o.LameDuckGrace = or(o.LameDuckGrace, defaultLameDuckGrace)
	o.Auth.Timeout = or(o.Auth.Timeout, defaultAuthTimeout)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}
