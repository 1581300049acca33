package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/heraldmq/herald/topics/value"
)

// compareStepsMax bounds the comparison of two JSON Schemas.
const compareStepsMax = 100_000

// json tells what keeps a reader with one JSON Schema from what a writer with another
// writes: whether each payload that the writer's allows the reader's allows too.
func (r *relation) json(reader, writer *jsonSchema) {
	c := &comparison{relation: r, open: map[string]bool{}, ids: map[*node]int{}, left: new(compareStepsMax)}
	c.implies([]*node{writer.root}, reader.root, "")
}

// comparison asks whether what some schemas allow together another one allows.
type comparison struct {
	*relation
	open map[string]bool // what is being asked: of itself it doesn't depend
	ids  map[*node]int
	left *int
}

// parts are the schemas that all hold where n does: n, what it refers to, and all of
// allOf.
func parts(nodes []*node) []*node {
	var out []*node
	var add func(n *node)
	add = func(n *node) {
		if n == nil || slices.Contains(out, n) {
			return
		}
		out = append(out, n)
		add(n.ref)
		for _, sub := range n.all {
			add(sub)
		}
	}
	for _, n := range nodes {
		add(n)
	}
	return out
}

// key tells questions apart.
func (c *comparison) key(ws []*node, n *node) string {
	var b strings.Builder
	for _, one := range append([]*node{n}, ws...) {
		if _, there := c.ids[one]; !there {
			c.ids[one] = len(c.ids)
		}
		fmt.Fprintf(&b, "%d,", c.ids[one])
	}
	return b.String()
}

// implies finds what of n doesn't follow from the writer's schemas.
func (c *comparison) implies(ws []*node, n *node, at string) {
	if *c.left--; *c.left < 0 {
		if *c.left == -1 {
			c.unknown(at, "schema", "the schemas are too intricate to be compared")
		}
		return
	}
	ws = parts(ws)
	key := c.key(ws, n)
	if slices.ContainsFunc(ws, func(w *node) bool { return w.never || w == n }) || c.open[key] || len(c.problems) >= problemsMax {
		return
	}
	c.open[key] = true
	defer delete(c.open, key)
	if values, finite := possible(ws); finite {
		for _, v := range values {
			if bad := (&evaluation{steps: StepsMax}).node(n, v, nil); bad != nil {
				c.add(at+bad.Pointer, bad.Keyword, "%s was allowed: %s", short(v), bad.Message)
				return
			}
		}
		return
	}
	if !c.alternatives(ws, n, at) {
		return
	}
	for _, r := range parts([]*node{n}) {
		c.one(ws, r, at)
	}
}

// possible are the values that the schemas allow together, where they are few.
func possible(ws []*node) (values []value.Value, finite bool) {
	types := typesOf(ws)
	for _, w := range ws {
		if w.enum != nil {
			values, finite = w.enum.values, true
			break
		}
	}
	if !finite && types&^(tNull|tBoolean) == 0 {
		values, finite = []value.Value{{}, value.OfBool(false), value.OfBool(true)}, true
	}
	if !finite {
		return nil, false
	}
	var out []value.Value
	for _, v := range values {
		if !slices.ContainsFunc(ws, func(w *node) bool { return (&evaluation{steps: StepsMax}).node(w, v, nil) != nil }) {
			out = append(out, v)
		}
	}
	return out, true
}

func typesOf(ws []*node) types {
	all := types(tAll)
	for _, w := range ws {
		all &= w.types
	}
	return all
}

// alternatives splits what the writer chooses from, and tells whether n is still to be
// asked for.
func (c *comparison) alternatives(ws []*node, n *node, at string) bool {
	for _, w := range ws {
		among := w.any
		if len(among) == 0 {
			among = w.one
		}
		if len(among) == 0 || slices.ContainsFunc(among, func(sub *node) bool { return slices.Contains(ws, sub) }) {
			continue
		}
		if c.tries(func(t *comparison) { t.whole(ws, n, at) }) {
			return false // it holds whichever is chosen
		}
		for _, sub := range among {
			c.implies(append(slices.Clone(ws), sub), n, at)
		}
		return false
	}
	return true
}

