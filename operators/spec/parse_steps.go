package spec

import (
	"math"
	"time"

	"go.yaml.in/yaml/v3"
)

// step reads a step and adds it to those of the spec.
func (d *reader) step(s *Spec, n *yaml.Node) {
	st := Step{At: at(n)}
	before := len(d.all)
	var having Expr
	var row []Field
	bodies := 0
	body := func(read func(n *yaml.Node) Body) func(n *yaml.Node) {
		return func(n *yaml.Node) {
			if bodies++; bodies > 1 {
				d.problem(at(n), "a step does one thing; this one is a %s already", st.Body.kind())
				return
			}
			st.Body = read(n)
		}
	}
	d.mapping(n, "a step", append([]key{
		{"name", d.str(&st.Name, "name")},
		{"from", d.exprs(&st.From, "from")},
		{"on_error", func(n *yaml.Node) { st.OnError = d.errors(n, "on_error") }},
		{"having", d.expr(&having, "having")},
		{"row", d.keyBy(&row, "row")},
		{"with", func(*yaml.Node) {}}, // of process, read below
	}, d.bodies(&st, n, body)...)...)
	if n.Kind != yaml.MappingNode {
		return
	}
	if having.Set() {
		if a, ok := st.Body.(*Aggregate); ok {
			a.Having = having
		} else {
			d.problem(having.At, "having belongs to an aggregate")
		}
	}
	if len(row) > 0 {
		if a, ok := st.Body.(*Aggregate); ok {
			a.Row = row
		} else {
			d.problem(row[0].Expr.At, "row belongs to an aggregate; a top has it inside")
		}
	}
	if _, ok := st.Body.(*Process); !ok && has(n, "with") {
		d.problem(at(n), "with belongs to process; a join has it inside")
	}
	if bodies == 0 {
		if len(d.all) > before {
			return // a misspelt kind is enough said
		}
		d.problem(at(n), "a step says what it does: filter, map, project, flatmap, key, union, split, deduplicate, window, aggregate, top, join, table, process or assert")
		return
	}
	s.Steps = append(s.Steps, st)
}

func (d *reader) bodies(st *Step, whole *yaml.Node, body func(func(n *yaml.Node) Body) func(n *yaml.Node)) []key {
	return []key{
		{"filter", body(func(n *yaml.Node) Body { b := &Filter{}; d.expr(&b.If, "filter")(n); return b })},
		{"assert", body(func(n *yaml.Node) Body { b := &Assert{}; d.expr(&b.If, "assert")(n); return b })},
		{"flatmap", body(func(n *yaml.Node) Body { b := &Flatmap{}; d.expr(&b.List, "flatmap")(n); return b })},
		{"map", body(func(n *yaml.Node) Body {
			b := &Map{}
			if n.Kind == yaml.MappingNode {
				d.fields(&b.Fields, "map")(n)
			} else {
				d.expr(&b.Whole, "map")(n)
			}
			return b
		})},
		{"project", body(func(n *yaml.Node) Body {
			b := &Project{}
			if n.Kind == yaml.MappingNode {
				b.Drop = true
				d.mapping(n, "project", key{"drop", d.strs(&b.Fields, "drop")})
			} else {
				d.strs(&b.Fields, "project")(n)
			}
			return b
		})},
		{"key", body(func(n *yaml.Node) Body { b := &Key{}; d.keyBy(&b.By, "key")(n); return b })},
		{"union", body(func(n *yaml.Node) Body { d.exprs(&st.From, "union")(n); return &Union{} })},
		{"split", body(d.split)},
		{"deduplicate", body(d.deduplicate)},
		{"window", body(d.window)},
		{"aggregate", body(func(n *yaml.Node) Body { b := &Aggregate{}; d.fields(&b.Calls, "aggregate")(n); return b })},
		{"top", body(d.top)},
		{"join", body(d.join)},
		{"table", body(func(n *yaml.Node) Body {
			b := &Table{}
			d.mapping(n, "table", key{"key", d.keyBy(&b.Key, "key")}, key{"delete", d.expr(&b.Delete, "delete")})
			if len(b.Key) == 0 {
				d.problem(at(n), "a table needs a key")
			}
			return b
		})},
		{"process", body(func(n *yaml.Node) Body {
			b := &Process{}
			d.expr(&b.Function, "process")(n)
			for i := 0; i+1 < len(whole.Content); i += 2 {
				if whole.Content[i].Value == "with" {
					b.With = d.data(whole.Content[i+1])
				}
			}
			return b
		})},
	}
}

