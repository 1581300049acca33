package sourcing

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
)

// Options says what an Engine works with. State and Account are required.
type Options struct {
	State   *state.State
	Account func(name string) *front.Account // nil when there is none
	Peers   Peers                            // nil on a single node
	// APIPrefix is "$JS.<domain>.API" of this node, "" without a domain: an
	// external origin there is one of our own.
	APIPrefix string
	Retry     time.Duration // until what failed is tried again; default 2 s
	Log       *slog.Logger  // default: discards
}

// Engine runs the flows of a node. TopicChanged, Grown and Lead may be called
// from where entries are applied: they don't block.
type Engine struct {
	o    Options
	ctx  context.Context // ends at Close
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	targets map[topics.TopicID][]*flow
	readers map[origin][]*flow // who reads what
	// followers are the nodes that want to hear when a topic grows.
	followers map[topics.TopicID]map[string]struct{}
	closed    bool
}

// origin names a topic as configs do.
type origin struct{ account, name string }

// New returns an engine without flows.
func New(o Options) *Engine {
	if o.Retry <= 0 {
		o.Retry = 2 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		o: o, targets: map[topics.TopicID][]*flow{}, readers: map[origin][]*flow{},
		followers: map[topics.TopicID]map[string]struct{}{},
	}
	e.ctx, e.stop = context.WithCancel(context.Background())
	if o.Peers != nil {
		e.answerPeers()
	}
	return e
}

// Close ends all flows and waits for them.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.stop()
	e.wg.Wait()
}

// TopicChanged starts, replaces or ends the flows of a topic, and wakes those
// who read it.
func (e *Engine) TopicChanged(t *state.Topic, c state.Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var want []*topics.StreamSource
	cfg := t.Config()
	if c != state.Deleted {
		if want = cfg.Sources; cfg.Mirror != nil {
			want = []*topics.StreamSource{cfg.Mirror}
		}
	}
	var kept []*flow
	for _, f := range e.targets[t.ID()] {
		if i := f.among(want); i >= 0 && f.mirror == (cfg.Mirror != nil) {
			kept = append(kept, f)
			want = append(append([]*topics.StreamSource{}, want[:i]...), want[i+1:]...)
			continue
		}
		e.dropLocked(f)
	}
	for _, s := range want {
		if e.closed {
			break
		}
		f := newFlow(e, t, s, cfg.Mirror != nil)
		kept = append(kept, f)
		e.readers[f.origin()] = append(e.readers[f.origin()], f)
		e.wg.Go(f.run)
	}
	if len(kept) > 0 {
		e.targets[t.ID()] = kept
	} else {
		delete(e.targets, t.ID())
	}
	if c == state.Deleted {
		delete(e.followers, t.ID())
	}
	for _, f := range e.readers[origin{t.Account(), t.Name()}] {
		f.poke()
	}
}

func (e *Engine) dropLocked(f *flow) {
	f.stop()
	o := f.origin()
	list := e.readers[o]
	for i, g := range list {
		if g == f {
			list = append(append([]*flow{}, list[:i]...), list[i+1:]...)
			break
		}
	}
	if len(list) > 0 {
		e.readers[o] = list
	} else {
		delete(e.readers, o)
	}
}

// Grown wakes the flows that read a topic.
func (e *Engine) Grown(ids []topics.TopicID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.readers) == 0 && len(e.followers) == 0 {
		return
	}
	for _, id := range ids {
		e.tellFollowers(id)
		if t, ok := e.o.State.TopicByID(id); ok {
			for _, f := range e.readers[origin{t.Account(), t.Name()}] {
				f.poke()
			}
		}
	}
}

// Lead wakes every flow: what this node leads has changed.
func (e *Engine) Lead() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, flows := range e.targets {
		for _, f := range flows {
			f.poke()
		}
	}
}

// Info describes a topic's mirror or sources, as far as they have come.
func (e *Engine) Info(id topics.TopicID) (mirror *jsapi.SourceInfo, sources []*jsapi.SourceInfo) {
	e.mu.Lock()
	flows := e.targets[id]
	e.mu.Unlock()
	for _, f := range flows {
		if f.mirror {
			return f.info(), nil
		}
		sources = append(sources, f.info())
	}
	return nil, sources
}

// Mirrors returns the names of the topics that mirror one of an account's.
func (e *Engine) Mirrors(account, name string) (names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.readers[origin{account, name}] {
		if f.mirror && f.source.External == nil {
			names = append(names, f.target.Name())
		}
	}
	return names
}
