package operate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/graph"
	opstate "github.com/heraldmq/herald/operators/state"
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

// streamShare is how those that come ask for their share of a state: a shareRequest. The
// answer is frames, only where the instance stands still at the cut.
const streamShare = "op.share"

type shareRequest struct {
	ID    uint64            `json:"id"`
	Slot  uint32            `json:"slot"`
	Epoch uint64            `json:"epoch"`
	Next  uint32            `json:"next"` // the layout that comes
	Cut   []topics.Sequence `json:"cut"`
	Index int               `json:"index"`
	Of    int               `json:"of"`
}

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
	case n == nil && halted == 0:
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

// arrive gets the share of a unit that is to take over.
func (u *unit) arrive() (time.Duration, error) {
	o := u.op.Load()
	if u.store.Load() == nil {
		s, err := u.journal()
		if err != nil {
			return 0, err
		}
		u.store.Store(s)
	}
	st, n := u.store.Load(), o.Next
	if n == nil || n.Cut == nil || st.Epoch() > o.Epoch {
		u.epoch = st.Epoch()
		return idle, nil
	}
	g, err := u.e.o.Compile(o.Account, n.Spec, n.IDs)
	if err != nil {
		return 0, fmt.Errorf("%w: operator %s, which takes over: %w", errCompile, o.Name, err)
	}
	began := time.Now()
	_, index := layoutOf(u.slot)
	var parts []opstate.Reader
	for _, k := range instances(o) {
		q := shareRequest{k.id, k.slot, o.Epoch, n.Layout, n.Cut, index, len(n.Groups)}
		m, err := u.share1(o, &q)
		if err != nil {
			u.p.blocked = err.Error()
			return succeedEvery, nil // it is not there yet, or its nodes aren't
		}
		var r opstate.Reader = m
		if n.Kept != nil {
			r = kept{m, n.Kept, false}
		}
		parts = append(parts, r)
	}
	m, err := engine.Inherit(g, parts...)
	if err != nil {
		return 0, err
	}
	if err := st.Begin(o.Epoch+1, m, 0); err != nil {
		return 0, err
	}
	if err := st.Flush(); err != nil {
		return 0, errors.Join(err, st.Begin(0, opstate.NewMemory(), 0)) // it is not ready
	}
	u.epoch, u.p.blocked = o.Epoch+1, ""
	keys, size := st.Size()
	u.note("info", "took %d keys of %d bytes over from %d instances in %s", keys, size, len(parts), time.Since(began).Round(time.Millisecond))
	return idle, nil
}

// share1 fetches a share of one of the instances before, from whoever has it.
func (u *unit) share1(o *catalogue.Operator, q *shareRequest) (*opstate.Memory, error) {
	var b bytes.Buffer
	err := u.e.giveShare(q, &b)
	if err == nil {
		m := opstate.NewMemory()
		_, _, err = opstate.ReadFrames(bufio.NewReader(&b), m)
		return m, err
	}
	g := u.e.state.Group(homeOf(o, q.Slot))
	if u.e.o.Peers == nil || g == nil {
		return nil, err
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(u.life, time.Minute)
	defer cancel()
	err = errNobody
	for _, node := range g.Nodes() {
		if node == u.e.o.Peers.Name() || node == "" {
			continue
		}
		var m *opstate.Memory
		if m, err = u.e.fetchShare(ctx, node, body); err == nil {
			return m, nil
		}
	}
	return nil, err
}

func (e *Engine) fetchShare(ctx context.Context, node string, body []byte) (*opstate.Memory, error) {
	r, err := e.o.Peers.OpenStream(ctx, node, streamShare, body)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", node, err)
	}
	defer r.Close()
	m := opstate.NewMemory()
	if _, _, err := opstate.ReadFrames(bufio.NewReader(r), m); err != nil {
		return nil, fmt.Errorf("from %s: %w", node, err)
	}
	return m, nil
}

// shared is a share of a snapshot.
type shared struct {
	opstate.Snapshot
	part opstate.Reader
}

func (s shared) Scan(from, to []byte, f func(key, v []byte) bool) error {
	return s.part.Scan(from, to, f)
}