func (c *comparison) whole(ws []*node, n *node, at string) {
	for _, r := range parts([]*node{n}) {
		c.one(ws, r, at)
	}
}

// tries tells whether a comparison finds nothing.
func (c *comparison) tries(f func(t *comparison)) bool {
	t := *c
	t.relation = &relation{direction: c.direction}
	f(&t)
	return len(t.problems) == 0
}

// one finds what of a reader's schema, without those it refers to, doesn't follow.
func (c *comparison) one(ws []*node, n *node, at string) {
	is := typesOf(ws)
	switch {
	case is == 0:
		return // nothing is written
	case n.never:
		c.add(at, "false schema", "something was allowed, and nothing is")
		return
	case is&^n.types != 0:
		c.add(at, "type", "%s was allowed, and %s is", is, n.types)
		return
	}
	if n.enum != nil {
		c.add(at, n.enum.keyword, "more was allowed than %s", n.enum)
	}
	if is&(tNumber|tInteger) != 0 {
		c.numbers(ws, n, at, is)
	}
	if is&tString != 0 {
		c.texts(ws, n, at)
	}
	if is&tArray != 0 {
		c.arrays(ws, n, at)
	}
	if is&tObject != 0 {
		c.objects(ws, n, at)
	}
	c.choices(ws, n, at)
}

// choices is of anyOf, oneOf, not and if.
func (c *comparison) choices(ws []*node, n *node, at string) {
	if len(n.any) > 0 && !slices.ContainsFunc(n.any, func(sub *node) bool {
		return c.tries(func(t *comparison) { t.implies(ws, sub, at) })
	}) {
		if len(n.any) == 1 {
			c.implies(ws, n.any[0], at)
		} else {
			c.unknown(at, "anyOf", "no single one of its schemas allows all that was allowed")
		}
	}
	among := func(list func(w *node) []*node) bool {
		return slices.ContainsFunc(ws, func(w *node) bool { return sameNodes(list(w), list(n), map[[2]*node]bool{}) })
	}
	if len(n.one) > 0 && !among(func(w *node) []*node { return w.one }) {
		c.unknown(at, "oneOf", "whether exactly one of its schemas allows what was allowed can't be told")
	}
	if n.not != nil && !among(func(w *node) []*node { return []*node{w.not} }) {
		c.unknown(at, "not", "whether what was allowed is forbidden now can't be told")
	}
	if n.cond != nil && (n.then != nil || n.els != nil) && !among(func(w *node) []*node { return []*node{w.cond, w.then, w.els} }) {
		c.unknown(at, "if", "conditions can't be compared")
	}
}

// limit is one end of a range.
type limit struct {
	v    *value.Value
	open bool // it is not part of it
}

// tighter returns the limit that allows less; sign is 1 for lower ends.
func tighter(a, b limit, sign int) limit {
	switch {
	case a.v == nil:
		return b
	case b.v == nil:
		return a
	}
	if c, _ := value.Compare(*a.v, *b.v); c*sign > 0 || c == 0 && a.open {
		return a
	}
	return b
}

func (c *comparison) numbers(ws []*node, n *node, at string, is types) {
	for _, end := range []struct {
		keyword string
		sign    int
		of      func(n *node) limit
	}{
		{"minimum", 1, func(n *node) limit { return tighter(limit{n.min, false}, limit{n.exMin, true}, 1) }},
		{"maximum", -1, func(n *node) limit { return tighter(limit{n.max, false}, limit{n.exMax, true}, -1) }},
	} {
		want := end.of(n)
		if want.v == nil {
			continue
		}
		var had limit
		for _, w := range ws {
			had = tighter(had, end.of(w), end.sign)
		}
		if t := tighter(had, want, end.sign); had.v == nil {
			c.add(at, end.keyword, "there was no limit, and %s is one", want.v)
		} else if cmp, _ := value.Compare(*t.v, *had.v); cmp != 0 || t.open != had.open {
			c.add(at, end.keyword, "the limit was %s, and is %s", had.v, want.v)
		}
	}
	if n.multipleOf == nil {
		return
	}
	whole := value.OfInt(1)
	if is == tInteger && multiple(whole, *n.multipleOf) {
		return
	}
	if !slices.ContainsFunc(ws, func(w *node) bool { return w.multipleOf != nil && multiple(*w.multipleOf, *n.multipleOf) }) {
		c.add(at, "multipleOf", "other numbers were allowed than multiples of %s", n.multipleOf)
	}
}

