package operate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/graph"
	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// streamCheckpoint is how a passive standby asks the primary for what has changed: the
// operator's number u64, the epoch u64 and the step u64 of the state that it has, the slot u32. The
// answer is a byte: checkpointSame, checkpointChanges and what WriteChanges writes, or
// checkpointWhole: what has changed isn't known, and the state is to be asked for (rebuild).
const streamCheckpoint = "op.checkpoint"

const (
	checkpointSame = iota
	checkpointChanges
	checkpointWhole
)

// The bounds of what is kept between checkpoints. A primary that has more changed keys
// gives the whole state; a replica that has more steps takes no more, and gets the whole
// state of another one.
const (
	changedBytesMax = 64 << 20
	behindBytesMax  = 64 << 20
	changesBytesMax = 1 << 30
)

// passive is what a unit has beside its state whose operator is passive: the steps behind
// the state that it has, and how it gets a newer one.
type passive struct {
	log   *opstate.StepLog
	pulls sync.WaitGroup

	// The unit's goroutine's own.
	next         time.Time // when the next checkpoint is asked for
	leads        bool
	last, before uint64 // the steps of the last checkpoints

	mu      sync.Mutex // of what follows
	pulling bool
	got     *checkpoint
	served  map[string]uint64 // what the others have, by node: of the primary
	at      time.Time         // when the state here was that of the primary
}

// checkpoint is a state that came from the primary: what has changed, or all.
type checkpoint struct {
	epoch, seq uint64
	delta      []byte
	whole      string // the node that has all of it
	bytes      int64
	err        error
}

// keepBehind opens what a passive operator needs, or puts it away where it isn't any
// more.
func (u *unit) keepBehind() {
	u.recovery.Store(uint32(u.g.Recovery))
	p, st := u.behind.Load(), u.store.Load()
	u.kept().Begin(u.epoch, st.Seq())
	switch {
	case u.g.Recovery != graph.Passive && p != nil:
		u.late.Store(p.log)
		u.behind.Store(nil)
		p.pulls.Wait()
		st.Track(0)
	case u.g.Recovery == graph.Passive && p == nil:
		st.Track(changedBytesMax)
		u.behind.Store(&passive{log: u.late.Load(), served: map[string]uint64{}, at: time.Now()})
		u.late.Store(nil)
	}
}

// standBy takes in a checkpoint that has come and asks for the next one, where it is time;
// it returns how long to sleep.
func (u *unit) standBy() time.Duration {
	p := u.behind.Load()
	if p == nil || u.inst == nil || u.group.IsLeader() || u.e.o.Peers == nil {
		return idle
	}
	p.leads = false
	u.adopt(p)
	now := time.Now()
	if p.next.IsZero() {
		p.next = now.Add(u.g.Checkpoint)
	}
	if steps, _ := p.log.Size(); !now.Before(p.next) || steps > 0 && u.atRisk() {
		p.next = now.Add(u.g.Checkpoint)
		u.pull(p)
	}
	return max(min(time.Until(p.next), riskEvery), time.Millisecond)
}

// riskEvery is how often it is looked whether the inputs still have what may be read again.
const riskEvery = time.Second

// atRisk tells whether an input is about to lose records behind the state that is here.
func (u *unit) atRisk() bool {
	for i := range u.g.Inputs {
		t, ok := u.e.state.Topic(u.op.Load().Account, u.g.Inputs[i].Topic)
		if !ok || t.Data() == nil {
			continue
		}
		first, last := t.Data().Bounds()
		need := max(u.inst.Position(i), start(u.op.Load(), i)) + 1
		if first > 1 && need <= last && (need <= first || (need-first) < (last-first)/4) {
			return true
		}
	}
	return false
}

// pull asks the primary for a checkpoint, beside the unit's goroutine.
func (u *unit) pull(p *passive) {
	leader := u.e.o.Peers.Leader(u.group.ID())
	p.mu.Lock()
	busy := p.pulling || leader == "" || leader == u.e.o.Peers.Name()
	p.pulling = p.pulling || !busy
	p.mu.Unlock()
	if busy {
		return
	}
	epoch, seq := u.epoch, u.inst.Committed()
	p.pulls.Go(func() {
		ctx, cancel := context.WithTimeout(u.life, 5*time.Minute)
		defer cancel()
		c := u.ask(ctx, leader, epoch, seq)
		p.mu.Lock()
		p.got, p.pulling = c, false
		p.mu.Unlock()
		u.poke()
	})
}

