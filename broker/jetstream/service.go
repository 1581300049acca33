package jetstream

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/delivery"
	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/filter"
)

// Defaults of Options.
const (
	queueLimitDefault = 10_000
	workersDefault    = 256 // they wait for commits, which they share
	timeoutDefault    = 20 * time.Second
)

// Options says what a Service works with. State, Engine and Server are
// required; for the rest the zero value works.
type Options struct {
	State  *state.State
	Server *front.Server
	// Engine gives the delivery engine of a group, nil where it has no replica.
	Engine func(topics.GroupID) *delivery.Engine

	// Sources describes a topic's mirror or sources; nil where nothing copies
	// between topics, and then configs that ask for it are refused.
	Sources func(topics.TopicID) (mirror *jsapi.SourceInfo, sources []*jsapi.SourceInfo)

	// Mirrors gives the names of an account's streams that mirror one of its
	// streams; nil: they are looked for.
	Mirrors func(account, name string) []string

	// Filters compiles content filters; default: a set of its own.
	Filters *filter.Set

	ServerName string // shown as the leader in infos
	Domain     string // also answers $JS.<domain>.API.>
	Cluster    string // the cluster's name, "" on a single node
	// Peers is the way to the other nodes; nil on a single node.
	Peers Cluster

	// Lenient lets unknown fields of requests pass, as jetstream{strict:false}.
	Lenient bool
	// MaxDuplicates, MaxRequestBatch and MaxAckPending cap what configs may ask
	// for; 0 is no cap.
	MaxDuplicates   time.Duration
	MaxRequestBatch int
	MaxAckPending   int
	// MaxConsumers is max_consumers of streams that don't say; 0 is no limit.
	MaxConsumers int

	QueueLimit int           // requests waiting for a worker; default 10,000
	Workers    int           // requests answered at once; default 256
	Timeout    time.Duration // the longest a request may wait for its commit; default 20 s

	Now func() time.Time // default: the system's clock
	Log *slog.Logger     // default: discards
}

func (o Options) withDefaults() Options {
	if o.QueueLimit <= 0 {
		o.QueueLimit = queueLimitDefault
	}
	if o.Workers <= 0 {
		o.Workers = workersDefault
	}
	if o.Filters == nil {
		o.Filters = filter.NewSet()
	}
	if o.Timeout <= 0 {
		o.Timeout = timeoutDefault
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Service answers the JetStream API of every account it was told of. See the
// package's text. Its methods are safe for any number of callers.
type Service struct {
	o     Options
	queue *queue
	// waiting is what waits for somebody to lead.
	waiting *waiting
	leaders leaders
	abreast abreast
	groups  groupSeen

	ctx  context.Context // ends at Close; of requests that wait for a commit
	stop context.CancelFunc

	// workQueues orders the changes of consumers on one work queue, by hash.
	workQueues [64]sync.Mutex
	seed       maphash.Seed

	gatesMu sync.Mutex
	gates   map[gateKey]*gate

	mu        sync.Mutex
	accounts  map[string]*accountAPI
	closed    bool
	transfers int            // backups and restores going on
	moving    sync.WaitGroup // of them
}

// New makes a service. It starts nothing and answers nobody yet.
func New(o Options) *Service {
	s := &Service{o: o.withDefaults(), accounts: make(map[string]*accountAPI), gates: make(map[gateKey]*gate), seed: maphash.MakeSeed()}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.abreast.s = s
	s.queue = newQueue(s.o.Workers, s.o.QueueLimit)
	s.waiting = newWaiting(s.led)
	if s.o.Peers != nil {
		s.answerPeers()
	}
	return s
}

// Start starts the workers. Accounts may be enabled before or after.
func (s *Service) Start() {
	s.queue.start()
	s.dropUnfinished()
}

// Close stops answering, gives up requests under way and waits for the workers.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	for _, a := range s.accounts {
		a.unsubscribe()
	}
	s.mu.Unlock()
	s.stop()
	s.waiting.close()
	s.queue.close()
	s.moving.Wait()
}

// errNoAccount is returned for an account the server doesn't have.
var errNoAccount = errors.New("no such account")

// EnableAccount answers an account's API within limits. Called again it changes
// the limits.
func (s *Service) EnableAccount(name string, limits jsapi.AccountLimits) error {
	return s.account(name, func(a *accountAPI) { a.limits.Store(&limits) })
}

// RefuseAccount answers an account's API with "not enabled for account": its
// clients learn why instead of waiting.
func (s *Service) RefuseAccount(name string) error {
	return s.account(name, func(a *accountAPI) { a.limits.Store(nil) })
}

func (s *Service) account(name string, set func(*accountAPI)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	a := s.accounts[name]
	if a != nil {
		set(a)
		return nil
	}
	fa := s.o.Server.Account(name)
	if fa == nil {
		return fmt.Errorf("enable JetStream for account %q: %w", name, errNoAccount)
	}
	a = &accountAPI{s: s, account: fa, name: name}
	set(a)
	if err := a.subscribe(); err != nil {
		return fmt.Errorf("enable JetStream for account %q: %w", name, err)
	}
	s.accounts[name] = a
	return nil
}

// Stats returns what an account has asked of the API so far.
func (s *Service) Stats(account string) jsapi.APIStats {
	s.mu.Lock()
	a := s.accounts[account]
	s.mu.Unlock()
	if a == nil {
		return jsapi.APIStats{Level: jsapi.Level}
	}
	return a.stats()
}

// environment returns what the rules of configs need to know for an account.
func (s *Service) environment(a *accountAPI) *environment {
	env := &environment{
		clustered: s.clustered(), nodes: s.peers(), cluster: s.o.Cluster, maxDuplicates: s.o.MaxDuplicates,
		maxRequestBatch: s.o.MaxRequestBatch, maxConsumers: max(s.o.MaxConsumers, 0), apiPrefixes: a.prefixes(),
		limits: jsapi.Unlimited(), filters: s.o.Filters,
		stream: func(name string) *topics.Config {
			if t, ok := s.o.State.Topic(a.name, name); ok {
				return t.Config()
			}
			return nil
		},
		keeps: func(subject string) *topics.Config {
			if t := s.o.State.TopicKeeping(a.name, subject); t != nil {
				return t.Config()
			}
			return nil
		},
	}
	if l := a.limits.Load(); l != nil {
		env.limits = *l
	}
	if m := s.o.MaxAckPending; m > 0 && (env.limits.MaxAckPending <= 0 || env.limits.MaxAckPending > m) {
		env.limits.MaxAckPending = m
	}
	return env
}

// exclusive returns the lock under which consumers of a work queue are made.
func (s *Service) exclusive(account, stream string) *sync.Mutex {
	return &s.workQueues[maphash.String(s.seed, account+"\x00"+stream)%uint64(len(s.workQueues))]
}
