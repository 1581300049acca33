package schema

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/heraldmq/herald/topics/value"
)

// types is a set of JSON Schema's types.
type types uint8

const (
	tNull types = 1 << iota
	tBoolean
	tInteger
	tNumber // with tInteger: any number; alone: can't be
	tString
	tArray
	tObject
	tAll = tNull | tBoolean | tInteger | tNumber | tString | tArray | tObject
)

var typeNames = []struct {
	name string
	set  types
}{
	{"null", tNull},
	{"boolean", tBoolean},
	{"integer", tInteger},
	{"number", tNumber | tInteger},
	{"string", tString},
	{"array", tArray},
	{"object", tObject},
}

// String names the types in the set.
func (t types) String() string {
	var names []string
	for _, one := range typeNames {
		if one.name == "integer" && t&tNumber != 0 {
			continue
		}
		if t&one.set == one.set {
			names = append(names, one.name)
		}
	}
	return strings.Join(names, " or ")
}

// node is one schema of a document. none and -1 are absent keywords.
type node struct {
	at    string // JSON pointer into the document
	never bool   // false as a schema

	types  types // tAll: any
	enum   *enum
	format *jsonschema.Format

	ref, not               *node
	all, any, one          []*node
	cond, then, els        *node
	minLength, maxLength   int
	pattern                *pattern
	max, min, exMax, exMin *value.Value
	multipleOf             *value.Value

	minProps, maxProps int
	required           []string
	names              *node
	props              map[string]*node
	matching           []matching
	additional         *node
	needs              []needs
	otherProps         *node // unevaluatedProperties

	minItems, maxItems       int
	unique                   bool
	contains                 *node
	minContains, maxContains int
	prefix                   []*node
	items                    *node
	otherItems               *node // unevaluatedItems
}

// matching are the fields whose names match a pattern.
type matching struct {
	pattern *pattern
	node    *node
}

// needs is what must hold where a field is there.
type needs struct {
	field  string
	fields []string
	node   *node
}

// enum is what a value must be one of.
type enum struct {
	keyword string
	keys    map[string]bool // AppendKey of each
	values  []value.Value
}

// nodeBuilder makes nodes of what the module compiled.
type nodeBuilder struct {
	nodes  map[*jsonschema.Schema]*node
	tracks bool
	bad    *SourceError
}

func (b *nodeBuilder) fail(n *node, format string, args ...any) {
	if b.bad == nil {
		b.bad = &SourceError{Where: n.at, Reason: fmt.Sprintf(format, args...)}
	}
}

func count(p *int) int {
	if p == nil {
		return -1
	}
	return *p
}

func (b *nodeBuilder) list(all []*jsonschema.Schema) []*node {
	var out []*node
	for _, s := range all {
		out = append(out, b.node(s))
	}
	return out
}

func (b *nodeBuilder) node(s *jsonschema.Schema) *node {
	if s == nil || b.bad != nil {
		return nil
	}
	if known := b.nodes[s]; known != nil {
		return known
	}
	n := blank("")
	b.nodes[s] = n
	where, inside := strings.CutPrefix(s.Location, base+"#")
	n.at = where
	switch {
	case !inside && !b.owns(s):
		b.fail(n, "it refers to %s, and references may only lead to the document itself", s.Location)
		return n
	case len(b.nodes) > NodesMax:
		b.fail(n, "more than %d schemas", NodesMax)
		return n
	case s.DynamicRef != nil || s.RecursiveRef != nil:
		b.fail(n, "$dynamicRef and $recursiveRef are not supported: use $ref")
		return n
	case s.Bool != nil:
		n.never = !*s.Bool
	}
	if s.Types != nil {
		n.types = 0
		for _, name := range s.Types.ToStrings() {
			for _, one := range typeNames {
				if one.name == name {
					n.types |= one.set
				}
			}
		}
	}
	switch {
	case s.Const != nil:
		n.enum = newEnum("const", []any{*s.Const})
		if s.Enum != nil {
			beside := blank(n.at)
			beside.enum = newEnum("enum", s.Enum.Values)
			n.all = append(n.all, beside)
		}
	case s.Enum != nil:
		n.enum = newEnum("enum", s.Enum.Values)
	}
	n.format = s.Format
	n.ref, n.not = b.node(s.Ref), b.node(s.Not)
	n.all = append(n.all, b.list(s.AllOf)...)
	n.any, n.one = b.list(s.AnyOf), b.list(s.OneOf)
	n.cond, n.then, n.els = b.node(s.If), b.node(s.Then), b.node(s.Else)
	n.minLength, n.maxLength = count(s.MinLength), count(s.MaxLength)
	if s.Pattern != nil {
		n.pattern = s.Pattern.(*pattern)
	}
	n.max, n.min, n.exMax, n.exMin, n.multipleOf = number(s.Maximum), number(s.Minimum), number(s.ExclusiveMaximum), number(s.ExclusiveMinimum), number(s.MultipleOf)
	b.object(n, s)
	b.array(n, s)
	return n
}