func (u *unit) ask(ctx context.Context, node string, epoch, seq uint64) *checkpoint {
	body := asksFor(u.unitKey, topics.Place{Epoch: epoch, Seq: seq})
	stream, err := u.e.o.Peers.OpenStream(ctx, node, streamCheckpoint, body)
	if err != nil {
		return &checkpoint{err: fmt.Errorf("ask %s: %w", node, err)}
	}
	defer stream.Close()
	counted := &counter{r: stream}
	r := bufio.NewReader(counted)
	kind, err := r.ReadByte()
	c := &checkpoint{epoch: epoch}
	switch {
	case err != nil:
	case kind == checkpointSame:
		c.seq = seq
	case kind == checkpointChanges:
		c.delta, c.seq, err = opstate.ReadChanges(r, changesBytesMax)
	case kind == checkpointWhole:
		c.seq, c.whole = seq, node
	default:
		err = errors.New("an answer of another version")
	}
	if err != nil {
		return &checkpoint{err: fmt.Errorf("from %s: %w", node, err)}
	}
	c.bytes = counted.n
	return c
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// adopt takes a checkpoint in that has come: the steps that it covers are forgotten.
func (u *unit) adopt(p *passive) {
	p.mu.Lock()
	c := p.got
	p.got = nil
	p.mu.Unlock()
	switch {
	case c == nil || c.err == nil && (c.epoch != u.epoch || c.seq < u.inst.Committed() || u.faulty):
		return
	case c.err != nil:
		u.note("warn", "no checkpoint: %v", c.err)
		return
	}
	st := u.store.Load()
	var err error
	switch {
	case c.whole != "":
		err = u.fetch(c.whole, topics.Place{Epoch: c.epoch, Seq: c.seq})
		c.seq = st.Seq()
	case c.seq > u.inst.Committed():
		err = st.Apply(c.delta, c.seq)
	}
	if err == nil {
		err = u.abort() // reads what the state says
	}
	if err != nil && c.whole != "" {
		u.note("warn", "no checkpoint: %v", err)
		return
	}
	if err != nil {
		u.faulty = true
		u.mu.Lock()
		u.quarantined = true // it may be in part
		u.mu.Unlock()
		u.note("error", "a checkpoint can't be taken in: %v", err)
		return
	}
	p.log.Trim(c.seq)
	if u.still != nil && c.seq >= u.still.step {
		u.goes()
	}
	// Who leads next may be asked for what has changed since the checkpoint before.
	st.Forget(p.before)
	p.before, p.last = p.last, c.seq
	p.mu.Lock()
	p.at = time.Now()
	p.mu.Unlock()
	u.count(func(s *Stats) { s.Checkpoints++; s.CheckpointBytes += uint64(c.bytes) })
}

// giveCheckpoint answers a passive standby.
func (e *Engine) giveCheckpoint(_ context.Context, from string, body []byte, w io.Writer) error {
	k, at, err := askedFor(body)
	if err != nil {
		return err
	}
	id, epoch, seq := k.id, at.Epoch, at.Seq
	u := e.unit(k, nil)
	if u == nil {
		return fmt.Errorf("%w: operator %d", errNobody, id)
	}
	p, st := u.behind.Load(), u.store.Load()
	u.mu.Lock()
	bad := u.quarantined
	u.mu.Unlock()
	if p == nil || st == nil || bad || st.Epoch() != epoch {
		return fmt.Errorf("%w: operator %d of epoch %d", errNobody, id, epoch)
	}
	p.mu.Lock()
	p.served[from] = seq
	oldest := seq
	for _, s := range p.served {
		oldest = min(oldest, s)
	}
	if len(p.served) < u.group.Replicas()-1 {
		oldest = 0
	}
	p.mu.Unlock()
	s, keys, known, err := st.Since(seq, oldest)
	if err != nil {
		return err
	}
	defer s.Close()
	kind := byte(checkpointWhole)
	switch {
	case s.Seq() < seq:
		return fmt.Errorf("%w: it is at step %d here", errNobody, s.Seq())
	case s.Seq() == seq:
		kind = checkpointSame
	case known:
		kind = checkpointChanges
	}
	if _, err := w.Write([]byte{kind}); err != nil {
		return err
	}
	if kind == checkpointChanges {
		return opstate.WriteChanges(w, s, keys)
	}
	return nil
}

// runBehind runs the steps behind the checkpoint again. Their outputs are in the log.
func (u *unit) runBehind(p *passive) (ready bool, err error) {
	if !p.leads {
		p.leads = true
		p.mu.Lock()
		clear(p.served)
		p.mu.Unlock()
	}
	if n, _ := p.log.Size(); n == 0 {
		p.mu.Lock()
		p.at = time.Now()
		p.mu.Unlock()
		return true, nil
	}
	began := time.Now()
	n, done := u.goOn()
	if done {
		u.note("info", "took over: %d steps behind the checkpoint were run again in %s", n, time.Since(began).Round(time.Millisecond))
	}
	u.count(func(st *Stats) {
		if st.Again += uint64(n); done {
			st.Recovered++
			st.RecoveryTime = time.Since(began)
		}
	})
	return done && !u.ended(), nil
}

// runKept runs the steps that are kept, and forgets those that were.
func (u *unit) runKept(log *opstate.StepLog) (n int, err error) {
	if err := u.abort(); err != nil {
		return 0, err
	}
	defer func() { log.Trim(u.store.Load().Seq()) }()
	for _, l := range log.Steps() {
		if u.ended() || u.e.ctx.Err() != nil {
			return n, nil
		}
		if l.Seq <= u.inst.Committed() {
			continue
		}
		s, err := engine.ParseStep(l.Head)
		if err != nil {
			return n, fmt.Errorf("step %d: %w", l.Seq, err)
		}
		if err := u.carry(s); err != nil {
			return n, errors.Join(err, u.abort())
		}
		n++
	}
	return n, nil
}

// carryOut runs what is kept, where an epoch ends: the next one begins with what comes out.
// It waits for what can't be run now, unless the epoch begins without.
func (u *unit) carryOut(o *catalogue.Operator, epoch uint64) error {
	log := u.kept()
	if u.faulty || o.Outbox >= epoch {
		return nil
	}
	if n, _ := log.Size(); n == 0 {
		return nil
	}
	if u.inst == nil {
		return &heldError{errGraph}
	}
	if _, err := u.runKept(log); err != nil {
		return &heldError{fmt.Errorf("epoch %d begins with what comes of steps that can't be run here: %w", epoch, err)}
	}
	u.goes()
	return nil
}

// checkpointAge is how old the state here is, of a passive standby.
func (u *unit) checkpointAge() time.Duration {
	p := u.behind.Load()
	if p == nil || u.group.IsLeader() {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.at)
}
