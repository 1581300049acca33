package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/heraldmq/herald/operators/engine"
	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// A replica that can't run a committed step again keeps it, and those behind it (StepLog), and
// stands still in front of it: it has the state from there, and the step says what must come
// of it. It goes on as soon as the step can be run and comes to what the step says, or with
// the state of a replica that is behind the step. So nothing that one replica meets, or all of
// them do at once, takes from the operator what it needs to go on, as long as one of them has
// a state, the steps behind it and their records.

// plight is why a step can't be run here.
type plight uint8

const (
	// waits: its records can't be read here now. This node's copy of the input is behind, or
	// nobody leads it. It says nothing about the state.
	waits plight = iota
	// lacks: its records, or the graph that it was run with, are nowhere any more; or the
	// step itself never came here. The state is good, and too old.
	lacks
	// differs: it came to something else here than where it was run first. The state is
	// given to nobody.
	differs
)

// standstill is in front of what a unit stands still, and why.
type standstill struct {
	plight plight
	step   uint64
	why    string
	since  time.Time
	tried  time.Time     // the step was, last
	pause  time.Duration // until the next try
	asked  time.Time     // the others were, for their state
}

const (
	// unreadPatience is how long a replica waits for the records of a step before it asks
	// for the state of another one.
	unreadPatience = 5 * time.Second
	// askEvery is how often the others are asked for a state that they didn't have.
	askEvery = 5 * retryEvery
	// tryPause is how long a step is left alone after a try; doubled up to retryEvery.
	tryPause = 5 * time.Millisecond
	// standMost is how long a standstill may last without being shown.
	standMost = time.Second
)

// heldError means that an epoch can't begin here yet.
type heldError struct{ err error }

func (e *heldError) Error() string { return e.err.Error() }
func (e *heldError) Unwrap() error { return e.err }

// errGraph means that there is no graph yet to run a step with.
var errGraph = errors.New("the graph of the operator's epoch isn't known here yet")

// judge tells why a step can't be run, by the error that it gave.
func (u *unit) judge(err error) plight {
	var unread *rereadError
	switch {
	case errors.As(err, &unread) && unread.gone():
		return lacks
	case unread != nil, errors.Is(err, errGraph):
		return waits
	case errors.Is(err, engine.ErrDiverged) && u.spec != u.epoch: // another version ran it
		return lacks
	}
	return differs
}

// kept returns the steps behind the state here: a passive standby's, or those that an active
// one could not run.
func (u *unit) kept() *opstate.StepLog {
	if p := u.behind.Load(); p != nil {
		return p.log
	}
	return u.late.Load()
}

// park keeps a step that can't be run now.
func (u *unit) park(seq uint64, head []byte, err error) {
	log := u.kept()
	if log == nil {
		return // the state of another replica will do
	}
	if _, bytes := log.Size(); bytes > behindBytesMax {
		u.note("warn", "more steps came than can be kept: a state behind them will be needed")
		return // a gap: what is kept is good all the same
	}
	log.Append(seq, head)
	u.count(func(st *Stats) { st.Seq = seq })
	if err != nil {
		u.stands(u.judge(err), seq, err)
	}
}

// stands notes in front of what the unit stands still.
func (u *unit) stands(k plight, step uint64, err error) {
	s := standstill{plight: k, step: step, why: err.Error(), since: time.Now(), tried: time.Now(), pause: tryPause}
	old := u.still
	if old != nil && old.step == step {
		s.since, s.asked, s.pause = old.since, old.asked, min(2*old.pause, retryEvery)
	}
	u.mu.Lock()
	u.still = &s
	u.quarantined = u.quarantined || k == differs
	u.mu.Unlock()
	if old != nil && old.step == step && old.plight == k {
		return
	}
	switch k {
	case differs:
		u.count(func(st *Stats) {
			if errors.Is(err, engine.ErrDiverged) {
				st.Diverged++
			}
		})
		u.note("error", "quarantined: %v", err)
		u.e.o.Log.Error("An operator's standby is quarantined; it gets the state of another replica", "operator", u.op.Load().Name, "error", err)
	case lacks:
		u.note("warn", "needs the state of another replica: %v", err)
		u.e.o.Log.Warn("An operator's replica needs the state of another one", "operator", u.op.Load().Name, "error", err)
	}
}

// goes ends a standstill.
func (u *unit) goes() {
	if u.still == nil && !u.quarantined { // only this goroutine writes it
		return
	}
	if s := u.still; s != nil && time.Since(s.since) > standMost {
		u.note("info", "goes on behind step %d, after %s", s.step, time.Since(s.since).Round(time.Millisecond))
	}
	u.mu.Lock()
	u.still, u.quarantined = nil, false
	u.mu.Unlock()
}

