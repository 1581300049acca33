package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/cockroachdb/apd/v3"

	"github.com/heraldmq/herald/topics/value"
)

// evaluation is one validation: what is left of its work.
type evaluation struct{ steps int }

// evaluated notes which fields or items of a value schemas have looked at. It is nil
// where nobody asks.
type evaluated struct{ parts []bool }

func newEvaluated(v value.Value) *evaluated {
	if v.Kind() != value.List && v.Kind() != value.Object {
		return &evaluated{}
	}
	return &evaluated{make([]bool, v.Len())}
}

func (e *evaluated) mark(i int) {
	if e != nil {
		e.parts[i] = true
	}
}

func (e *evaluated) merge(o *evaluated) {
	if e != nil {
		for i, is := range o.parts {
			e.parts[i] = e.parts[i] || is
		}
	}
}

func broken(keyword, format string, args ...any) *Invalid {
	return &Invalid{Keyword: keyword, Message: fmt.Sprintf(format, args...)}
}

// spend takes work off what is left.
func (e *evaluation) spend(n int) *Invalid {
	if e.steps -= n; e.steps < 0 {
		return broken("cost", "checking it takes too much work: the schema is too intricate for this payload")
	}
	return nil
}

// node checks a value, and notes in seen what was looked at.
func (e *evaluation) node(n *node, v value.Value, seen *evaluated) *Invalid {
	if bad := e.spend(1); bad != nil {
		return bad
	}
	if n.never {
		return broken("false schema", "nothing is allowed here")
	}
	if is := typeOf(v); n.types&is == 0 {
		return broken("type", "it is %s, not %s", article(is), n.types)
	}
	own := seen
	if n.otherProps != nil || n.otherItems != nil {
		own = newEvaluated(v)
	}
	if bad := e.asserts(n, v, own); bad != nil {
		return bad
	}
	if bad := e.combinations(n, v, own); bad != nil {
		return bad
	}
	if n.otherProps == nil && n.otherItems == nil {
		return nil
	}
	if bad := e.others(n, v, own); bad != nil {
		return bad
	}
	seen.merge(own)
	return nil
}

// asserts checks what n itself says of a value.
func (e *evaluation) asserts(n *node, v value.Value, seen *evaluated) *Invalid {
	if n.enum != nil {
		var space [64]byte
		key := value.AppendKey(space[:0], v)
		if bad := e.spend(len(key) / 64); bad != nil {
			return bad
		}
		if !n.enum.keys[string(key)] {
			return broken(n.enum.keyword, "%s is not one of %s", short(v), n.enum)
		}
	}
	switch kind := v.Kind(); {
	case kind.Number():
		return e.number(n, v)
	case kind == value.List:
		return e.list(n, v, seen)
	case kind == value.Object:
		return e.object(n, v, seen)
	case kind == value.String:
		return e.text(n, v.Str())
	}
	return nil
}

func typeOf(v value.Value) types {
	switch v.Kind() {
	case value.Null:
		return tNull
	case value.Bool:
		return tBoolean
	case value.Int, value.Uint:
		return tInteger | tNumber
	case value.Double:
		if f, _ := v.Double(); f == float64(int64(f)) || f >= 1<<63 || f <= -1<<63 {
			return tInteger | tNumber
		}
		return tNumber
	case value.Decimal:
		if d, _ := v.Decimal(); d.Exponent >= 0 {
			return tInteger | tNumber
		}
		return tNumber
	case value.List:
		return tArray
	case value.Object:
		return tObject
	}
	return tString
}

// article is what a value is, for people.
func article(t types) string {
	switch t {
	case tNull:
		return "null"
	case tInteger | tNumber:
		return "an integer"
	case tNumber:
		return "a number with a fraction"
	case tArray:
		return "an array"
	case tObject:
		return "an object"
	}
	return "a " + t.String()
}

