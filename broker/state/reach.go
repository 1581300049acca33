package state

import (
	"context"
	"math"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// unreached is what Reached gives where there is no replica.
const unreached = topics.Index(math.MaxUint64)

// Reached is the last entry of a group that this node has applied; group 0 is the
// catalogue. Where the node has no replica it is a number that Reach takes to mean all
// that the leader has committed by then.
func (s *State) Reached(id topics.GroupID) topics.Index {
	if log := s.log(id); log != nil {
		return log.Applied()
	}
	return unreached
}

// Reach waits until this node has applied what another one has Reached. With no replica of
// the group there is nothing to wait for: what it has to know is in the catalogue.
func (s *State) Reach(ctx context.Context, id topics.GroupID, i topics.Index) error {
	log := s.log(id)
	switch {
	case log == nil:
		return nil
	case i == unreached && s.cl == nil:
		return replication.ErrNotLeader
	case i == unreached:
		return s.cl.syncGroup(ctx, s.groups.get(s, id))
	}
	return log.WaitApplied(ctx, i)
}
