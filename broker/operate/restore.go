package operate

import (
	"context"
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

// What becomes of a step's state.
const (
	stepNew     = "new"
	stepKept    = "kept"
	stepDropped = "dropped"
	stepChanged = "dropped: it does something else now"
	stepShadow  = "the shadow's"
)

// fits tells which steps keep the state that they have with another graph: those of the
// same name and configuration. Steps without state have no fate.
func fits(was, is *graph.Graph) (kept []uint16, fates map[string]string) {
	kept, fates = []uint16{}, map[string]string{}
	for i := range is.Nodes {
		if !is.Nodes[i].Stateless() {
			fates[is.Nodes[i].Name] = stepNew
		}
	}
	for i := range was.Nodes {
		before := &was.Nodes[i]
		at := slices.IndexFunc(is.Nodes, func(n graph.Node) bool {
			return n.ID == before.ID && n.Kind == before.Kind && n.Config == before.Config
		})
		switch {
		case at >= 0:
			kept = append(kept, before.ID) // also what was counted of a step without state
			if !before.Stateless() {
				fates[is.Nodes[at].Name] = stepKept
			}
		case before.Stateless():
		case fates[before.Name] == "":
			fates[before.Name] = stepDropped
		case fates[before.Name] == stepNew:
			fates[before.Name] = stepChanged
		}
	}
	return kept, fates
}

// restore begins an epoch with the state of a savepoint. What waits in the outbox stays: it
// has been committed. What waits in the savepoint is sent where nobody else does.
func (u *unit) restore(o *catalogue.Operator, epoch uint64) error {
	ctx, cancel := context.WithTimeout(u.life, savepointTimeout)
	defer cancel()
	began := time.Now()
	s, err := u.e.findSavepoint(ctx, o.Account, o.From.Operator, o.From.Savepoint)
	if err != nil {
		return fmt.Errorf("restore operator %s: %w", o.Name, err)
	}
	if s.Object != o.From.Object {
		return fmt.Errorf("restore operator %s: savepoint %s is another one now", o.Name, s.Name)
	}
	head, r, err := u.e.openSavepoint(ctx, o.Account, s)
	if err != nil {
		return err
	}
	nodes := o.Kept
	if epoch > o.From.Epoch { // what has been kept since
		if nodes, _ = o.KeptSince(o.From.Epoch - 1); nodes == nil {
			nodes = []uint16{}
		}
	}
	st := u.store.Load()
	from := restored{to: o.From.Resend}
	if epoch > 1 && o.Outbox != epoch {
		from.live = st
	}
	_, index := layoutOf(u.slot)
	if len(o.Homes()) == head.Instances {
		from.Reader, err = partOf(r, index)
		from.Reader = kept{from.Reader, nodes, false}
	} else {
		from.Reader, err = u.gathered(o, nodes, r, head.Instances, engine.Share{Index: index, Of: len(o.Homes())})
	}
	if err == nil {
		from.Reader = freshened(o, o.From.Epoch, from.Reader)
		err = st.Begin(epoch, &from, 0)
	}
	if err != nil {
		return fmt.Errorf("restore operator %s: %w", o.Name, err)
	}
	u.epoch, u.inst = epoch, nil
	u.note("info", "epoch %d begins with savepoint %s, taken over in %s", epoch, s.Name, time.Since(began).Round(time.Millisecond))
	return u.reopen()
}

// partOf reads up to an instance's state, and returns it to be scanned once.
func partOf(r io.Reader, index int) (opstate.Reader, error) {
	for i := 0; ; i++ {
		if _, err := readCut(r); err != nil || i == index {
			return opstate.Frames(r), err
		}
		if err := opstate.SkipFrames(r); err != nil {
			return nil, err
		}
	}
}

// gathered returns a share of what several instances remember.
func (u *unit) gathered(o *catalogue.Operator, nodes []uint16, r io.Reader, instances int, share engine.Share) (opstate.Reader, error) {
	g, err := u.e.compile(o)
	if err != nil {
		return nil, err
	}
	var parts []opstate.Reader
	for range instances {
		if _, err := readCut(r); err != nil {
			return nil, err
		}
		m := opstate.NewMemory()
		if err := m.Replace(engine.Part(kept{opstate.Frames(r), nodes, false}, share), 0); err != nil {
			return nil, err
		}
		parts = append(parts, m)
	}
	return engine.Inherit(g, parts...)
}

// restored is a state from elsewhere, with the outbox that is here (live; nil: there is none)
// and, behind that, what waits there for the topics that to knows by name (nil: for none).
type restored struct {
	opstate.Reader
	live opstate.Reader
	to   map[string]topics.TopicID
}

func (r *restored) Scan(from, to []byte, f func(key, v []byte) bool) error {
	more, saved := true, opstate.NewMemory()
	var waits []byte
	err := r.Reader.Scan(from, to, func(key, v []byte) bool {
		if engine.IsOutbox(key) {
			waits = opstate.AppendChange(waits, key, v, false)
		} else {
			more = f(key, v)
		}
		return more
	})
	if err != nil || !more {
		return err
	}
	if err := saved.Apply(waits, 0); err != nil {
		return err
	}
	return engine.Resend(r.live, saved, r.to, f)
}

// withSavepoint plans an operator that begins with a savepoint; old is what it replaces,
// nil: nothing. Without a spec it is the savepoint's.
func (s *service) withSavepoint(ctx context.Context, account string, r *Request, old *catalogue.Operator) (*catalogue.Operator, map[string]string, error) {
	name := r.Name
	if r.Spec != "" {
		g, err := s.e.o.Compile(account, []byte(r.Spec), nil)
		if err != nil {
			return nil, nil, refuse(400, "%v", err)
		}
		name = g.Name
	}
	p, err := s.e.findSavepoint(ctx, account, name, r.Savepoint)
	if err != nil {
		return nil, nil, err
	}
	head, _, err := s.e.openSavepoint(ctx, account, p)
	if err != nil {
		return nil, nil, err
	}
	with := *r
	if with.Spec == "" { // with as many partitions as it has
		with.Spec = string(head.Spec)
		if old != nil && len(old.Homes()) != head.Instances {
			g, err := s.divided(account, head.Spec, head.IDs, len(old.Homes()))
			if err != nil {
				return nil, nil, refuse(400, "the savepoint's version can't be spread over the operator's %d partitions: %v", len(old.Homes()), err)
			}
			with.Spec = string(g.JSON)
		}
	}
	g, o, err := s.plan(ctx, account, &with, head.IDs)
	if err != nil {
		return nil, nil, err
	}
	was, err := s.e.o.Compile(account, head.Spec, head.IDs)
	if err != nil {
		return nil, nil, refuse(400, "what the savepoint is of can't be compiled any more (%v): its state can't be kept", err)
	}
	if err := sameInputs(was, g); err != nil {
		return nil, nil, err
	}
	if err := s.reachable(account, g, p); err != nil {
		return nil, nil, err
	}
	o.From = &catalogue.Origin{Operator: p.Operator, Savepoint: p.Name, Object: p.Object}
	lost := old != nil && s.lost(ctx, old)
	if m := s.e.operator(head.ID); lost || m == nil || m.Created != head.Created {
		o.From.Resend = s.sinks(account, g) // nobody else sends it
	}
	if n := max(g.Partitions, 1); n != head.Instances {
		waits := 0
		for _, c := range p.Instances {
			waits += c.Waits
		}
		switch {
		case !head.Aligned:
			return nil, nil, refuse(400, "the savepoint is of %d partitions that had not read up to the same place, and can't be spread over %d: begin with %d, and rescale", head.Instances, n, head.Instances)
		case waits > 0 && o.From.Resend != nil:
			return nil, nil, refuse(400, "outputs wait in the savepoint to be sent, which only as many partitions as it has can give in their order: begin with %d, and rescale", head.Instances)
		}
	}
	var fates map[string]string
	o.Starts = head.Starts
	o.Kept, fates = fits(was, g)
	if old != nil {
		if old.Next != nil {
			return nil, nil, refuse(409, "its instances are being replaced; try again in a moment")
		}
		if o.Name != old.Name {
			return nil, nil, refuse(400, "the savepoint is of operator %s: say the spec that operator %s is to have with it", o.Name, old.Name)
		}
		if len(old.Homes()) != len(o.Homes()) {
			return nil, nil, refuse(400, "it has %d partitions and is to have %d: rescale it first (pubsub operator rescale %s %d)", len(old.Homes()), len(o.Homes()), old.Name, len(o.Homes()))
		}
		o.Lives(old)
		o.Epoch, o.Revision = old.Epoch+1, old.Revision+1
		if lost { // what had been sent isn't known any more
			o.Outbox = o.Epoch
		}
	}
	o.From.Epoch = o.Epoch
	return o, fates, nil
}

// putSavepoint has an operator that is there go on from a savepoint.
func (s *service) putSavepoint(ctx context.Context, account string, r *Request, old *catalogue.Operator) (any, error) {
	o, fates, err := s.withSavepoint(ctx, account, r, old)
	if err != nil {
		return nil, err
	}
	d := Deployed{Operator: o, Steps: fates}
	if r.Dry {
		return d, nil
	}
	d.Operator, err = s.e.state.PutOperator(ctx, o)
	return d, err
}

func (s *service) restore(ctx context.Context, account string, r *Request) (any, error) {
	old := s.e.state.Operator(account, r.Name)
	switch {
	case old == nil:
		return nil, catalogue.FaultNoOperator
	case r.Savepoint == "":
		return nil, refuse(400, "say which savepoint it is to go on from")
	}
	return s.putSavepoint(ctx, account, r, old)
}

// reachable tells whether the inputs are, by all that can be seen, those that a savepoint has
// read: they may be others where the savepoint was taken elsewhere, with the same sequences.
func (s *service) reachable(account string, g *graph.Graph, p *Savepoint) error {
	for i := range g.Inputs {
		t, ok := s.e.state.Topic(account, g.Inputs[i].Topic)
		if !ok || t.Data() == nil {
			continue
		}
		_, last := t.Data().Bounds()
		for _, c := range p.Instances {
			if i < len(c.Ends) && c.Ends[i] > last {
				return refuse(409, "the savepoint has read input %s up to sequence %d, and topic %s ends at %d: it is another topic than the savepoint's", g.Inputs[i].Name, c.Ends[i], g.Inputs[i].Topic, last)
			}
		}
	}
	return nil
}

// sinks returns the topics of a graph's outputs by name.
func (s *service) sinks(account string, g *graph.Graph) map[string]topics.TopicID {
	all := map[string]topics.TopicID{}
	for i := range g.Sinks {
		if t, ok := s.e.state.Topic(account, g.Sinks[i].Topic); ok && g.Sinks[i].Topic != "" {
			all[g.Sinks[i].Topic] = t.ID()
		}
	}
	return all
}