func (e *evaluation) number(n *node, v value.Value) *Invalid {
	for _, limit := range [...]struct {
		keyword string
		than    *value.Value
		fits    func(c int) bool
		how     string
	}{
		{"minimum", n.min, func(c int) bool { return c >= 0 }, "less than"},
		{"maximum", n.max, func(c int) bool { return c <= 0 }, "more than"},
		{"exclusiveMinimum", n.exMin, func(c int) bool { return c > 0 }, "not more than"},
		{"exclusiveMaximum", n.exMax, func(c int) bool { return c < 0 }, "not less than"},
	} {
		if limit.than == nil {
			continue
		}
		if c, ok := value.Compare(v, *limit.than); !ok || !limit.fits(c) {
			return broken(limit.keyword, "%s is %s %s", short(v), limit.how, limit.than)
		}
	}
	if n.multipleOf != nil && !multiple(v, *n.multipleOf) {
		return broken("multipleOf", "%s is not a multiple of %s", short(v), n.multipleOf)
	}
	return nil
}

// dividing has digits for what values and limits can be: see value.DigitsMax.
var dividing = apd.Context{Precision: 4 * value.DigitsMax, MaxExponent: apd.MaxExponent, MinExponent: apd.MinExponent}

func multiple(v, of value.Value) bool {
	if i, ok := v.Int(); ok {
		if j, ok := of.Int(); ok && j != 0 {
			return i%j == 0
		}
	}
	x, ok1 := v.Decimal()
	y, ok2 := of.Decimal()
	if !ok1 || !ok2 {
		return false
	}
	rest := new(apd.Decimal)
	c, err := dividing.Rem(rest, x, y)
	return err == nil && !c.DivisionImpossible() && rest.IsZero()
}

func (e *evaluation) text(n *node, s string) *Invalid {
	if n.minLength >= 0 || n.maxLength >= 0 {
		switch length := utf8.RuneCountInString(s); {
		case length < n.minLength:
			return broken("minLength", "it has %d characters, fewer than %d", length, n.minLength)
		case n.maxLength >= 0 && length > n.maxLength:
			return broken("maxLength", "it has %d characters, more than %d", length, n.maxLength)
		}
	}
	if n.pattern != nil {
		is, bad := e.match(n.pattern, s)
		if bad != nil {
			return bad
		}
		if !is {
			return broken("pattern", "%s does not match %s", short(value.OfString(s)), n.pattern)
		}
	}
	if n.format != nil {
		if bad := e.spend(len(s) / 64); bad != nil {
			return bad
		}
		if err := n.format.Validate(s); err != nil {
			return broken("format", "%s is no %s: %v", short(value.OfString(s)), n.format.Name, err)
		}
	}
	return nil
}

// match matches, and pays for what the slowest way of matching would take.
func (e *evaluation) match(p *pattern, s string) (bool, *Invalid) {
	if bad := e.spend(1 + len(s)*p.instructions/8); bad != nil {
		return false, bad
	}
	return p.MatchString(s), nil
}

func (e *evaluation) list(n *node, v value.Value, seen *evaluated) *Invalid {
	items := v.List()
	switch {
	case len(items) < n.minItems:
		return broken("minItems", "it has %d items, fewer than %d", len(items), n.minItems)
	case n.maxItems >= 0 && len(items) > n.maxItems:
		return broken("maxItems", "it has %d items, more than %d", len(items), n.maxItems)
	}
	for i, item := range items {
		sub := n.items
		if i < len(n.prefix) {
			sub = n.prefix[i]
		}
		if sub == nil {
			continue
		}
		if bad := e.below(sub, item); bad != nil {
			if sub.never && i >= len(n.prefix) && bad.Pointer == "" {
				bad = broken("items", "it has more than %d items", len(n.prefix))
				return bad
			}
			bad.Pointer = "/" + strconv.Itoa(i) + bad.Pointer
			return bad
		}
		seen.mark(i)
	}
	if n.unique {
		if bad := e.unique(items); bad != nil {
			return bad
		}
	}
	if n.contains == nil {
		return nil
	}
	found := 0
	for i, item := range items {
		bad := e.below(n.contains, item)
		if bad != nil && bad.Keyword == "cost" {
			return bad
		}
		if bad == nil {
			found++
			seen.mark(i)
		}
	}
	switch {
	case found < n.minContains:
		return broken("contains", "%d of its items are as they must be, fewer than %d", found, n.minContains)
	case n.maxContains >= 0 && found > n.maxContains:
		return broken("maxContains", "%d of its items are as they must be, more than %d", found, n.maxContains)
	}
	return nil
}

