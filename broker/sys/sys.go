// Package sys answers what NATS tools ask on $SYS subjects and tells what
// happens: who a user is, how servers are found and described, who connects and
// leaves. The pages are those of broker/monitor.
//
// Requests come in on the goroutine of whoever published them, which must not
// be held up: only USER.INFO is answered there. Everything else goes through a
// bounded queue to one worker; when the queue is full a request is dropped and
// counted, and its sender times out.
package sys

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/monitor"
)

// queueMax bounds the requests and events that wait for the worker.
const queueMax = 1024

// statszInterval is how often STATSZ is published when somebody listens.
const statszInterval = 10 * time.Second

// Options say what the services work with. All but Reload must be set.
type Options struct {
	Monitor *monitor.Monitor
	// Reload reads the configuration again; nil when there is none.
	Reload func() error
	Log    *slog.Logger
}

// Services is the $SYS side of one broker.
type Services struct {
	o      Options
	mon    *monitor.Monitor
	src    monitor.Sources
	queue  chan func()
	seq    atomic.Uint64 // numbers what the server sends
	drops  atomic.Uint64
	ids    *nuid.NUID // used by the worker only
	wg     sync.WaitGroup
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	subs   map[*front.Account][]*front.Internal
}

// New returns the services; Start makes them answer.
func New(o Options) *Services {
	return &Services{
		o: o, mon: o.Monitor, src: o.Monitor.Sources(),
		queue: make(chan func(), queueMax), ids: nuid.New(), subs: map[*front.Account][]*front.Internal{},
	}
}

// Start subscribes in every account there is and starts the worker.
func (s *Services) Start() error {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.wg.Go(func() { s.work(ctx) })
	if err := s.Refresh(); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// Refresh serves the accounts that are new since it was called last, and
// forgets those that are gone.
func (s *Services) Refresh() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	there := map[*front.Account]bool{}
	for _, a := range s.src.Front.Accounts() {
		there[a] = true
		if _, served := s.subs[a]; served {
			continue
		}
		if err := s.serveLocked(a); err != nil {
			return err
		}
	}
	for a, subs := range s.subs {
		if !there[a] {
			for _, i := range subs {
				i.Close()
			}
			delete(s.subs, a)
		}
	}
	return nil
}

// Close ends the subscriptions and the worker, and waits. What was still queued
// is answered first.
func (s *Services) Close() error {
	s.mu.Lock()
	s.closed = true
	for _, subs := range s.subs {
		for _, i := range subs {
			i.Close()
		}
	}
	clear(s.subs)
	s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
	s.wg.Wait()
	return nil
}

// work runs what is queued, and publishes STATSZ now and then.
func (s *Services) work(ctx context.Context) {
	tick := time.NewTicker(statszInterval)
	defer tick.Stop()
	for {
		select {
		case f := <-s.queue:
			f()
		case <-tick.C:
			s.publishStatsz()
		case <-ctx.Done():
			for {
				select {
				case f := <-s.queue:
					f()
				default:
					return
				}
			}
		}
	}
}

// later queues f for the worker; when there is too much to do it is dropped.
func (s *Services) later(f func()) {
	select {
	case s.queue <- f:
	default:
		if n := s.drops.Add(1); n&(n-1) == 0 { // the 1st, 2nd, 4th, 8th …
			s.o.Log.Warn("System requests come faster than they are answered; some were dropped", "dropped", n)
		}
	}
}

// Dropped counts requests and events that found the queue full.
func (s *Services) Dropped() uint64 { return s.drops.Load() }

