package operate

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/front"
	rooms "github.com/heraldmq/herald/broker/service"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// Peers is the way to the other nodes; nil on a single node.
type Peers interface {
	Name() string
	Leader(g topics.GroupID) string
	Call(ctx context.Context, node, method string, body []byte) ([]byte, error)
	Handle(method string, h func(ctx context.Context, from string, body []byte) ([]byte, error))
	OpenStream(ctx context.Context, node, method string, body []byte) (io.ReadCloser, error)
	HandleStream(method string, h func(ctx context.Context, from string, body []byte, w io.Writer) error)
}

// Fetch reads a page of a topic that has no replica here: messages that the filter lets
// through from a sequence on, and where to go on.
type Fetch func(ctx context.Context, t *state.Topic, subjects []string, from topics.Sequence) (messages []topics.Message, next topics.Sequence, err error)

// Options say what an Engine works with. All but Peers, Fetch, Log, OutboxBytes and Patience are required.
type Options struct {
	Dir     string // where the state of operators is kept
	Account func(name string) *front.Account
	// Compile makes the graph of a spec, which is in its canonical form when it comes
	// from the catalogue; ids are the places of the steps' state by name, nil where it is
	// deployed for the first time. Graphs are not shared: each call makes one.
	Compile func(account string, spec []byte, ids map[string]uint16) (*graph.Graph, error)
	// Create makes a topic, or returns the one there is; the config needn't be complete.
	Create func(ctx context.Context, account string, cfg topics.Config) (*state.Topic, error)
	Peers  Peers
	Fetch  Fetch
	Log    *slog.Logger
	// Identity is how $HERALD.OP.> presents itself to those who ask $SRV.>.
	Identity rooms.Identity
	// OutboxBytes may wait in an operator's outbox: with more it runs no steps until some
	// have been sent. 0: 16 MiB.
	OutboxBytes int64
	// Patience is how long a primary that can't go on asks the other replicas for their
	// state before the operator fails. 0: 30 seconds.
	Patience time.Duration
}

// Engine is the operators of a node. All methods but New, Start, Stop and Close may be
// called from where entries are applied: they don't block, but for Flush, which is for
// the goroutines that flush.
type Engine struct {
	o      Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	state   *state.State
	units   map[unitKey]*unit
	readers map[topics.TopicID][]*unit // who reads a topic
	stopped bool                       // nothing is run any more; what is committed is still taken in
	closed  bool
	changed chan struct{} // holds one: operators have changed

	pending bool                 // a succession is under way; as what follows reconcile's own
	firsts  map[uint64]first     // by operator
	refused map[advertKey]string // why an advertisement can't be changed
	looked  time.Time            // when the advertisements were looked at last
	told    told                 // what was seen to then
	swept   bool                 // what was left behind has been looked for
	over    map[uint64]time.Time // since when outboxes are known to be gone

	service service
	early   early
}

// New returns an engine. Attach must be called before anything else is.
func New(o Options) *Engine {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.OutboxBytes, o.Patience = cmp.Or(o.OutboxBytes, 16<<20), cmp.Or(o.Patience, 30*time.Second)
	e := &Engine{o: o, units: map[unitKey]*unit{}, readers: map[topics.TopicID][]*unit{}, changed: make(chan struct{}, 1), over: map[uint64]time.Time{}, firsts: map[uint64]first{}, refused: map[advertKey]string{}}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.service.init(e)
	return e
}

// Attach tells the engine whose operators it runs. The state need not have been started.
func (e *Engine) Attach(s *state.State) {
	e.state = s
	if e.o.Peers != nil {
		e.answerPeers()
	}
	e.wg.Go(e.reconcile)
	e.OperatorChanged(0)
}

// Stop ends what this node runs and proposes, and the API. What others have committed is
// still taken in, as long as the state is open.
func (e *Engine) Stop() {
	e.service.close()
	e.mu.Lock()
	e.stopped = true
	all := e.allLocked()
	e.mu.Unlock()
	for _, u := range all {
		u.poke()
	}
}

// Close ends the engine, after the state has been closed.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.wg.Wait()
}

func (e *Engine) allLocked() []*unit {
	all := make([]*unit, 0, len(e.units))
	for _, u := range e.units {
		all = append(all, u)
	}
	return all
}

func (e *Engine) all() []*unit {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.allLocked()
}

func (e *Engine) runs() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.stopped
}

// OperatorChanged is for state.Hooks.OnOperator.
func (e *Engine) OperatorChanged(uint64) {
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// reconcileEvery is how often it is looked for changes that nobody told: of groups, say.
const reconcileEvery = 5 * time.Second

// reconcile makes units for the operators that live in groups of this node, and ends the
// others.
func (e *Engine) reconcile() {
	tick := time.NewTicker(reconcileEvery)
	defer tick.Stop()
	soon := time.NewTimer(reconcileEvery)
	defer soon.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-e.changed:
		case <-tick.C:
		case <-soon.C:
		}
		e.early.known(e)
		there := map[uint64]*catalogue.Operator{}
		for _, o := range e.state.Operators("") {
			there[o.ID] = o
			for _, k := range slices.Concat(instances(o), comers(o)) {
				if u := e.unit(k, o); u != nil {
					u.update(o)
				}
			}
		}
		for _, u := range e.all() {
			o := there[u.id]
			over := o == nil || homeOf(o, u.slot) == 0
			if over || !u.group.Local() {
				e.end(u, over)
			}
		}
		maps.DeleteFunc(e.firsts, func(id uint64, _ first) bool { return there[id] == nil })
		e.successions()
		e.advertise()
		e.sweepProducers(there)
		e.sweepFiles()
		if e.pending {
			e.pending = false
			soon.Reset(succeedEvery)
		}
	}
}

