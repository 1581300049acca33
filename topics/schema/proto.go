package schema

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/reporter"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/heraldmq/herald/topics/value"
)

// protoNestingMax is how many levels of braces a .proto file may have.
const protoNestingMax = 64

// protoSchema is a compiled Protobuf message. The modules read .proto files and resolve
// their names; payloads are read straight into values here.
type protoSchema struct {
	root *protoMessage
	desc protoreflect.MessageDescriptor
}

// wellKnown is a message of google.protobuf that values have a kind for.
type wellKnown uint8

const (
	notKnown wellKnown = iota
	protoTimestamp
	protoDuration
	protoWrapper // Int64Value and the like
	protoStruct
	protoValue
	protoList
)

var wellKnownNames = map[protoreflect.FullName]wellKnown{
	"google.protobuf.Timestamp": protoTimestamp, "google.protobuf.Duration": protoDuration,
	"google.protobuf.Struct": protoStruct, "google.protobuf.Value": protoValue, "google.protobuf.ListValue": protoList,
	"google.protobuf.DoubleValue": protoWrapper, "google.protobuf.FloatValue": protoWrapper, "google.protobuf.Int64Value": protoWrapper,
	"google.protobuf.UInt64Value": protoWrapper, "google.protobuf.Int32Value": protoWrapper, "google.protobuf.UInt32Value": protoWrapper,
	"google.protobuf.BoolValue": protoWrapper, "google.protobuf.StringValue": protoWrapper, "google.protobuf.BytesValue": protoWrapper,
}

type protoMessage struct {
	name   string
	known  wellKnown
	fields []protoField // by number
	names  []string     // of fields
	index  map[string]int
	byNum  map[protowire.Number]int
}

type protoField struct {
	num      protowire.Number
	name     string
	kind     protoreflect.Kind
	list     bool
	packed   bool
	mapKey   *protoField // of a map; the rest says what its values are
	presence bool        // not set is not the same as its default
	required bool
	oneof    int // with the same number only one is set; -1: none
	message  *protoMessage
	enum     *protoEnum
	zero     value.Value
}

type protoEnum struct {
	name    string
	names   map[int32]string
	numbers map[string]int32
	order   []string
	closed  bool
}

func compileProto(src Source) (*protoSchema, *SourceError) {
	var files []protoreflect.FileDescriptor
	var bad *SourceError
	if strings.ContainsAny(src.Text, "{;") {
		files, bad = protoText(src.Text)
	} else {
		files, bad = protoSet(src.Text)
	}
	if bad != nil {
		return nil, bad
	}
	desc, bad := chooseMessage(files, src.Message)
	if bad != nil {
		return nil, bad
	}
	b := &protoBuilder{messages: map[protoreflect.FullName]*protoMessage{}, enums: map[protoreflect.FullName]*protoEnum{}}
	s := &protoSchema{root: b.message(desc), desc: desc}
	if b.bad != nil {
		return nil, b.bad
	}
	return s, nil
}

// protoText compiles a .proto file, which may import google/protobuf/*.proto only.
func protoText(text string) ([]protoreflect.FileDescriptor, *SourceError) {
	if bad := checkNesting(text); bad != nil {
		return nil, bad
	}
	const name = "schema.proto"
	c := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: func(path string) (io.ReadCloser, error) {
			if path != name {
				return nil, fmt.Errorf("it imports %s, and may only import google/protobuf/*.proto: put everything into one file, or give a FileDescriptorSet in base64", path)
			}
			return io.NopCloser(strings.NewReader(text)), nil
		}}),
		MaxParallelism: 1,
	}
	files, err := c.Compile(context.Background(), name)
	if err != nil {
		bad := &SourceError{Reason: firstLine(err.Error())}
		var at reporter.ErrorWithPos
		if errors.As(err, &at) {
			pos := at.GetPosition()
			bad.Where, bad.Reason = fmt.Sprintf("%d:%d", pos.Line, pos.Col), firstLine(at.Unwrap().Error())
		}
		return nil, bad
	}
	return []protoreflect.FileDescriptor{files[0]}, nil
}

