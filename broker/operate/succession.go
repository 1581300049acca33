package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// The instances of an operator are replaced by others (rescaling, another group) in steps
// that the catalogue remembers, so that whoever leads group 0 goes on after a failure:
//
//	Next            every instance commits that it halts: from then on it reads nothing
//	Next.Cut        the farthest that any of them has read: the others read up to there,
//	                and all send what waits in their outboxes; each then stands still
//	                for good. Those that come fetch what is of their shares and
//	                write it to files
//	the new layout  once the most of each one's replicas have it: those that come run,
//	                in the next epoch, and those before are dropped
//
// So no record is worked on by two of them, or by none.

// succeedEvery is how often it is looked how far a succession is.
const succeedEvery = 50 * time.Millisecond

// stand is how far an instance is in a succession on one node.
type stand struct {
	Slot  uint32          `json:"slot"`
	Node  string          `json:"node"`
	At    engine.Standing `json:"at"`
	Ready bool            `json:"ready"` // of one that comes: it has its share
}

// reaches tells whether an instance has come to the cut and stands still for good.
func reaches(o *catalogue.Operator, layout uint32, cut []topics.Sequence, s *engine.Standing) bool {
	if s.Halted != layout || s.Waits {
		return false
	}
	for i, c := range cut {
		if furthest(o, i, s.Ends) < c {
			return false
		}
	}
	return true
}

// furthest is up to where an input has been read.
func furthest(o *catalogue.Operator, input int, ends []topics.Sequence) topics.Sequence {
	at := start(o, input)
	if input < len(ends) {
		at = max(at, ends[input])
	}
	return at
}

// making returns how the unit is to make way for others: halt is a layout to note first;
// rests: nothing is read; else cut is up to where, nil without a bound.
func (u *unit) making(o *catalogue.Operator) (halt uint32, rests bool, cut []topics.Sequence, err error) {
	halted, err := u.inst.Halted()
	if err != nil {
		return 0, false, nil, err
	}
	n := o.Next
	switch {
	case n == nil && halted <= o.Revoked: // for nobody, or for those that were called off
		return 0, false, nil, nil
	case n != nil && halted != n.Layout:
		return n.Layout, false, nil, nil
	case n == nil || n.Cut == nil:
		return 0, true, nil, nil
	}
	for i, c := range n.Cut {
		if max(u.inst.Position(i), start(o, i)) < c {
			return 0, false, n.Cut, nil
		}
	}
	return 0, true, nil, nil
}

// coming tells whether the unit is of a layout that is to take over.
func (u *unit) coming() bool {
	layout, _ := layoutOf(u.slot)
	return layout > u.op.Load().Layout
}

// stands is how far an operator's instances on this node are in its succession.
func (e *Engine) stands(o *catalogue.Operator) (all []stand) {
	name := e.name()
	for _, k := range slices.Concat(instances(o), comers(o)) {
		u := e.unit(k, o)
		if u == nil || u.store.Load() == nil {
			continue
		}
		st := u.store.Load()
		s := stand{Slot: k.slot, Node: name}
		if layout, _ := layoutOf(k.slot); layout > o.Layout {
			s.Ready = st.Epoch() > o.Epoch && st.Damaged() == nil
			all = append(all, s)
			continue
		}
		snapshot, err := st.Snapshot()
		if err != nil {
			continue // it is told where it matters
		}
		s.At, err = engine.StandingOf(snapshot)
		if err = errors.Join(err, snapshot.Close()); err == nil && st.Epoch() == o.Epoch {
			all = append(all, s)
		}
	}
	return all
}

// succeed takes the next step of a succession, on the node that leads group 0, if it can be
// taken.
func (e *Engine) succeed(ctx context.Context, o *catalogue.Operator) error {
	all := e.stands(o)
	body, err := json.Marshal(Request{Name: o.Name})
	if err != nil {
		return err
	}
	e.service.nodes(ctx, e.nodesOf(o), asked{o.Account, "STANDS", body}, func(_ string, b []byte) {
		var some []stand
		if json.Unmarshal(b, &some) == nil {
			all = append(all, some...)
		}
	})
	if o.Next.Cut == nil {
		return e.cut(ctx, o, all)
	}
	for i, id := range o.Next.Groups {
		g := e.state.Group(id)
		if g == nil {
			return fmt.Errorf("there is no group %d", id)
		}
		ready := 0
		for _, s := range all {
			if s.Ready && s.Slot == slotOf(o.Next.Layout, i) {
				ready++
			}
		}
		if ready <= max(len(g.Nodes()), 1)/2 {
			return nil
		}
	}
	if _, err := e.state.PutOperator(ctx, o.Succeed()); err != nil {
		return err
	}
	e.o.Log.Info("An operator's instances have been replaced", "operator", o.Name, "account", o.Account, "layout", o.Next.Layout, "instances", len(o.Next.Groups))
	return nil
}

// cut decides up to where the instances read, once all have halted.
func (e *Engine) cut(ctx context.Context, o *catalogue.Operator, all []stand) error {
	cut := []topics.Sequence{}
	for _, k := range instances(o) {
		i := slices.IndexFunc(all, func(s stand) bool { return s.Slot == k.slot && s.At.Halted == o.Next.Layout })
		if i < 0 {
			return nil
		}
		for in := range max(len(all[i].At.Ends), len(o.Starts)) {
			if in == len(cut) {
				cut = append(cut, 0)
			}
			cut[in] = max(cut[in], furthest(o, in, all[i].At.Ends))
		}
	}
	n := *o.Next
	n.Cut = cut
	c := *o
	c.Next, c.Revision = &n, o.Revision+1
	_, err := e.state.PutOperator(ctx, &c)
	return err
}

// successions has the operators that are to be replaced replaced, where this node leads
// group 0, and moves those whose first output has moved.
func (e *Engine) successions() {
	if !e.runs() || !e.state.IsCatalogueLeader() {
		return
	}
	for _, o := range e.state.Operators("") {
		ctx, cancel := context.WithTimeout(e.ctx, 5*time.Second)
		var err error
		if o.Next != nil {
			err = e.succeed(ctx, o)
			e.pending = true
		} else if next := e.follow(o); next != nil {
			_, err = e.state.PutOperator(ctx, next)
		}
		cancel()
		if err != nil && !errors.Is(err, catalogue.FaultOperatorChanged) {
			e.o.Log.Warn("An operator's instances can't be replaced for now", "operator", o.Name, "error", err)
		}
	}
}
