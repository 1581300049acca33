package spec

import (
	"strings"
	"time"

	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/steps"
	"github.com/heraldmq/herald/operators/stream"
)

// aggregation compiles what windows and running aggregates have in common, and gives
// the fields of its results.
func (c *compiler) aggregation(st *Step, a *Aggregate, in *outlet, window bool) (steps.Aggregation, map[string]bool) {
	g := steps.Aggregation{}
	fields := map[string]bool{}
	if in.keyed {
		g.KeyNames = in.keys
		if len(in.keys) == 0 {
			g.KeyNames = []string{"key"}
		}
	}
	for _, name := range g.KeyNames {
		fields[name] = true
	}
	if window {
		fields["window_start"], fields["window_end"] = true, true
	}
	for _, f := range a.Calls {
		if fields[f.Name] {
			c.problem(f.Expr.At, "the result has a field %s already: the key's fields and the window's come first", f.Name)
		}
		fields[f.Name] = true
		if agg, ok := c.call(f, in); ok {
			g.Aggregates = append(g.Aggregates, agg)
		}
	}
	if a.Having.Set() {
		g.Having = c.compile(a.Having, &outlet{name: "aggregate " + st.Name, fields: fields}, true)
	}
	return g, fields
}

// windowed makes the node of a window and the aggregate that takes it.
func (c *compiler) windowed(st, ws *Step, w *Window, a *Aggregate) {
	var from []*outlet
	for _, name := range ws.From {
		if o := c.outs[name.Text]; o != nil {
			from = append(from, o)
		}
	}
	mark := c.outs[ws.Name]
	if len(from) == 0 || mark == nil || mark.taken {
		if mark != nil && mark.taken && len(from) > 0 {
			c.problem(st.At, "window %s is taken by an aggregate already", ws.Name)
		}
		c.missing(st)
		return
	}
	mark.taken = true
	in := *from[0]
	for _, f := range from[1:] {
		in.meet(f)
	}
	if len(a.Row) > 0 {
		c.problem(a.Row[0].Expr.At, "row is for an aggregate of a changelog, without a window")
	}
	if in.changelog {
		c.problem(ws.At, "a window can't take a changelog, whose updates of a row would each count")
	}
	if !in.keyed {
		c.warn(ws.At, "window %s has no key: all records are counted together, in one place", ws.Name)
	}
	g, fields := c.aggregation(st, a, &in, true)
	n, class := c.windowNode(g, w)
	i, out := c.node(st, st.Name, "window "+w.Kind, n, class, from...)
	c.g.Nodes[i].Config += " " + ws.config()
	for _, f := range from {
		f.connect(graph.Edge{Node: i})
	}
	out.holds(fields, typesOfResults(&g, true), true)
	out.changelog, out.windows = w.Changes, w.Changes
	if !w.Processing && !w.Changes {
		out.lag += w.Allow
	}
	if g.KeyNames != nil {
		out.keys = g.KeyNames
	}
	c.outs[st.Name] = out
	if w.Kind != "count" && !w.Processing {
		c.side(i, ws, &in, stream.SideLate, w.Late)
		c.outs[st.Name+"."+stream.SideLate] = c.outs[ws.Name+"."+stream.SideLate]
	}
}

func (c *compiler) windowNode(g steps.Aggregation, w *Window) (stream.Node, stream.Class) {
	class := stream.Convergent
	if w.Processing {
		class = stream.Arbitrary
	}
	switch w.Kind {
	case "slide":
		return &steps.Slide{Aggregation: g, Size: w.Size, Allow: w.Allow, Processing: w.Processing}, class
	case "session":
		return &steps.Sessions{Aggregation: g, Gap: w.Size, Max: w.Max, Allow: w.Allow, Processing: w.Processing, Changes: w.Changes}, class
	case "count":
		return &steps.Counted{Aggregation: g, Size: w.Count, Every: w.CountEvery, TTL: c.s.State.TTL}, stream.Deterministic
	}
	every := w.Every
	if w.Kind == "tumble" {
		every = w.Size
	}
	return &steps.Windows{Aggregation: g, Size: w.Size, Every: every, Offset: w.Offset, Allow: w.Allow, Processing: w.Processing, Changes: w.Changes}, class
}

