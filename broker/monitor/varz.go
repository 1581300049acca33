package monitor

import (
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jsapi"
)

// Varz is the general page, with nats-server's keys.
type Varz struct {
	ID                string            `json:"server_id"`
	Name              string            `json:"server_name"`
	Version           string            `json:"version"`
	Herald            string            `json:"herald"`
	Proto             int               `json:"proto"`
	GitCommit         string            `json:"git_commit,omitempty"`
	GoVersion         string            `json:"go"`
	Host              string            `json:"host"`
	Port              int               `json:"port"`
	AuthRequired      bool              `json:"auth_required,omitempty"`
	TLSRequired       bool              `json:"tls_required,omitempty"`
	TLSVerify         bool              `json:"tls_verify,omitempty"`
	IP                string            `json:"ip,omitempty"`
	ConnectURLs       []string          `json:"connect_urls,omitempty"`
	WSConnectURLs     []string          `json:"ws_connect_urls,omitempty"`
	MaxConn           int               `json:"max_connections"`
	MaxSubs           int               `json:"max_subscriptions,omitempty"`
	PingInterval      time.Duration     `json:"ping_interval"`
	MaxPingsOut       int               `json:"ping_max"`
	HTTPHost          string            `json:"http_host"`
	HTTPPort          int               `json:"http_port"`
	HTTPBasePath      string            `json:"http_base_path"`
	HTTPSPort         int               `json:"https_port"`
	AuthTimeout       float64           `json:"auth_timeout"`
	MaxControlLine    int               `json:"max_control_line"`
	MaxPayload        int               `json:"max_payload"`
	MaxPending        int64             `json:"max_pending"`
	Cluster           ClusterVarz       `json:"cluster"`
	Gateway           struct{}          `json:"gateway"`
	Leaf              struct{}          `json:"leaf"`
	MQTT              struct{}          `json:"mqtt"`
	Websocket         WebsocketVarz     `json:"websocket"`
	JetStream         JetStreamVarz     `json:"jetstream"`
	TLSTimeout        float64           `json:"tls_timeout"`
	WriteDeadline     time.Duration     `json:"write_deadline"`
	WriteTimeout      string            `json:"write_timeout,omitempty"`
	Start             time.Time         `json:"start"`
	Now               time.Time         `json:"now"`
	Uptime            string            `json:"uptime"`
	Mem               int64             `json:"mem"`
	Cores             int               `json:"cores"`
	MaxProcs          int               `json:"gomaxprocs"`
	MemLimit          int64             `json:"gomemlimit,omitempty"`
	CPU               float64           `json:"cpu"`
	Connections       int               `json:"connections"`
	TotalConnections  uint64            `json:"total_connections"`
	Routes            int               `json:"routes"`
	Remotes           int               `json:"remotes"`
	Leafs             int               `json:"leafnodes"`
	InMsgs            int64             `json:"in_msgs"`
	OutMsgs           int64             `json:"out_msgs"`
	InBytes           int64             `json:"in_bytes"`
	OutBytes          int64             `json:"out_bytes"`
	InClientMsgs      int64             `json:"in_client_msgs"`
	OutClientMsgs     int64             `json:"out_client_msgs"`
	InClientBytes     int64             `json:"in_client_bytes"`
	OutClientBytes    int64             `json:"out_client_bytes"`
	SlowConsumers     int64             `json:"slow_consumers"`
	StaleConnections  int64             `json:"stale_connections"`
	StalledClients    int64             `json:"stalled_clients"`
	Subscriptions     uint32            `json:"subscriptions"`
	HTTPReqStats      map[string]uint64 `json:"http_req_stats"`
	ConfigLoadTime    time.Time         `json:"config_load_time"`
	ConfigDigest      string            `json:"config_digest"`
	Tags              []string          `json:"tags,omitempty"`
	Metadata          map[string]string `json:"metadata,omitempty"`
	SystemAccount     string            `json:"system_account,omitempty"`
	SlowConsumerStats KindCounts        `json:"slow_consumer_stats"`
	StaleStats        KindCounts        `json:"stale_connection_stats"`
}

// KindCounts splits a counter by kind of connection; Herald has clients only.
type KindCounts struct {
	Clients  uint64 `json:"clients"`
	Routes   uint64 `json:"routes"`
	Gateways uint64 `json:"gateways"`
	Leafs    uint64 `json:"leafs"`
}

// ClusterVarz describes the cluster listener.
type ClusterVarz struct {
	Name        string   `json:"name,omitempty"`
	Host        string   `json:"addr,omitempty"`
	Port        int      `json:"cluster_port,omitempty"`
	AuthTimeout float64  `json:"auth_timeout,omitempty"`
	URLs        []string `json:"urls,omitempty"`
	TLSTimeout  float64  `json:"tls_timeout,omitempty"`
	TLSRequired bool     `json:"tls_required,omitempty"`
	TLSVerify   bool     `json:"tls_verify,omitempty"`
}

