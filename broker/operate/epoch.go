package operate

import (
	"errors"
	"fmt"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/graph"
	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// errCompile means that a spec that was deployed makes no graph here: a process function
// isn't registered any more, say.
var errCompile = errors.New("no graph can be made")

// compile makes the graph of an operator.
func (e *Engine) compile(o *catalogue.Operator) (*graph.Graph, error) {
	g, err := e.o.Compile(o.Account, o.Spec, o.IDs)
	if err != nil {
		return nil, fmt.Errorf("%w: operator %s, which was deployed: %w", errCompile, o.Name, err)
	}
	return g, nil
}

// watch has the unit woken when its inputs grow.
func (u *unit) watch() {
	var ids []topics.TopicID
	for i := range u.g.Inputs {
		if t, ok := u.e.state.Topic(u.op.Load().Account, u.g.Inputs[i].Topic); ok {
			ids = append(ids, t.ID())
		}
	}
	u.e.reads(u, ids)
}

// begin begins an epoch: with the state that it takes over, or none. was is how far the
// group had come in the one before, nil where that isn't known.
func (u *unit) begin(epoch uint64, was *topics.Place) error {
	if epoch <= u.epoch {
		return nil
	}
	switch { // a beginning that failed is tried again
	case was != nil:
		u.was, u.wasEpoch = *was, epoch
	case u.wasEpoch == epoch:
		was = &u.was
	}
	o := u.op.Load()
	for _, c := range u.e.state.Operators("") {
		if c.ID == u.id {
			o = c
		}
	}
	if o.Epoch < epoch {
		return &heldError{fmt.Errorf("epoch %d can't begin: the catalogue here is at %d: %w", epoch, o.Epoch, errGraph)}
	}
	u.op.Store(o)
	if u.replaced() {
		return nil
	}
	if err := u.carryOut(o, epoch); err != nil {
		return err
	}
	s := u.store.Load()
	has := topics.Place{Epoch: s.Epoch(), Seq: s.Seq()}
	exact := was != nil && (*was == has || notYet(o, has, *was, epoch)) || was == nil && len(u.group.Nodes()) <= 1 && has.Epoch == epoch-1
	if f := o.From; f != nil && f.Epoch == epoch && (epoch == 1 || exact || o.Outbox == epoch) {
		return u.restore(o, epoch)
	}
	nodes, known := o.KeptSince(has.Epoch)
	var from opstate.Reader = opstate.NewMemory()
	switch {
	case o.Laid == epoch: // it has taken over what there was, or gets it from another replica
		u.epoch, u.faulty, u.inst = epoch, true, nil
		return nil
	case epoch == 1, was != nil && was.Epoch == 0 && !exact, nodes == nil && o.Outbox == epoch: // nothing is taken over
	case u.faulty || !exact: // another replica has what this one lacks
		u.epoch, u.faulty, u.inst = epoch, true, nil
		return nil
	case o.From != nil && o.From.Epoch > has.Epoch: // that epoch is over and has not begun here
		return u.restore(o, epoch)
	case !known:
		u.note("warn", "epoch %d begins without the state of epoch %d: what has been kept since isn't known any more", epoch, has.Epoch)
		from = kept{Reader: s, outbox: true}
	case nodes != nil && s.InFiles() && len(o.RenewedSince(has.Epoch)) == 0: // by hard links, whatever the size
		if err := s.Retain(epoch, 0, engine.Keeps(nodes)); err != nil {
			return err
		}
		u.epoch = epoch
		u.note("info", "epoch %d begins", epoch)
		return u.reopen()
	default:
		from = freshened(o, has.Epoch, kept{s, nodes, nodes == nil})
	}
	if err := s.Begin(epoch, from, 0); err != nil {
		return err
	}
	u.epoch = epoch
	u.note("info", "epoch %d begins", epoch)
	return u.reopen()
}

// notYet tells whether a state is what its instance took over when the layout began, and the
// group has not come to that epoch: another one has begun before.
func notYet(o *catalogue.Operator, has, was topics.Place, epoch uint64) bool {
	return o.Laid != 0 && o.Laid < epoch && has == (topics.Place{Epoch: o.Laid}) && was.Epoch < o.Laid
}

// kept is a state without what belongs to steps that are not kept, or only its outbox: what
// has been committed is sent, whatever becomes of the rest.
type kept struct {
	opstate.Reader
	nodes  []uint16
	outbox bool
}

func (k kept) Scan(from, to []byte, f func(key, v []byte) bool) error {
	return k.Reader.Scan(from, to, func(key, v []byte) bool {
		node, own := engine.OfNode(key)
		keep := own && engine.Own(key)
		for _, n := range k.nodes {
			keep = keep || !own && n == node
		}
		keep = keep && (!k.outbox || engine.IsOutbox(key))
		return !keep || f(key, v)
	})
}

// backend is where a graph wants its state.
func backend(g *graph.Graph) opstate.Backend {
	switch {
	case g.State.Pebble:
		return opstate.PebbleBackend
	case g.State.Auto:
		return opstate.AutoBackend
	}
	return opstate.MemoryBackend
}
