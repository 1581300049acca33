package advertise

import (
	"context"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/observe"
	"github.com/heraldmq/herald/broker/service"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/schema"
)

// Catalogue is what the service needs of *state.State.
type Catalogue interface {
	Advertise(ctx context.Context, p state.Put) (*catalogue.Advertisement, *catalogue.Event, error)
	Withdraw(ctx context.Context, a *catalogue.Advertisement, expired bool) error
	Advertisement(account string, k catalogue.Key) *catalogue.Advertisement
	Advertisements(account string) ([]*catalogue.Advertisement, uint64)
	IsCatalogueLeader() bool
	Topic(account, name string) (*state.Topic, bool)
	Topics(account string, each func(*state.Topic) bool)
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
	// Ident reads who a client of another node is (front.Server.ReadIdent); nil takes
	// each for one that may do all.
	Ident func([]byte) (*front.ClientInfo, error)
	// Seen waits until other nodes know of a topic, first of all the one named; nil:
	// there are none.
	Seen func(t *state.Topic, node string)
	// Readers are the operators of an account by what they read; nil: there are none.
	Readers func(account string) []Reader
	// Identity is how the service presents itself to those who ask $SRV.>.
	Identity service.Identity
	Log      *slog.Logger // default: discards

	vouchEvery time.Duration // tests; default vouchEvery
	quietEvery time.Duration // tests; default quietEvery
}

// The bounds of the service.
const (
	workers         = 8
	workerQueueMax  = 256              // requests waiting for one worker; more are refused with 503
	eventQueueMax   = 4096             // changes waiting to be published; more end the watches
	noteQueueMax    = 1024             // violations and the like; more are not told
	watchesMax      = 1024             // of one account
	requestPatience = 10 * time.Second // for group 0 to decide
	slowMax         = 16               // requests that read messages, at a time; more are refused
	putsPerSecond   = 500              // of one account, on average
	putsBurst       = 20000            // of one account, at once
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
	notes  chan note     // to be published as events
	wake   chan struct{} // to the sweeper
	// vouches wakes vouch.
	vouches chan struct{}
	samples chan sampled
	look    chan struct{} // to lookAround
	slow    chan struct{} // a place for each request that reads messages
	schemas *schema.Cache
	metrics *metrics
	subs    service.Subscriptions
	started time.Time

	mu       sync.Mutex
	accounts map[string]*served
	history  history
	leases   leases
	vouched  vouched
	busy     map[uint64]int  // clients of this node with requests under way
	gone     map[uint64]bool // those of them that have left
	lost     bool            // changes were dropped since the last one published
	closed   bool
	quiet    quiet
}

// served is an account's part of the service.
type served struct {
	name    string
	bus     bus
	watches map[string]*watch // by the subject they are told on; guarded by Service.mu
	readers map[string]*readers
	rate    rate
	seen    *observe.Account
	rules   rules
}

// verbs are the requests there are.
var verbs = [...]string{"PUT", "GET", "LIST", "RENEW", "WITHDRAW", "SAMPLE", "CHECK"}

// bus is what the service needs of an account.
type bus interface {
	listen(subject string, h func(*front.Message)) (unsubscribe func(), err error)
	publish(subject string, payload []byte) (heard bool)
	hasInterest(subject string) bool
	watchInterest(subject string, f func(has bool)) (cancel func())
	subscribers(pattern string) int
	interested(pattern string) front.Interested
	setGate(front.Gate)
	setObserver(front.Observer)
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
	who     *front.ClientInfo // nil may do everything
}

// New makes a service and starts its workers.
func New(o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.vouchEvery <= 0 {
		o.vouchEvery = vouchEvery
	}
	if o.quietEvery <= 0 {
		o.quietEvery = quietEvery
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{
		o: o, accounts: map[string]*served{},
		events: make(chan catalogue.Event, eventQueueMax), wake: make(chan struct{}, 1),
		vouches: make(chan struct{}, 1), busy: map[uint64]int{}, gone: map[uint64]bool{},
		notes: make(chan note, noteQueueMax), samples: make(chan sampled, sampleQueueMax), slow: make(chan struct{}, slowMax), look: make(chan struct{}, 1),
		schemas: schema.NewCache(schemaCacheBytes), metrics: newMetrics(), started: time.Now(),
	}
	s.subs.Identity = o.Identity
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
	s.done.Go(s.examine)
	s.done.Go(s.lookAround)
	return s
}

// Serve answers requests of an account from now on. An account that is served already is
// left alone; one that was made anew under its name takes its place.
func (s *Service) Serve(a *front.Account) error {
	s.mu.Lock()
	old := s.accounts[a.Name()]
	s.mu.Unlock()
	if old != nil && old.bus == (frontBus{a}) {
		return nil
	}
	s.enterAccount(a.Name(), frontBus{a})
	handlers := map[string]front.Handler{}
	for _, verb := range verbs {
		subject := "$HERALD.ADV." + verb
		handlers[subject] = func(m *front.Message) {
			if len(m.Reply) == 0 || m.Client == nil {
				return // nobody would hear the answer; or a client made the broker say it
			}
			own := m.Clone()
			s.accept(request{
				account: a.Name(), verb: verb, payload: own.Payload, reply: string(own.Reply), client: own.Client.ID, who: own.Client,
				respond: func(p []byte) {
					if why, failed := errorIn(p); failed {
						s.subs.Failed(a, subject, why)
					}
					own.Respond(nil, p)
				},
			})
		}
	}
	if err := s.subs.Serve(a, handlers); err != nil {
		return err
	}
	if old != nil {
		s.subs.End(old.bus.(frontBus).a)
	}
	return nil
}

// enterAccount makes an account's part, in the place of the one of the same name.
func (s *Service) enterAccount(account string, b bus) {
	v := &served{name: account, bus: b, watches: map[string]*watch{}, readers: map[string]*readers{}}
	v.seen = observe.New(s.o.Now, s.take)
	v.rules.init(s, v)
	s.mu.Lock()
	s.history.load(s.o.Catalogue)
	for _, a := range s.history.of(account) {
		s.enter(v, nil, a)
	}
	ends := s.accounts[account].ends()
	s.accounts[account] = v
	v.rules.set(b)
	b.setObserver(v.seen.View())
	s.mu.Unlock()
	for _, end := range ends {
		end()
	}
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

// Restored is for state.Hooks.OnAdvertisements: all may be others than before.
func (s *Service) Restored() { s.Changed(catalogue.Event{}) }

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
	for _, v := range s.accounts {
		v.rules.drop(client)
	}
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
		ends = append(ends, v.ends()...)
	}
	s.mu.Unlock()
	s.subs.Close()
	for _, end := range ends {
		end()
	}
	s.cancel()
	s.done.Wait()
}

// ends are what ends an account's part; they are called without Service.mu, which is held
// here.
func (v *served) ends() (all []func()) {
	if v == nil {
		return nil
	}
	for _, w := range v.watches {
		all = append(all, w.cancel)
	}
	for _, w := range v.readers {
		all = append(all, w.cancel)
	}
	return append(all, func() {
		v.bus.setGate(nil)
		v.bus.setObserver(nil)
	})
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
	if r.verb == "SAMPLE" || r.verb == "CHECK" {
		s.carryOutSlowly(r)
		return
	}
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
