package schema

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/heraldmq/herald/topics/value"
)

// shape is a type as generators see it, whatever the format.
type shape struct {
	kind   shapeKind
	bits   int      // of whole and fraction: 32 or 64
	signed bool     // of whole
	only   []string // of words: nothing else
	of     *shape   // of many and keyed
	among  []*shape // of choice; null is not one of them
	null   bool     // null is allowed too
	named  *named   // of object and enum
}

type shapeKind uint8

const (
	anything shapeKind = iota
	nothing            // only null
	truth
	whole
	fraction
	exactly // a decimal
	words
	octets // bytes, in base64
	moment // a timestamp, RFC 3339
	many
	keyed
	object
	symbols
	choice
)

// named is a type with a name of its own.
type named struct {
	name   string // as it should be called
	doc    string
	fields []shapeField // of an object
	words  []string     // of an enum
	open   bool         // an object may have more fields
}

type shapeField struct {
	name     string
	doc      string
	of       *shape
	optional bool // it may be missing
}

// shaper collects the named types of a schema.
type shaper struct {
	all   []*named
	nodes map[*node]*named
	avros map[*avroType]*named
	msgs  map[*protoMessage]*named
	enums map[*protoEnum]*named
	refs  map[*node]bool // being looked through
	made  int            // shapes, of which references could make any number
}

func shapeOf(s *Schema, name string) (*shape, []*named) {
	h := &shaper{nodes: map[*node]*named{}, avros: map[*avroType]*named{}, msgs: map[*protoMessage]*named{}, enums: map[*protoEnum]*named{}, refs: map[*node]bool{}}
	var root *shape
	switch c := bare(s.codec).(type) {
	case *jsonSchema:
		root = h.json(c.root, name)
	case *avroSchema:
		root = h.avro(c.root)
	case *protoSchema:
		root = h.proto(c.root)
	}
	return root, h.all
}

func (h *shaper) add(name, doc string) *named {
	n := &named{name: name, doc: doc}
	h.all = append(h.all, n)
	return n
}

// json makes a shape of a JSON Schema; what has no counterpart is anything. name is for
// objects that have none.
func (h *shaper) json(n *node, name string) *shape {
	if h.made++; n == nil || h.made > 4*NodesMax {
		return &shape{}
	}
	if n.ref != nil && n.types == tAll && n.props == nil && !h.refs[n] {
		if last := n.ref.at[strings.LastIndexByte(n.ref.at, '/')+1:]; last != "" {
			name = last
		}
		h.refs[n] = true
		defer delete(h.refs, n)
		return h.json(n.ref, name)
	}
	if n.enum != nil {
		return h.jsonEnum(n)
	}
	among := n.any
	if len(among) == 0 {
		among = n.one
	}
	if len(among) > 0 && n.props == nil && !h.refs[n] {
		h.refs[n] = true
		defer delete(h.refs, n)
		s := &shape{kind: choice}
		for _, sub := range among {
			s.among = append(s.among, h.json(sub, name))
		}
		return s.simple()
	}
	s := &shape{kind: choice, null: n.types&tNull != 0}
	for _, t := range typeNames[1:] {
		if n.types == tAll || n.types&t.set != t.set || t.name == "integer" && n.types&tNumber != 0 {
			continue
		}
		s.among = append(s.among, h.jsonType(n, t.set, name))
	}
	if n.types == tAll {
		if n.props == nil && n.items == nil {
			return &shape{}
		}
		if n.items != nil && n.props == nil {
			return h.jsonType(n, tArray, name)
		}
		return h.jsonType(n, tObject, name)
	}
	return s.simple()
}

func (h *shaper) jsonEnum(n *node) *shape {
	s := &shape{kind: words}
	for _, v := range n.enum.values {
		switch v.Kind() {
		case value.String:
			s.only = append(s.only, v.Str())
		case value.Null:
			s.null = true
		default:
			return &shape{}
		}
	}
	if len(s.only) == 0 {
		return &shape{kind: nothing}
	}
	return s
}

func (h *shaper) jsonType(n *node, t types, name string) *shape {
	switch t {
	case tBoolean:
		return &shape{kind: truth}
	case tInteger:
		return &shape{kind: whole, bits: 64, signed: true}
	case tInteger | tNumber:
		return &shape{kind: fraction, bits: 64}
	case tString:
		if n.format != nil && n.format.Name == "date-time" {
			return &shape{kind: moment}
		}
		return &shape{kind: words}
	case tArray:
		if len(n.prefix) > 0 {
			return &shape{kind: many, of: &shape{}}
		}
		return &shape{kind: many, of: h.json(n.items, name+"_item")}
	}
	if n.props == nil {
		if n.additional != nil && !n.additional.never {
			return &shape{kind: keyed, of: h.json(n.additional, name+"_value")}
		}
		return &shape{kind: keyed, of: &shape{}}
	}
	if known := h.nodes[n]; known != nil {
		return &shape{kind: object, named: known}
	}
	d := h.add(name, "")
	d.open = n.additional == nil || !n.additional.never
	h.nodes[n] = d
	for _, field := range sortedNames(n.props) {
		f := shapeField{name: field, of: h.json(n.props[field], name+"_"+field), optional: true}
		for _, r := range n.required {
			if r == field {
				f.optional = false
			}
		}
		d.fields = append(d.fields, f)
	}
	return &shape{kind: object, named: d}
}

