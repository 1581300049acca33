package schema

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/twmb/avro"

	"github.com/heraldmq/herald/topics/value"
)

// avroSchema is a compiled Avro schema. The module avro reads and checks the text and
// knows which schemas resolve to each other; payloads are read straight into values
// here, whose order of fields and exactness the module's maps don't have.
type avroSchema struct {
	root    *avroType
	parsed  *avro.Schema
	mark    [10]byte // what single object encoding begins with
	framing Framing
	// writers read what was written with another schema as this one says, by its
	// fingerprint; with the framing confluent frame has them.
	writers map[uint64]*avroType
}

// avroKind is a type's encoding.
type avroKind uint8

const (
	avroNull avroKind = iota
	avroBoolean
	avroInt
	avroLong
	avroFloat
	avroDouble
	avroBytes
	avroString
	avroRecord
	avroEnum
	avroArray
	avroMap
	avroUnion
	avroFixed
)

var avroKinds = map[string]avroKind{
	"null": avroNull, "boolean": avroBoolean, "int": avroInt, "long": avroLong, "float": avroFloat, "double": avroDouble,
	"bytes": avroBytes, "string": avroString, "record": avroRecord, "error": avroRecord, "enum": avroEnum,
	"array": avroArray, "map": avroMap, "union": avroUnion, "fixed": avroFixed,
}

// meaning is a logical type that values know.
type meaning uint8

const (
	plainly meaning = iota
	asDecimal
	asDate
	asTimeMillis
	asTimeMicros
	asMillis
	asMicros
	asNanos
	asUUID
	asDuration
)

type avroType struct {
	kind   avroKind
	means  meaning
	name   string // of a record, enum or fixed; else of the kind
	names  []string
	fields []avroField
	items  *avroType // of an array or a map
	of     []*avroType
	// symbols of an enum, with their numbers.
	symbols          map[string]int
	aliases          []string
	resolved         *resolution // of a type of a writer: what a reader makes of it
	size             int
	precision, scale int
	fallback         string // an enum's default
}

type avroField struct {
	typ      *avroType
	optional bool // it has a default
	aliases  []string
	def      value.Value
	doc      string
}

func compileAvro(src Source) (*avroSchema, *SourceError) {
	s, bad := compileAvroText(src.Text)
	if bad != nil {
		return nil, bad
	}
	s.framing = src.Framing
	if src.Writers != "" && src.Framing != Confluent {
		if s.writers, bad = s.readWriters(src.Writers); bad != nil {
			return nil, bad
		}
	}
	return s, nil
}

func compileAvroText(text string) (*avroSchema, *SourceError) {
	src := Source{Text: text}
	doc, err := value.Parse([]byte(src.Text), value.Options{})
	if err != nil {
		return nil, &SourceError{Reason: err.Error()}
	}
	n := &counter{}
	if _, bad := n.plain(doc, ""); bad != nil {
		return nil, bad
	}
	parsed, err := avro.Parse(src.Text)
	if err != nil {
		return nil, &SourceError{Reason: firstLine(err.Error())}
	}
	b := &avroBuilder{named: map[string]*avroType{}}
	s := &avroSchema{root: b.build(parsed.Root(), ""), parsed: parsed}
	if b.bad != nil {
		return nil, b.bad
	}
	if b.endless(s.root, map[*avroType]bool{}, 0) {
		return nil, &SourceError{Reason: "a record holds itself without an end: no payload can be of it"}
	}
	s.mark[0], s.mark[1] = 0xc3, 0x01
	h := avro.NewRabin()
	h.Write(parsed.Canonical())
	binary.LittleEndian.PutUint64(s.mark[2:], h.Sum64())
	return s, nil
}

// avroBuilder makes types of what the module parsed.
type avroBuilder struct {
	named map[string]*avroType
	parts int
	bad   *SourceError
}

// build makes a type of a node, with names of the namespace around it.
func (b *avroBuilder) build(n *avro.SchemaNode, space string) *avroType {
	if b.parts++; b.parts > 4*NodesMax {
		b.bad = &SourceError{Reason: fmt.Sprintf("more than %d types", 4*NodesMax)}
	}
	if b.bad != nil {
		return &avroType{}
	}
	kind, builtin := avroKinds[n.Type]
	if !builtin {
		known := b.named[n.Type]
		if known == nil && space != "" && !strings.Contains(n.Type, ".") {
			known = b.named[space+"."+n.Type]
		}
		if known == nil {
			b.bad = &SourceError{Reason: fmt.Sprintf("there is no type %q", n.Type)}
			return &avroType{}
		}
		return known
	}
	t := &avroType{kind: kind, name: n.Type}
	if kind == avroRecord || kind == avroEnum || kind == avroFixed {
		t.name = n.Name
		if n.Namespace != "" && !strings.Contains(n.Name, ".") {
			t.name = n.Namespace + "." + n.Name
		}
		space, _ = splitLast(t.name)
		t.aliases = n.Aliases
		b.named[t.name] = t
	}
	t.means = meaningOf(n, kind)
	t.precision, t.scale, t.size = n.Precision, n.Scale, n.Size
	switch kind {
	case avroRecord:
		for i := range n.Fields {
			f := &n.Fields[i]
			t.names = append(t.names, f.Name)
			t.fields = append(t.fields, avroField{typ: b.build(&f.Type, space), optional: f.HasDefault, def: fromDefault(f.Default), doc: f.Doc, aliases: f.Aliases})
		}
	case avroArray:
		t.items = b.build(n.Items, space)
	case avroMap:
		t.items = b.build(n.Values, space)
	case avroUnion:
		for i := range n.Branches {
			t.of = append(t.of, b.build(&n.Branches[i], space))
		}
	case avroEnum:
		t.names, t.symbols, t.fallback = n.Symbols, map[string]int{}, n.EnumDefault
		for i, s := range n.Symbols {
			t.symbols[s] = i
		}
	}
	return t
}

