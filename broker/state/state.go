package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/store"
	"github.com/heraldmq/herald/topics/subject"
)

// State is a node's share of what is agreed on. See the package's text.
type State struct {
	o         Options
	node      *replication.Node
	metrics   prometheus.Collector              // node
	meta      atomic.Pointer[replication.Group] // nil until it has been started
	cl        *cluster                          // nil where this node is alone
	catalogue *catalogueMachine
	orders    orders
	groups    groupTable
	topics    registry
	limbos    limbos
	batches   batchCounts
	settling  [1024]sync.Mutex // by topic; held while a topic's steps are taken

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // every goroutine but the queues'
	fatal   sync.Once

	spawning sync.Mutex // held while a goroutine is added to running, or Close begins

	mu      sync.Mutex // held while hooks about topics run, so that Start misses none and repeats none
	hooks   Hooks
	started bool
	early   []func(h *Hooks) // of what was applied before Start
	onGrown atomic.Pointer[func(*Group, []topics.TopicID)]
	closed  bool
}

func (o Options) withDefaults() Options {
	if o.Groups <= 0 {
		o.Groups = 1
	}
	if o.TailBytes <= 0 {
		o.TailBytes = 64 << 20
	}
	if o.BatchBytes <= 0 {
		o.BatchBytes = 256 << 10
	}
	if o.InFlight <= 0 {
		o.InFlight = 4
	}
	if o.Now == nil {
		o.Now = func() topics.Nanos { return topics.Nanos(time.Now().UnixNano()) }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Fatal == nil {
		o.Fatal = func(err error) { panic(err) }
	}
	return o
}

// Open opens or makes a node's state in o.Dir: the replication node, the store
// of each data group, the catalogue. What the logs hold is applied before it
// returns. Nothing is proposed before Start. In a cluster nothing else happens before
// Start either.
func Open(o Options) (*State, error) {
	if o.Dir == "" {
		return nil, errors.New("open the state: no directory given")
	}
	s := &State{o: o.withDefaults()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.orders.start(s)
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *State) open() (err error) {
	if s.o.Network != nil {
		s.o.NodeID = s.o.Network.Name()
	}
	id := s.o.NodeID
	if s.o.Network != nil && bornAlone(s.o.Dir) {
		id = "" // it keeps the name it was given then; its peers don't see it
	}
	cfg := replication.Config{
		Dir: s.o.Dir, NodeID: id, Groups: s.o.Groups, TailBytes: s.o.TailBytes, Network: s.o.Network, WriteFirst: s.o.WriteFirst,
		Fatal: s.fail, Log: s.o.Log,
	}
	if s.o.tune != nil {
		s.o.tune(&cfg)
	}
	s.node, err = replication.Open(cfg)
	if err != nil {
		return fmt.Errorf("open the log in %s: %w", s.o.Dir, err)
	}
	s.metrics = s.node
	if s.o.Network == nil {
		s.o.NodeID = s.node.ID()
	}
	s.o.ServerName = cmp.Or(s.o.ServerName, s.o.NodeID)
	s.catalogue = &catalogueMachine{fatal: s.fail, spawn: s.spawn, told: s.advertisementChanged, c: catalogue.New()}
	s.catalogue.operator = s.operatorChanged
	if s.o.Network != nil {
		s.cl = newCluster(s)
		s.catalogue.topic, s.catalogue.table, s.catalogue.other = s.catalogueTopic, s.cl.changed, s.catalogueRestored
		return nil
	}
	// Side by side: opening waits for the disk most of the time.
	errs := make([]error, s.o.Groups+1)
	var opening sync.WaitGroup
	opening.Go(func() {
		meta, err := s.node.Start(topics.CatalogueGroup, s.catalogue)
		if err != nil {
			errs[0] = fmt.Errorf("start the catalogue: %w", err)
			return
		}
		s.meta.Store(meta)
	})
	for i := range s.o.Groups {
		opening.Go(func() { errs[i+1] = s.openGroup(topics.GroupID(i + 1)) })
	}
	opening.Wait()
	return errors.Join(errs...)
}

// openGroup opens this node's replica of a group and starts its log.
func (s *State) openGroup(id topics.GroupID) error {
	g := s.groups.get(s, id)
	r, err := s.openReplica(g)
	if err != nil {
		return err
	}
	g.local.Store(r)
	r.data.Topics(func(t *store.Topic) bool {
		s.topics.add(newTopic(g, t))
		return true
	})
	log, err := s.node.Start(id, r.machine)
	if err != nil {
		return fmt.Errorf("start group %d: %w", id, err)
	}
	r.queue.resume(topics.Nanos(r.machine.last.Load()))
	r.repl.Store(log)
	return nil
}

// Start begins to lead where this node leads: it calls h.OnTopic for every topic
// there is, finishes what a crash left half done, and starts expiry. It is
// called once, before the first Capture.
//
// In a cluster it returns at once: the cluster is formed, or found, by and by, and
// hooks are called as topics and groups become known. See Ready.
func (s *State) Start(h Hooks) error {
	s.mu.Lock()
	if s.started || s.closed {
		s.mu.Unlock()
		return errors.New("start the state: it was started or closed before")
	}
	s.started, s.hooks = true, h
	if h.OnGrown != nil {
		s.onGrown.Store(&h.OnGrown)
	}
	if h.OnTopic != nil {
		s.topics.each(func(t *Topic) bool {
			h.OnTopic(t, Created)
			return true
		})
	}
	s.tellEarly()
	s.mu.Unlock()
	if s.cl != nil {
		s.running.Go(func() { s.cl.run(s.ctx) })
		return nil
	}
	for _, r := range s.replicas() {
		if h.OnGroup != nil {
			h.OnGroup(r.group, true)
		}
		if err := s.serve(r); err != nil {
			return err
		}
	}
	led := s.IsCatalogueLeader()
	if led {
		if err := s.reconcile(); err != nil {
			return err
		}
		if h.OnCatalogueLeader != nil {
			h.OnCatalogueLeader(true)
		}
	}
	s.running.Go(func() { s.followCatalogue(led) })
	return nil
}

// followCatalogue finishes what others began when this node gets to lead group 0.
func (s *State) followCatalogue(led bool) {
	changes := s.meta.Load().LeaderChanges()
	for {
		select {
		case leads := <-changes:
			if leads == led {
				continue
			}
			if led = leads; leads {
				if err := s.reconcile(); err != nil {
					s.logError(err)
				}
			}
			if s.hooks.OnCatalogueLeader != nil {
				s.hooks.OnCatalogueLeader(leads)
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// Close waits for what is in flight, flushes the stores and ends every
// goroutine. Captures and Submits that come later are dropped or refused.
func (s *State) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.orders.drain(ordersPatience)
	s.spawning.Lock()
	s.cancel()
	s.spawning.Unlock()
	s.orders.close()
	for _, g := range s.groups.list() {
		if g.forward != nil {
			g.forward.stop()
		}
	}

	// What is in flight is given a while to end well; closing the node then ends
	// it without an outcome.
	var queues sync.WaitGroup
	for _, r := range s.replicas() {
		queues.Go(r.queue.stop)
	}
	drained := make(chan struct{})
	go func() { queues.Wait(); close(drained) }()
	var errs []error
	nodeClosed := s.node == nil // it could not be opened
	closeNode := func() {
		if !nodeClosed { // who is still running may ask it
			errs = append(errs, s.node.Close())
			nodeClosed = true
		}
	}
	patience := time.NewTimer(closePatience)
	defer patience.Stop()
	select {
	case <-drained:
	case <-patience.C:
		closeNode()
		<-drained
	}
	closeNode()
	s.running.Wait()
	for _, r := range s.replicas() {
		r.running.Wait()
		if err := r.machine.close(); err != nil {
			errs = append(errs, fmt.Errorf("close the store of group %d: %w", r.id, err))
		}
	}
	return errors.Join(errs...)
}

const (
	closePatience  = 5 * time.Second
	ordersPatience = time.Second // for commands of which nobody waits for the outcome
)

// spawn runs f on a goroutine that Close waits for; false when it has begun.
func (s *State) spawn(f func()) bool {
	s.spawning.Lock()
	defer s.spawning.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.running.Go(f)
	return true
}

// fail ends the node, once.
func (s *State) fail(err error) { s.fatal.Do(func() { s.o.Fatal(err) }) }

func (s *State) logError(err error) { s.o.Log.Error("state", "error", err) }

// Topic finds a topic by name.
func (s *State) Topic(account, name string) (*Topic, bool) { return s.topics.named(account, name) }

// TopicByID finds a topic by its identifier.
func (s *State) TopicByID(id topics.TopicID) (*Topic, bool) { return s.topics.find(id) }

// Deleted tells whether a topic was there, and never again is. Of one that has just been
// deleted it may still say no.
func (s *State) Deleted(id topics.TopicID) (deleted bool) {
	s.catalogue.read(func(c *catalogue.Catalogue) { deleted = c.Deleted(id) })
	return deleted
}

// Topics calls f for an account's topics, sorted by name, until it returns
// false; account "" means all accounts, one after the other.
func (s *State) Topics(account string, f func(*Topic) bool) {
	accounts := []string{account}
	if account == "" {
		accounts = s.topics.accounts()
	}
	for _, a := range accounts {
		for _, t := range s.topics.sorted(a) {
			if !f(t) {
				return
			}
		}
	}
}

// TopicKeeping returns the account's topic that captures a literal subject, nil if none
// does.
func (s *State) TopicKeeping(account, to string) (found *Topic) {
	s.Topics(account, func(t *Topic) bool {
		if subject.MatchAny(t.Config().Subjects, to) {
			found = t
		}
		return found == nil
	})
	return found
}

// NodeID returns this node's name among its peers, and ServerName how it is
// shown.
func (s *State) NodeID() string     { return s.o.NodeID }
func (s *State) ServerName() string { return s.o.ServerName }
