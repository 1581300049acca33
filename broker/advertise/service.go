package advertise

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// Catalogue is what the service needs of *state.State.
type Catalogue interface {
	Advertise(ctx context.Context, account, id string, body []byte) (*catalogue.Advertisement, *catalogue.Event, error)
	Withdraw(ctx context.Context, a *catalogue.Advertisement, expired bool) error
	Advertisements(account string) ([]*catalogue.Advertisement, uint64)
	IsCatalogueLeader() bool
	Topic(account, name string) (*state.Topic, bool)
	CreateTopic(ctx context.Context, account string, cfg topics.Config) (*state.Topic, bool, error)
	UpdateTopic(ctx context.Context, account string, cfg topics.Config) (*state.Topic, error)
}

// Options are what a Service is made of. Catalogue is required.
type Options struct {
	Catalogue Catalogue
	// Now is what leases are measured by. It should be monotonic, so that no step of
	// the clock ends one; default time.Now.
	Now func() time.Time
	// MayKeep tells whether an account may have topics; nil: all may.
	MayKeep func(account string) bool
	// Peers is the way to the node that leads the catalogue; nil on a single node.
	Peers Peers
	// Seen waits until other nodes know of a topic, first of all the one named; nil:
	// there are none.
	Seen func(t *state.Topic, node string)
	Log  *slog.Logger // default: discards

	vouchEvery time.Duration // tests; default vouchEvery
}

// The bounds of the service.
const (
	workers         = 8
	workerQueueMax  = 256              // requests waiting for one worker; more are refused with 503
	eventQueueMax   = 4096             // changes waiting to be published; more end the watches
	watchesMax      = 1024             // of one account
	requestPatience = 10 * time.Second // for group 0 to decide
)

// Service answers the advertise API of the accounts it serves. Its methods are
// safe for any number of callers.
type Service struct {
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	queues [workers]chan request
	events chan catalogue.Event
	wake   chan struct{} // to the sweeper
	// vouches wakes vouch.
	vouches chan struct{}

	mu       sync.Mutex
	accounts map[string]*served
	leases   leases
	vouched  vouched
	busy     map[uint64]int  // clients of this node with requests under way
	gone     map[uint64]bool // those of them that have left
	lost     bool            // changes were dropped since the last one published
	closed   bool
}

// served is an account's part of the service.
type served struct {
	bus     bus
	closers []func()
	watches map[string]*watch // by the subject they are told on; guarded by Service.mu
}

// bus is what the service needs of an account.
type bus interface {
	subscribe(subject string, h func(request)) (unsubscribe func(), err error)
	publish(subject string, payload []byte) (heard bool)
	hasInterest(subject string) bool
	watchInterest(subject string, f func(has bool)) (cancel func())
}

// request is one request, owning its bytes.
type request struct {
	account string
	verb    string // PUT, GET, …
	payload []byte
	reply   string
	client  uint64 // connection, 0 when the broker itself asks
	node    string // the client's, "" when it is this one
	respond func(payload []byte)
	may     func(subject string) bool // what the client may publish to; nil: everything
}

