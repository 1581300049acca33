package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/store"
)

// State is a node's share of what is agreed on. See the package's text.
type State struct {
	o         Options
	node      *replication.Node
	metrics   prometheus.Collector // node
	meta      *replication.Group
	catalogue *catalogueMachine
	groups    []*Group // groups[i] is group i+1
	topics    registry
	batches   batchCounts
	settling  [64]sync.Mutex // by topic; held while a topic's steps are taken

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // every goroutine but the queues'
	fatal   sync.Once

	mu      sync.Mutex // held while hooks about topics run, so that Start misses none and repeats none
	hooks   Hooks
	started bool
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
// returns. Nothing is proposed before Start.
func Open(o Options) (*State, error) {
	if o.Dir == "" {
		return nil, errors.New("open the state: no directory given")
	}
	s := &State{o: o.withDefaults()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *State) open() (err error) {
	s.node, err = replication.Open(replication.Config{
		Dir: s.o.Dir, NodeID: s.o.NodeID, Groups: s.o.Groups, TailBytes: s.o.TailBytes,
		Fatal: s.fail, Log: s.o.Log,
	})
	if err != nil {
		return fmt.Errorf("open the log in %s: %w", s.o.Dir, err)
	}
	s.metrics = s.node
	s.o.NodeID = s.node.ID()
	s.o.ServerName = cmp.Or(s.o.ServerName, s.o.NodeID)
	s.catalogue = &catalogueMachine{fatal: s.fail, told: s.advertisementChanged, c: catalogue.New()}
	// Side by side: opening waits for the disk most of the time.
	errs := make([]error, s.o.Groups+1)
	s.groups = make([]*Group, s.o.Groups)
	var opening sync.WaitGroup
	opening.Go(func() {
		var err error
		if s.meta, err = s.node.Start(topics.CatalogueGroup, s.catalogue); err != nil {
			errs[0] = fmt.Errorf("start the catalogue: %w", err)
		}
	})
	for i := range s.groups {
		opening.Go(func() { errs[i+1] = s.openGroup(topics.GroupID(i + 1)) })
	}
	opening.Wait()
	s.groups = slices.DeleteFunc(s.groups, func(g *Group) bool { return g == nil })
	return errors.Join(errs...)
}

func (s *State) openGroup(id topics.GroupID) error {
	dir, err := s.node.GroupDir(id)
	if err != nil {
		return fmt.Errorf("make the directory of group %d: %w", id, err)
	}
	g := &Group{id: id}
	g.data, err = store.Open(store.Options{
		Dir: dir, TailBytes: s.o.TailBytes, FlushBytes: s.o.FlushBytes, FlushInterval: s.o.FlushInterval,
		Log: s.o.Log, Fatal: s.fail,
		Flushed: func(i topics.Index) { g.flushed(i, s.logError) },
		Stalled: func(err error) { g.setStalled(err, s.o.Log) },
	})
	if err != nil {
		return fmt.Errorf("open the store of group %d in %s: %w", id, filepath.Clean(dir), err)
	}
	g.machine = newDataMachine(id, g.data, s.fail, s)
	g.acks = acker{replier: s.o.Replier, domain: s.o.Domain}
	g.expiry = newExpiry(g, s.o.Now)
	g.queue = newQueue(&queue{
		log: g, cap: s.o.BatchBytes, most: s.o.InFlight, now: s.o.Now, find: s.TopicByID,
		pressed: g.pressed, stalled: g.stalled.Load, answer: g.answer, domain: s.o.Domain,
		staging: staging{limits: s.o.Batches.withDefaults(), counts: &s.batches},
		fasts:   fastBatches{limits: s.o.Batches.withDefaults(), counts: &s.batches},
		teller:  teller{replier: s.o.Replier},
	})
	if s.o.Limits != nil {
		g.queue.limits = func(account string) (storageLimit, bool) {
			l := s.o.Limits(account)
			return storageLimit{account, l.FileBytes, l.MemoryBytes}, l.FileBytes > 0 || l.MemoryBytes > 0
		}
	}
	g.acks.republish = g.queue.republish
	g.queue.start()
	s.groups[id-1] = g
	g.data.Topics(func(t *store.Topic) bool {
		s.topics.add(newTopic(g, t))
		return true
	})
	r, err := s.node.Start(id, g.machine)
	if err != nil {
		return fmt.Errorf("start group %d: %w", id, err)
	}
	g.queue.resume(topics.Nanos(g.machine.last.Load()))
	g.repl.Store(r)
	return nil
}

// Start begins to lead where this node leads: it calls h.OnTopic for every topic
// there is, finishes what a crash left half done, and starts expiry. It is
// called once, before the first Capture.
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
	s.mu.Unlock()
	for _, g := range s.groups {
		g.queue.onGone = h.OnBatchAbandoned
		s.running.Go(func() { g.expiry.run(s.ctx) })
		s.running.Go(func() { g.queue.sweep(s.ctx) })
		s.running.Go(func() { g.queue.runAgain(s.ctx) })
		if err := s.forget(g); err != nil {
			if !refused(err) {
				return err
			}
			s.logError(err) // the disk is full, say: reading goes on
		}
		s.lead(g, g.IsLeader())
		s.running.Go(func() { s.followGroup(g) })
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

// followGroup tells of changes of a group's leader.
func (s *State) followGroup(g *Group) {
	changes := g.repl.Load().LeaderChanges()
	for {
		select {
		case leads := <-changes:
			s.lead(g, leads)
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *State) lead(g *Group, leads bool) {
	if leads == g.leads {
		return
	}
	g.leads = leads
	g.queue.resume(topics.Nanos(g.machine.last.Load()))
	if !leads {
		g.queue.dropBatches()
	}
	g.expiry.lead(leads)
	if s.hooks.OnLeader != nil {
		s.hooks.OnLeader(g, leads)
	}
}

// followCatalogue finishes what others began when this node gets to lead group 0.
func (s *State) followCatalogue(led bool) {
	changes := s.meta.LeaderChanges()
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
	s.cancel()

	// What is in flight is given a while to end well; closing the node then ends
	// it without an outcome.
	var queues sync.WaitGroup
	for _, g := range s.groups {
		queues.Go(g.queue.stop)
	}
	drained := make(chan struct{})
	go func() { queues.Wait(); close(drained) }()
	var errs []error
	closeNode := func() {
		if s.node != nil {
			errs = append(errs, s.node.Close())
			s.node = nil
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
	for _, g := range s.groups {
		if err := g.data.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close the store of group %d: %w", g.id, err))
		}
	}
	return errors.Join(errs...)
}

const closePatience = 5 * time.Second

// fail ends the node, once.
func (s *State) fail(err error) { s.fatal.Do(func() { s.o.Fatal(err) }) }

func (s *State) logError(err error) { s.o.Log.Error("state", "error", err) }

// Topic finds a topic by name.
func (s *State) Topic(account, name string) (*Topic, bool) { return s.topics.named(account, name) }

// TopicByID finds a topic by its identifier.
func (s *State) TopicByID(id topics.TopicID) (*Topic, bool) { return s.topics.find(id) }

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

// Groups returns the data groups. The caller must not change the slice.
func (s *State) Groups() []*Group { return s.groups }

// NodeID returns this node's name among its peers, and ServerName how it is
// shown.
func (s *State) NodeID() string     { return s.o.NodeID }
func (s *State) ServerName() string { return s.o.ServerName }