func (c *compiler) running(st *Step, a *Aggregate, in *outlet, from []*outlet) {
	if in.changelog && len(a.Row) == 0 {
		c.problem(st.At, "an aggregate takes a changelog here, whose updates of a row would each count: say with row: EXPRESSION what tells its rows apart, so that an update replaces the row")
	}
	if in.keyed && c.s.State.TTL == 0 {
		c.warn(st.At, "aggregate %s keeps a row for each key for ever; state: {ttl: …} forgets keys that are not used", st.Name)
	}
	g, fields := c.aggregation(st, a, in, false)
	var n stream.Node = &steps.Running{Aggregation: g, TTL: c.s.State.TTL}
	if len(a.Row) > 0 {
		by, _ := c.key(a.Row, in)
		n = &steps.Rows{Aggregation: g, Row: by, TTL: c.s.State.TTL}
		for i, agg := range g.Aggregates {
			if !steps.Removable(agg.Func) {
				c.problem(a.Calls[i].Expr.At, "%s can't take a row back that has changed; of rows there are count, sum and avg, and top with row", agg.Func)
			}
		}
	}
	_, out := c.add(st, n, stream.Deterministic, from)
	out.holds(fields, typesOfResults(&g, false), true)
	out.changelog = true
	if g.KeyNames != nil {
		out.keys = g.KeyNames
	}
}

func (c *compiler) top(st *Step, b *Top, in *outlet, from []*outlet) {
	n := &steps.Top{N: b.N, By: c.compile(b.By, in, false), Rising: b.Rising, Latest: b.Latest, TTL: c.s.State.TTL}
	switch {
	case len(b.Row) > 0:
		n.Row, _ = c.key(b.Row, in)
		if c.s.State.TTL == 0 {
			c.warn(st.At, "top %s keeps all rows for ever, since one may come up when another is gone; state: {ttl: …} bounds it", st.Name)
		}
	case in.changelog:
		c.problem(st.At, "top takes a changelog here: say with row: EXPRESSION what tells its rows apart, so that an update replaces the row")
	}
	_, out := c.add(st, n, stream.Deterministic, from)
	out.changelog, out.keyed, out.keys = true, true, nil
	if in.fields != nil {
		fields, types := map[string]bool{"rank": true}, map[string]jsonSchema{}
		for name := range in.fields {
			fields[name], types[name] = true, in.types[name]
		}
		types["rank"] = jsonSchema{"type": "integer", "minimum": 1}
		out.holds(fields, types, in.whole)
	}
}

// join makes the nodes of a join: a key for each side where one is said, and the join.
func (c *compiler) join(st *Step, b *Join, left []*outlet) {
	right := c.take(b.With, "join "+st.Name)
	if right == nil {
		c.missing(st)
		return
	}
	l := *left[0]
	for _, f := range left[1:] {
		l.meet(f)
	}
	lefts := left
	r := right
	if b.Left.Set() {
		lefts = []*outlet{c.joinKey(st, "left", b.Left, left)}
		r = c.joinKey(st, "right", b.Right, []*outlet{right})
		l = *lefts[0]
	} else {
		for _, side := range []*outlet{&l, r} {
			if !side.keyed {
				c.problem(st.At, "a join needs a key: say on: {left: …, right: …}, or give %s a key step", side.name)
			}
		}
	}
	pairing := steps.Pairing{Kind: map[string]steps.JoinKind{"inner": steps.Inner, "left": steps.Left, "outer": steps.Outer}[b.Kind]}
	c.partnerless(b)
	pairing.As = c.fields(b.As, &outlet{name: "join " + st.Name, fields: map[string]bool{"left": true, "right": true}})
	n, class, lag := c.joinNode(st, b, pairing, &l, r)
	if n == nil {
		c.missing(st)
		return
	}
	i, out := c.node(st, st.Name, "join", n, class, append(append([]*outlet{}, lefts...), r)...)
	for _, f := range lefts {
		f.connect(graph.Edge{Node: i})
	}
	r.connect(graph.Edge{Node: i, Port: 1})
	c.g.Nodes[i].Keyed = true
	out.keyed, out.keys = true, l.keys
	out.lag += lag
	out.changelog = b.Table && l.changelog
	out.holds(map[string]bool{"left": true, "right": true}, nil, false)
	if len(b.As) > 0 {
		out.holds(namesOf(b.As), nil, false) // what comes of a side that is missing is null
	}
	c.outs[st.Name] = out
	if !b.Table {
		c.side(i, st, &l, stream.SideLate, b.Late)
	}
}