// WebsocketVarz describes the websocket listener.
type WebsocketVarz struct {
	Host             string        `json:"host,omitempty"`
	Port             int           `json:"port,omitempty"`
	Advertise        string        `json:"advertise,omitempty"`
	NoAuthUser       string        `json:"no_auth_user,omitempty"`
	HandshakeTimeout time.Duration `json:"handshake_timeout,omitempty"`
	SameOrigin       bool          `json:"same_origin,omitempty"`
	AllowedOrigins   []string      `json:"allowed_origins,omitempty"`
	Compression      bool          `json:"compression,omitempty"`
}

// JetStreamVarz describes the durable side.
type JetStreamVarz struct {
	Config *JetStreamConfig `json:"config,omitempty"`
	Stats  *JetStreamStats  `json:"stats,omitempty"`
	Meta   *MetaCluster     `json:"meta,omitempty"`
	Limits *JetStreamLimits `json:"limits,omitempty"`
}

// JetStreamConfig is how the durable side is set up.
type JetStreamConfig struct {
	MaxMemory    int64         `json:"max_memory"`
	MaxStore     int64         `json:"max_storage"`
	StoreDir     string        `json:"store_dir,omitempty"`
	SyncInterval time.Duration `json:"sync_interval,omitempty"`
	SyncAlways   bool          `json:"sync_always,omitempty"`
	Domain       string        `json:"domain,omitempty"`
	CompressOK   bool          `json:"compress_ok,omitempty"`
	Strict       bool          `json:"strict,omitempty"`
}

// JetStreamStats is what the durable side holds.
type JetStreamStats struct {
	Memory         uint64         `json:"memory"`
	Store          uint64         `json:"storage"`
	ReservedMemory uint64         `json:"reserved_memory"`
	ReservedStore  uint64         `json:"reserved_storage"`
	Accounts       int            `json:"accounts"`
	HAAssets       int            `json:"ha_assets"`
	API            jsapi.APIStats `json:"api"`
}

// JetStreamLimits are the caps of the durable side.
type JetStreamLimits struct {
	MaxRequestBatch int           `json:"max_request_batch,omitempty"`
	MaxAckPending   int           `json:"max_ack_pending,omitempty"`
	MaxHAAssets     int           `json:"max_ha_assets,omitempty"`
	Duplicates      time.Duration `json:"max_duplicate_window,omitempty"`
}

// Varz makes the general page.
func (m *Monitor) Varz() *Varz {
	o, st, now := m.s.Options(), m.s.Front.Stats(), time.Now()
	v := &Varz{
		ID: m.s.ServerID, Name: m.s.ServerName, Version: m.s.Version, Herald: m.s.Herald, Proto: 1,
		GoVersion: runtime.Version(), Host: o.Host, Port: m.s.ClientPort(),
		AuthRequired: !o.Anonymous(), MaxConn: o.MaxConnections, MaxSubs: o.MaxSubscriptions,
		PingInterval: o.PingInterval, MaxPingsOut: o.PingMax,
		HTTPHost: o.HTTP.Host, HTTPBasePath: o.HTTP.BasePath,
		AuthTimeout: o.Auth.Timeout.Seconds(), MaxControlLine: o.MaxControlLine, MaxPayload: o.MaxPayload,
		MaxPending: o.MaxPending, WriteDeadline: o.WriteDeadline,
		Start: m.s.Started.UTC(), Now: now.UTC(), Uptime: Uptime(now.Sub(m.s.Started)),
		Mem: residentBytes(), Cores: runtime.NumCPU(), MaxProcs: runtime.GOMAXPROCS(0), MemLimit: memoryLimit(),
		CPU:         m.cpu.percent(now),
		Connections: st.Connections, TotalConnections: st.TotalConnections, Subscriptions: uint32(st.Subscriptions),
		SlowConsumers: st.SlowConsumers, StaleConnections: st.StaleConnections, StalledClients: st.StalledClients,
		SlowConsumerStats: KindCounts{Clients: uint64(st.SlowConsumers)}, StaleStats: KindCounts{Clients: uint64(st.StaleConnections)},
		ConfigLoadTime: m.s.Loaded().UTC(), ConfigDigest: o.Digest, Tags: o.Tags, Metadata: o.Metadata,
		SystemAccount: m.systemAccount(), Cluster: m.clusterVarz(),
		JetStream: m.jetStreamVarz(),
	}
	v.countTraffic(st)
	if c := m.cluster(); c != nil {
		v.Remotes = len(c.Links())
		v.Routes = v.Remotes
	}
	if o.TLS != nil {
		v.TLSRequired, v.TLSVerify, v.TLSTimeout = !o.AllowNonTLS, o.TLS.Verify, o.TLS.Timeout.Seconds()
	}
	if o.HTTP.HTTPSPort != 0 {
		v.HTTPSPort = m.s.HTTPPort()
	} else {
		v.HTTPPort = m.s.HTTPPort()
	}
	if o.Websocket.Port != 0 {
		w := o.Websocket
		v.Websocket = WebsocketVarz{
			Host: w.Host, Port: m.s.WebsocketPort(), Advertise: w.Advertise, NoAuthUser: w.NoAuthUser,
			HandshakeTimeout: w.HandshakeTimeout, SameOrigin: w.SameOrigin, AllowedOrigins: w.AllowedOrigins,
			Compression: w.Compression,
		}
	}
	m.mu.Lock()
	v.HTTPReqStats = maps.Clone(m.requests)
	m.mu.Unlock()
	return v
}