// New makes a service and starts its workers.
func New(o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.vouchEvery <= 0 {
		o.vouchEvery = vouchEvery
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{
		o: o, accounts: map[string]*served{},
		events: make(chan catalogue.Event, eventQueueMax), wake: make(chan struct{}, 1),
		vouches: make(chan struct{}, 1), busy: map[uint64]int{}, gone: map[uint64]bool{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for i := range s.queues {
		s.queues[i] = make(chan request, workerQueueMax)
		s.done.Go(func() { s.work(s.queues[i]) })
	}
	if o.Peers != nil {
		s.answerPeers()
		s.done.Go(s.vouch)
	}
	s.done.Go(s.tell)
	s.done.Go(s.sweep)
	return s
}

// Serve answers requests of an account from now on.
func (s *Service) Serve(a *front.Account) error { return s.serve(a.Name(), frontBus{a}) }

func (s *Service) serve(account string, b bus) error {
	v := &served{bus: b, watches: map[string]*watch{}}
	for _, verb := range []string{"PUT", "GET", "LIST", "RENEW", "WITHDRAW"} {
		unsubscribe, err := b.subscribe("$HERALD.ADV."+verb, func(r request) {
			r.account, r.verb = account, verb
			s.accept(r)
		})
		if err != nil {
			for _, c := range v.closers {
				c()
			}
			return err
		}
		v.closers = append(v.closers, unsubscribe)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accounts[account] = v
	return nil
}

// Lead tells that this node has begun or ceased to lead group 0. A new leader
// grants every lease one full term.
func (s *Service) Lead(leads bool) {
	var all []*catalogue.Advertisement
	if leads {
		all, _ = s.o.Catalogue.Advertisements("")
	}
	now := s.o.Now()
	s.mu.Lock()
	if !leads {
		s.leases = leases{}
	}
	for _, a := range all {
		k := leaseKey{a.Account, a.Key()}
		s.leases.hold(k, a.Lease, restored, connection{}, now)
		for client := range s.vouched.of[k] {
			s.leases.hold(k, a.Lease, holderName("", client), connection{id: client}, now)
		}
	}
	s.mu.Unlock()
	s.nudge()
}

// Changed is for state.Hooks.OnAdvertisement.
func (s *Service) Changed(e catalogue.Event) {
	select {
	case s.events <- e:
	default:
		s.mu.Lock()
		s.lost = true
		s.mu.Unlock()
	}
}

// Disconnected is told of the end of a client's connection: what it advertised
// for as long as it is connected has its grace left.
func (s *Service) Disconnected(c *front.ClientInfo) { s.disconnected(c.ID) }

func (s *Service) disconnected(client uint64) {
	s.ended(connection{id: client})
	s.mu.Lock()
	known := s.vouched.drop(client)
	if s.busy[client] > 0 {
		s.gone[client] = true
	}
	s.mu.Unlock()
	if known && s.o.Peers != nil {
		s.tellEnded(client)
	}
}

// ended gives what a connection held its grace.
func (s *Service) ended(c connection) {
	s.mu.Lock()
	found := s.leases.disconnected(c, s.o.Now())
	s.mu.Unlock()
	if found {
		s.nudge()
	}
}

// Close ends the service and waits for its goroutines. Requests that wait are
// not answered.
func (s *Service) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	var ends []func()
	for _, v := range s.accounts {
		ends = append(ends, v.closers...)
		for _, w := range v.watches {
			ends = append(ends, w.cancel)
		}
	}
	s.mu.Unlock()
	for _, end := range ends {
		end()
	}
	s.cancel()
	s.done.Wait()
}

// accept hands a request to a worker. Requests about one advertisement go to the
// same one, so that they keep their order.
func (s *Service) accept(r request) {
	h := fnv.New32a()
	h.Write([]byte(r.account))
	switch r.verb {
	case "PUT", "WITHDRAW", "RENEW":
		var about struct {
			Name string `json:"name"`
		}
		if decode(r.payload, &about, false) == nil {
			h.Write([]byte(about.Name))
		}
	default:
		h.Write([]byte(r.reply))
	}
	s.begin(r.client)
	select {
	case s.queues[h.Sum32()%workers] <- r:
	default:
		s.end(r.client)
		r.respond(encode(errorReply(faultBusy)))
	}
}

func (s *Service) work(queue chan request) {
	for {
		select {
		case r := <-queue:
			ctx, cancel := context.WithTimeout(s.ctx, requestPatience)
			s.carryOut(ctx, r)
			cancel()
			s.end(r.client)
		case <-s.ctx.Done():
			return
		}
	}
}

// nudge makes the sweeper look at the leases.
func (s *Service) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

const (
	sweepPause = 100 * time.Millisecond // the least between two sweeps
	sweepLate  = time.Second            // a sweep later than that was held up: so were the renewals
)

// sweep ends what nobody holds any more. No timer runs while no lease has an end.
func (s *Service) sweep() {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	var planned time.Time // of the next sweep, by the system's clock; zero: none
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		now := s.o.Now()
		s.mu.Lock()
		if late := time.Since(planned); !planned.IsZero() && late > sweepLate {
			s.leases.extend(late)
		}
		ended, next := s.leases.sweep(now)
		s.mu.Unlock()
		retry := s.expire(ended)
		planned = time.Time{}
		switch {
		case retry:
			planned = time.Now().Add(time.Second)
		case !next.IsZero():
			planned = time.Now().Add(max(next.Sub(s.o.Now()), sweepPause))
		default:
			timer.Stop()
			continue
		}
		timer.Reset(time.Until(planned))
	}
}

// expire withdraws advertisements whose lease has ended and tells whether some
// have to be tried again.
func (s *Service) expire(ended []leaseKey) (retry bool) {
	if len(ended) > 0 && !s.stillLeads() {
		return false // whoever does gives each a full term
	}
	for _, k := range ended {
		a := s.find(k)
		if a == nil {
			s.forget(k)
			continue
		}
		if s.held(k) {
			continue // taken up again since the sweep
		}
		ctx, cancel := context.WithTimeout(s.ctx, requestPatience)
		err := s.o.Catalogue.Withdraw(ctx, a, true)
		cancel()
		if err != nil && !errors.Is(err, catalogue.FaultNoAdvertised) {
			s.o.Log.Warn("an advertisement whose lease has ended could not be withdrawn yet", "name", k.Name, "account", k.account, "error", err)
			retry = true
			continue
		}
		s.forget(k)
	}
	return retry
}

// forget drops the lease of an advertisement unless somebody took it up again.
func (s *Service) forget(k leaseKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.leases.all[k]; e != nil && len(e.holders) == 0 {
		s.leases.drop(k)
	}
}

func (s *Service) held(k leaseKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.leases.all[k]
	return e != nil && len(e.holders) > 0
}

func (s *Service) find(k leaseKey) *catalogue.Advertisement {
	all, _ := s.o.Catalogue.Advertisements(k.account)
	for _, a := range all {
		if a.Key() == k.Key {
			return a
		}
	}
	return nil
}