// checkNesting bounds the levels of braces, outside of comments and strings.
func checkNesting(text string) *SourceError {
	depth, line := 0, 1
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			line++
		case strings.HasPrefix(text[i:], "//"):
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		case strings.HasPrefix(text[i:], "/*"):
			end := strings.Index(text[i+2:], "*/")
			if end < 0 {
				return nil // the compiler says it
			}
			line += strings.Count(text[i:i+2+end], "\n")
			i += end + 3
		case c == '"' || c == '\'':
			for i++; i < len(text) && text[i] != c && text[i] != '\n'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case c == '{' || c == '<' || c == '[' || c == '(':
			if depth++; depth > protoNestingMax {
				return &SourceError{Where: strconv.Itoa(line), Reason: fmt.Sprintf("more than %d levels", protoNestingMax)}
			}
		case c == '}' || c == '>' || c == ']' || c == ')':
			depth = max(depth-1, 0)
		}
	}
	return nil
}

// protoSet reads a FileDescriptorSet in base64.
func protoSet(text string) ([]protoreflect.FileDescriptor, *SourceError) {
	raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return nil, &SourceError{Reason: "it is neither a .proto file nor a FileDescriptorSet in base64"}
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := (proto.UnmarshalOptions{RecursionLimit: 4 * protoNestingMax}).Unmarshal(raw, set); err != nil {
		return nil, &SourceError{Reason: "it is no FileDescriptorSet: " + firstLine(err.Error())}
	}
	all, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, &SourceError{Reason: firstLine(err.Error())}
	}
	var files []protoreflect.FileDescriptor
	for _, f := range set.File {
		d, err := all.FindFileByPath(f.GetName())
		if err != nil {
			return nil, &SourceError{Reason: firstLine(err.Error())}
		}
		files = append(files, d)
	}
	return files, nil
}

// chooseMessage finds the message that payloads are.
func chooseMessage(files []protoreflect.FileDescriptor, name string) (protoreflect.MessageDescriptor, *SourceError) {
	var all []protoreflect.MessageDescriptor
	var names []string
	for _, f := range files {
		for i := range f.Messages().Len() {
			m := f.Messages().Get(i)
			if name == "" && strings.HasPrefix(string(m.FullName()), "google.protobuf.") {
				continue
			}
			all, names = append(all, m), append(names, string(m.FullName()))
		}
	}
	if name == "" {
		switch len(all) {
		case 0:
			return nil, &SourceError{Reason: "it has no message"}
		case 1:
			return all[0], nil
		}
		return nil, &SourceError{Reason: fmt.Sprintf("it has several messages: say which payloads are (%s)", strings.Join(names[:min(len(names), 10)], ", "))}
	}
	for rest := all; len(rest) > 0; {
		m := rest[0]
		rest = rest[1:]
		if string(m.FullName()) == name {
			return m, nil
		}
		for i := range m.Messages().Len() {
			rest = append(rest, m.Messages().Get(i))
		}
	}
	return nil, &SourceError{Reason: fmt.Sprintf("it has no message %q: it has %s", name, strings.Join(names[:min(len(names), 10)], ", "))}
}

// protoBuilder makes types of descriptors.
type protoBuilder struct {
	messages map[protoreflect.FullName]*protoMessage
	enums    map[protoreflect.FullName]*protoEnum
	parts    int
	bad      *SourceError
}

func (b *protoBuilder) count(name protoreflect.FullName, n int) {
	if b.parts += n; b.parts > NodesMax && b.bad == nil {
		b.bad = &SourceError{Where: string(name), Reason: fmt.Sprintf("more than %d messages, fields and symbols", NodesMax)}
	}
}

