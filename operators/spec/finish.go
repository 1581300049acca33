package spec

import (
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/steps"
	"github.com/heraldmq/herald/operators/stream"
)

// finish does what needs the whole graph: what goes nowhere, classes, recovery, and the
// places of state.
func (c *compiler) finish() {
	for _, name := range slices.Sorted(maps.Keys(c.outs)) {
		if o := c.outs[name]; !o.taken && !o.optional {
			c.problem(o.at, "%s goes nowhere: no step and no output takes it", name)
		}
	}
	if c.failed() {
		return
	}
	c.class()
	c.spans()
	c.recovery()
	c.partitions()
	c.advertise()
	c.places()
	c.reads()
}

// partitions tells why an operator can't be run by several instances.
func (c *compiler) partitions() {
	if c.g.Partitions <= 1 {
		return
	}
	step, why := c.g.Unspreadable()
	if why == "" && c.g.Recovery != graph.Active {
		why = "with recovery " + c.g.Recovery.String() + " there is one instance; use recovery active"
	}
	if why == "" {
		return
	}
	at := c.s.Operator.At
	for i := range c.s.Steps {
		if c.s.Steps[i].Name == step {
			at = c.s.Steps[i].At
		}
	}
	c.problem(at, "%d partitions can't be had: %s", c.g.Partitions, why)
}

// class finds how far the output follows from the input.
func (c *compiler) class() {
	sources := make([]map[int]bool, len(c.g.Nodes))
	for i := range sources {
		sources[i] = map[int]bool{}
	}
	for i := range c.g.Inputs {
		for _, e := range c.g.Inputs[i].Out {
			if e.Node >= 0 {
				sources[e.Node][i] = true
			}
		}
	}
	for i := range c.g.Nodes {
		n := &c.g.Nodes[i]
		if n.Class == stream.Deterministic && len(sources[i]) > 1 {
			n.Class = stream.Arbitrary // the interleaving of its inputs matters
		}
		c.g.Class = max(c.g.Class, n.Class)
		all := slices.Clone(n.Outs)
		for _, name := range slices.Sorted(maps.Keys(n.Sides)) {
			all = append(all, n.Sides[name])
		}
		for _, edges := range all {
			for _, e := range edges {
				if e.Node >= 0 {
					maps.Copy(sources[e.Node], sources[i])
				}
			}
		}
	}
	if c.clock() {
		c.g.Class = stream.Arbitrary
	}
}

// spans finds for how long a record matters: along each way through the graph the spans
// of its steps add up, since what a step gives late is what the next one begins with.
func (c *compiler) spans() {
	reach := make([]time.Duration, len(c.g.Nodes))
	for i := range c.g.Nodes {
		n := &c.g.Nodes[i]
		if n.Class > stream.Repeatable {
			n.Span = steps.Span(n.Node)
		}
		if n.Span < 0 || reach[i] < 0 {
			c.g.Span = steps.Unbounded
			return
		}
		reach[i] += n.Span
		c.g.Span = max(c.g.Span, reach[i])
		outs := slices.Clone(n.Outs)
		for _, edges := range n.Sides {
			outs = append(outs, edges)
		}
		for _, edges := range outs {
			for _, e := range edges {
				if e.Node >= 0 {
					reach[e.Node] = max(reach[e.Node], reach[i])
				}
			}
		}
	}
}

// clock tells whether an expression looks at the logged clock.
func (c *compiler) clock() bool {
	for i := range c.s.Steps {
		for _, e := range c.s.Steps[i].expressions() {
			if p, err := c.env.Compile(e.Text); err == nil && p.UsesClock() {
				return true
			}
		}
	}
	for i := range c.g.Inputs {
		if w := c.g.Inputs[i].Where; w != nil && w.UsesClock() {
			return true
		}
	}
	return false
}

// expressions are a step's that may look at the clock.
func (st *Step) expressions() []Expr {
	of := func(fields []Field) (all []Expr) {
		for _, f := range fields {
			all = append(all, f.Expr)
		}
		return all
	}
	switch b := st.Body.(type) {
	case *Filter:
		return []Expr{b.If}
	case *Assert:
		return []Expr{b.If}
	case *Map:
		return append(of(b.Fields), b.Whole)
	case *Flatmap:
		return []Expr{b.List}
	case *Key:
		return of(b.By)
	case *Split:
		return of(b.Branches)
	}
	return nil
}

// Guarantee is what a recovery mode promises of a graph, in the words of Hwang et al.
func Guarantee(g *graph.Graph) string {
	switch g.Recovery {
	case graph.Active, graph.Passive:
		return "precise: after a failure the output goes on as if there had been none"
	case graph.Upstream:
		if g.Class <= stream.Convergent {
			return "rollback: after a failure some output comes again, and is the same once repeated records are removed"
		}
		return "rollback, divergent: after a failure some output comes again and may differ"
	}
	return "gap: after a failure some input is left out"
}

func (c *compiler) recovery() {
	r := c.g.Recovery
	if r != graph.Upstream && r != graph.Amnesia {
		return
	}
	if c.g.Class <= stream.Convergent || c.s.AcceptLoss {
		c.warn(c.s.Recovery.At, "recovery %s gives %s", r, Guarantee(c.g))
		return
	}
	for i := range c.g.Nodes {
		if n := &c.g.Nodes[i]; n.Class > stream.Convergent {
			c.problem(c.s.Recovery.At, "recovery %s would lose the state of step %s, which is %s: what it gives would be wrong from then on; use active or passive, or say accept_loss: true", r, n.Name, n.Class)
			return
		}
	}
	c.problem(c.s.Recovery.At, "recovery %s doesn't suit an operator that is %s; use active or passive, or say accept_loss: true", r, c.g.Class)
}

// The places of state are numbers that follow from the names of steps: the same over
// versions, whatever is put between them. The top of the range is the engine's.
const placeMax = 0xf000

func (c *compiler) places() {
	taken := map[uint16]bool{}
	var fresh []int
	for i := range c.g.Nodes {
		n := &c.g.Nodes[i]
		if id, kept := c.o.IDs[n.Name]; kept && id > 0 && !taken[id] {
			n.ID, taken[id] = id, true
			continue
		}
		fresh = append(fresh, i)
	}
	for _, id := range c.o.IDs {
		taken[id] = true // of a step that is gone: its state must not become another's
	}
	place := func(i int) uint16 {
		h := fnv.New32a()
		_, _ = h.Write([]byte(c.g.Nodes[i].Name)) // never fails
		return uint16(h.Sum32()%placeMax) + 1
	}
	slices.SortFunc(fresh, func(a, b int) int {
		if d := int(place(a)) - int(place(b)); d != 0 {
			return d
		}
		if c.g.Nodes[a].Name < c.g.Nodes[b].Name {
			return -1
		}
		return 1
	})
	for _, i := range fresh {
		id := place(i)
		for taken[id] {
			id = id%placeMax + 1
		}
		c.g.Nodes[i].ID, taken[id] = id, true
	}
}
