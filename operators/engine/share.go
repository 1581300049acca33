package engine

import (
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/stream"
)

// Share says which of several instances of an operator one is: it has the groups of keys
// that are its own, and every record without a key is one instance's to answer for. The zero
// Share is an operator's only instance.
type Share struct {
	Index, Of int
}

func (s Share) alone() bool { return s.Of <= 1 }

// HasGroup tells whether a group of keys is the share's.
func (s Share) HasGroup(group uint16) bool {
	return s.alone() || int(group)*s.Of/KeyGroups == s.Index
}

// Has tells whether a key is the share's.
func (s Share) Has(key []byte) bool { return s.alone() || s.HasGroup(KeyGroup(key)) }

// answers tells whether it is the share's instance that answers for what all do alike: that
// counts it, tells of errors, and gives what has no key. It is always the first, so that
// what it gives keeps its order.
func (s Share) answers() bool { return s.alone() || s.Index == 0 }

// sharing is how the step that runs keeps to its share. While owned is false every instance
// does what this one does: what is to be seen once is done by the one that answers.
type sharing struct {
	owned   bool
	answers bool
	rekeyed []bool // by node: its records get another key there or behind it
}

func (x *executor) initSharing() {
	x.sharing = sharing{owned: true, answers: true}
	if !x.i.o.Share.alone() {
		x.rekeyed = x.i.graph.Behind((*graph.Node).Rekeys)
	}
}

// told tells whether what happens now is this instance's to tell.
func (x *executor) told() bool { return x.owned || x.answers }

// passes tells whether a record goes on over an edge in this instance, and whether it is
// the only one then in which it does.
func (x *executor) passes(e graph.Edge, r *stream.Record) (pass, owned bool) {
	if x.owned {
		return true, true
	}
	share := x.i.o.Share
	switch {
	case e.Node >= 0 && x.i.graph.Nodes[e.Node].Stateless() && (r.Key == nil || x.rekeyed[e.Node]):
		return true, false
	case r.Key == nil:
		return x.answers, true
	}
	return share.Has(r.Key), true
}
