package spec

import (
	"maps"
	"slices"

	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/steps"
	"github.com/heraldmq/herald/operators/stream"
)

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

func sortedNames(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// steps makes the nodes, each behind those it takes from.
func (c *compiler) steps() {
	byName := map[string]*Step{}
	for i := range c.s.Steps {
		byName[c.s.Steps[i].Name] = &c.s.Steps[i]
	}
	const walking, done = 1, 2
	state := map[*Step]int{}
	var visit func(st *Step, by Expr)
	visit = func(st *Step, by Expr) {
		switch state[st] {
		case done:
			return
		case walking:
			c.problem(by.At, "%s takes from itself, over %s: a graph has no circle", st.Name, by.Text)
			return
		}
		state[st] = walking
		for _, from := range st.sources() {
			if before := byName[stepOf(from.Text)]; before != nil {
				visit(before, from)
			}
		}
		state[st] = done
		c.step(st, byName)
	}
	for i := range c.s.Steps {
		visit(&c.s.Steps[i], Expr{})
	}
}

// stepOf is the step of an outlet: split_1 of split_1.strong.
func stepOf(outlet string) string {
	for i := range len(outlet) {
		if outlet[i] == '.' {
			return outlet[:i]
		}
	}
	return outlet
}

func (st *Step) sources() []Expr {
	if j, ok := st.Body.(*Join); ok {
		return append(slices.Clone(st.From), j.With)
	}
	return st.From
}

// step makes the node of a step.
func (c *compiler) step(st *Step, byName map[string]*Step) {
	if a, ok := st.Body.(*Aggregate); ok && len(st.From) == 1 {
		if w, ok := byName[st.From[0].Text]; ok {
			if window, ok := w.Body.(*Window); ok {
				c.windowed(st, w, window, a)
				return
			}
		}
	}
	var from []*outlet
	if len(st.From) == 0 {
		c.problem(st.At, "step %s takes from nothing: there is no input", st.Name)
	}
	for _, name := range st.From {
		if o := c.take(name, "step "+st.Name); o != nil {
			from = append(from, o)
		}
	}
	if len(from) == 0 || len(from) < len(st.From) {
		c.missing(st)
		return
	}
	if _, ok := st.Body.(*Window); ok {
		// It is a node together with the aggregate that takes it.
		c.outs[st.Name] = &outlet{name: st.Name, at: st.At, connect: func(graph.Edge) {
			c.problem(st.At, "window %s must be taken by one aggregate, and nothing else", st.Name)
		}}
		return
	}
	if j, ok := st.Body.(*Join); ok {
		c.join(st, j, from)
		return
	}
	c.single(st, from)
}

// missing puts something in the place of a step that can't be made, so that those
// behind it don't complain.
func (c *compiler) missing(st *Step) {
	c.outs[st.Name] = &outlet{name: st.Name, connect: func(graph.Edge) {}, taken: true, keyed: true, inputs: map[int]bool{}}
	if s, ok := st.Body.(*Split); ok {
		for _, b := range append(s.Branches, Field{Name: s.Else}) {
			c.outs[st.Name+"."+b.Name] = c.outs[st.Name]
		}
	}
}

// add makes the node of a step with one outlet.
func (c *compiler) add(st *Step, n stream.Node, class stream.Class, from []*outlet) (int, *outlet) {
	i, out := c.node(st, st.Name, st.Body.kind(), n, class, from...)
	for _, f := range from {
		f.connect(graph.Edge{Node: i})
	}
	c.outs[st.Name] = out
	return i, out
}

// single makes the node of a step that takes records one by one.
func (c *compiler) single(st *Step, from []*outlet) {
	in := *from[0]
	for _, f := range from[1:] {
		in.meet(f)
	}
	switch b := st.Body.(type) {
	case *Filter:
		c.add(st, &steps.Filter{If: c.compile(b.If, &in, true), Changelog: in.changelog}, stream.Repeatable, from)
	case *Assert:
		c.add(st, &steps.Assert{If: c.compile(b.If, &in, true)}, stream.Repeatable, from)
	case *Map:
		m := &steps.Map{Fields: c.fields(b.Fields, &in)}
		if b.Whole.Set() {
			m.Whole = c.compile(b.Whole, &in, false)
		}
		_, out := c.add(st, m, stream.Repeatable, from)
		out.holds(nil, nil, false)
		if !b.Whole.Set() {
			out.holds(namesOf(b.Fields), typesOf(m.Fields), true)
		}
	case *Project:
		c.project(st, b, &in, from)
	case *Flatmap:
		if in.changelog {
			c.problem(st.At, "a flatmap can't take a changelog: what becomes of its rows' parts isn't known")
		}
		_, out := c.add(st, &steps.Flatmap{List: c.compile(b.List, &in, false)}, stream.Repeatable, from)
		out.holds(nil, nil, false)
	case *Key:
		k, names := c.key(b.By, &in)
		i, out := c.add(st, k, stream.Repeatable, from)
		c.g.Nodes[i].Keyed = false
		out.keyed, out.keys = true, names
	case *Union:
		c.add(st, &steps.Union{}, stream.Repeatable, from)
	case *Split:
		c.split(st, b, &in, from)
	case *Deduplicate:
		c.deduplicate(st, b, &in, from)
	case *Aggregate:
		c.running(st, b, &in, from)
	case *Top:
		c.top(st, b, &in, from)
	case *Table:
		k, names := c.key(b.Key, nil)
		t := &steps.Table{Key: k}
		if b.Delete.Set() {
			t.Delete = c.compile(b.Delete, &in, true)
		}
		i, out := c.add(st, t, stream.Repeatable, from)
		c.g.Nodes[i].Keyed = false
		out.keyed, out.keys, out.changelog, out.windows = true, names, true, false
	case *Process:
		c.process(st, b, from)
	}
}

func namesOf(fields []Field) map[string]bool {
	all := map[string]bool{}
	for _, f := range fields {
		all[f.Name] = true
	}
	return all
}

func (c *compiler) project(st *Step, b *Project, in *outlet, from []*outlet) {
	if len(b.Fields) == 0 {
		c.problem(st.At, "project names no field")
	}
	_, out := c.add(st, &steps.Project{Fields: b.Fields, Drop: b.Drop}, stream.Repeatable, from)
	if in.fields != nil {
		for _, name := range b.Fields {
			if !in.fields[name] {
				c.problem(st.At, "what comes from %s has no field %s%s", in.name, name, meant(name, sortedNames(in.fields)))
			}
		}
	}
	if !b.Drop {
		fields := map[string]bool{}
		for _, name := range b.Fields {
			fields[name] = true
		}
		out.holds(fields, in.types, in.fields != nil && in.whole)
		return
	}
	if in.fields != nil {
		fields := maps.Clone(in.fields)
		for _, name := range b.Fields {
			delete(fields, name)
		}
		out.holds(fields, in.types, in.whole)
	}
}

func (c *compiler) split(st *Step, b *Split, in *outlet, from []*outlet) {
	n := &steps.Split{}
	if in.changelog {
		c.problem(st.At, "a split can't take a changelog: a row that goes to another branch would stay in the first; filter it for each branch")
	}
	for _, f := range b.Branches {
		n.Branches = append(n.Branches, c.compile(f.Expr, in, true))
	}
	i, out := c.add(st, n, stream.Repeatable, from)
	delete(c.outs, st.Name)
	branches := b.Branches
	if b.Else != "" {
		branches = append(slices.Clone(branches), Field{Name: b.Else})
	} else {
		c.warn(st.At, "split %s drops records for which no condition holds; take them with else: NAME", st.Name)
	}
	for p, f := range branches {
		o := *out
		o.name, o.connect = st.Name+"."+f.Name, c.port(i, p)
		if !validName(f.Name) || c.outs[o.name] != nil {
			c.problem(f.Expr.At, "a branch is named by letters, digits, - and _, each once, not %q", f.Name)
		}
		c.outs[o.name] = &o
	}
}

func (c *compiler) deduplicate(st *Step, b *Deduplicate, in *outlet, from []*outlet) {
	by, _ := c.key(b.By, in)
	class := stream.Convergent
	if b.Processing {
		class = stream.Arbitrary
	}
	if in.changelog {
		c.problem(st.At, "deduplicate can't take a changelog, whose updates of a row would count as the same")
	}
	i, _ := c.add(st, &steps.Deduplicate{By: by, Within: b.Within, Processing: b.Processing}, class, from)
	if !b.Processing {
		c.side(i, st, in, stream.SideLate, Expr{})
	}
}

func (c *compiler) process(st *Step, b *Process, from []*outlet) {
	factory, ok := c.o.Functions[b.Function.Text]
	if !ok {
		known := slices.Sorted(maps.Keys(c.o.Functions))
		hint := meant(b.Function.Text, known)
		if hint == "" && len(known) > 0 {
			hint = "; there are " + listed(known)
		}
		c.problem(b.Function.At, "no process function %s is registered%s", b.Function.Text, hint)
		c.missing(st)
		return
	}
	f, err := factory(b.With)
	if err != nil {
		c.problem(st.At, "process %s: %v", b.Function.Text, err)
		c.missing(st)
		return
	}
	_, out := c.add(st, &steps.Process{Func: f}, f.Class, from)
	out.holds(nil, nil, false)
}