// endless tells whether every payload of a type would hold another one of it.
func (b *avroBuilder) endless(t *avroType, open map[*avroType]bool, depth int) bool {
	if t.kind != avroRecord || depth > value.DepthMax {
		return t.kind == avroRecord
	}
	if open[t] {
		return true
	}
	open[t] = true
	defer delete(open, t)
	for _, f := range t.fields {
		if b.endless(f.typ, open, depth+1) {
			return true
		}
	}
	return false
}

// meaningOf returns a type's logical type. One that doesn't fit its type, or that nobody
// knows, is ignored, as Avro has it.
func meaningOf(n *avro.SchemaNode, kind avroKind) meaning {
	switch l := n.LogicalType; {
	case l == "decimal" && (kind == avroBytes || kind == avroFixed) && n.Precision > 0:
		return asDecimal
	case l == "date" && kind == avroInt:
		return asDate
	case l == "time-millis" && kind == avroInt:
		return asTimeMillis
	case l == "time-micros" && kind == avroLong:
		return asTimeMicros
	case (l == "timestamp-millis" || l == "local-timestamp-millis") && kind == avroLong:
		return asMillis
	case (l == "timestamp-micros" || l == "local-timestamp-micros") && kind == avroLong:
		return asMicros
	case (l == "timestamp-nanos" || l == "local-timestamp-nanos") && kind == avroLong:
		return asNanos
	case l == "uuid" && (kind == avroString || kind == avroFixed && n.Size == 16):
		return asUUID
	case l == "duration" && kind == avroFixed && n.Size == 12:
		return asDuration
	}
	return plainly
}

// fromDefault makes a value of a field's default.
func fromDefault(v any) value.Value {
	switch v := v.(type) {
	case bool:
		return value.OfBool(v)
	case int32:
		return value.OfInt(int64(v))
	case int64:
		return value.OfInt(v)
	case float32:
		return value.OfDouble(float64(v))
	case float64:
		return value.OfDouble(v)
	case string:
		return value.OfString(v)
	case []byte:
		return value.OfBytes(v)
	case []any:
		items := make([]value.Value, len(v))
		for i, one := range v {
			items[i] = fromDefault(one)
		}
		return value.OfList(items)
	case map[string]any:
		fields := make([]value.Field, 0, len(v))
		for _, name := range sortedNames(v) {
			fields = append(fields, value.Field{Name: name, Value: fromDefault(v[name])})
		}
		return value.OfObject(fields...)
	}
	return value.Value{}
}

func (s *avroSchema) validate(payload []byte) *Invalid {
	_, err := s.read(payload)
	return err
}

func (s *avroSchema) decode(payload []byte) (value.Value, error) {
	v, bad := s.read(payload)
	if bad != nil {
		return value.Value{}, bad
	}
	return v, nil
}

// read reads a payload: with single object encoding's mark where it is this schema's,
// else without.
func (s *avroSchema) read(payload []byte) (value.Value, *Invalid) {
	marked := s.framing != Confluent && len(payload) >= len(s.mark) && string(payload[:len(s.mark)]) == string(s.mark[:])
	root := s.root
	if !marked && len(s.writers) > 0 && len(payload) >= len(s.mark) && payload[0] == 0xc3 && payload[1] == 0x01 {
		if w := s.writers[binary.LittleEndian.Uint64(payload[2:])]; w != nil {
			root, marked = w, true
		}
	}
	switch {
	case marked && s.framing != Raw:
		payload = payload[len(s.mark):]
	case s.framing == SingleObject:
		return value.Value{}, s.unmarked(payload)
	}
	v, bad := readAvro(root, payload)
	if bad != nil {
		if !marked && s.framing == "" && len(payload) >= len(s.mark) && payload[0] == 0xc3 && payload[1] == 0x01 {
			return value.Value{}, s.unmarked(payload)
		}
		return value.Value{}, bad
	}
	return v, nil
}

// readAvro reads all of a payload as a value of a type.
func readAvro(t *avroType, payload []byte) (value.Value, *Invalid) {
	r := &avroReader{b: payload, s: string(payload), left: valuesFor(len(payload))}
	v := r.value(t, 0)
	if r.bad == nil && r.i < len(payload) {
		r.fail("%d bytes follow the value", len(payload)-r.i)
	}
	if r.bad != nil {
		return value.Value{}, r.bad
	}
	return v, nil
}

// unmarked says why a payload isn't one of single object encoding with this schema.
func (s *avroSchema) unmarked(payload []byte) *Invalid {
	if len(payload) < len(s.mark) || payload[0] != 0xc3 || payload[1] != 0x01 {
		return broken("encoding", "it is not Avro's single object encoding, which begins with C3 01 and the schema's fingerprint")
	}
	return broken("encoding", "it was written with another schema: of the fingerprint %016x, not %016x", binary.LittleEndian.Uint64(payload[2:]), binary.LittleEndian.Uint64(s.mark[2:]))
}

// Fingerprint returns an Avro schema's CRC-64-AVRO, which single object encoding begins
// with; 0 for other formats.
func (s *Schema) Fingerprint() uint64 {
	if a, ok := bare(s.codec).(*avroSchema); ok {
		return binary.LittleEndian.Uint64(a.mark[2:])
	}
	return 0
}

// splitLast splits a dotted name before its last part.
func splitLast(name string) (space, last string) {
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return "", name
}
