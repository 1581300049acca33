package value

import "slices"

// source is the text an object was read from.
type source struct {
	text string
	o    Options
}

// looksFor tells whether a field is one of those that were read where they are there.
func (s *source) looksFor(name string) bool { return slices.Contains(s.o.Only, name) }

// partial tells whether only some of the fields were read.
func (o *fields) partial() bool { return o.source != nil && o.source.o.Only != nil }

// whole returns all fields. Reading them anew each time keeps a Value immutable; who
// needs them says so in Options.
func (o *fields) whole() *fields {
	if !o.partial() {
		return o
	}
	v, err := Parse([]byte(o.source.text), Options{Decimals: o.source.o.Decimals})
	if err != nil {
		return o // can't be: the text was checked
	}
	return v.ref.(*fields)
}

// Source returns the JSON text that an object was read from with Options.Keep or Only,
// as it came, "" for anything else.
func (v Value) Source() string {
	if o, ok := v.ref.(*fields); ok && o.source != nil {
		return o.source.text
	}
	return ""
}

// outermost reads the whole text's value.
func (p *parser) outermost() (Value, error) {
	if p.o.Only == nil && !p.o.Keep {
		return p.value(0)
	}
	if p.space(); p.i >= len(p.b) || p.b[p.i] != '{' {
		return p.value(0)
	}
	if p.o.Only != nil {
		return p.some()
	}
	v, err := p.object(0)
	if err == nil {
		v.ref.(*fields).source = &source{text: p.s, o: p.o}
	}
	return v, err
}

// few is an object of few fields in one piece.
type few struct {
	fields
	source source
	names  [2]string
	values [2]Value
}

// some reads the fields of Options.Only and checks the others.
func (p *parser) some() (Value, error) {
	f := &few{source: source{text: p.s, o: p.o}}
	o := &f.fields
	o.source, o.names, o.values = &f.source, f.names[:0], f.values[:0]
	if n := len(p.o.Only); n > len(f.names) {
		o.names, o.values = make([]string, 0, n), make([]Value, 0, n)
	}
	var space [manyFields]string
	known := names{list: space[:0]}
	p.i++
	for {
		p.space()
		if p.i < len(p.b) && p.b[p.i] == '}' && len(known.list) == 0 {
			p.i++
			return Value{kind: Object, ref: o}, nil
		}
		name, err := p.name(&known)
		if err != nil {
			return Value{}, err
		}
		v, err := p.value(1)
		if err != nil {
			return Value{}, err
		}
		if f.source.looksFor(name) {
			o.names, o.values = append(o.names, name), append(o.values, v)
		}
		more, err := p.more('}')
		if err != nil {
			return Value{}, err
		}
		if !more {
			return Value{kind: Object, ref: o}, nil
		}
	}
}
