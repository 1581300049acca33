// Package monitor shows what a broker does: the pages of nats-server's
// monitoring port as values, the HTTP listener that serves them, health checks
// and Prometheus metrics.
//
// A Monitor makes the pages (varz.go, connz.go, subsz.go, jsz.go, health.go,
// accounts.go, peers.go) from what the rooms of the broker count anyway; it
// keeps next to nothing of its own. The same pages answer $SYS requests
// (broker/sys). Server (http.go) serves them on a listener of its own, with
// /livez, /startupz, /readyz and /metrics beside them.
//
// No page shows a password, a token, an nkey seed or the command line.
package monitor

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/topics"
)

// Durable is what the pages ask the durable side for. Any goroutine may call it.
type Durable interface {
	// Usage tells what an account holds.
	Usage(account string) Usage
	// Topics calls f for an account's topics by name, "" for all accounts, until
	// it returns false.
	Topics(account string, f func(Topic) bool)
	// Topic finds one topic.
	Topic(account, name string) (Topic, bool)
	// Groups describes the Raft groups of this node.
	Groups() []Group
	// Behind returns which groups of this node have not caught up, and what of them is
	// damaged, in words; none is well.
	Behind() []Lack
	// API counts the JetStream requests of an account, "" for all.
	API(account string) jsapi.APIStats
}

// Usage is what an account holds, in bytes; reserved is the sum of max_bytes.
type Usage struct {
	Memory, Store                 uint64
	ReservedMemory, ReservedStore uint64
}

// Topic is one topic as the pages see it. Info and Consumers are made when they
// are asked for.
type Topic struct {
	Account, Name string
	Group         topics.GroupID
	Leads         bool // this node leads the topic's group
	State         topics.State
	Info          func() *jsapi.StreamInfo
	Consumers     func() []*jsapi.ConsumerInfo // sorted by name
}

// Group is one Raft group as seen by this node.
type Group struct {
	ID                                            topics.GroupID
	Leader                                        string // "" when none is known
	Leads                                         bool
	Term                                          uint64
	Last, Committed, Applied, Flushed, FirstIndex topics.Index
	Pending                                       int  // proposals without outcome
	NoSpace                                       bool // writes are refused for want of disk space
	LogBytes                                      int64
	Snapshot                                      topics.Index
	SnapshotTaken                                 time.Time
	Members                                       []GroupMember // the leader's view is the best
}

// GroupMember is one replica of a group.
type GroupMember struct {
	Node          string
	Voter, Online bool
	Lag           uint64 // entries behind the leader, as far as this node knows
	Contact       time.Time
}

// Lack is a group of this node that doesn't serve everything.
type Lack struct {
	Group  topics.GroupID
	Reason string
}

// Sources is where the pages come from. All must be set.
type Sources struct {
	ServerID   string
	ServerName string
	Version    string // nats-server's, for clients that gate on it
	Herald     string // Herald's own
	Started    time.Time
	Front      *front.Server
	// Durable returns the durable side, nil without one.
	Durable func() Durable
	// Options returns the options in force.
	Options func() *config.Options
	// Pending returns why the broker does not serve everything yet, or any more;
	// empty means ready.
	Pending func() []string
	// Opened tells whether the broker has started; before, there are no pages.
	Opened func() bool
	// ClientPort, WebsocketPort and HTTPPort are those really in use.
	ClientPort, WebsocketPort, HTTPPort func() int
	// Loaded is when the options in force were read.
	Loaded func() time.Time
	// StoreDir is where durable topics are kept.
	StoreDir string
	// Cluster returns the node's view of the others, nil when it is alone. May be nil.
	Cluster func() Cluster
	// Collectors are what other rooms measure, added to /metrics. May be nil.
	Collectors []prometheus.Collector
}

// Monitor makes the pages. Its methods may be called by any number of
// goroutines.
type Monitor struct {
	s   Sources
	cpu cpuMeter

	mu       sync.Mutex
	requests map[string]uint64 // HTTP requests by path
}

// New returns the monitor of a broker.
func New(s Sources) *Monitor {
	return &Monitor{s: s, requests: map[string]uint64{}}
}

// Sources returns what the monitor was made of.
func (m *Monitor) Sources() Sources { return m.s }

func (m *Monitor) counted(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[path]++
}

// Page bounds.
const (
	connzLimit = 1024
	subszLimit = 1024
	jszLimit   = 1024
	pageMax    = 100_000
)

// page bounds offset and limit for a list of n and returns the part to show.
func page(offset, limit, def, n int) (from, to, shownLimit int) {
	if limit <= 0 || limit > pageMax {
		limit = def
	}
	from = min(max(offset, 0), n)
	return from, from + min(limit, n-from), limit
}

// systemAccount returns the name of the system account.
func (m *Monitor) systemAccount() string {
	if a := m.s.Front.SystemAccount(); a != nil {
		return a.Name()
	}
	return ""
}
