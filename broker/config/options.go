package config

import "time"

// Defaults, nats-server's where it has them.
const (
	DefaultPort           = 4222
	DefaultHTTPPort       = 8222 // where none is asked for by "http: host" alone
	DefaultClusterPort    = 6222 // where a cluster block gives none
	DefaultClusterName    = "herald"
	DefaultMaxPayload     = 1 << 20
	DefaultMaxControlLine = 4096
	DefaultMaxPending     = 64 << 20
	DefaultMaxConnections = 64 << 10
	DefaultPingInterval   = 2 * time.Minute
	DefaultPingMax        = 2
	DefaultWriteDeadline  = 10 * time.Second
	DefaultAuthTimeout    = 2 * time.Second
	DefaultTLSTimeout     = 2 * time.Second
	DefaultLameDuck       = 2 * time.Minute
	DefaultLameDuckGrace  = 10 * time.Second
	DefaultClosedClients  = 10000
	DefaultStoreDir       = "herald-data"
	// GlobalAccount is where connections land that no account claims, and
	// SystemAccount the account of monitoring and events.
	GlobalAccount = "$G"
	SystemAccount = "$SYS"
)

// Options is a broker's configuration. The zero value plus Defaults is a broker
// on loopback without durable topics. Port 0 is the default port, -1 any free
// one; for optional listeners 0 is off.
type Options struct {
	// Where it came from.

	ConfigFile string // path of the file read, "" if none
	Digest     string // "sha256:…" of the file's content as parsed
	Warnings   []string

	// Who and where.

	ServerName      string
	Host            string // interface of the client listener; loopback by default
	Port            int
	ClientAdvertise string // host:port told to clients instead of the listener's
	Tags            []string
	Metadata        map[string]string

	// Limits of connections. 0 = default, -1 = none where that makes sense.

	MaxConnections   int
	MaxSubscriptions int // per connection
	MaxSubTokens     int
	MaxControlLine   int   // bytes
	MaxPayload       int   // bytes
	MaxPending       int64 // bytes waiting for one connection
	MaxClosedClients int   // closed connections kept for /connz?state=closed
	PingInterval     time.Duration
	PingMax          int
	WriteDeadline    time.Duration
	NoHeaders        bool
	NoProducerStall  bool
	LameDuck         time.Duration
	LameDuckGrace    time.Duration

	// Who may connect.

	Auth          Auth
	Accounts      []*Account // in name order; never holds duplicates
	SystemAccount string     // "" means $SYS unless NoSystem
	NoSystem      bool
	NoAuthUser    string
	TLS           *TLS
	AllowNonTLS   bool

	// Other listeners.

	Websocket Websocket
	HTTP      HTTP
	Web       Web
	Console   bool // the page at /console/ of the HTTP listener
	Cluster   Cluster

	// Durable topics.

	JetStream JetStream

	// The process.

	Log      Log
	ProfPort int // of 127.0.0.1, for Go's profiles; 0 is off
	PidFile  string
	PortsDir string
}

// Auth is an authorization block.
type Auth struct {
	User, Password string // Password may be a bcrypt hash
	Token          string
	Timeout        time.Duration
	Users          []User
	Default        *Permissions // for users without permissions of their own
	At             string       // "file:line:col" of the block, "" from flags
}

// Required tells whether the block names anybody.
func (a *Auth) Required() bool { return a.User != "" || a.Token != "" || len(a.Users) > 0 }

// User is one who may connect: by name and password, or by an nkey.
type User struct {
	Name, Password string
	NKey           string
	Permissions    *Permissions
	Connections    []string // allowed connection types, nil = all
	At             string
}

// Permissions limits subjects. A nil list allows all (Allow) or denies none
// (Deny); an empty list that was written allows nothing.
type Permissions struct {
	Publish, Subscribe *Subjects
	Responses          *Responses

	// Of advertisements; nil follows from Publish and Subscribe.
	Advertise, Discover, Sample, Enforce *Subjects
}

// Subjects is one direction of Permissions. A subscribe pattern may be followed
// by a queue name.
type Subjects struct{ Allow, Deny []string }

// Responses lets a connection publish to reply subjects it has been sent.
type Responses struct {
	Max     int // messages per reply subject, -1 = no limit
	Expires time.Duration
}

// Account is an isolated space of subjects and topics.
type Account struct {
	Name             string
	NKey             string
	Users            []User
	Default          *Permissions
	JetStream        *AccountLimits // nil: durable topics are off for the account
	MaxConnections   int            // -1 = no limit, as in the next two
	MaxSubscriptions int
	MaxPayload       int
	At               string
}

// AccountLimits bounds an account's topics; -1 = no limit.
type AccountLimits struct {
	MaxMemory, MaxStore             int64
	MaxStreams, MaxConsumers        int
	MaxAckPending                   int
	MemoryMaxStream, StoreMaxStream int64
	MaxBytesRequired                bool
}