// serveLocked subscribes to what an account may ask.
func (s *Services) serveLocked(a *front.Account) error {
	// What is about the asker itself is answered by the node it is connected to.
	own := map[string]front.Handler{
		"$SYS.REQ.USER.INFO":     s.userInfo,
		"$SYS.DEBUG.SUBSCRIBERS": s.queued(s.subscribers),
		"$SYS.REQ.ACCOUNT.NSUBS": s.queued(s.subscribers),
	}
	handlers := map[string]front.Handler{
		"$SYS.REQ.ACCOUNT.PING.CONNZ": s.queued(s.accountPing),
		"$SYS.REQ.ACCOUNT.PING.STATZ": s.queued(s.accountPing),
	}
	if a.System() {
		id := s.src.ServerID
		for subject, h := range map[string]front.Handler{
			"$SYS.REQ.SERVER.PING":            s.queued(s.serverRequest),
			"$SYS.REQ.SERVER.PING.*":          s.queued(s.serverRequest),
			"$SYS.REQ.SERVER." + id + ".*":    s.queued(s.serverRequest),
			"$SYS.REQ.ACCOUNT.*.*":            s.queued(s.accountRequest),
			"$SYS.REQ.SERVER." + id + ".KICK": s.queued(s.oneClient),
			"$SYS.REQ.SERVER." + id + ".LDM":  s.queued(s.oneClient),
		} {
			handlers[subject] = h
		}
	} else {
		handlers["$SYS.REQ.SERVER.PING.CONNZ"] = s.queued(s.accountPing)
	}
	s.subs[a] = nil
	return errors.Join(s.subscribeLocked(a, own, front.Local), s.subscribeLocked(a, handlers))
}

func (s *Services) subscribeLocked(a *front.Account, handlers map[string]front.Handler, opts ...front.SubscribeOption) error {
	for subject, h := range handlers {
		i, err := a.Subscribe(subject, "", h, opts...)
		if err != nil {
			return fmt.Errorf("serve %s in account %s: %w", subject, a.Name(), err)
		}
		s.subs[a] = append(s.subs[a], i)
	}
	return nil
}

// queued makes a handler that leaves the work to the worker.
func (s *Services) queued(f func(*front.Message)) front.Handler {
	return func(m *front.Message) {
		if m.Client == nil {
			return // what a client made the broker say, not what it asked itself
		}
		if len(m.Reply) == 0 {
			return
		}
		c := m.Clone()
		s.later(func() { f(c) })
	}
}

// envelope is how every answer looks.
type envelope struct {
	Server ServerInfo   `json:"server"`
	Data   any          `json:"data,omitempty"`
	Stats  *ServerStats `json:"statsz,omitempty"`
	Error  *apiError    `json:"error,omitempty"`
}

type apiError struct {
	Code        int    `json:"code"`
	Description string `json:"description,omitempty"`
}

// ServerInfo names the server in what it sends.
type ServerInfo struct {
	Name      string            `json:"name"`
	Host      string            `json:"host"`
	ID        string            `json:"id"`
	Cluster   string            `json:"cluster,omitempty"`
	Domain    string            `json:"domain,omitempty"`
	Version   string            `json:"ver"`
	Tags      []string          `json:"tags,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	JetStream bool              `json:"jetstream"`
	Flags     uint64            `json:"flags"`
	Seq       uint64            `json:"seq"`
	Time      time.Time         `json:"time"`
}

// flagJetStream tells in ServerInfo.Flags that durable topics are on.
const flagJetStream = 1

func (s *Services) info() ServerInfo {
	o := s.src.Options()
	i := ServerInfo{
		Name: s.src.ServerName, Host: o.Host, ID: s.src.ServerID, Cluster: o.Cluster.Name, Domain: o.JetStream.Domain,
		Version: s.src.Version, Tags: o.Tags, Metadata: o.Metadata, Seq: s.seq.Add(1), Time: time.Now().UTC(),
	}
	if s.src.Durable() != nil {
		i.JetStream, i.Flags = true, flagJetStream
	}
	return i
}

// answer sends a page, or why there is none.
func (s *Services) answer(m *front.Message, page any, err error) {
	e := envelope{Server: s.info(), Data: page}
	if err != nil {
		e.Data, e.Error = nil, &apiError{Code: http.StatusBadRequest, Description: err.Error()}
		if coded := (*refusal)(nil); errors.As(err, &coded) {
			e.Error.Code = coded.code
		}
	}
	s.send(m, e)
}

func (s *Services) send(m *front.Message, v any) {
	b, err := json.Marshal(v)
	if err != nil { // every page here can be marshalled
		s.o.Log.Error("System answer could not be encoded", "subject", string(m.Subject), "error", err)
		return
	}
	m.Respond(nil, b)
}

// refusal is an error with a code of its own.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }
