package operate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/graph"
	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// item is something out of the log: a step, or the beginning of an epoch.
type item struct {
	step  state.Step
	epoch uint64
	was   topics.Place // with epoch: how far the one before had come
	index topics.Index // of the entry
}

// The bounds of a unit's queue. What doesn't fit is dropped, and the state fetched from
// another replica later.
const (
	queueMax      = 1 << 16
	queueBytesMax = 32 << 20
)

// unitKey is an instance of an operator.
type unitKey struct {
	id   uint64
	slot uint32 // tells its steps from those of the operator's other instances
}

// unit is one instance of an operator on this node.
type unit struct {
	unitKey
	e     *Engine
	group *state.Group
	op    atomic.Pointer[catalogue.Operator]
	wake  chan struct{} // holds one
	stop  chan struct{}
	life  context.Context // ends with stop
	kill  context.CancelFunc
	done  chan struct{}
	gone  atomic.Bool // with its files
	asked atomic.Bool // somebody wants to see how far it is

	mu     sync.Mutex // of what follows
	queue  []item
	queued int
	lost   bool // something was dropped
	// quarantined: the state here has diverged, and is given to nobody.
	quarantined bool
	taken       topics.Index // all steps up to it have been taken in, or were before what is held
	held        topics.Index // of the step pushed last
	busy        bool
	told        sync.Cond // taken has changed, or the unit has ended
	log         []LogLine
	stats       Stats
	shown       Report
	shows       uint64 // how often shown was written
	over        failover
	compared    *ShadowReport
	trial       *trial // the shadow's state
	mark        *mark  // where it is to keep its state for a savepoint
	// trouble is how a proposal ended that wasn't taken.
	trouble *trouble
	// still is why the unit stands still, nil when it doesn't. Only its goroutine writes it.
	still   *standstill
	holding bool // the first in the queue has to wait

	store atomic.Pointer[opstate.Durable]
	// behind are the steps that a passive standby hasn't carried out; nil: it isn't one.
	behind atomic.Pointer[passive]
	// late are those that another one could not carry out; nil: it is passive, or not open.
	late atomic.Pointer[opstate.StepLog]
	// recovery is the graph's mode (graph.Recovery), for others than the goroutine.
	recovery atomic.Uint32

	// The goroutine's own.
	epoch    uint64
	spec     uint64 // epoch of the graph
	g        *graph.Graph
	inst     *engine.Instance
	faulty   bool   // the state is not to be used
	harm     string // what was damaged, "": nothing is known
	warned   string // what was logged last, at
	warnedAt time.Time
	// was is how far the group had come when an epoch began.
	was      topics.Place
	wasEpoch uint64
	sums     sums
	asides   []keeper // by sink
	shadow   *shadow
	p        primary
	outbox   outbox
}

type trouble struct {
	fault *topics.Fault
	err   error
}

func newUnit(e *Engine, k unitKey, o *catalogue.Operator, g *state.Group) *unit {
	u := &unit{
		unitKey: k, e: e, group: g, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	u.told.L, u.outbox.u = &u.mu, u
	u.life, u.kill = context.WithCancel(e.ctx)
	u.op.Store(o)
	if g.IsLeader() {
		u.led(true)
	}
	u.note("info", "deployed as version %q, epoch %d, in group %d", o.Version, o.Epoch, o.Group)
	return u
}

func (u *unit) poke() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// update takes what the catalogue says now.
func (u *unit) update(o *catalogue.Operator) {
	if old := u.op.Swap(o); old.Revision != o.Revision {
		u.note("info", "now %s, epoch %d, revision %d%s", o.State, o.Epoch, o.Revision, because(o.Error))
		u.poke()
	}
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// push takes something out of the log. It never blocks.
func (u *unit) push(i item) {
	u.mu.Lock()
	if i.epoch == 0 && (len(u.queue) >= queueMax || u.queued > queueBytesMax) {
		u.lost = true // those in front of it are good all the same
	} else {
		u.queue = append(u.queue, i)
		u.queued += len(i.step.Head)
	}
	u.held = max(u.held, i.index)
	u.mu.Unlock()
	u.poke()
}

// pop takes the next thing; ok is false when there is none, and then all is taken in.
func (u *unit) pop() (i item, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.queue) == 0 {
		u.taken, u.busy = u.held, false
		u.told.Broadcast()
		return i, false
	}
	i = u.queue[0]
	u.holding = false
	u.queue[0] = item{}
	u.queue = u.queue[1:]
	u.queued -= len(i.step.Head)
	u.busy = true
	return i, true
}

// again puts what pop took back in front.
func (u *unit) again(i item) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.queue = append([]item{i}, u.queue...)
	u.queued += len(i.step.Head)
	u.holding = true
	u.told.Broadcast()
}