func (e *evaluation) unique(items []value.Value) *Invalid {
	keys := make(map[string]int, len(items))
	for i, item := range items {
		key := string(value.AppendKey(nil, item))
		if bad := e.spend(4 + len(key)/16); bad != nil {
			return bad
		}
		if first, there := keys[key]; there {
			return broken("uniqueItems", "items %d and %d are equal", first, i)
		}
		keys[key] = i
	}
	return nil
}

// below checks a part of a value, of which it may matter what was looked at.
func (e *evaluation) below(n *node, v value.Value) *Invalid { return e.node(n, v, nil) }

func (e *evaluation) object(n *node, v value.Value, seen *evaluated) *Invalid {
	size := v.Len()
	switch {
	case size < n.minProps:
		return broken("minProperties", "it has %d fields, fewer than %d", size, n.minProps)
	case n.maxProps >= 0 && size > n.maxProps:
		return broken("maxProperties", "it has %d fields, more than %d", size, n.maxProps)
	}
	if bad := e.spend(len(n.required) * (1 + size/16)); bad != nil { // each is looked for
		return bad
	}
	for _, name := range n.required {
		if _, there := v.Get(name); !there {
			return broken("required", "field %q is missing", name)
		}
	}
	if n.names == nil && n.props == nil && n.matching == nil && n.additional == nil {
		return nil
	}
	for i := range size {
		if bad := e.field(n, v.Field(i), i, seen); bad != nil {
			return bad
		}
	}
	return nil
}

func (e *evaluation) field(n *node, f value.Field, i int, seen *evaluated) *Invalid {
	if n.names != nil {
		if bad := e.below(n.names, value.OfString(f.Name)); bad != nil {
			bad.Pointer, bad.Keyword, bad.Message = "", "propertyNames", fmt.Sprintf("the name %q: %s: %s", f.Name, bad.Keyword, bad.Message)
			return bad
		}
	}
	known := false
	apply := func(sub *node) *Invalid {
		known = true
		bad := e.below(sub, f.Value)
		if bad != nil {
			bad.Pointer = pointer(f.Name, bad.Pointer)
		}
		return bad
	}
	if sub := n.props[f.Name]; sub != nil {
		if bad := apply(sub); bad != nil {
			return bad
		}
	}
	for _, m := range n.matching {
		is, bad := e.match(m.pattern, f.Name)
		if bad == nil && is {
			bad = apply(m.node)
		}
		if bad != nil {
			return bad
		}
	}
	if !known && n.additional != nil {
		if n.additional.never {
			return broken("additionalProperties", "field %q is not allowed", f.Name)
		}
		if bad := apply(n.additional); bad != nil {
			return bad
		}
	}
	if known {
		seen.mark(i)
	}
	return nil
}

// beside checks the same value by another schema.
func (e *evaluation) beside(n *node, v value.Value, seen *evaluated) *Invalid {
	if seen == nil {
		return e.node(n, v, nil)
	}
	own := newEvaluated(v)
	bad := e.node(n, v, own)
	if bad == nil {
		seen.merge(own)
	}
	return bad
}

func (e *evaluation) combinations(n *node, v value.Value, seen *evaluated) *Invalid {
	if n.ref != nil {
		if bad := e.beside(n.ref, v, seen); bad != nil {
			return bad
		}
	}
	for _, sub := range n.all {
		if bad := e.beside(sub, v, seen); bad != nil {
			return bad
		}
	}
	if len(n.any) > 0 {
		if bad := e.choose("anyOf", n.any, v, seen); bad != nil {
			return bad
		}
	}
	if len(n.one) > 0 {
		if bad := e.choose("oneOf", n.one, v, seen); bad != nil {
			return bad
		}
	}
	if n.not != nil {
		switch bad := e.below(n.not, v); {
		case bad == nil:
			return broken("not", "it is what it must not be")
		case bad.Keyword == "cost":
			return bad
		}
	}
	if n.cond != nil {
		bad := e.beside(n.cond, v, seen)
		then := n.then
		if bad != nil {
			then = n.els
		}
		if bad != nil && bad.Keyword == "cost" {
			return bad
		}
		if then != nil {
			if bad := e.beside(then, v, seen); bad != nil {
				return bad
			}
		}
	}
	return e.dependencies(n, v, seen)
}