func (v *Varz) countTraffic(st front.Stats) {
	v.InMsgs, v.InBytes, v.OutMsgs, v.OutBytes = st.InMsgs, st.InBytes, st.OutMsgs, st.OutBytes
	v.InClientMsgs, v.InClientBytes, v.OutClientMsgs, v.OutClientBytes = st.InMsgs, st.InBytes, st.OutMsgs, st.OutBytes
}

// jetStreamVarz describes the durable side; empty without one.
func (m *Monitor) jetStreamVarz() JetStreamVarz {
	durable := m.s.Durable()
	if durable == nil {
		return JetStreamVarz{}
	}
	js := m.s.Options().JetStream
	l := js.Limits
	var meta *MetaCluster
	if c := m.cluster(); c != nil {
		meta = c.Meta()
	}
	return JetStreamVarz{
		Meta:   meta,
		Config: m.jetStreamConfig(),
		Stats:  m.jetStreamStats(durable),
		Limits: &JetStreamLimits{
			MaxRequestBatch: l.MaxRequestBatch, MaxAckPending: l.MaxAckPending, MaxHAAssets: l.MaxHAAssets, Duplicates: l.DuplicateWindow,
		},
	}
}

func (m *Monitor) jetStreamConfig() *JetStreamConfig {
	js := m.s.Options().JetStream
	if js.MaxMemory == 0 {
		js.MaxMemory = memoryShare()
	}
	if js.MaxStore == 0 {
		js.MaxStore = diskShare(m.s.StoreDir)
	}
	return &JetStreamConfig{
		MaxMemory: js.MaxMemory, MaxStore: js.MaxStore, StoreDir: m.s.StoreDir, SyncAlways: true,
		Domain: js.Domain, CompressOK: true, Strict: js.Strict,
	}
}

func (m *Monitor) jetStreamStats(durable Durable) *JetStreamStats {
	s := &JetStreamStats{API: durable.API("")}
	for _, a := range m.durableAccounts() {
		u := durable.Usage(a)
		s.Memory += u.Memory
		s.Store += u.Store
		s.ReservedMemory += u.ReservedMemory
		s.ReservedStore += u.ReservedStore
		s.Accounts++
	}
	return s
}

// durableAccounts returns the names of accounts that may have topics.
func (m *Monitor) durableAccounts() []string { return m.s.Options().DurableAccounts() }

// Uptime writes a duration as nats-server does: "3d4h5m6s".
func Uptime(d time.Duration) string {
	s := int64(d / time.Second)
	var b strings.Builder
	for _, u := range []struct {
		seconds int64
		letter  byte
	}{{365 * 86400, 'y'}, {86400, 'd'}, {3600, 'h'}, {60, 'm'}} {
		if n := s / u.seconds; n > 0 || b.Len() > 0 {
			b.WriteString(strconv.FormatInt(n, 10))
			b.WriteByte(u.letter)
		}
		s %= u.seconds
	}
	b.WriteString(strconv.FormatInt(s, 10))
	b.WriteByte('s')
	return b.String()
}

// residentBytes is the process's resident memory, or what the runtime took from
// the system where that is not known.
func residentBytes() int64 {
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := strings.Fields(string(b)); len(f) > 1 {
			if pages, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				return pages * int64(os.Getpagesize())
			}
		}
	}
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.Sys)
}

// memoryLimit is the runtime's memory limit, 0 when there is none.
func memoryLimit() int64 {
	const none = 1<<63 - 1
	if l := debug.SetMemoryLimit(-1); l < none {
		return l
	}
	return 0
}

// cpuMeter tells the process's use of CPU, in percent of one core, between two
// askings at least a second apart.
type cpuMeter struct {
	mu   sync.Mutex
	at   time.Time
	used time.Duration
	last float64
}

func (c *cpuMeter) percent(now time.Time) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return c.last
	}
	used := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	if span := now.Sub(c.at); c.at.IsZero() || span >= time.Second {
		if !c.at.IsZero() {
			c.last = float64(int64(float64(used-c.used)/float64(span)*1000)) / 10
		}
		c.at, c.used = now, used
	}
	return c.last
}