// Seq is never 0, which would say that more follows.
func (s shared) Seq() uint64 { return max(s.Snapshot.Seq(), 1) }

// giveShare gives a share of what an instance on this node has, if it stands still at the
// cut.
func (e *Engine) giveShare(q *shareRequest, w io.Writer) error {
	u := e.unit(unitKey{q.ID, q.Slot}, nil)
	if u == nil || u.store.Load() == nil {
		return fmt.Errorf("%w: operator %d", errNobody, q.ID)
	}
	u.mu.Lock()
	bad := u.quarantined
	u.mu.Unlock()
	st := u.store.Load()
	s, err := st.Snapshot()
	if err != nil {
		return err
	}
	defer s.Close()
	at, err := engine.StandingOf(s)
	if err != nil {
		return err
	}
	if bad || st.Epoch() != q.Epoch || !reaches(u.op.Load(), q.Next, q.Cut, &at) {
		return fmt.Errorf("%w: instance %d is not at the cut here: it has read %v of %v", errNobody, q.Slot, at.Ends, q.Cut)
	}
	return opstate.WriteFrames(w, q.Epoch, shared{s, engine.Part(s, engine.Share{Index: q.Index, Of: q.Of})})
}

// stands is how far an operator's instances on this node are in its succession.
func (e *Engine) stands(o *catalogue.Operator) (all []stand) {
	name := e.state.ServerName()
	if e.o.Peers != nil {
		name = e.o.Peers.Name()
	}
	for _, k := range slices.Concat(instances(o), comers(o)) {
		u := e.unit(k, o)
		if u == nil || u.store.Load() == nil {
			continue
		}
		st := u.store.Load()
		s := stand{Slot: k.slot, Node: name}
		if layout, _ := layoutOf(k.slot); layout > o.Layout {
			s.Ready = st.Epoch() > o.Epoch
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

// first is what an operator's spec says of its first output, kept for as long as the spec
// is the same.
type first struct {
	epoch uint64
	topic string       // "": none, or the operator stays where it is
	graph *graph.Graph // nil: none can be made
}

func (e *Engine) first(o *catalogue.Operator) first {
	f, ok := e.firsts[o.ID]
	if ok && f.epoch == o.Epoch {
		return f
	}
	f = first{epoch: o.Epoch}
	if g, err := e.compile(o); err == nil {
		f.graph = g
		if !forgetful(g) {
			f.topic = firstTopic(g)
		}
	}
	e.firsts[o.ID] = f
	return f
}

// follow returns an operator that is to follow its first output to where that has moved,
// nil when it is to stay.
func (e *Engine) follow(o *catalogue.Operator) *catalogue.Operator {
	f := e.first(o)
	t, ok := e.state.Topic(o.Account, f.topic)
	if f.topic == "" || !ok || t.Moving() || o.State == catalogue.Failed || o.Shadow != nil {
		return nil
	}
	home, now := e.state.Group(o.Group), t.Group()
	if home == now || home == nil || len(o.Groups) > 0 && home.Replicas() == now.Replicas() {
		return nil
	}
	e.o.Log.Info("An operator follows its first output to another group", "operator", o.Name, "account", o.Account, "from", o.Group, "to", now.ID())
	return e.replaced(o, now.ID(), len(o.Homes()))
}

func firstTopic(g *graph.Graph) string {
	for i := range g.Sinks {
		if g.Sinks[i].Topic != "" {
			return g.Sinks[i].Topic
		}
	}
	return ""
}

// replaced returns an operator with as many other instances of the same spec to come.
func (e *Engine) replaced(o *catalogue.Operator, home topics.GroupID, instances int) *catalogue.Operator {
	c := *o
	c.Next = &catalogue.Succession{
		Layout: o.Layout + 1, Groups: e.spread(home, instances), Version: o.Version, Spec: o.Spec, Digest: o.Digest, IDs: o.IDs,
		Began: e.state.Now(),
	}
	if instances <= 1 {
		c.Next.Groups = []topics.GroupID{home}
	}
	c.Revision++
	return &c
}