// simple is a choice of nothing or of one as what it is.
func (s *shape) simple() *shape {
	var among []*shape
	for _, one := range s.among {
		switch one.kind {
		case nothing:
			s.null = true
		case anything:
			return &shape{}
		default:
			s.null = s.null || one.null
			among = append(among, one)
		}
	}
	s.among = among
	switch len(among) {
	case 0:
		if s.null {
			return &shape{kind: nothing}
		}
		return &shape{}
	case 1:
		only := *among[0]
		only.null = only.null || s.null
		return &only
	}
	return s
}

func (h *shaper) avro(t *avroType) *shape {
	_, name := splitLast(t.name)
	switch t.kind {
	case avroNull:
		return &shape{kind: nothing}
	case avroBoolean:
		return &shape{kind: truth}
	case avroInt, avroLong:
		switch t.means {
		case asDate, asMillis, asMicros, asNanos:
			return &shape{kind: moment}
		case asTimeMillis, asTimeMicros:
			return &shape{kind: words}
		}
		return &shape{kind: whole, bits: map[avroKind]int{avroInt: 32, avroLong: 64}[t.kind], signed: true}
	case avroFloat, avroDouble:
		return &shape{kind: fraction, bits: map[avroKind]int{avroFloat: 32, avroDouble: 64}[t.kind]}
	case avroString:
		return &shape{kind: words}
	case avroBytes, avroFixed:
		switch t.means {
		case asDecimal:
			return &shape{kind: exactly}
		case asUUID:
			return &shape{kind: words}
		case asDuration:
			return &shape{kind: keyed, of: &shape{kind: whole, bits: 64, signed: true}}
		}
		return &shape{kind: octets}
	case avroEnum:
		d := h.avros[t]
		if d == nil {
			d = h.add(name, "")
			d.words, h.avros[t] = t.names, d
		}
		return &shape{kind: symbols, named: d}
	case avroArray:
		return &shape{kind: many, of: h.avro(t.items)}
	case avroMap:
		return &shape{kind: keyed, of: h.avro(t.items)}
	case avroUnion:
		s := &shape{kind: choice}
		for _, branch := range t.of {
			s.among = append(s.among, h.avro(branch))
		}
		return s.simple()
	}
	d := h.avros[t]
	if d == nil {
		d = h.add(name, "")
		h.avros[t] = d
		for i, f := range t.fields {
			d.fields = append(d.fields, shapeField{name: t.names[i], doc: f.doc, of: h.avro(f.typ)})
		}
	}
	return &shape{kind: object, named: d}
}

func (h *shaper) proto(m *protoMessage) *shape {
	switch m.known {
	case protoTimestamp:
		return &shape{kind: moment}
	case protoDuration:
		return &shape{kind: words}
	case protoWrapper:
		return h.protoField(&m.fields[0])
	case protoStruct:
		return &shape{kind: keyed, of: &shape{}}
	case protoList:
		return &shape{kind: many, of: &shape{}}
	case protoValue:
		return &shape{}
	}
	d := h.msgs[m]
	if d == nil {
		_, name := splitLast(m.name)
		d = h.add(name, "")
		h.msgs[m] = d
		for i := range m.fields {
			f := &m.fields[i]
			one := shapeField{name: f.name, of: h.protoField(f), optional: f.presence && !f.required}
			switch {
			case f.mapKey != nil:
				one.of = &shape{kind: keyed, of: one.of}
			case f.list:
				one.of = &shape{kind: many, of: one.of}
			}
			d.fields = append(d.fields, one)
		}
	}
	return &shape{kind: object, named: d}
}

// protoField is the shape of one of a field.
func (h *shaper) protoField(f *protoField) *shape {
	switch f.kind {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return h.proto(f.message)
	case protoreflect.EnumKind:
		d := h.enums[f.enum]
		if d == nil {
			_, name := splitLast(f.enum.name)
			d = h.add(name, "")
			d.words, h.enums[f.enum] = f.enum.order, d
		}
		return &shape{kind: symbols, named: d}
	case protoreflect.BoolKind:
		return &shape{kind: truth}
	case protoreflect.StringKind:
		return &shape{kind: words}
	case protoreflect.BytesKind:
		return &shape{kind: octets}
	case protoreflect.FloatKind:
		return &shape{kind: fraction, bits: 32}
	case protoreflect.DoubleKind:
		return &shape{kind: fraction, bits: 64}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return &shape{kind: whole, bits: 32, signed: true}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return &shape{kind: whole, bits: 32}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return &shape{kind: whole, bits: 64}
	}
	return &shape{kind: whole, bits: 64, signed: true}
}
