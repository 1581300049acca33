package operate

import (
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// first is what an operator's spec says of its first output, kept for as long as the spec
// is the same.
type first struct {
	epoch  uint64
	topic  string       // "": none, or the operator stays where it is
	graph  *graph.Graph // nil: none can be made
	spoken *spoken      // what is advertised; nil: that isn't known yet
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
	if f.topic == "" || !ok || t.Moving() || o.State == catalogue.Failed {
		return nil
	}
	home, now := e.state.Group(o.Group), t.Group()
	if home == now || home == nil || len(o.Groups) > 0 && home.Replicas() == now.Replicas() || o.Stays == now.ID() {
		return nil
	}
	e.o.Log.Info("An operator follows its first output to another group", "operator", o.Name, "account", o.Account, "from", o.Group, "to", now.ID())
	c := e.replaced(o, now.ID(), len(o.Homes()))
	c.Next.Follows = f.topic
	return c
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
		Layout: o.NextLayout(), Groups: e.spread(home, instances), Version: o.Version, Spec: o.Spec, Digest: o.Digest, IDs: o.IDs,
		Shadow: o.Shadow, Began: e.state.Now(),
	}
	if instances <= 1 {
		c.Next.Groups = []topics.GroupID{home}
	}
	c.Revision++
	return &c
}
