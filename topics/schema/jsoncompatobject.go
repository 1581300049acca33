package schema

import (
	"maps"
	"slices"

	"github.com/heraldmq/herald/topics/value"
)

// objects compares what two schemas say of objects.
func (c *comparison) objects(ws []*node, n *node, at string) {
	has := func(name string) bool {
		return slices.ContainsFunc(ws, func(w *node) bool { return slices.Contains(w.required, name) })
	}
	for _, name := range n.required {
		if !has(name) {
			c.add(at, "required", "field %q could be missing", name)
		}
	}
	needed := map[string]bool{}
	for _, w := range ws {
		for _, name := range w.required {
			needed[name] = true
		}
	}
	most := fewest(ws)
	c.counts(ws, n, at, "minProperties", "maxProperties", func(o *node) (int, int) {
		if o != n && len(ws) > 0 && o == ws[0] {
			return max(o.minProps, len(needed)), most
		}
		return o.minProps, o.maxProps
	})
	c.named(ws, n, at)
	c.unnamed(ws, n, at)
	same := func(f func(w *node) []*node) bool {
		return slices.ContainsFunc(ws, func(w *node) bool { return sameNodes(f(w), f(n), map[[2]*node]bool{}) })
	}
	if n.names != nil && !same(func(w *node) []*node { return []*node{w.names} }) {
		c.unknown(at, "propertyNames", "whether all names that were allowed are can't be told")
	}
	if n.otherProps != nil && !same(func(w *node) []*node { return []*node{w} }) {
		c.unknown(at, "unevaluatedProperties", "it can't be compared")
	}
	c.dependents(ws, n, at)
}

// fewest is how many fields the schemas allow together, -1 for any number.
func fewest(ws []*node) int {
	most := -1
	for _, w := range ws {
		n := w.maxProps
		if w.additional != nil && w.additional.never && len(w.matching) == 0 && (n < 0 || len(w.props) < n) {
			n = len(w.props)
		}
		if n >= 0 && (most < 0 || n < most) {
			most = n
		}
	}
	return most
}

// dependents is of dependentRequired and dependentSchemas.
func (c *comparison) dependents(ws []*node, n *node, at string) {
	for _, d := range n.needs {
		known := slices.ContainsFunc(ws, func(w *node) bool {
			return slices.ContainsFunc(w.needs, func(o needs) bool {
				return o.field == d.field && !slices.ContainsFunc(d.fields, func(f string) bool { return !slices.Contains(o.fields, f) }) &&
					sameNodes([]*node{o.node}, []*node{d.node}, map[[2]*node]bool{})
			})
		})
		if !known && (d.node != nil || slices.ContainsFunc(d.fields, func(f string) bool {
			return !slices.ContainsFunc(ws, func(w *node) bool { return slices.Contains(w.required, f) })
		})) {
			c.unknown(at, "dependentRequired", "whether what field %q needs was always there can't be told", d.field)
		}
	}
}

// applies are the schemas that n has for a field of a name.
func (n *node) applies(name string) []*node {
	var out []*node
	if sub := n.props[name]; sub != nil {
		out = append(out, sub)
	}
	for _, m := range n.matching {
		if m.pattern.MatchString(name) {
			out = append(out, m.node)
		}
	}
	if len(out) == 0 && n.additional != nil {
		out = append(out, n.additional)
	}
	return out
}

