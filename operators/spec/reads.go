package spec

import (
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/steps"
	"github.com/heraldmq/herald/topics/expr"
)

// reading is which fields of an input's payloads the graph looks at before it makes
// something else of them. It only decides what is read at once: whatever is asked for is
// there (value.Options.Only).
type reading struct {
	c      *compiler
	fields map[string]bool
	whole  bool // all may matter
	been   map[graph.Edge]bool
}

// reads has the inputs read no more of JSON than the graph looks at.
func (c *compiler) reads() {
	for i := range c.g.Inputs {
		in := &c.g.Inputs[i]
		codec := c.s.Inputs[i].Codec
		if codec.Kind != "json" {
			continue
		}
		r := &reading{c: c, fields: map[string]bool{}, been: map[graph.Edge]bool{}}
		r.looks(in.Where, c.events[i])
		r.follow(in.Out)
		if !r.whole {
			in.Decode = decoder(codec, append([]string{}, sortedNames(r.fields)...))
		}
	}
}

// looks notes what expressions look at, those that aren't nil.
func (r *reading) looks(programs ...*expr.Program) {
	for _, p := range programs {
		if p == nil {
			continue
		}
		names, whole := p.Fields()
		r.whole = r.whole || whole
		for _, name := range names {
			r.fields[name] = true
		}
	}
}

func (r *reading) follow(edges []graph.Edge) {
	for _, e := range edges {
		if r.been[e] || r.whole {
			continue
		}
		r.been[e] = true
		if e.Node < 0 {
			r.sink(r.c.encoders[e.Port])
			continue
		}
		r.node(&r.c.g.Nodes[e.Node])
	}
}

// node notes what a step looks at, and follows what it passes on as it is.
func (r *reading) node(n *graph.Node) {
	passes := true
	switch s := n.Node.(type) {
	case *steps.Filter:
		r.looks(s.If)
	case *steps.Assert:
		r.looks(s.If)
	case *steps.Split:
		r.looks(s.Branches...)
	case *steps.Key:
		r.looks(s.By...)
	case *steps.Union:
	case *steps.Map:
		r.looks(s.Whole)
		r.named(s.Fields)
		passes = false
	case *steps.Project:
		for _, name := range s.Fields {
			r.fields[name] = true
		}
		r.whole = r.whole || s.Drop
		passes = false
	case *steps.Windows:
		passes = r.aggregation(&s.Aggregation)
	case *steps.Slide:
		passes = r.aggregation(&s.Aggregation)
	case *steps.Sessions:
		passes = r.aggregation(&s.Aggregation)
	case *steps.Counted:
		passes = r.aggregation(&s.Aggregation)
	case *steps.Running:
		passes = r.aggregation(&s.Aggregation)
	case *steps.Join:
		passes = r.pairing(&s.Pairing)
	case *steps.Lookup:
		passes = r.pairing(&s.Pairing)
	case *steps.Merge:
		passes = r.pairing(&s.Pairing)
	default: // it keeps whole records, or may do anything
		r.whole = true
	}
	if passes {
		for _, edges := range n.Outs {
			r.follow(edges)
		}
	}
	for _, name := range sortedNames(keysOf(n.Sides)) {
		r.follow(n.Sides[name])
	}
}

func keysOf[V any](m map[string]V) map[string]bool {
	all := map[string]bool{}
	for name := range m {
		all[name] = true
	}
	return all
}

func (r *reading) named(fields []steps.Named) {
	for _, f := range fields {
		r.looks(f.Expr)
	}
}

// aggregation is of what makes something else of records.
func (r *reading) aggregation(g *steps.Aggregation) (passes bool) {
	for _, a := range g.Aggregates {
		r.looks(a.Arg, a.By)
	}
	return false
}

// pairing is of what makes results of two records; which side this one is isn't told.
func (r *reading) pairing(p *steps.Pairing) (passes bool) {
	for _, stored := range p.Stored {
		r.whole = r.whole || stored == nil
		for _, name := range stored {
			r.fields[name] = true
		}
	}
	return false
}

// sink is of messages: an object that wasn't changed goes out as it came in.
func (r *reading) sink(e *encoder) {
	if e.codec != "json" {
		r.whole = true
		return
	}
	r.looks(e.key)
	r.named(e.headers)
	if e.subject != nil {
		r.looks(e.subject.progs...)
	}
}