// flush waits until all steps up to an index have been taken in, and makes them last.
func (u *unit) flush(ctx context.Context, i topics.Index) error {
	defer context.AfterFunc(ctx, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.told.Broadcast()
	})()
	u.mu.Lock()
	want := min(i, u.held)
	for ctx.Err() == nil && u.taken < want && !u.ended() && !(u.holding && u.op.Load().State == catalogue.Failed) {
		u.poke()
		u.told.Wait()
	}
	behind := u.taken < want
	u.mu.Unlock()
	if behind {
		u.note("warn", "the state could not be written up to entry %d in time", i)
		return nil
	}
	s, log := u.store.Load(), u.kept()
	var err error
	switch {
	case s == nil:
		return nil
	case log == nil:
		err = s.Flush()
	default:
		err = log.Flush(s.Flush)
	}
	if errors.Is(err, opstate.ErrDamaged) { // nothing of it will last: see mend
		u.poke()
		return nil
	}
	return err
}

func (u *unit) ended() bool {
	select {
	case <-u.stop:
		return true
	default:
		return false
	}
}

// share is which of the operator's instances it is.
func (u *unit) share() engine.Share {
	_, index := layoutOf(u.slot)
	return engine.Share{Index: index, Of: u.g.Partitions}
}

// outboxEpoch numbers the outbox's parcels: it is another one when what they were is lost.
func (u *unit) outboxEpoch() uint64 { return max(u.op.Load().Outbox, 1) }

// end ends the unit and waits for it; gone: the operator was removed.
func (u *unit) end(gone bool) {
	u.gone.Store(gone)
	close(u.stop)
	u.kill()
	u.poke()
	<-u.done
}

// retryEvery is how long a unit waits before it tries again what can't be done now.
const retryEvery = 200 * time.Millisecond

// warnEvery is how often the same trouble is logged.
const warnEvery = 10 * time.Second

// run is the unit's goroutine.
func (u *unit) run() {
	defer close(u.done)
	defer u.finish()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	slept := time.Time{}
	for {
		u.waited(slept)
		sleep, err := u.turn()
		slept = time.Now()
		if err != nil {
			u.note("error", "%v", err)
			u.warn(err)
			sleep = retryEvery
		}
		timer.Reset(sleep)
		select {
		case <-u.stop:
			return
		case <-u.e.ctx.Done():
			return
		case <-u.wake:
		case <-timer.C:
		}
	}
}

// warn logs what keeps the unit from going on: the same only every now and then.
func (u *unit) warn(err error) {
	if err.Error() == u.warned && time.Since(u.warnedAt) < warnEvery {
		return
	}
	u.warned, u.warnedAt = err.Error(), time.Now()
	u.e.o.Log.Warn("An operator can't go on for now", "operator", u.op.Load().Name, "error", err)
}

