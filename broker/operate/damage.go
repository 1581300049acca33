package operate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
)

// Files of a state that say something else than was written to them are found out by whoever
// reads them, when they are opened or at any time since. Nothing more of that state is used or
// given: its files are put aside, and the replica gets the state of another one, as one whose
// files were lost. One that leads doesn't run meanwhile; where nobody else has the state, and it
// can't come to it, the operator fails.

func asideOf(dir string) string { return dir + ".damaged" }

// journal opens the unit's files. Damaged ones are put aside: the state is then fetched
// from another replica.
func (u *unit) journal() (*opstate.Durable, error) {
	dir := u.e.dir(u.unitKey)
	s, err := opstate.Open(dir)
	if errors.Is(err, opstate.ErrDamaged) {
		return u.anew(dir, err)
	}
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(asideOf(dir)); err == nil && s.Epoch() == 0 {
		u.harm = "the files of the state here were found damaged before; they are in " + asideOf(dir) + " now"
	}
	s.Alarm(u.poke)
	return s, nil
}

// anew puts damaged files aside and opens a state that holds nothing.
func (u *unit) anew(dir string, harm error) (*opstate.Durable, error) {
	if err := opstate.PutAside(dir, asideOf(dir)); err != nil {
		return nil, errors.Join(harm, err)
	}
	u.harm = fmt.Sprintf("%v; they are in %s now", harm, asideOf(dir))
	u.note("error", "%s", u.harm)
	u.e.o.Log.Error("The state of an operator is damaged; its files are put aside", "operator", u.op.Load().Name, "dir", asideOf(dir), "error", harm)
	s, err := opstate.Open(dir)
	if err != nil {
		return nil, err
	}
	s.Alarm(u.poke)
	u.mu.Lock()
	u.quarantined = true
	u.mu.Unlock()
	return s, nil
}

// damaged tells whether files of the state here are known to be damaged.
func (u *unit) damaged() bool {
	s := u.store.Load()
	return s != nil && s.Damaged() != nil
}

// mend puts a state away that was found to be damaged since it was opened. The unit is then
// as one whose files were lost.
func (u *unit) mend() error {
	if !u.damaged() {
		return nil
	}
	st := u.store.Load()
	harm := st.Damaged()
	u.outbox.stop()
	if u.shadow != nil {
		u.endShadow() // it shares files
	}
	if err := u.put(nil); err != nil {
		u.note("warn", "the state at a savepoint's place could not be put away: %v", err)
	}
	if err := st.Close(); err != nil && !errors.Is(err, opstate.ErrDamaged) {
		u.note("warn", "the state that is damaged could not be closed: %v", err)
	}
	s, err := u.anew(u.e.dir(u.unitKey), harm)
	if err != nil {
		return err // it is tried again
	}
	if u.behind.Load() != nil {
		s.Track(changedBytesMax)
	}
	if log := u.kept(); log != nil {
		log.Begin(0, 0) // a state as far as the group has come will be needed
	}
	u.p.reset()
	u.store.Store(s)
	u.epoch, u.inst, u.faulty, u.sums = s.Epoch(), nil, false, sums{}
	u.mu.Lock()
	u.still = nil
	u.mu.Unlock()
	return nil
}

// lacking is why a state is to be got from another replica.
func (u *unit) lacking() error {
	if u.bare() && u.harm != "" {
		return fmt.Errorf("%w: %s", errMissing, u.harm)
	}
	return errMissing
}

// bare tells whether there is no state here.
func (u *unit) bare() bool { return u.store.Load().Epoch() == 0 }

// handOver gives the lead to a replica that has an older state and all steps behind it, where
// this one has none: a passive standby comes to what was lost here by running them, once it
// leads. It tells whether there is one.
func (u *unit) handOver(at topics.Place) bool {
	if !u.bare() || !u.group.IsLeader() || !u.e.runs() || u.e.o.Peers == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(u.life, 5*time.Second)
	defer cancel()
	o, some := u.op.Load(), false
	for _, r := range u.e.service.reports(ctx, o.Account, o) {
		if r.Instance != u.instance() || r.Node == u.e.name() || r.Faulty || r.Stands > 0 || r.Epoch != at.Epoch || r.Kept == 0 || r.Behind > 0 {
			continue
		}
		some = true
		err := u.group.Transfer(ctx, r.Node)
		if err == nil {
			u.note("info", "gave the lead to %s, which has the steps behind its state", r.Node)
			break
		}
		u.note("warn", "%s has the steps behind its state, and can't be given the lead for now: %v", r.Node, err)
	}
	return some
}