// owns tells whether a schema with an $id of its own is in the document.
func (b *nodeBuilder) owns(s *jsonschema.Schema) bool {
	return !strings.Contains(s.Location, "://json-schema.org/")
}

func (b *nodeBuilder) object(n *node, s *jsonschema.Schema) {
	n.minProps, n.maxProps = count(s.MinProperties), count(s.MaxProperties)
	n.required, n.names = s.Required, b.node(s.PropertyNames)
	if len(s.Properties) > 0 {
		n.props = map[string]*node{}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			n.props[name] = b.node(s.Properties[name])
		}
	}
	for re, sub := range s.PatternProperties {
		n.matching = append(n.matching, matching{re.(*pattern), b.node(sub)})
	}
	slices.SortFunc(n.matching, func(x, y matching) int { return cmp.Compare(x.pattern.String(), y.pattern.String()) })
	n.additional = b.boolOr(n, s.AdditionalProperties)
	for _, name := range slices.Sorted(maps.Keys(s.DependentRequired)) {
		n.needs = append(n.needs, needs{field: name, fields: s.DependentRequired[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(s.DependentSchemas)) {
		n.needs = append(n.needs, needs{field: name, node: b.node(s.DependentSchemas[name])})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Dependencies)) {
		switch d := s.Dependencies[name].(type) {
		case []string:
			n.needs = append(n.needs, needs{field: name, fields: d})
		case *jsonschema.Schema:
			n.needs = append(n.needs, needs{field: name, node: b.node(d)})
		}
	}
	if n.otherProps = b.node(s.UnevaluatedProperties); n.otherProps != nil {
		b.tracks = true
	}
}

func (b *nodeBuilder) array(n *node, s *jsonschema.Schema) {
	n.minItems, n.maxItems, n.unique = count(s.MinItems), count(s.MaxItems), s.UniqueItems
	n.contains = b.node(s.Contains)
	n.minContains, n.maxContains = max(count(s.MinContains), -1), count(s.MaxContains)
	if s.MinContains == nil {
		n.minContains = 1
	}
	switch items := s.Items.(type) {
	case []*jsonschema.Schema:
		n.prefix = b.list(items)
		n.items = b.boolOr(n, s.AdditionalItems)
	case *jsonschema.Schema:
		n.items = b.node(items)
	case nil:
		n.prefix, n.items = b.list(s.PrefixItems), b.node(s.Items2020)
	}
	if n.otherItems = b.node(s.UnevaluatedItems); n.otherItems != nil {
		b.tracks = true
	}
}

// boolOr is a keyword that is a schema or, as the module has it, a bool.
func (b *nodeBuilder) boolOr(n *node, v any) *node {
	switch v := v.(type) {
	case bool:
		sub := blank(n.at)
		sub.never = !v
		return sub
	case *jsonschema.Schema:
		return b.node(v)
	}
	return nil
}

// inPlace are the schemas that look at the same value as n.
func (n *node) inPlace() []*node {
	out := slices.Concat([]*node{n.ref, n.not, n.cond, n.then, n.els}, n.all, n.any, n.one)
	for _, d := range n.needs {
		out = append(out, d.node)
	}
	return slices.DeleteFunc(out, func(o *node) bool { return o == nil })
}

// circles refuses a schema that refers to itself for the same value.
func (b *nodeBuilder) circles(*node) {
	const open, done = 1, 2
	state := map[*node]int{}
	var visit func(n *node, depth int)
	visit = func(n *node, depth int) {
		switch {
		case state[n] == open:
			b.fail(n, "it refers to itself without an end")
			return
		case state[n] == done || b.bad != nil:
			return
		case depth > value.DepthMax:
			b.fail(n, "more than %d references and combinations in each other", value.DepthMax)
			return
		}
		state[n] = open
		for _, o := range n.inPlace() {
			visit(o, depth+1)
		}
		state[n] = done
	}
	for _, n := range b.sorted() {
		visit(n, 0)
	}
}

// sorted are all nodes, in an order that is always the same.
func (b *nodeBuilder) sorted() []*node {
	out := slices.Collect(maps.Values(b.nodes))
	slices.SortFunc(out, func(x, y *node) int { return cmp.Compare(x.at, y.at) })
	return out
}

func newEnum(keyword string, values []any) *enum {
	e := &enum{keyword: keyword, keys: map[string]bool{}}
	for _, one := range values {
		v := fromPlain(one)
		e.values = append(e.values, v)
		e.keys[string(value.AppendKey(nil, v))] = true
	}
	return e
}

// String says what the value must be, shortened.
func (e *enum) String() string {
	const shown = 8
	var parts []string
	for i, v := range e.values {
		if i == shown {
			parts = append(parts, fmt.Sprintf("… (%d more)", len(e.values)-shown))
			break
		}
		parts = append(parts, short(v))
	}
	return strings.Join(parts, ", ")
}

// short is a value for a message to people.
func short(v value.Value) string {
	s := v.String()
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}

// blank is a node that allows everything.
func blank(at string) *node {
	return &node{at: at, types: tAll, minLength: -1, maxLength: -1, minProps: -1, maxProps: -1, minItems: -1, maxItems: -1}
}
