package operate

import (
	"fmt"

	"github.com/heraldmq/herald/operators/engine"
	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// An operator reads topics, not names: one that is made anew under the name of one that was
// deleted has other records under the same sequences. The operator stops where it is, and
// reads the other one from its beginning once it is resumed or updated.

// goneError says that an input's topic was deleted.
type goneError struct {
	input, topic string
	read         topics.Sequence
	anew         bool // there is another one of its name
}

func (e *goneError) Error() string {
	if e.anew {
		return fmt.Sprintf("input %s: topic %s was deleted and made anew; the operator has read the old one up to sequence %d: resume it, and it reads the new one from its beginning with the state that it has, or update it with reset to begin anew", e.input, e.topic, e.read)
	}
	return fmt.Sprintf("input %s: topic %s was deleted; the operator has read it up to sequence %d: make it anew and resume the operator, and it reads the new one from its beginning with the state that it has, or update it to other inputs, or remove it", e.input, e.topic, e.read)
}

// otherTopics returns the inputs that are other topics than those that an operator reads.
func otherTopics(o *catalogue.Operator, now []topics.TopicID) (inputs []int) {
	for i, id := range now {
		if i < len(o.Inputs) && o.Inputs[i] != id {
			inputs = append(inputs, i)
		}
	}
	return inputs
}

// renew has an operator read the topics that there are now, where one was made anew: in
// another epoch, with all of its state.
func (s *service) renew(o *catalogue.Operator) error {
	g, err := s.e.compile(o)
	if err != nil {
		return nil //nolint:nilerr // where it runs it is told
	}
	var now []topics.TopicID
	for i := range g.Inputs {
		in := &g.Inputs[i]
		t, ok := s.e.state.Topic(o.Account, in.Topic)
		if !ok {
			return refuse(409, "input %s: there is no topic %s; make it anew first, or update or remove the operator", in.Name, in.Topic)
		}
		now = append(now, t.ID())
	}
	fresh := otherTopics(o, now)
	switch {
	case len(fresh) == 0:
		return nil
	case o.Next != nil:
		return refuse(409, "topic %s was made anew while its instances are being replaced: call that off first (rescale --cancel)", g.Inputs[fresh[0]].Topic)
	case forgetful(g):
		return refuse(409, "topic %s was made anew, and with recovery %s it would have to be read again: update the operator with reset, and it begins anew", g.Inputs[fresh[0]].Topic, g.Recovery)
	}
	o.Inputs, o.Epoch, o.Kept = now, o.Epoch+1, []uint16{}
	for i := range g.Nodes {
		o.Kept = append(o.Kept, g.Nodes[i].ID)
	}
	o.Renew(fresh)
	return nil
}

// renewed is a state whose place in some inputs is their beginning.
type renewed struct {
	opstate.Reader
	inputs []int
}

func (r renewed) Scan(from, to []byte, f func(key, v []byte) bool) error {
	return r.Reader.Scan(from, to, func(key, v []byte) bool {
		return f(key, engine.Renewed(key, v, r.inputs))
	})
}

// freshened returns a state of an epoch with the places in its inputs that are good now.
func freshened(o *catalogue.Operator, epoch uint64, r opstate.Reader) opstate.Reader {
	if inputs := o.RenewedSince(epoch); len(inputs) > 0 {
		return renewed{r, inputs}
	}
	return r
}
