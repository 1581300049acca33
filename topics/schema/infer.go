package schema

import (
	"fmt"
	"slices"
	"time"

	"github.com/heraldmq/herald/topics/value"
)

// The bounds of what Infer looks at and keeps.
const (
	InferSamplesMax = 10_000 // samples; more are not looked at

	inferEnumMax    = 12   // different strings that may be an enum
	inferEnumRepeat = 5    // how often each of them comes on average, at least
	inferEnumLength = 64   // bytes of a string that may be of an enum
	inferFieldsMax  = 200  // fields of an object; with more it is a map
	inferNodesMax   = 2000 // places of all samples together
)

// InferStats say what a proposed schema rests on.
type InferStats struct {
	Samples int             `json:"samples"` // payloads that were JSON
	Broken  int             `json:"broken"`  // payloads that were not, or were too deep
	Fields  []InferredField `json:"fields"`  // by pointer
}

// InferredField is one place in payloads.
type InferredField struct {
	Pointer string         `json:"pointer"` // items of lists are "*"
	Seen    int            `json:"seen"`    // how often it was there
	Of      int            `json:"of"`      // how often what it is in was
	Types   map[string]int `json:"types"`
	Values  int            `json:"values,omitempty"` // different strings; 0: not counted any more
}

// Infer proposes a JSON Schema for payloads, as text, and says what it rests on. Types,
// fields that are always there, the formats date-time, uuid and email that all strings of
// a place have, and enums of strings that come again and again are taken from the
// samples; ranges and patterns are not, and more fields are allowed. The same samples
// give the same schema. It is a guess for somebody to read: nothing applies it.
func Infer(samples [][]byte) (schema string, stats InferStats) {
	in := &inference{}
	root := in.place()
	for _, s := range samples[:min(len(samples), InferSamplesMax)] {
		v, err := value.Parse(s, value.Options{})
		if err != nil {
			stats.Broken++
			continue
		}
		stats.Samples++
		root.add(in, v)
	}
	fields := []value.Field{{Name: "$schema", Value: value.OfString("https://json-schema.org/draft/2020-12/schema")}}
	v := value.OfObject(append(fields, root.schema()...)...)
	root.report(&stats, "", stats.Samples)
	return indent(v), stats
}

type inference struct{ places int }

// place is one place in payloads, and what was seen there.
type place struct {
	seen    int
	types   [8]int // by inferTypes
	fields  map[string]*place
	names   []string // in the order in which they came
	many    bool     // too many names: a map
	items   *place
	strings map[string]int // nil: too many, or too long
	formats []string       // that all strings have
	full    bool           // there are too many places
}

// inferTypes are in the order in which a schema names them.
var inferTypes = [...]string{"null", "boolean", "integer", "number", "string", "array", "object"}

var inferFormats = []string{"date-time", "uuid", "email"}

func (in *inference) place() *place {
	in.places++
	return &place{strings: map[string]int{}, formats: inferFormats, full: in.places > inferNodesMax}
}

func (p *place) add(in *inference, v value.Value) {
	p.seen++
	is := typeOf(v)
	switch {
	case is == tInteger|tNumber && v.Kind() == value.Double:
		is = tNumber // 1.0 was meant to have a fraction
	case is == tInteger|tNumber:
		is = tInteger
	}
	for i, name := range []types{tNull, tBoolean, tInteger, tNumber, tString, tArray, tObject} {
		if is == name {
			p.types[i]++
		}
	}
	switch v.Kind() {
	case value.String:
		p.text(v.Str())
	case value.List:
		if p.items == nil {
			p.items = in.place()
		}
		for _, item := range v.List() {
			p.items.add(in, item)
		}
	case value.Object:
		p.object(in, v)
	}
}

func (p *place) text(s string) {
	if p.strings != nil {
		p.strings[s]++
		if len(p.strings) > inferEnumMax || len(s) > inferEnumLength {
			p.strings = nil
		}
	}
	p.formats = slices.DeleteFunc(slices.Clone(p.formats), func(f string) bool { return !hasFormat(f, s) })
}

func (p *place) object(in *inference, v value.Value) {
	if p.fields == nil {
		p.fields = map[string]*place{}
	}
	for i := range v.Len() {
		f := v.Field(i)
		sub := p.fields[f.Name]
		if sub == nil {
			if len(p.fields) >= inferFieldsMax || p.full {
				p.many = true
				continue
			}
			sub = in.place()
			p.fields[f.Name] = sub
			p.names = append(p.names, f.Name)
		}
		sub.add(in, f.Value)
	}
}

