package delivery

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// Change says what happened to a consumer.
type Change int

// The changes.
const (
	Created Change = iota + 1
	Updated        // config, pause or reset
	Deleted
)

// Engine serves the consumers of one group's topics while this node leads the
// group. All methods may be called by any number of goroutines.
type Engine struct {
	o        Options
	pool     pool
	clock    clock
	recorder recorder
	wg       sync.WaitGroup
	leads    atomic.Bool
	closed   atomic.Bool
	ctx      context.Context // of burials; ends with Close
	stop     context.CancelFunc
	burials  chan struct{} // room for those under way

	mu       sync.RWMutex // never held across a call out of the package
	topics   map[topics.TopicID]*topic
	accounts map[string]map[string]*topic // by account and stream name
	leaving  map[topics.TopicID]bool      // about to be frozen
	ended    bool                         // nothing is spawned any more
}

// New returns an engine that doesn't lead yet, with its workers started; Close
// ends them.
func New(o Options) *Engine {
	e := &Engine{o: o.withDefaults(), topics: map[topics.TopicID]*topic{}, accounts: map[string]map[string]*topic{}}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.burials = make(chan struct{}, burialsMost)
	e.pool.init()
	e.clock.init(e)
	e.recorder.init(e)
	for range e.o.Workers {
		w := newWorker(e)
		e.wg.Go(w.run)
	}
	e.wg.Go(e.clock.run)
	e.wg.Go(e.recorder.run)
	return e
}

// Lead tells that this node leads the group, or no longer does. On true
// everything applied so far must have been applied; the consumers that act by
// themselves (push, pending or inactive ones) are set going. On false those who
// wait are told.
func (e *Engine) Lead(on bool) {
	if e.closed.Load() || e.leads.Swap(on) == on {
		return
	}
	if !on {
		e.dropAll(statusLeadership)
		return
	}
	e.o.Topics(func(t Topic) bool {
		e.topic(t.ID()) // so that acknowledgements find it
		for _, name := range t.ConsumerNames() {
			e.arouse(t, name)
		}
		return e.leads.Load()
	})
}

// Leads tells whether this node leads the group and the engine serves.
func (e *Engine) Leads() bool { return e.leads.Load() }

// arouse loads a consumer that acts by itself.
func (e *Engine) arouse(t Topic, name string) {
	c := t.Consumer(name)
	if c == nil {
		return
	}
	if e.restless(c) {
		if r := e.reader(t.ID(), name); r != nil {
			r.wake()
		}
	}
}

// restless tells whether a consumer has something to do although nobody asks it
// for messages. The others cost no memory here until somebody does.
func (e *Engine) restless(c *consumer.Consumer) bool {
	cfg := c.Config()
	return cfg.IsPush() || e.threshold(&cfg) > 0 || c.NumAckPending() > 0
}

// dropAll lets go of all consumers; those who wait get a status.
func (e *Engine) dropAll(status []byte) {
	e.mu.Lock()
	all := e.topics
	e.topics = map[topics.TopicID]*topic{}
	e.accounts = map[string]map[string]*topic{}
	e.mu.Unlock()
	for _, t := range all {
		t.end(status)
	}
}

// Close tells those who wait that the server goes down, proposes what isn't
// recorded yet, and waits for the goroutines to end.
func (e *Engine) Close() {
	if e.closed.Swap(true) {
		return
	}
	e.leads.Store(false)
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	e.stop()
	e.recorder.finish()
	e.dropAll(statusShutdown)
	e.pool.close()
	e.clock.close()
	e.recorder.close()
	e.wg.Wait()
}

// spawn runs f on a goroutine that Close waits for; false once it is closing.
func (e *Engine) spawn(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return false
	}
	e.wg.Go(f)
	return true
}

// Record proposes at once what consumers did and what isn't recorded yet. What is
// proposed behind it finds it applied.
func (e *Engine) Record() { e.recorder.flush() }

// Grown tells that topics got messages. It may be called where entries are
// applied.
func (e *Engine) Grown(ids []topics.TopicID) {
	if !e.leads.Load() {
		return
	}
	for _, id := range ids {
		e.mu.RLock()
		t := e.topics[id]
		e.mu.RUnlock()
		if t != nil {
			t.grown()
		}
	}
}

// ConsumerChanged tells that a consumer came, changed or went. It may be called
// where entries are applied.
func (e *Engine) ConsumerChanged(id topics.TopicID, name string, change Change) {
	if !e.leads.Load() {
		return
	}
	e.mu.RLock()
	t := e.topics[id]
	e.mu.RUnlock()
	switch change {
	case Created:
		e.pool.call(func() {
			if t := e.o.Topic(id); t != nil {
				e.arouse(t, name)
			}
		})
	case Updated:
		if r := t.find(name); r != nil {
			r.note(noteUpdated)
		}
	case Deleted:
		if r := t.remove(name); r != nil {
			r.end(statusDeleted)
		}
	}
}

// TopicDeleted tells that a topic is gone with all its consumers. It may be
// called where entries are applied.
func (e *Engine) TopicDeleted(id topics.TopicID) {
	if t := e.detach(id, false); t != nil {
		t.end(statusDeleted)
	}
}

// topic returns the engine's side of a topic, making it if needed.
func (e *Engine) topic(id topics.TopicID) *topic {
	e.mu.RLock()
	t := e.topics[id]
	e.mu.RUnlock()
	if t != nil {
		return t
	}
	data := e.o.Topic(id)
	if data == nil {
		return nil
	}
	made := newTopic(e, data)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.leads.Load() || e.leaving[id] {
		return nil
	}
	if t := e.topics[id]; t != nil {
		return t
	}
	e.topics[id] = made
	if e.accounts[made.account] == nil {
		e.accounts[made.account] = map[string]*topic{}
	}
	e.accounts[made.account][made.name] = made
	return made
}

// reader returns a consumer's reader, making it from the replicated copy if
// needed; nil when there is none or this node doesn't lead.
func (e *Engine) reader(id topics.TopicID, name string) *reader {
	if !e.leads.Load() {
		return nil
	}
	t := e.topic(id)
	if t == nil {
		return nil
	}
	if r := t.find(name); r != nil {
		return r
	}
	c := t.data.Consumer(name)
	if c == nil {
		return nil
	}
	r := newReader(e, t, c)
	if kept := t.add(r); kept != r {
		return kept
	}
	r.watch()
	return r
}

// readerByName looks a consumer up by the tokens of an ack subject.
func (e *Engine) readerByName(account string, stream, name []byte) *reader {
	e.mu.RLock()
	t := e.accounts[account][string(stream)]
	e.mu.RUnlock()
	if t == nil {
		return nil
	}
	t.mu.RLock()
	r := t.readers[string(name)]
	t.mu.RUnlock()
	if r == nil {
		return e.reader(t.id, string(name)) // not touched since this node leads
	}
	return r
}
