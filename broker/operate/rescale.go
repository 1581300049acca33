package operate

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/topics/catalogue"
)

// rescale gives an operator another number of instances, with the spec that it has. It
// goes on after the answer: Next is nil once it is done.
func (s *service) rescale(ctx context.Context, account string, r *Request) (any, error) {
	if r.Partitions < 1 || r.Partitions > catalogue.InstancesMax {
		return nil, refuse(400, "an operator has 1 to %d partitions, not %d", catalogue.InstancesMax, r.Partitions)
	}
	for {
		old := s.e.state.Operator(account, r.Name)
		switch {
		case old == nil:
			return nil, catalogue.FaultNoOperator
		case old.Next != nil:
			return nil, refuse(409, "its instances are being replaced already; try again in a moment")
		case old.State == catalogue.Failed:
			return nil, refuse(409, "it has failed, and its instances can't come to the same place: %s; resume it first", old.Error)
		case len(old.Homes()) == r.Partitions && old.Stays == 0:
			return Deployed{Operator: old}, nil
		case len(old.Homes()) == r.Partitions: // it follows its first output again
			if r.Dry {
				return Deployed{Operator: old}, nil
			}
			return s.change(ctx, account, r, func(o *catalogue.Operator) error { o.Stays = 0; return nil })
		}
		c, err := s.rescaled(old, r.Partitions)
		if err != nil {
			return nil, err
		}
		if r.Dry {
			return Deployed{Operator: c}, nil
		}
		n, err := s.e.state.PutOperator(ctx, c)
		if errors.Is(err, catalogue.FaultOperatorChanged) && ctx.Err() == nil {
			continue
		}
		return Deployed{Operator: n}, err
	}
}

// rescaled returns an operator that is to have another number of instances. A shadow gets as
// many, and begins again with them.
func (s *service) rescaled(old *catalogue.Operator, partitions int) (*catalogue.Operator, error) {
	g, err := s.divided(old.Account, old.Spec, old.IDs, partitions)
	if err != nil {
		return nil, refuse(400, "%s", placeless(err))
	}
	if forgetful(g) {
		return nil, refuse(400, "with recovery %s an operator has one instance", g.Recovery)
	}
	c := s.e.replaced(old, old.Group, partitions)
	c.Next.Spec, c.Next.Digest = g.JSON, hex.EncodeToString(g.Digest[:])
	if old.Shadow != nil {
		g, err := s.divided(old.Account, old.Shadow.Spec, old.Shadow.IDs, partitions)
		if err != nil {
			return nil, refuse(400, "the shadow beside it can't be rescaled with it: %s; discard it first", placeless(err))
		}
		sh := *old.Shadow
		sh.Spec, sh.Digest = g.JSON, hex.EncodeToString(g.Digest[:])
		c.Next.Shadow = &sh
	}
	return c, nil
}

// placeless is what is wrong with a spec that nobody has in a file.
func placeless(err error) string { return fileless.ReplaceAllString(err.Error(), "") }

// divided makes the graph of a spec with another number of partitions.
func (s *service) divided(account string, spec json.RawMessage, ids map[string]uint16, partitions int) (*graph.Graph, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(spec, &keys); err != nil {
		return nil, fmt.Errorf("its spec can't be read: %w", err)
	}
	keys["partitions"], _ = json.Marshal(partitions) // can't fail
	text, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	return s.e.o.Compile(account, text, ids)
}

// cancel calls off that an operator's instances are replaced. Those there are go on where
// they stand; that is one entry of the catalogue, as taking over is: whichever is first
// counts. One that was following its first output stays where it is, until it is rescaled.
func (s *service) cancel(ctx context.Context, account string, r *Request) (any, error) {
	return s.change(ctx, account, r, func(o *catalogue.Operator) error {
		n := o.Next
		switch {
		case n == nil && o.Laid == o.Epoch:
			return refuse(409, "nothing is under way: the %d instances of epoch %d have taken over already, and what they have done can't be undone; rescale or update it again", len(o.Homes()), o.Epoch)
		case n == nil:
			return refuse(409, "nothing is under way: its instances are not being replaced")
		}
		*o = *o.Revoke()
		o.Revision-- // change counts it
		if t, ok := s.e.state.Topic(account, n.Follows); ok {
			o.Stays = t.Group().ID()
		}
		return nil
	})
}