// Websocket is the websocket listener; Port 0 = off.
type Websocket struct {
	Host             string
	Port             int
	Advertise        string
	NoTLS            bool
	TLS              *TLS
	SameOrigin       bool
	AllowedOrigins   []string
	HandshakeTimeout time.Duration
	Compression      bool
	PingInterval     time.Duration
	NoAuthUser       string
	UserCookie       string
	PassCookie       string
	TokenCookie      string
	Headers          map[string]string
	At               string
}

// HTTP is the monitoring listener; ports of 0 are off.
type HTTP struct {
	Host      string // loopback unless one was given
	Port      int
	HTTPSPort int
	BasePath  string
	At        string
}

// Cluster is the listener for the other nodes of the cluster; Port 0 = a node
// alone, which may still name a cluster.
type Cluster struct {
	Name        string
	Host        string // loopback unless one was given
	Port        int
	Advertise   string   // host:port told to peers, "" = where the listener is
	NoAdvertise bool     // don't tell clients of the other nodes
	WriteFirst  bool     // a leader sends what it has written, not while it writes
	Routes      []string // host:port of peers, without credentials
	User        string   // with Password the secret that all nodes share
	Password    string
	AuthTimeout time.Duration
	TLS         *TLS
	At          string
}

// Enabled tells whether the node takes part in a cluster.
func (c *Cluster) Enabled() bool { return c.Port != 0 }

// Secret is what the nodes prove to each other to know, "" for none.
func (c *Cluster) Secret() string {
	if c.User == "" && c.Password == "" {
		return ""
	}
	return c.User + ":" + c.Password
}

// JetStream is the durable side.
type JetStream struct {
	Enabled      bool
	StoreDir     string // the directory asked for; Herald's files are in StoreDir/herald
	Domain       string
	MaxMemory    int64 // bytes; 0 = as the machine allows, -1 = no limit
	MaxStore     int64
	Strict       bool // refuse unknown fields in API requests; default true
	SyncInterval time.Duration
	SyncAlways   bool
	Limits       JetStreamLimits
	RequestQueue int
	At           string
}

// JetStreamLimits are caps and defaults for all accounts; 0 = the built-in one.
type JetStreamLimits struct {
	MaxAckPending       int
	MaxHAAssets         int
	MaxRequestBatch     int
	DefaultMaxConsumers int
	DuplicateWindow     time.Duration
	BatchPerStream      int
	BatchTotal          int
	BatchMessages       int
	BatchTimeout        time.Duration
}

// Log is where log lines go and which.
type Log struct {
	File      string
	SizeLimit int64 // bytes after which the file is rotated; 0 = never
	MaxFiles  int   // rotated files kept; 0 = all
	Debug     bool
	Trace     bool
	TraceAll  bool // system account too
	Time      bool // lines carry the time (default true)
	UTC       bool
	Format    string // text, json, logfmt
	MaxTraced int    // bytes of a traced payload; 0 = all
}

// TLS is a tls block.
type TLS struct {
	Certs           []CertPair
	CAFile          string
	Verify          bool
	VerifyAndMap    bool
	Insecure        bool
	Timeout         time.Duration
	HandshakeFirst  bool
	FirstWait       time.Duration // with HandshakeFirst: how long before INFO goes out anyway; 0 = never
	MinVersion      uint16
	CipherSuites    []uint16
	Curves          []uint16
	PinnedCerts     []string // hex sha256 of the public key
	ConnectionsPerS int64    // 0 = no limit
	At              string
}

// CertPair is a certificate and its key.
type CertPair struct{ CertFile, KeyFile string }

// Defaults returns the options of a broker nobody configured.
func Defaults() *Options {
	return &Options{
		Host: "127.0.0.1", Port: DefaultPort,
		MaxConnections: DefaultMaxConnections, MaxControlLine: DefaultMaxControlLine,
		MaxPayload: DefaultMaxPayload, MaxPending: DefaultMaxPending,
		MaxClosedClients: DefaultClosedClients,
		PingInterval:     DefaultPingInterval, PingMax: DefaultPingMax,
		WriteDeadline: DefaultWriteDeadline,
		LameDuck:      DefaultLameDuck, LameDuckGrace: DefaultLameDuckGrace,
		Auth:      Auth{Timeout: DefaultAuthTimeout},
		HTTP:      HTTP{Host: "127.0.0.1"},
		Web:       Web{SameOrigin: true},
		Console:   true,
		Cluster:   Cluster{Host: "127.0.0.1", AuthTimeout: DefaultAuthTimeout},
		Websocket: Websocket{Host: "127.0.0.1", SameOrigin: true, HandshakeTimeout: DefaultTLSTimeout},
		JetStream: JetStream{Strict: true},
		Log:       Log{Time: true, Format: "text"},
	}
}
