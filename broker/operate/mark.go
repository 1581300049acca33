package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// A savepoint of several instances is of one place in the inputs, so that it can be spread
// over more or fewer. Whoever makes it has each instance stop reading for a moment and say
// how far it is, and then tells all the farthest place: each reads up to there, keeps its
// state as it is then, and reads on. Where an instance isn't to run, and stands elsewhere
// than the others, there is no such place.

// methodMark asks where an instance is led: a markRequest, answered with a markAnswer.
const methodMark = "op.mark"

const (
	markHold  = 3 * time.Second  // an instance stands still for as long without hearing where to
	markReach = 30 * time.Second // it may take as long to the place
	markKeep  = 10 * time.Minute // a state is kept for as long until it is asked for
)

type markRequest struct {
	ID    uint64            `json:"id"`
	Slot  uint32            `json:"slot"`
	Epoch uint64            `json:"epoch"`
	Mark  uint64            `json:"mark"`
	Cut   []topics.Sequence `json:"cut"` // nil: stand still, and say how far
}

type markAnswer struct {
	Ends []topics.Sequence `json:"ends"`
}

// mark is a place that an instance is to stop at. The unit's mutex guards what changes.
type mark struct {
	id    uint64
	cut   []topics.Sequence
	stood chan []topics.Sequence // holds one
	taken chan error             // holds one
	state opstate.Snapshot       // at the place
	timer *time.Timer
}

// put makes m the unit's mark instead of the one there is. m may be nil.
func (u *unit) put(m *mark) error {
	u.mu.Lock()
	old := u.mark
	u.mark = m
	u.mu.Unlock()
	if old == nil {
		return nil
	}
	old.timer.Stop()
	if old.state != nil {
		return old.state.Close()
	}
	return nil
}

// expire ends a mark, if it is still there.
func (u *unit) expire(m *mark) {
	u.mu.Lock()
	mine := u.mark == m
	u.mu.Unlock()
	if !mine {
		return
	}
	if err := u.put(nil); err != nil {
		u.note("warn", "the state at a savepoint's place could not be put away: %v", err)
	}
	u.poke()
}

func (u *unit) marked(id uint64) *mark {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mark == nil || u.mark.id != id {
		return nil
	}
	return u.mark
}

// marking is the unit's goroutine at its mark: rests, nothing is read; else cut is up to
// where, nil without a bound.
func (u *unit) marking() (rests bool, cut []topics.Sequence, err error) {
	u.mu.Lock()
	m := u.mark
	if m == nil || m.state != nil {
		u.mu.Unlock()
		return false, nil, nil
	}
	cut = m.cut
	u.mu.Unlock()
	o := u.op.Load()
	ends := make([]topics.Sequence, len(u.g.Inputs))
	there := len(cut) == len(ends)
	for i := range ends {
		ends[i] = max(u.inst.Position(i), start(o, i))
		there = there && ends[i] >= cut[i]
	}
	switch {
	case cut == nil:
		u.p.arrivals, u.p.next = nil, nil
		select {
		case m.stood <- ends:
		default:
		}
		return true, nil, nil
	case !there:
		return false, cut, nil
	case u.inst.Open() > 0:
		return true, nil, nil // once what is under way is committed
	}
	s, err := u.store.Load().Snapshot()
	for i := range ends {
		if err == nil && ends[i] > cut[i] {
			err = errors.Join(fmt.Errorf("input %s has been read up to %d, not %d", u.g.Inputs[i].Name, ends[i], cut[i]), s.Close())
			s = nil
		}
	}
	u.mu.Lock()
	mine := u.mark == m
	if mine && err == nil {
		m.state = s
	}
	u.mu.Unlock()
	if !mine && err == nil {
		return false, nil, s.Close()
	}
	select {
	case m.taken <- err:
	default:
	}
	if err != nil {
		u.expire(m)
	}
	return false, nil, nil
}