// goOn runs the steps that are kept, as far as it goes; done: all of them. Where it doesn't,
// the state of another replica will do, in time.
func (u *unit) goOn() (ran int, done bool) {
	log := u.kept()
	if log == nil || u.inst == nil || u.faulty {
		return 0, true // catchUp's
	}
	if n, _ := log.Size(); n == 0 {
		return 0, true
	}
	if s := u.still; s != nil && time.Since(s.tried) < s.pause {
		return 0, false
	}
	ran, err := u.runKept(log)
	if err == nil {
		n, _ := log.Size()
		if n == 0 {
			u.goes()
		}
		return ran, n == 0
	}
	if u.inst == nil || u.faulty || u.damaged() {
		return ran, false
	}
	at := topics.Place{Epoch: u.epoch, Seq: u.inst.Committed() + 1}
	u.stands(u.judge(err), at.Seq, err)
	s := u.still
	if s.plight == waits && time.Since(s.since) < unreadPatience || !s.mayAsk() {
		return ran, false
	}
	u.warn(fmt.Errorf("it stands still in front of step %d: %w", at.Seq, err))
	if u.askOthers(at) == nil {
		n, _ := log.Size()
		u.poke()
		return ran, n == 0
	}
	return ran, false
}

// askOthers gets a state behind a standstill from another replica. Where it is known that
// none has one, and none will come to one, a primary fails.
func (u *unit) askOthers(at topics.Place) error {
	u.still.asked = time.Now()
	err := u.rebuild(at)
	if err == nil {
		u.goes()
		return nil
	}
	if u.handOver(at) {
		return err
	}
	return errors.Join(err, u.lose(at))
}

// lose has the operator fail if this replica leads it, can't go on, and all others are known
// to be no better: they have been asked for a while, and none of them waits for something.
func (u *unit) lose(at topics.Place) error {
	s, o := u.still, u.op.Load()
	if s == nil || s.plight == waits || !u.group.IsLeader() || !u.e.runs() || o.State == catalogue.Failed {
		return nil
	}
	if len(u.group.Nodes()) > 1 {
		if time.Since(s.since) < u.e.o.Patience {
			return nil
		}
		ctx, cancel := context.WithTimeout(u.life, 5*time.Second)
		reports := u.e.service.reports(ctx, o.Account, o)
		cancel()
		known := map[string]*Report{}
		for i := range reports {
			if reports[i].Instance == u.instance() {
				known[reports[i].Node] = &reports[i]
			}
		}
		var unknown []string
		for _, node := range u.group.Nodes() {
			r := known[node]
			switch {
			case node == u.e.name():
			case r == nil:
				unknown = append(unknown, node)
			case r.Waits || !r.Faulty && (r.Epoch > at.Epoch || r.Epoch == at.Epoch && r.Seq >= at.Seq):
				return nil // it may have it yet
			}
		}
		if len(unknown) > 0 {
			said := *s
			said.why, _, _ = strings.Cut(s.why, "; no other")
			said.why += "; no other replica that can be reached has the state behind it, and of " + strings.Join(unknown, ", ") + " nothing is known now"
			u.mu.Lock()
			u.still = &said
			u.mu.Unlock()
			return nil
		}
	}
	why, _, _ := strings.Cut(s.why, "; no other")
	if have := u.store.Load().Seq(); !u.bare() || u.harm == "" {
		why = fmt.Sprintf("the one that leads has that of step %d and can't go on: %s", have, why)
	} else {
		why = "the one that leads has lost it: " + u.harm
	}
	why = fmt.Sprintf("the state of step %d is lost: no replica has it, and %s; restore a savepoint (pubsub operator restore), or update it with reset to begin anew, or resume it to try again", at.Seq, why)
	return u.failed(func(o *catalogue.Operator) { o.Error, o.Lost = why, true })
}

// lost tells whether the state of an operator is to be given up where it begins anew, or with a
// savepoint: nobody has it, or the primary can't get it from those that can be reached.
func (s *service) lost(ctx context.Context, o *catalogue.Operator) bool {
	if o.Lost {
		return true
	}
	for _, r := range s.reports(ctx, o.Account, o) {
		if r.Leads && r.Stands > 0 && !r.Waits {
			return true
		}
	}
	return false
}

// stuck is what a report says of a standstill: nothing of one that has hardly begun.
func (u *unit) stuck() (why string, waiting bool, since time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.still
	if s == nil {
		st := u.store.Load()
		return "", st == nil || st.Epoch() == 0, 0 // it has hardly begun
	}
	if since = time.Since(s.since); since <= standMost {
		return "", s.plight == waits, 0
	}
	return fmt.Sprintf("stands still in front of step %d for %s: %s", s.step, since.Round(time.Second), s.why), s.plight == waits, since
}

// mayAsk tells whether the others are to be asked again; the first times sooner.
func (s *standstill) mayAsk() bool {
	every := askEvery
	if time.Since(s.since) < unreadPatience {
		every = retryEvery
	}
	return time.Since(s.asked) >= every
}

// next is how long to wait for the next try.
func (s *standstill) next() time.Duration {
	if s == nil {
		return retryEvery
	}
	return max(s.pause-time.Since(s.tried), time.Millisecond)
}