// partnerless warns of fields that a result without a partner doesn't have.
func (c *compiler) partnerless(b *Join) {
	missing := map[string][]string{"left": {"right."}, "outer": {"left.", "right."}}[b.Kind]
	for _, f := range b.As {
		for _, side := range missing {
			if name, is := strings.CutPrefix(f.Expr.Text, side); is && lastName(f.Expr.Text) != "" {
				c.warn(f.Expr.At, "%s is an error where there is no partner, at which the operator stops; '%s?%s' is null then", f.Expr.Text, side, name)
			}
		}
	}
}

func (c *compiler) joinKey(st *Step, side string, by Expr, from []*outlet) *outlet {
	in := *from[0]
	for _, f := range from[1:] {
		in.meet(f)
	}
	k, names := c.key([]Field{{Expr: by}}, &in)
	i, out := c.node(st, st.Name+"."+side, "key", k, stream.Repeatable, from...)
	for _, f := range from {
		f.connect(graph.Edge{Node: i})
	}
	c.g.Nodes[i].Keyed = false
	out.keyed, out.keys = true, names
	return out
}

// storedFields is which fields of a join's sides its results look at.
func storedFields(as []steps.Named) (stored [2][]string) {
	for port, side := range []string{"left", "right"} {
		fields, all := map[string]bool{}, len(as) == 0
		for _, f := range as {
			if f.Expr == nil {
				return stored // a problem was told
			}
			names, whole := f.Expr.Under(side)
			all = all || whole
			for _, name := range names {
				fields[name] = true
			}
		}
		if !all {
			stored[port] = append([]string{}, sortedNames(fields)...)
		}
	}
	return stored
}

func (c *compiler) joinNode(st *Step, b *Join, p steps.Pairing, l, r *outlet) (stream.Node, stream.Class, time.Duration) {
	p.Stored = storedFields(p.As)
	switch {
	case b.Table && !r.changelog:
		c.problem(b.With.At, "%s is no table: its records replace nothing; make it one with a table step, or table: true at the input", r.name)
		return nil, 0, 0
	case b.Table && l.changelog:
		if c.s.State.TTL == 0 {
			c.warn(st.At, "join %s keeps both tables: as big as they are", st.Name)
		}
		return &steps.Merge{Pairing: p}, stream.Deterministic, 0
	case b.Table:
		if b.Kind == "outer" {
			c.problem(st.At, "a record finds its row in a table: kind is inner or left")
		}
		return &steps.Lookup{Pairing: p}, stream.Deterministic, 0
	case l.changelog || r.changelog:
		c.problem(st.At, "a join by time takes streams, not a changelog; with table: true both may be tables")
		return nil, 0, 0
	}
	n := &steps.Join{Pairing: p, Before: b.Before, After: b.After, Window: b.Window, Offset: b.Offset}
	lag := time.Duration(0)
	if b.Window == 0 && p.Kind != steps.Inner {
		lag = b.After
		if p.Kind == steps.Outer {
			lag = max(b.After, b.Before)
		}
	}
	return n, stream.Convergent, lag
}