// answerMark has an instance stand still, or go to a place and keep its state there.
func (e *Engine) answerMark(ctx context.Context, q *markRequest) (a markAnswer, err error) {
	u := e.unit(unitKey{q.ID, q.Slot}, nil)
	if u == nil || !u.group.IsLeader() {
		return a, refuse(503, "the operator isn't led there any more; try again")
	}
	if q.Cut == nil {
		m := &mark{id: q.Mark, stood: make(chan []topics.Sequence, 1), taken: make(chan error, 1)}
		m.timer = time.AfterFunc(markHold, func() { u.expire(m) })
		if err := u.put(m); err != nil {
			return a, err
		}
		u.poke()
		select {
		case a.Ends = <-m.stood:
			return a, nil
		case <-time.After(markHold):
			u.expire(m)
			return a, refuse(503, "instance %d of the operator didn't stand still in time", u.instance())
		case <-ctx.Done():
			u.expire(m)
			return a, ctx.Err()
		}
	}
	m := u.marked(q.Mark)
	if m == nil {
		return a, refuse(503, "instance %d of the operator couldn't wait for the others; try again", u.instance())
	}
	u.mu.Lock()
	m.cut = q.Cut
	u.mu.Unlock()
	m.timer.Reset(markKeep)
	u.poke()
	select {
	case err = <-m.taken:
		return a, err
	case <-time.After(markReach):
		err = refuse(503, "instance %d of the operator didn't come to the place in time", u.instance())
	case <-ctx.Done():
		err = ctx.Err()
	}
	u.expire(m)
	return a, err
}

// askMark asks for a mark wherever an instance is led, or on the node where it was.
func (e *Engine) askMark(ctx context.Context, node string, q *markRequest) (at string, a markAnswer, err error) {
	o := e.operator(q.ID)
	if o == nil {
		return "", a, catalogue.FaultNoOperator
	}
	g := e.state.Group(homeOf(o, q.Slot))
	if node == "" {
		if g == nil || g.Leader() == "" && !g.IsLeader() {
			return "", a, refuse(503, "an instance of the operator has no leader now; try again")
		}
		if node = g.Leader(); g.IsLeader() {
			node = e.name()
		}
	}
	if node == e.name() {
		a, err = e.answerMark(ctx, q)
		return node, a, err
	}
	body, err := json.Marshal(q)
	if err != nil {
		return "", a, err
	}
	b, err := e.o.Peers.Call(ctx, node, methodMark, body)
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	return node, a, err
}

// name is this node's.
func (e *Engine) name() string {
	if e.o.Peers != nil {
		return e.o.Peers.Name()
	}
	return e.state.ServerName()
}

// marks are the places where an operator's instances keep their states for a savepoint.
type marks struct {
	id    uint64 // 0: they are where they are
	nodes []string
}

// align has all instances keep their states at one place. Where there is none, because an
// operator of several instances isn't to run, ok is false.
func (e *Engine) align(ctx context.Context, o *catalogue.Operator) (m marks, ok bool, err error) {
	all := instances(o)
	if len(all) == 1 {
		return marks{nodes: []string{""}}, true, nil
	}
	m = marks{id: rand.Uint64() | 1, nodes: make([]string, len(all))}
	answers := make([]markAnswer, len(all))
	each := func(cut []topics.Sequence) error {
		errs := make(chan error, len(all))
		for i, k := range all {
			go func() {
				var err error
				m.nodes[i], answers[i], err = e.askMark(ctx, m.nodes[i], &markRequest{k.id, k.slot, o.Epoch, m.id, cut})
				errs <- err
			}()
		}
		var bad error
		for range all {
			bad = errors.Join(bad, <-errs)
		}
		return bad
	}
	if err := each(nil); err != nil {
		return m, false, err
	}
	var cut []topics.Sequence
	same := true
	for i := range answers {
		for in, at := range answers[i].Ends {
			if in == len(cut) {
				cut = append(cut, at)
			}
			same = same && at == cut[in]
			cut[in] = max(cut[in], at)
		}
	}
	if !same && o.State != catalogue.Running {
		return marks{nodes: make([]string, len(all))}, false, nil
	}
	return m, true, each(cut)
}

// markedState returns the state that an instance keeps for a savepoint, which is the
// caller's from then on.
func (u *unit) markedState(id uint64) (opstate.Snapshot, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mark == nil || u.mark.id != id || u.mark.state == nil {
		return nil, refuse(503, "instance %d of the operator doesn't have its state at the savepoint's place any more; try again", u.instance())
	}
	s := u.mark.state
	u.mark.timer.Stop()
	u.mark = nil
	return s, nil
}