func (u *unit) finish() {
	u.kill()
	u.outbox.stop()
	if err := u.put(nil); err != nil {
		u.note("warn", "the state at a savepoint's place could not be put away: %v", err)
	}
	u.mu.Lock()
	u.taken = ^topics.Index(0)
	u.told.Broadcast()
	u.mu.Unlock()
	s := u.store.Load()
	if s == nil {
		return
	}
	err := error(nil)
	if u.shadow != nil {
		u.endShadow()
	}
	if p := u.behind.Load(); p != nil {
		p.pulls.Wait()
	}
	log := u.kept()
	switch {
	case u.gone.Load() && log != nil:
		err = errors.Join(log.Remove(), s.Remove(), os.RemoveAll(asideOf(u.e.dir(u.unitKey))))
	case u.gone.Load():
		err = errors.Join(s.Remove(), os.RemoveAll(asideOf(u.e.dir(u.unitKey))))
	default:
		if err = s.Close(); log != nil { // the state lasts before what it has of the steps goes
			err = errors.Join(err, log.Close())
		}
	}
	if err != nil {
		u.e.o.Log.Warn("The state of an operator could not be put away", "operator", u.op.Load().Name, "error", err)
	}
}

// turn does what there is to do and returns how long to sleep.
func (u *unit) turn() (time.Duration, error) {
	if err := u.mend(); err != nil {
		return 0, err
	}
	if u.coming() {
		return u.arrive()
	}
	opened := u.open()
	if u.kept() == nil {
		return 0, opened
	}
	// Also without a graph: what the log may release must have been taken in.
	err := u.drain()
	if u.damaged() {
		return 0, nil // see mend
	}
	var held *heldError
	if errors.As(err, &held) { // the epoch in front can't begin yet
		u.stands(u.judge(held.err), u.store.Load().Seq()+1, held)
		err = nil
	}
	if err := errors.Join(opened, err); err != nil {
		if errors.Is(opened, errCompile) && u.group.IsLeader() && u.e.runs() && u.op.Load().State == catalogue.Running {
			return idle, u.fail(opened.Error(), nil)
		}
		return 0, err
	}
	if u.replaced() {
		return idle, nil
	}
	if u.behind.Load() == nil && held == nil {
		if _, done := u.goOn(); !done {
			time.AfterFunc(u.still.next(), u.poke)
		}
	}
	ready, err := u.catchUp(held != nil)
	switch {
	case err != nil:
		return 0, err
	case held != nil:
		return u.still.next(), nil
	case !ready:
		return retryEvery, nil
	}
	defer u.show()
	return u.lead()
}

// open opens the state, once, and makes the graph of the epoch that is in force.
func (u *unit) open() error {
	if u.store.Load() == nil {
		s, err := u.journal()
		if err != nil {
			return err
		}
		u.store.Store(s)
		u.epoch = s.Epoch()
	}
	if u.kept() == nil {
		st := u.store.Load()
		log, err := opstate.OpenStepLog(u.e.dir(u.unitKey), st.Epoch(), st.Seq())
		if err != nil {
			return err
		}
		u.late.Store(log)
	}
	if u.inst != nil || u.faulty || u.epoch == 0 {
		return nil // what is faulty is replaced
	}
	return u.reopen()
}

// reopen makes the instance of what the store holds.
func (u *unit) reopen() error {
	o := u.op.Load()
	if o.Epoch < u.epoch {
		return fmt.Errorf("epoch %d has begun, and the catalogue here is at %d", u.epoch, o.Epoch)
	}
	u.inst = nil
	if u.g == nil || u.spec != o.Epoch {
		g, err := u.e.compile(o)
		if err != nil {
			return err
		}
		u.g, u.spec, u.asides = g, o.Epoch, nil
		u.watch()
	}
	if err := u.store.Load().Use(backend(u.g), opstate.AutoBytes); err != nil {
		return err
	}
	inst, err := engine.Open(u.g, u.store.Load(), engine.Options{
		Operator: u.id, Partition: u.slot, Epoch: u.epoch, Clock: stream.Time(o.Began), Share: u.share(), Stopwatch: stopwatch,
	})
	if err != nil {
		return err
	}
	u.sums = sums{}
	u.noteSum() // what was withheld before a restart is found out again
	u.keepBehind()
	u.inst, u.faulty = inst, false
	if n, _ := u.kept().Size(); n == 0 {
		u.goes()
	}
	u.outbox.stop()
	u.p.reset()
	return nil
}

