package state

import (
	"context"

	"github.com/heraldmq/herald/topics/catalogue"
)

// PutOperator enters an operator into the catalogue, or changes it: its Revision must be
// one higher than that of the one there is, 1 for a new one. Faults:
// catalogue.FaultOperatorChanged, FaultTooManyOperators.
func (s *State) PutOperator(ctx context.Context, o *catalogue.Operator) (*catalogue.Operator, error) {
	r, err := s.decide(ctx, &catalogue.Command{Op: catalogue.OpPutOperator, Operator: o})
	if err != nil {
		return nil, err
	}
	return r.Operator, nil
}

// DropOperator takes an operator out of the catalogue, if it still has a revision (0:
// any). Faults: catalogue.FaultNoOperator, FaultOperatorChanged.
func (s *State) DropOperator(ctx context.Context, account, name string, revision uint64) error {
	_, err := s.decide(ctx, &catalogue.Command{Op: catalogue.OpDropOperator, Account: account, Name: name, Revision: revision})
	return err
}

// Operator returns an operator by name, nil when there is none.
func (s *State) Operator(account, name string) (o *catalogue.Operator) {
	s.catalogue.read(func(c *catalogue.Catalogue) { o = c.Operator(account, name) })
	return o
}

// Operators returns an account's operators by name, account "" those of all by number.
func (s *State) Operators(account string) (all []*catalogue.Operator) {
	s.catalogue.read(func(c *catalogue.Catalogue) {
		if account == "" {
			all = c.Operators()
		} else {
			all = c.OperatorsOf(account)
		}
	})
	return all
}

// operatorChanged tells of an operator that is new, changed or gone.
func (s *State) operatorChanged(o *catalogue.Operator) {
	s.tellOperators(func(h *Hooks) {
		if h.OnOperator != nil {
			h.OnOperator(o.ID)
		}
	})
}