// counts compares a pair of limits that are counts, -1 where there is none.
func (c *comparison) counts(ws []*node, n *node, at string, low, high string, of func(n *node) (least, most int)) {
	least, most := of(n)
	hadLeast, hadMost := 0, -1
	for _, w := range ws {
		l, m := of(w)
		hadLeast = max(hadLeast, l)
		if m >= 0 && (hadMost < 0 || m < hadMost) {
			hadMost = m
		}
	}
	if least > hadLeast {
		c.add(at, low, "it was at least %d, and is %d", hadLeast, least)
	}
	if most >= 0 && hadMost < 0 {
		c.add(at, high, "there was no limit, and %d is one", most)
	} else if most >= 0 && hadMost > most {
		c.add(at, high, "it was at most %d, and is %d", hadMost, most)
	}
}

func (c *comparison) texts(ws []*node, n *node, at string) {
	c.counts(ws, n, at, "minLength", "maxLength", func(n *node) (int, int) { return n.minLength, n.maxLength })
	if n.pattern != nil && !slices.ContainsFunc(ws, func(w *node) bool { return w.pattern != nil && w.pattern.String() == n.pattern.String() }) {
		c.unknown(at, "pattern", "whether all that was allowed matches %s can't be told", n.pattern)
	}
	if n.format != nil && !slices.ContainsFunc(ws, func(w *node) bool { return w.format != nil && w.format.Name == n.format.Name }) {
		c.unknown(at, "format", "whether all that was allowed is %s can't be told", n.format.Name)
	}
}

func (c *comparison) arrays(ws []*node, n *node, at string) {
	c.counts(ws, n, at, "minItems", "maxItems", func(n *node) (int, int) { return n.minItems, n.maxItems })
	longest := len(n.prefix)
	atMost := -1
	for _, w := range ws {
		longest = max(longest, len(w.prefix))
		if w.maxItems >= 0 && (atMost < 0 || w.maxItems < atMost) {
			atMost = w.maxItems
		}
	}
	item := func(n *node, i int) *node {
		if i < len(n.prefix) {
			return n.prefix[i]
		}
		return n.items
	}
	for i := range longest + 1 { // the last stands for all that follow
		sub := item(n, i)
		if sub == nil || atMost >= 0 && i >= atMost {
			continue
		}
		var below []*node
		for _, w := range ws {
			if o := item(w, i); o != nil {
				below = append(below, o)
			}
		}
		where := fmt.Sprintf("%s/%d", at, i)
		if i == longest {
			where = at + "/*"
		}
		c.implies(below, sub, where)
	}
	if n.unique && atMost != 0 && atMost != 1 && !slices.ContainsFunc(ws, func(w *node) bool { return w.unique }) {
		c.add(at, "uniqueItems", "items could be equal")
	}
	if n.contains != nil && !slices.ContainsFunc(ws, func(w *node) bool {
		return w.minContains == n.minContains && w.maxContains == n.maxContains && sameNodes([]*node{w.contains}, []*node{n.contains}, map[[2]*node]bool{})
	}) {
		c.unknown(at, "contains", "whether all that was allowed has such items can't be told")
	}
	if n.otherItems != nil && !slices.ContainsFunc(ws, func(w *node) bool { return sameNodes([]*node{w}, []*node{n}, map[[2]*node]bool{}) }) {
		c.unknown(at, "unevaluatedItems", "it can't be compared")
	}
}
