package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/service"
	"github.com/heraldmq/herald/topics"
)

// Backend is what the service asks of the broker it is part of. Any goroutine
// may call it.
type Backend interface {
	// Report describes this node as it sees itself.
	Report() Report
	// Peers are the connected nodes with the round trip to each.
	Peers() map[string]time.Duration
	// Call asks a method of a connected node.
	Call(ctx context.Context, to, method string, body []byte) ([]byte, error)
	// AddNode, DrainNode and RemoveNode change the table of nodes, on any node.
	AddNode(ctx context.Context, name string) error
	DrainNode(ctx context.Context, name string) error
	RemoveNode(ctx context.Context, name string) error
	// Transfer gives away the lead of a group that this node leads, "" to the best.
	Transfer(ctx context.Context, group topics.GroupID, to string) error
	// Scrub reads what this node has of a group on disk; nil means of all groups.
	Scrub(ctx context.Context, only *topics.GroupID) ([]Scrubbed, error)
}

// Scrubbed is what reading a replica's files came to.
type Scrubbed struct {
	Node  string         `json:"node"`
	Group topics.GroupID `json:"group"`
	Bytes int64          `json:"bytes"`           // read and checked
	Fault string         `json:"fault,omitempty"` // what is damaged, "" when all is well
}

// Options are what a Service is made of. All are required.
type Options struct {
	Cluster string // its name
	Backend Backend
	// Identity is how the service presents itself to those who ask $SRV.>.
	Identity service.Identity
	Log      *slog.Logger
}

const (
	requestsMax   = 16               // at once
	reportTimeout = 2 * time.Second  // for a peer to describe itself
	changeTimeout = 30 * time.Second // for the cluster to decide
	scrubTimeout  = 30 * time.Minute
)

// Methods served to peers.
const (
	MethodReport   = "cluster.report"
	MethodTransfer = "cluster.transfer"
	MethodScrub    = "cluster.scrub"
)

// Service answers $HERALD.CLUSTER.>. Its methods are safe for any number of
// callers.
type Service struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	slots  chan struct{}
	wg     sync.WaitGroup

	subs service.Subscriptions

	mu     sync.Mutex
	closed bool
}

// New makes a service that answers nobody yet.
func New(o Options) *Service {
	s := &Service{o: o, slots: make(chan struct{}, requestsMax)}
	s.subs.Identity = o.Identity
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve answers in exactly these accounts from now on.
func (s *Service) Serve(accounts []*front.Account) error {
	handlers := map[string]front.Handler{}
	for verb, h := range s.verbs() {
		handlers["$HERALD.CLUSTER."+verb] = func(m *front.Message) { s.accept(m, h) }
	}
	for _, a := range accounts {
		if err := s.subs.Serve(a, handlers); err != nil {
			return err
		}
	}
	s.subs.Keep(accounts)
	return nil
}

// Close ends the service: requests under way are given up, and waited for.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.subs.Close()
	s.cancel()
	s.wg.Wait()
}

// accept runs a request on a goroutine of its own. It doesn't block.
func (s *Service) accept(m *front.Message, h handler) {
	if m.Client == nil || len(m.Reply) == 0 {
		return
	}
	c := m.Clone()
	select {
	case s.slots <- struct{}{}:
	default:
		respond(c, nil, &Fault{503, "too many requests are under way; try again"})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		<-s.slots
		return
	}
	s.wg.Go(func() {
		defer func() { <-s.slots }()
		v, err := h(s.ctx, c.Payload)
		if err != nil {
			s.subs.Failed(c.Account, string(c.Subject), err.Error())
		}
		respond(c, v, err)
	})
}

// Fault is a refusal with its status, as HTTP has them.
type Fault struct {
	Code int    `json:"code"`
	Text string `json:"description"`
}

func (f *Fault) Error() string { return f.Text }

// respond answers with v, or why there is none.
func respond(m *front.Message, v any, err error) {
	if err != nil {
		var f *Fault
		switch {
		case errors.As(err, &f):
		case errors.Is(err, context.DeadlineExceeded):
			f = &Fault{504, "not done in time; it may still be done: " + err.Error()}
		default:
			f = &Fault{500, err.Error()}
		}
		v = struct {
			Error *Fault `json:"error"`
		}{f}
	}
	b, err := json.Marshal(v)
	if err != nil { // everything answered here can be marshalled
		b = []byte(`{"error":{"code":500,"description":"the answer can't be encoded"}}`)
	}
	m.Respond(nil, b)
}
