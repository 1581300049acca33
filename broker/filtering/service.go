package filtering

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/service"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/filter"
)

// The bounds of the service.
const (
	DefaultGrace      = 30 * time.Second
	DefaultPerAccount = 1000

	workers   = 4
	queueMax  = 256 // requests that wait; more are refused with 503
	sweepTime = time.Second
	upMax     = 16
)

// Prefix is what the subjects begin with that filtered messages are delivered to,
// unless the requester names an inbox.
const Prefix = "$HERALD.F."

// Options are what a Service is made of. The zero value works.
type Options struct {
	// Filters are shared with the other rooms that filter; default: a set of its own.
	Filters *filter.Set
	// Identity is how the service presents itself to those who ask $SRV.>.
	Identity service.Identity
	// Peers is the way to the other nodes; nil on a single node.
	Peers Peers
	// Grace is how long a registration lives that nobody listens to; default 30 s.
	Grace time.Duration
	// PerAccount is how many registrations an account can have; default 1,000.
	PerAccount int
	Log        *slog.Logger // default: discards

	compareEvery, sweepEvery time.Duration // tests
}

// Service answers for the accounts it serves. Its methods are safe for any number of
// callers.
type Service struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	queue  chan func(context.Context)
	up     chan string // nodes that have come
	subs   service.Subscriptions

	mu       sync.Mutex
	accounts map[string]*served
	closed   bool
}

// New makes a service and starts its goroutines; Close ends them.
func New(o Options) *Service {
	if o.Filters == nil {
		o.Filters = filter.NewSet()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	o.PerAccount = cmp.Or(o.PerAccount, DefaultPerAccount)
	o.compareEvery = cmp.Or(o.compareEvery, compareTime)
	o.sweepEvery = cmp.Or(o.sweepEvery, sweepTime)
	s := &Service{o: o, accounts: map[string]*served{}, queue: make(chan func(context.Context), queueMax), up: make(chan string, upMax)}
	s.subs.Identity = o.Identity
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for range workers {
		s.done.Go(s.work)
	}
	s.done.Go(s.sweep)
	if o.Peers != nil {
		s.answerPeers()
		o.Peers.OnUp(func(node string) {
			select {
			case s.up <- node:
			default: // it is compared with soon
			}
		})
		s.done.Go(s.compare)
	}
	return s
}

// Serve answers requests of an account from now on. An account that is served
// already, by name, is left alone unless it was made anew.
func (s *Service) Serve(a *front.Account) error {
	s.mu.Lock()
	old := s.accounts[a.Name()]
	s.mu.Unlock()
	if old != nil && old.account == a {
		return nil
	}
	handlers := map[string]front.Handler{}
	for verb, answer := range s.verbs() {
		handlers["$HERALD.FILTER."+verb] = func(m *front.Message) { s.accept(m, answer) }
	}
	if err := s.subs.Serve(a, handlers); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if old != nil {
		s.subs.End(old.account)
		old.end()
	}
	s.accounts[a.Name()] = &served{account: a, streams: map[string]*stream{}, all: map[string]*live{}}
	return nil
}

// end drops everything. The caller holds Service.mu.
func (v *served) end() {
	for _, l := range v.all {
		v.drop(l)
	}
}

// Close ends all registrations and waits for the goroutines. Requests that wait are
// not answered.
func (s *Service) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	for _, v := range s.accounts {
		v.end()
	}
	s.mu.Unlock()
	s.subs.Close()
	s.cancel()
	s.done.Wait()
}

// Filters returns the set that the service compiles in.
func (s *Service) Filters() *filter.Set { return s.o.Filters }

// Totals sums up what all registrations of this node have counted, and how many
// there are.
func (s *Service) Totals() (n int, sum filter.Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.accounts {
		n += len(v.all)
		for _, l := range v.all {
			sum.Add(l.tally.Stats())
		}
	}
	return n, sum
}

func (s *Service) work() {
	for {
		select {
		case f := <-s.queue:
			ctx, cancel := context.WithTimeout(s.ctx, requestTime)
			f(ctx)
			cancel()
		case <-s.ctx.Done():
			return
		}
	}
}

// put adds a registration, if it isn't there. It fails where its account isn't served
// here, its condition doesn't compile, or the account has too many.
func (s *Service) put(r Registration) (*live, error) {
	f, err := s.o.Filters.Get(r.Where, r.Codec)
	if err != nil {
		return nil, wrong(err)
	}
	r.Where, r.Codec = f.Text(), f.Codec()
	l := &live{Registration: r, filter: f}
	l.heard.Store(time.Now().Add(-r.Idle).UnixNano())
	l.Idle = 0
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.accounts[r.Account]
	var old *live
	if v != nil {
		old = v.all[r.ID]
	}
	switch {
	case v == nil || s.closed:
		err = topics.NewFault(503, codeUnavailable, "account %s is not served here", r.Account)
	case old != nil && old.same(&l.Registration):
		old.heard.Store(max(old.heard.Load(), l.heard.Load()))
		f.Release()
		return old, nil
	case old != nil:
		err = topics.NewFault(409, codeTaken, "filter %s exists and is another one", r.ID)
	case len(v.all) >= s.o.PerAccount:
		err = topics.NewFault(503, codeTooMany, "the account has %d filtered subscriptions, which is all it can have", len(v.all))
	default:
		err = v.add(l)
	}
	if err != nil {
		f.Release()
		return nil, err
	}
	return l, nil
}

// remove ends a registration of this node.
func (s *Service) remove(account, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.accounts[account]; v != nil {
		if l := v.all[id]; l != nil {
			v.drop(l)
		}
	}
}

// sweep notes which registrations are listened to, and ends those that nobody has
// listened to for the grace.
func (s *Service) sweep() {
	tick := time.NewTicker(s.o.sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		var all []*live
		for _, v := range s.accounts {
			for _, l := range v.all {
				all = append(all, l)
			}
		}
		s.mu.Unlock()
		for _, l := range all {
			s.look(l)
		}
	}
}

// look ends a registration that is over.
func (s *Service) look(l *live) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.accounts[l.Account]
	switch {
	case v == nil || v.all[l.ID] != l:
	case v.account.LiteralInterest(l.Deliver):
		l.heard.Store(now.UnixNano())
	case now.UnixNano()-l.heard.Load() > int64(s.o.Grace):
		v.drop(l)
	}
}