// named compares the fields that either schema names.
func (c *comparison) named(ws []*node, n *node, at string) {
	names := map[string]bool{}
	for _, o := range append([]*node{n}, ws...) {
		for name := range o.props {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var had []*node
		for _, w := range ws {
			had = append(had, w.applies(name)...)
		}
		for _, sub := range n.applies(name) {
			where := at + pointer(name, "")
			switch {
			case len(had) > 0:
				c.implies(had, sub, where)
			case n.additional == sub && sub.never:
				c.add(at, "additionalProperties", "field %q was allowed", name)
			case !c.tries(func(t *comparison) { t.implies(nil, sub, where) }):
				c.unknown(where, "properties", "field %q was not described, and could be anything: only additionalProperties: false says that there was none", name)
			}
		}
	}
}

// unnamed compares the fields that neither names.
func (c *comparison) unnamed(ws []*node, n *node, at string) {
	var had []*node
	patterns := false
	for _, w := range ws {
		if w.additional != nil && len(w.matching) == 0 {
			had = append(had, w.additional)
		}
		patterns = patterns || len(w.matching) > 0
	}
	closed := slices.ContainsFunc(had, func(w *node) bool { return w.never })
	if closed {
		return // there were none but those that are named
	}
	for _, m := range n.matching {
		known := slices.ContainsFunc(ws, func(w *node) bool {
			return slices.ContainsFunc(w.matching, func(o matching) bool {
				return o.pattern.String() == m.pattern.String() && c.tries(func(t *comparison) { t.implies([]*node{o.node}, m.node, at+"/*") })
			})
		})
		if !known && !c.tries(func(t *comparison) { t.implies(had, m.node, at+"/*") }) {
			c.unknown(at, "patternProperties", "whether the fields that match %s were as they must be can't be told", m.pattern)
		}
	}
	switch {
	case n.additional == nil:
	case patterns || len(n.matching) > 0:
		if !slices.ContainsFunc(ws, func(w *node) bool { return c.samePatterns(w, n, at) }) && !c.tries(func(t *comparison) { t.implies(nil, n.additional, at) }) {
			c.unknown(at, "additionalProperties", "beside patternProperties it can't be compared")
		}
	case n.additional.never:
		c.add(at, "additionalProperties", "other fields were allowed")
	default:
		c.implies(had, n.additional, at+"/*")
	}
}

// samePatterns tells whether two schemas have the same patterns, and the writer's other
// fields are as the reader's must be.
func (c *comparison) samePatterns(w, n *node, at string) bool {
	if len(w.matching) != len(n.matching) || w.additional == nil {
		return false
	}
	for i := range w.matching {
		if w.matching[i].pattern.String() != n.matching[i].pattern.String() {
			return false
		}
	}
	return c.tries(func(t *comparison) { t.implies([]*node{w.additional}, n.additional, at+"/*") })
}

// sameNodes tells whether schemas say the same, word by word.
func sameNodes(as, bs []*node, open map[[2]*node]bool) bool {
	if len(as) != len(bs) {
		return false
	}
	for i := range as {
		if !sameNode(as[i], bs[i], open) {
			return false
		}
	}
	return true
}

func sameNode(a, b *node, open map[[2]*node]bool) bool {
	pair := [2]*node{a, b}
	switch {
	case a == b || open[pair]:
		return true
	case a == nil || b == nil || len(open) > NodesMax:
		return false
	}
	open[pair] = true
	if a.never != b.never || a.types != b.types || a.minLength != b.minLength || a.maxLength != b.maxLength ||
		a.minProps != b.minProps || a.maxProps != b.maxProps || a.minItems != b.minItems || a.maxItems != b.maxItems ||
		a.unique != b.unique || a.minContains != b.minContains || a.maxContains != b.maxContains || !slices.Equal(a.required, b.required) {
		return false
	}
	if (a.enum == nil) != (b.enum == nil) || a.enum != nil && !maps.Equal(a.enum.keys, b.enum.keys) ||
		(a.format == nil) != (b.format == nil) || a.format != nil && a.format.Name != b.format.Name || !samePattern(a.pattern, b.pattern) {
		return false
	}
	for _, pair := range [][2]*value.Value{{a.max, b.max}, {a.min, b.min}, {a.exMax, b.exMax}, {a.exMin, b.exMin}, {a.multipleOf, b.multipleOf}} {
		if (pair[0] == nil) != (pair[1] == nil) || pair[0] != nil && !value.Equal(*pair[0], *pair[1]) {
			return false
		}
	}
	if len(a.props) != len(b.props) || len(a.matching) != len(b.matching) || len(a.needs) != len(b.needs) {
		return false
	}
	for name, sub := range a.props {
		if o, there := b.props[name]; !there || !sameNode(sub, o, open) {
			return false
		}
	}
	for i := range a.matching {
		if !samePattern(a.matching[i].pattern, b.matching[i].pattern) || !sameNode(a.matching[i].node, b.matching[i].node, open) {
			return false
		}
	}
	for i := range a.needs {
		if a.needs[i].field != b.needs[i].field || !slices.Equal(a.needs[i].fields, b.needs[i].fields) || !sameNode(a.needs[i].node, b.needs[i].node, open) {
			return false
		}
	}
	single := func(n *node) []*node {
		return []*node{n.ref, n.not, n.cond, n.then, n.els, n.names, n.additional, n.otherProps, n.contains, n.items, n.otherItems}
	}
	return sameNodes(single(a), single(b), open) && sameNodes(a.all, b.all, open) && sameNodes(a.any, b.any, open) &&
		sameNodes(a.one, b.one, open) && sameNodes(a.prefix, b.prefix, open)
}

func samePattern(a, b *pattern) bool {
	return a == b || a != nil && b != nil && a.String() == b.String()
}