// hasFormat tells whether a string is of a format, as strictly as people write it.
func hasFormat(format, s string) bool {
	switch format {
	case "date-time":
		_, err := time.Parse(time.RFC3339Nano, s)
		return err == nil
	case "uuid":
		if len(s) != 36 {
			return false
		}
		for i := range len(s) {
			c := s[i] | 0x20
			if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (s[i] == '-') || !dash && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
		return true
	}
	return isEmail(s)
}

// isEmail tells whether a string looks like an address: one @, and a domain with a point.
func isEmail(s string) bool {
	at, point := -1, false
	for i := range len(s) {
		switch c := s[i]; {
		case c == '@' && at < 0:
			at = i
		case c <= ' ' || c == '@' || c == '"' || c == '<' || c == '>' || c == ',' || c >= 0x7f:
			return false
		case c == '.' && at >= 0:
			if i == at+1 || i == len(s)-1 || s[i-1] == '.' {
				return false
			}
			point = true
		}
	}
	return at > 0 && point
}

// schema returns the keywords for a place.
func (p *place) schema() []value.Field {
	var out []value.Field
	add := func(name string, v value.Value) { out = append(out, value.Field{Name: name, Value: v}) }
	var names []value.Value
	for i, name := range inferTypes {
		if p.types[i] > 0 && (name != "integer" || p.types[3] == 0) { // every integer is a number
			names = append(names, value.OfString(name))
		}
	}
	switch len(names) {
	case 0:
		return nil
	case 1:
		add("type", names[0])
	default:
		add("type", value.OfList(names))
	}
	if p.types[4] > 0 {
		switch {
		case len(p.formats) > 0:
			add("format", value.OfString(p.formats[0]))
		case p.types[4] == p.seen && p.isEnum():
			var values []value.Value
			for _, s := range sortedNames(p.strings) {
				values = append(values, value.OfString(s))
			}
			add("enum", value.OfList(values))
		}
	}
	if p.items != nil && p.items.seen > 0 {
		add("items", value.OfObject(p.items.schema()...))
	}
	if p.types[6] == 0 || p.many || len(p.names) == 0 {
		return out
	}
	var required []value.Value
	var props []value.Field
	for _, name := range p.names {
		sub := p.fields[name]
		props = append(props, value.Field{Name: name, Value: value.OfObject(sub.schema()...)})
		if sub.seen == p.types[6] {
			required = append(required, value.OfString(name))
		}
	}
	if len(required) > 0 {
		add("required", value.OfList(required))
	}
	add("properties", value.OfObject(props...))
	return out
}

// isEnum tells whether a place's strings come so often again that there are no others.
func (p *place) isEnum() bool {
	return len(p.strings) > 0 && p.types[4] >= inferEnumRepeat*len(p.strings) && p.types[4] >= 4*inferEnumRepeat
}

func (p *place) report(stats *InferStats, at string, of int) {
	f := InferredField{Pointer: at, Seen: p.seen, Of: of, Types: map[string]int{}, Values: len(p.strings)}
	for i, n := range p.types[:len(inferTypes)] {
		if n > 0 {
			f.Types[inferTypes[i]] = n
		}
	}
	stats.Fields = append(stats.Fields, f)
	for _, name := range p.names {
		p.fields[name].report(stats, at+pointer(name, ""), p.types[6])
	}
	if p.items != nil {
		p.items.report(stats, at+"/*", p.items.seen)
	}
}

// indent writes a value as JSON for people.
func indent(v value.Value) string {
	return string(append(appendIndented(nil, v, ""), '\n'))
}

func appendIndented(dst []byte, v value.Value, in string) []byte {
	inner := in + "  "
	switch {
	case v.Kind() == value.Object && v.Len() > 0:
		dst = append(dst, '{')
		for i := range v.Len() {
			f := v.Field(i)
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(append(append(dst, '\n'), inner...), fmt.Sprintf("%s: ", value.OfString(f.Name))...)
			dst = appendIndented(dst, f.Value, inner)
		}
		return append(append(append(dst, '\n'), in...), '}')
	case v.Kind() == value.List && slices.ContainsFunc(v.List(), func(i value.Value) bool { return i.Kind() == value.Object || i.Kind() == value.List }):
		dst = append(dst, '[')
		for i, item := range v.List() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(append(dst, '\n'), inner...)
			dst = appendIndented(dst, item, inner)
		}
		return append(append(append(dst, '\n'), in...), ']')
	}
	return value.AppendJSON(dst, v)
}