func (b *protoBuilder) message(d protoreflect.MessageDescriptor) *protoMessage {
	if known := b.messages[d.FullName()]; known != nil {
		return known
	}
	m := &protoMessage{name: string(d.FullName()), known: wellKnownNames[d.FullName()], index: map[string]int{}, byNum: map[protowire.Number]int{}}
	b.messages[d.FullName()] = m
	b.count(d.FullName(), 1+d.Fields().Len())
	if b.bad != nil {
		return m
	}
	fields := d.Fields()
	byNum := map[protowire.Number]protoreflect.FieldDescriptor{}
	for i := range fields.Len() {
		byNum[fields.Get(i).Number()] = fields.Get(i)
	}
	for _, num := range sortedNumbers(byNum) {
		f := b.field(byNum[num])
		m.index[f.name], m.byNum[num] = len(m.fields), len(m.fields)
		m.names = append(m.names, f.name)
		m.fields = append(m.fields, f)
	}
	return m
}

func (b *protoBuilder) field(d protoreflect.FieldDescriptor) protoField {
	f := protoField{
		num: d.Number(), name: string(d.Name()), kind: d.Kind(), list: d.IsList(), packed: d.IsPacked(),
		presence: d.HasPresence(), required: d.Cardinality() == protoreflect.Required, oneof: -1,
	}
	if o := d.ContainingOneof(); o != nil && !o.IsSynthetic() {
		f.oneof = o.Index()
	}
	if d.IsMap() {
		key := b.field(d.MapKey())
		val := b.field(d.MapValue())
		f.mapKey, f.kind, f.message, f.enum, f.zero = &key, val.kind, val.message, val.enum, val.zero
		return f
	}
	switch f.kind {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		f.message = b.message(d.Message())
		if f.kind == protoreflect.GroupKind {
			f.name = string(d.Message().Name())
			if d.Message().Name() != "" && strings.EqualFold(string(d.Name()), string(d.Message().Name())) {
				f.name = string(d.Name())
			}
		}
	case protoreflect.EnumKind:
		f.enum = b.enum(d.Enum())
		f.zero = f.enum.value(int32(d.Enum().Values().Get(0).Number()))
	case protoreflect.BoolKind:
		f.zero = value.OfBool(false)
	case protoreflect.StringKind:
		f.zero = value.OfString("")
	case protoreflect.BytesKind:
		f.zero = value.OfBytes(nil)
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		f.zero = value.OfDouble(0)
	default:
		f.zero = value.OfInt(0)
	}
	return f
}

func (b *protoBuilder) enum(d protoreflect.EnumDescriptor) *protoEnum {
	if known := b.enums[d.FullName()]; known != nil {
		return known
	}
	e := &protoEnum{name: string(d.FullName()), names: map[int32]string{}, numbers: map[string]int32{}, closed: d.IsClosed()}
	b.enums[d.FullName()] = e
	b.count(d.FullName(), 1+d.Values().Len())
	for i := range d.Values().Len() {
		v := d.Values().Get(i)
		name, n := string(v.Name()), int32(v.Number())
		if _, there := e.names[n]; !there { // of aliases the first
			e.names[n] = name
			e.order = append(e.order, name)
		}
		e.numbers[name] = n
	}
	return e
}

// value is a symbol's name, or the number where it has none.
func (e *protoEnum) value(n int32) value.Value {
	if e.name == "google.protobuf.NullValue" {
		return value.Value{}
	}
	if name, there := e.names[n]; there {
		return value.OfString(name)
	}
	return value.OfInt(int64(n))
}

func (s *protoSchema) validate(payload []byte) *Invalid {
	_, bad := s.read(payload)
	return bad
}

func (s *protoSchema) decode(payload []byte) (value.Value, error) {
	v, bad := s.read(payload)
	if bad != nil {
		return value.Value{}, bad
	}
	return v, nil
}

func (s *protoSchema) read(payload []byte) (value.Value, *Invalid) {
	r := &protoReader{left: valuesFor(len(payload))}
	return r.message(s.root, string(payload), 0)
}

// valuesFor is how many values a payload may become: it may say that it has many in a
// few bytes.
func valuesFor(size int) int { return 1<<16 + 2*size }

// messagePath is where a message is in its file: its number among the messages there, then
// that among those in it, and so on.
func messagePath(d protoreflect.Descriptor) []int64 {
	var path []int64
	for ; d != nil; d = d.Parent() {
		if _, is := d.(protoreflect.MessageDescriptor); !is {
			break
		}
		path = append([]int64{int64(d.Index())}, path...)
	}
	return path
}