// has tells whether there is a unit already.
func (e *Engine) has(k unitKey) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.units[k] != nil
}

// unit returns the unit of an operator, and makes it where it should be and isn't. o is
// what the catalogue says, nil to look it up.
func (e *Engine) unit(k unitKey, o *catalogue.Operator) *unit {
	e.mu.Lock()
	defer e.mu.Unlock()
	if u := e.units[k]; u != nil || e.closed {
		return u
	}
	if o == nil {
		for _, c := range e.state.Operators("") {
			if c.ID == k.id {
				o = c
			}
		}
	}
	if o == nil {
		return nil
	}
	g := e.state.Group(homeOf(o, k.slot))
	if g == nil || !g.Local() {
		return nil
	}
	u := newUnit(e, k, o, g)
	e.units[k] = u
	e.wg.Go(u.run)
	return u
}

// end ends a unit; gone: with its files.
func (e *Engine) end(u *unit, gone bool) {
	e.mu.Lock()
	delete(e.units, u.unitKey)
	for id, list := range e.readers {
		e.readers[id] = without(list, u)
	}
	e.mu.Unlock()
	u.end(gone)
}

func without(list []*unit, u *unit) (rest []*unit) {
	for _, o := range list {
		if o != u {
			rest = append(rest, o)
		}
	}
	return rest
}

// reads notes which topics a unit reads, to be woken when they grow.
func (e *Engine) reads(u *unit, ids []topics.TopicID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, list := range e.readers {
		if rest := without(list, u); len(rest) > 0 {
			e.readers[id] = rest
		} else {
			delete(e.readers, id)
		}
	}
	for _, id := range ids {
		e.readers[id] = append(e.readers[id], u)
	}
}

// Stepped is for state.Hooks.OnStep.
func (e *Engine) Stepped(_ *state.Group, s state.Step) {
	k := unitKey{s.Guard.Producer, s.Guard.Partition}
	e.early.tell(e, k, len(s.Head), func() {
		if u := e.unit(k, nil); u != nil {
			u.push(item{step: s, index: s.Index})
		}
	})
}

// Declared is for state.Hooks.OnProducer.
func (e *Engine) Declared(g *state.Group, p state.Epoch) {
	if p.Epoch <= p.Was {
		return
	}
	e.early.tell(e, unitKey{id: p.Producer}, 0, func() {
		for _, u := range e.instancesIn(g, p.Producer) {
			u.push(item{epoch: p.Epoch, index: p.Index, was: topics.Place{Epoch: p.Was, Seq: p.Seqs[u.slot]}})
		}
	})
}

// Adopted is for state.Hooks.OnAdopted.
func (e *Engine) Adopted(g *state.Group) {
	for _, u := range e.all() {
		if u.group == g {
			u.poke()
		}
	}
}

// Grown is for state.Hooks.OnGrown.
func (e *Engine) Grown(ids []topics.TopicID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.readers) == 0 {
		return
	}
	for _, id := range ids {
		for _, u := range e.readers[id] {
			u.poke()
		}
	}
}

// Lead is for state.Hooks.OnLeader.
func (e *Engine) Lead(g *state.Group, leads bool) {
	for _, u := range e.all() {
		if u.group == g {
			u.led(leads)
			u.poke()
		}
	}
}

// LeaderKnown is for state.Hooks.OnLeaderKnown.
func (e *Engine) LeaderKnown(g *state.Group, leader string) {
	for _, u := range e.all() {
		if u.group == g {
			u.leaderKnown(leader)
		}
	}
}

// flushPatience is how long the flush of a group with other replicas waits for a unit:
// one that is left behind then gets its state from another replica after a restart.
const flushPatience = 3 * time.Second

// Flush makes last what the operators of a group hold, of the steps up to an index, for
// state.Options.BeforeFlush: the log may be released up to it afterwards.
//
// What can't be written is tried again for as long as that lasts.
func (e *Engine) Flush(g *state.Group, i topics.Index) {
	ctx := e.ctx
	if g.Replicas() > 1 {
		c, cancel := context.WithTimeout(ctx, flushPatience)
		defer cancel()
		ctx = c
	}
	for _, u := range e.all() {
		if u.group == g {
			for ctx.Err() == nil && !u.ended() {
				err := u.flush(ctx, i)
				if err == nil {
					break
				}
				u.note("error", "%v", err)
				e.o.Log.Error("The state of an operator can't be written; trying again", "operator", u.op.Load().Name, "error", err)
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		}
	}
}