// choose is anyOf and oneOf. The reason that is told is that of the schema that came
// farthest into the value.
func (e *evaluation) choose(keyword string, among []*node, v value.Value, seen *evaluated) *Invalid {
	var nearest *Invalid
	first := -1
	for i, sub := range among {
		bad := e.beside(sub, v, seen)
		switch {
		case bad == nil && keyword == "oneOf" && first >= 0:
			return broken(keyword, "it is as schemas %d and %d say, and must be as only one does", first, i)
		case bad == nil:
			if first < 0 {
				first = i
			}
			if keyword == "anyOf" && seen == nil {
				return nil
			}
		case bad.Keyword == "cost":
			return bad
		case nearest == nil || len(bad.Pointer) > len(nearest.Pointer):
			nearest = bad
		}
	}
	if first >= 0 {
		return nil
	}
	return &Invalid{Pointer: nearest.Pointer, Keyword: keyword, Message: fmt.Sprintf("none of %d schemas allows it; the nearest says: %s: %s", len(among), nearest.Keyword, nearest.Message)}
}

func (e *evaluation) dependencies(n *node, v value.Value, seen *evaluated) *Invalid {
	if v.Kind() != value.Object {
		return nil
	}
	for _, d := range n.needs {
		if bad := e.spend((1 + len(d.fields)) * (1 + v.Len()/16)); bad != nil {
			return bad
		}
		if _, there := v.Get(d.field); !there {
			continue
		}
		if i := slices.IndexFunc(d.fields, func(name string) bool { _, there := v.Get(name); return !there }); i >= 0 {
			return broken("dependentRequired", "field %q is missing, which %q needs", d.fields[i], d.field)
		}
		if d.node != nil {
			if bad := e.beside(d.node, v, seen); bad != nil {
				return bad
			}
		}
	}
	return nil
}

// others checks the fields and items that nothing has looked at.
func (e *evaluation) others(n *node, v value.Value, seen *evaluated) *Invalid {
	switch {
	case v.Kind() == value.Object && n.otherProps != nil:
		for i := range v.Len() {
			if seen.parts[i] {
				continue
			}
			f := v.Field(i)
			if n.otherProps.never {
				return broken("unevaluatedProperties", "field %q is not allowed", f.Name)
			}
			if bad := e.below(n.otherProps, f.Value); bad != nil {
				bad.Pointer = pointer(f.Name, bad.Pointer)
				return bad
			}
			seen.mark(i)
		}
	case v.Kind() == value.List && n.otherItems != nil:
		for i, item := range v.List() {
			if seen.parts[i] {
				continue
			}
			if n.otherItems.never {
				return broken("unevaluatedItems", "item %d is not allowed", i)
			}
			if bad := e.below(n.otherItems, item); bad != nil {
				bad.Pointer = "/" + strconv.Itoa(i) + bad.Pointer
				return bad
			}
			seen.mark(i)
		}
	}
	return nil
}

// fromPlain makes a value of what the module keeps.
func fromPlain(v any) value.Value {
	switch v := v.(type) {
	case bool:
		return value.OfBool(v)
	case json.Number:
		n, _ := value.Parse([]byte(v), value.Options{})
		return n
	case string:
		return value.OfString(v)
	case []any:
		items := make([]value.Value, len(v))
		for i, one := range v {
			items[i] = fromPlain(one)
		}
		return value.OfList(items)
	case map[string]any:
		fields := make([]value.Field, 0, len(v))
		for name, one := range v {
			fields = append(fields, value.Field{Name: name, Value: fromPlain(one)})
		}
		return value.OfObject(fields...) // only compared, which has no order
	}
	return value.Value{}
}