func (d *reader) split(n *yaml.Node) Body {
	b := &Split{}
	if n.Kind != yaml.MappingNode {
		d.problem(at(n), "split is a mapping of branches to conditions, not %s", kindOf(n))
		return b
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if name == "else" {
			d.str(&b.Else, "else")(n.Content[i+1])
			continue
		}
		f := Field{Name: name}
		d.expr(&f.Expr, "branch "+name)(n.Content[i+1])
		b.Branches = append(b.Branches, f)
	}
	if len(b.Branches) == 0 {
		d.problem(at(n), "split has no branch")
	}
	return b
}

func (d *reader) deduplicate(n *yaml.Node) Body {
	b := &Deduplicate{}
	by := "event"
	d.mapping(n, "deduplicate",
		key{"by", d.keyBy(&b.By, "by")},
		key{"within", d.duration(&b.Within, "within", 1)},
		key{"time", d.choice(&by, "time", "event", "processing")})
	b.Processing = by == "processing"
	for _, name := range []string{"by", "within"} {
		if n.Kind == yaml.MappingNode && !has(n, name) {
			d.problem(at(n), "deduplicate needs %s", name)
		}
	}
	return b
}

func (d *reader) window(n *yaml.Node) Body {
	b := &Window{}
	by, emit := "event", "final"
	kind := func(name string, read func(n *yaml.Node)) key {
		return key{name, func(n *yaml.Node) {
			if b.Kind != "" {
				d.problem(at(n), "a window is of one kind: %s and %s", b.Kind, name)
			}
			b.Kind = name
			read(n)
		}}
	}
	size := func(name string) key { return kind(name, d.duration(&b.Size, name, 1)) }
	d.mapping(n, "window",
		size("tumble"), size("hop"), size("slide"), size("session"),
		kind("count", d.integer(&b.Count, "count", 1, 1_000_000)),
		key{"every", func(v *yaml.Node) {
			if has(n, "count") {
				d.integer(&b.CountEvery, "every", 1, 1_000_000)(v)
			} else {
				d.duration(&b.Every, "every", 1)(v)
			}
		}},
		key{"offset", d.duration(&b.Offset, "offset", math.MinInt64)},
		key{"max", d.duration(&b.Max, "max", 1)},
		key{"time", d.choice(&by, "time", "event", "processing")},
		key{"emit", d.choice(&emit, "emit", "final", "changes")},
		key{"late", func(n *yaml.Node) {
			d.mapping(n, "late", key{"allow", d.duration(&b.Allow, "allow", 0)}, key{"to", d.expr(&b.Late, "to")})
		}},
	)
	b.Processing, b.Changes = by == "processing", emit == "changes"
	if n.Kind == yaml.MappingNode {
		d.checkWindow(n, b)
	}
	return b
}

func (d *reader) checkWindow(n *yaml.Node, b *Window) {
	only := func(name string, kinds ...string) {
		for _, k := range kinds {
			if k == b.Kind {
				return
			}
		}
		if has(n, name) && b.Kind != "" {
			d.problem(at(n), "%s is for a %s window, not for %s", name, listed(kinds), b.Kind)
		}
	}
	only("every", "hop", "count")
	only("offset", "tumble", "hop")
	only("max", "session")
	only("emit", "tumble", "hop", "session")
	only("late", "tumble", "hop", "slide", "session")
	only("time", "tumble", "hop", "slide", "session")
	switch {
	case b.Kind == "":
		d.problem(at(n), "a window is tumble, hop, slide, session or count")
	case b.Kind == "hop" && b.Every == 0:
		d.problem(at(n), "a hop window needs every")
	case b.Kind == "hop" && b.Every > b.Size:
		d.problem(at(n), "a hop window of %v every %v leaves records out between windows; every is at most its size", b.Size, b.Every)
	case b.Kind == "hop" && int64(b.Size)/int64(b.Every) > windowsMax:
		d.problem(at(n), "a record would be in %d windows, the most is %d", int64(b.Size)/int64(b.Every), windowsMax)
	case b.Kind == "count" && b.CountEvery > b.Count:
		d.problem(at(n), "every is at most count")
	case b.Kind == "session" && b.Max > 0 && b.Max < b.Size:
		d.problem(at(n), "max is at least the pause that ends a session")
	case b.Kind == "session" && b.Max > 0 && b.Changes:
		d.problem(at(n), "emit: changes is for sessions without max")
	}
}

