package schema

import (
	"math"

	"github.com/heraldmq/herald/topics/value"
)

func field(name string, v value.Value) value.Field { return value.Field{Name: name, Value: v} }

func stringsOf(all []string) value.Value {
	items := make([]value.Value, len(all))
	for i, s := range all {
		items[i] = value.OfString(s)
	}
	return value.OfList(items)
}

// jsonSchema writes the schema of payloads as JSON has them.
func (g *generator) jsonSchema() value.Value {
	fields := []value.Field{field("$schema", value.OfString("https://json-schema.org/draft/2020-12/schema"))}
	root := g.js(g.root)
	for i := range root.Len() {
		fields = append(fields, root.Field(i))
	}
	var defs []value.Field
	for _, d := range g.all {
		defs = append(defs, field(g.names[d], g.definition(d)))
	}
	if len(defs) > 0 {
		fields = append(fields, field("$defs", value.OfObject(defs...)))
	}
	return value.OfObject(fields...)
}

func (g *generator) definition(d *named) value.Value {
	if d.words != nil {
		return value.OfObject(field("enum", stringsOf(d.words)))
	}
	var required []string
	var props []value.Field
	for _, f := range d.fields {
		v := g.js(f.of)
		if f.doc != "" {
			v = v.With("description", value.OfString(f.doc))
		}
		props = append(props, field(f.name, v))
		if !f.optional {
			required = append(required, f.name)
		}
	}
	out := []value.Field{field("type", value.OfString("object"))}
	if len(required) > 0 {
		out = append(out, field("required", stringsOf(required)))
	}
	out = append(out, field("properties", value.OfObject(props...)))
	if !d.open {
		out = append(out, field("additionalProperties", value.OfBool(false)))
	}
	return value.OfObject(out...)
}

func (g *generator) js(s *shape) value.Value {
	typed := func(name string, more ...value.Field) value.Value {
		t := value.OfString(name)
		if s.null {
			t = stringsOf([]string{name, "null"})
		}
		return value.OfObject(append([]value.Field{field("type", t)}, more...)...)
	}
	switch s.kind {
	case nothing:
		return value.OfObject(field("type", value.OfString("null")))
	case truth:
		return typed("boolean")
	case whole:
		switch {
		case s.bits == 32 && s.signed:
			return typed("integer", field("minimum", value.OfInt(math.MinInt32)), field("maximum", value.OfInt(math.MaxInt32)))
		case s.bits == 32:
			return typed("integer", field("minimum", value.OfInt(0)), field("maximum", value.OfInt(math.MaxUint32)))
		case s.signed:
			return typed("integer", field("minimum", value.OfInt(math.MinInt64)), field("maximum", value.OfInt(math.MaxInt64)))
		}
		return typed("integer", field("minimum", value.OfInt(0)), field("maximum", value.OfUint(math.MaxUint64)))
	case fraction, exactly:
		return typed("number")
	case words:
		return typed("string")
	case octets:
		return typed("string", field("contentEncoding", value.OfString("base64")))
	case moment:
		return typed("string", field("format", value.OfString("date-time")))
	case many:
		return typed("array", field("items", g.js(s.of)))
	case keyed:
		return typed("object", field("additionalProperties", g.js(s.of)))
	case anything:
		return value.OfObject()
	}
	var among []value.Value
	if s.named != nil {
		among = append(among, value.OfObject(field("$ref", value.OfString("#/$defs/"+g.names[s.named]))))
	}
	for _, one := range s.among {
		among = append(among, g.js(one))
	}
	if s.null {
		among = append(among, value.OfObject(field("type", value.OfString("null"))))
	}
	if len(among) == 1 {
		return among[0]
	}
	return value.OfObject(field("anyOf", value.OfList(among)))
}