// drain takes in what came out of the log.
func (u *unit) drain() error {
	u.mu.Lock()
	lost := u.lost
	u.lost = false
	u.mu.Unlock()
	if lost {
		u.note("warn", "steps came faster than they could be taken in")
	}
	for {
		i, ok := u.pop()
		if !ok {
			return nil
		}
		err := u.take(i)
		if held := (*heldError)(nil); errors.As(err, &held) {
			u.again(i)
			return err
		}
		if err != nil {
			return err
		}
	}
}

// take takes one thing in. A step that can't be run is kept, and one in front of which others
// are missing is left to catchUp.
func (u *unit) take(i item) error {
	if i.epoch > 0 {
		return u.begin(i.epoch, &i.was)
	}
	s, err := engine.ParseStep(i.step.Head)
	if err != nil {
		return fmt.Errorf("entry %d: %w", i.step.Index, err)
	}
	st := u.store.Load()
	if st == nil || u.faulty || s.Epoch != u.epoch || s.Seq <= u.reached() {
		return nil
	}
	if u.inst == nil {
		return u.takeBlind(s, i.step.Head)
	}
	if mine := u.p.first(); mine != nil && mine.seq == s.Seq && mine.digest == s.Digest {
		if err := u.inst.Commit(s.Seq); err != nil {
			if err := u.abort(); err == nil && u.reached() == s.Seq-1 {
				u.park(s.Seq, i.step.Head, nil)
			}
			return err
		}
		u.noteSum()
		u.committed(mine)
		return nil
	}
	if u.inst.Open() > 0 {
		if err := u.abort(); err != nil {
			return err
		}
	}
	if s.Seq != u.reached()+1 {
		return nil // there is a gap
	}
	if waiting, _ := u.kept().Size(); waiting > 0 || u.behind.Load() != nil {
		u.park(s.Seq, i.step.Head, nil)
		return nil
	}
	if err := u.carry(s); err != nil {
		u.park(s.Seq, i.step.Head, err)
		return nil
	}
	u.p.reset()
	u.outbox.reset()
	u.count(func(st *Stats) { st.Applied++; st.Seq = s.Seq })
	return nil
}

// takeBlind takes a step in while there is no graph: what changes of the state takes none, and
// what is to be run is kept.
func (u *unit) takeBlind(s *engine.Step, head []byte) error {
	st := u.store.Load()
	if s.Epoch != st.Epoch() || s.Seq != u.reached()+1 {
		return nil
	}
	waiting, _ := u.kept().Size()
	switch {
	case waiting > 0:
		u.park(s.Seq, head, nil)
	case s.Delta == nil:
		u.park(s.Seq, head, errGraph)
	default:
		return engine.TakeIn(st, s)
	}
	return nil
}

// carry carries out a step that another replica ran, unless the state here is another one
// than it had.
func (u *unit) carry(s *engine.Step) error {
	if u.sums.differs(s) {
		return fmt.Errorf("%w: the state of step %d is another one than the primary's", engine.ErrDiverged, s.SumOf)
	}
	if err := u.inst.Apply(s, u.readAgain); err != nil {
		return err
	}
	u.noteSum()
	return nil
}

func (u *unit) noteSum() {
	st := u.store.Load()
	u.sums.note(st.Seq(), st.Sum())
}

// abort throws what was run and isn't committed away.
func (u *unit) abort() error {
	u.p.reset()
	u.outbox.reset()
	if u.inst == nil {
		return nil
	}
	if err := u.inst.Abort(); err != nil {
		u.faulty = true
		return err
	}
	return nil
}