// windowsMax is how many hopping windows a record may be in.
const windowsMax = 1000

func (d *reader) top(n *yaml.Node) Body {
	b := &Top{}
	order := "desc"
	var ties []string
	d.mapping(n, "top",
		key{"n", d.integer(&b.N, "n", 1, 10_000)},
		key{"by", d.expr(&b.By, "by")},
		key{"order", d.choice(&order, "order", "desc", "asc")},
		key{"ties", d.strs(&ties, "ties")},
		key{"row", d.keyBy(&b.Row, "row")})
	b.Rising = order == "asc"
	switch {
	case len(ties) == 0 || len(ties) == 2 && ties[0] == "time" && ties[1] == "seq":
	case len(ties) == 2 && ties[0] == "-time" && ties[1] == "-seq":
		b.Latest = true
	default:
		d.problem(at(n), "ties is [time, seq], the earliest first, or [-time, -seq], the latest first")
	}
	for _, name := range []string{"n", "by"} {
		if n.Kind == yaml.MappingNode && !has(n, name) {
			d.problem(at(n), "top needs %s", name)
		}
	}
	return b
}

func (d *reader) join(n *yaml.Node) Body {
	b := &Join{}
	d.mapping(n, "join",
		key{"with", d.expr(&b.With, "with")},
		key{"on", func(n *yaml.Node) {
			d.mapping(n, "on", key{"left", d.expr(&b.Left, "left")}, key{"right", d.expr(&b.Right, "right")})
			if !b.Left.Set() || !b.Right.Set() {
				d.problem(at(n), "on has left and right")
			}
		}},
		key{"kind", d.choice(&b.Kind, "kind", "inner", "left", "outer")},
		key{"within", func(n *yaml.Node) {
			b.Interval = true
			if n.Kind == yaml.MappingNode {
				d.mapping(n, "within", key{"before", d.duration(&b.Before, "before", 0)}, key{"after", d.duration(&b.After, "after", 0)})
				return
			}
			d.duration(&b.Before, "within", 0)(n)
			b.After = b.Before
		}},
		key{"window", func(n *yaml.Node) {
			d.mapping(n, "a join's window", key{"tumble", d.duration(&b.Window, "tumble", 1)}, key{"offset", d.duration(&b.Offset, "offset", math.MinInt64)})
		}},
		key{"table", d.boolean(&b.Table, "table")},
		key{"late", func(n *yaml.Node) { d.mapping(n, "late", key{"to", d.expr(&b.Late, "to")}) }},
		key{"as", d.fields(&b.As, "as")})
	kinds := 0
	for _, is := range []bool{b.Interval, b.Window > 0, b.Table} {
		if is {
			kinds++
		}
	}
	switch {
	case n.Kind != yaml.MappingNode:
	case !b.With.Set():
		d.problem(at(n), "a join needs with: the other input")
	case kinds == 0:
		d.problem(at(n), "a join of streams needs a bound, or it would keep everything: within: 10m, window: {tumble: 10s}, or table: true where the right side is a table")
	case kinds > 1:
		d.problem(at(n), "a join has one of within, window and table")
	}
	return b
}

// durationOr is a default.
func durationOr(p *time.Duration, d time.Duration) time.Duration {
	if p == nil {
		return d
	}
	return *p
}
