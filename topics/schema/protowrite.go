package schema

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/heraldmq/herald/topics/value"
)

// encode writes fields by their numbers, entries of maps as they come: the same value
// gives the same bytes.
func (s *protoSchema) encode(dst []byte, v value.Value) ([]byte, error) {
	out, bad := appendMessage(dst, s.root, v, 0)
	if bad != nil {
		return dst, bad
	}
	return out, nil
}

func appendMessage(dst []byte, m *protoMessage, v value.Value, depth int) ([]byte, *Invalid) {
	if depth > value.DepthMax {
		return dst, broken("type", "more than %d levels", value.DepthMax)
	}
	if m.known != notKnown {
		return appendKnown(dst, m, v, depth)
	}
	if v.Kind() != value.Object {
		return dst, misfit(v, "message "+m.name)
	}
	found, of := 0, map[int]string{}
	for i := range m.fields {
		d := &m.fields[i]
		part, there := v.Get(d.name)
		if there {
			found++
		}
		if !there || part.IsNull() && (d.message == nil || d.message.known != protoValue) {
			if d.required {
				return dst, broken("required", "field %q of %s is missing", d.name, m.name)
			}
			continue // null is not set
		}
		if d.oneof >= 0 {
			if other, twice := of[d.oneof]; twice {
				return dst, broken("oneof", "only one of %q and %q may be set", other, d.name)
			}
			of[d.oneof] = d.name
		}
		var bad *Invalid
		if dst, bad = appendField(dst, d, part, depth); bad != nil {
			return dst, within(d.name, bad)
		}
	}
	if found < v.Len() {
		for i := range v.Len() {
			if name := v.Field(i).Name; m.index[name] == 0 && (len(m.names) == 0 || m.names[0] != name) {
				return dst, broken("additionalProperties", "field %q is not in %s", name, m.name)
			}
		}
	}
	return dst, nil
}

func appendField(dst []byte, d *protoField, v value.Value, depth int) ([]byte, *Invalid) {
	switch {
	case d.mapKey != nil:
		return appendMap(dst, d, v, depth)
	case d.list:
		return appendList(dst, d, v, depth)
	case d.message != nil:
		return appendSub(dst, d, v, depth)
	}
	begun := len(dst)
	dst = protowire.AppendTag(dst, d.num, wireType(d.kind))
	dst, zero, bad := appendScalar(dst, d, v)
	if bad == nil && zero && !d.presence {
		return dst[:begun], nil // says the same as nothing
	}
	return dst, bad
}

func appendSub(dst []byte, d *protoField, v value.Value, depth int) ([]byte, *Invalid) {
	sub, bad := appendMessage(nil, d.message, v, depth+1)
	if bad != nil {
		return dst, bad
	}
	if d.kind == protoreflect.GroupKind {
		dst = append(protowire.AppendTag(dst, d.num, protowire.StartGroupType), sub...)
		return protowire.AppendTag(dst, d.num, protowire.EndGroupType), nil
	}
	return protowire.AppendBytes(protowire.AppendTag(dst, d.num, protowire.BytesType), sub), nil
}

func appendList(dst []byte, d *protoField, v value.Value, depth int) ([]byte, *Invalid) {
	if v.Kind() != value.List {
		return dst, misfit(v, "list")
	}
	var packed []byte
	for i, item := range v.List() {
		var bad *Invalid
		switch {
		case d.message != nil:
			dst, bad = appendSub(dst, d, item, depth)
		case d.packed:
			packed, _, bad = appendScalar(packed, d, item)
		default:
			dst, _, bad = appendScalar(protowire.AppendTag(dst, d.num, wireType(d.kind)), d, item)
		}
		if bad != nil {
			return dst, within(strconv.Itoa(i), bad)
		}
	}
	if len(packed) > 0 {
		dst = protowire.AppendBytes(protowire.AppendTag(dst, d.num, protowire.BytesType), packed)
	}
	return dst, nil
}

func appendMap(dst []byte, d *protoField, v value.Value, depth int) ([]byte, *Invalid) {
	if v.Kind() != value.Object {
		return dst, misfit(v, "map")
	}
	for i := range v.Len() {
		f := v.Field(i)
		key, bad := mapKey(d.mapKey, f.Name)
		if bad != nil {
			return dst, bad
		}
		entry, _, bad := appendScalar(protowire.AppendTag(nil, 1, wireType(d.mapKey.kind)), d.mapKey, key)
		if bad != nil {
			return dst, bad
		}
		val := *d
		val.num, val.mapKey, val.presence = 2, nil, true
		if entry, bad = appendField(entry, &val, f.Value, depth); bad != nil {
			return dst, within(f.Name, bad)
		}
		dst = protowire.AppendBytes(protowire.AppendTag(dst, d.num, protowire.BytesType), entry)
	}
	return dst, nil
}

// mapKey is the key that a field's name stands for.
func mapKey(d *protoField, name string) (value.Value, *Invalid) {
	switch d.kind {
	case protoreflect.StringKind:
		return value.OfString(name), nil
	case protoreflect.BoolKind:
		if name != "true" && name != "false" {
			return value.Value{}, broken("type", "the key %q is no bool", name)
		}
		return value.OfBool(name == "true"), nil
	}
	if n, err := strconv.ParseInt(name, 10, 64); err == nil {
		return value.OfInt(n), nil
	}
	n, err := strconv.ParseUint(name, 10, 64)
	if err != nil {
		return value.Value{}, broken("type", "the key %q is no whole number", name)
	}
	return value.OfUint(n), nil
}

// appendScalar writes a value that is no message, and tells whether it is the default.
func appendScalar(dst []byte, d *protoField, v value.Value) (out []byte, zero bool, bad *Invalid) {
	switch d.kind {
	case protoreflect.BoolKind:
		if v.Kind() != value.Bool {
			return dst, false, misfit(v, "bool")
		}
		return protowire.AppendVarint(dst, protowire.EncodeBool(v.Bool())), !v.Bool(), nil
	case protoreflect.StringKind:
		s, ok := text(v)
		if !ok {
			return dst, false, misfit(v, "string")
		}
		return protowire.AppendString(dst, s), s == "", nil
	case protoreflect.BytesKind:
		if v.Kind() != value.Bytes {
			return dst, false, misfit(v, "bytes")
		}
		return protowire.AppendString(dst, v.Str()), v.Str() == "", nil
	case protoreflect.EnumKind:
		return appendEnum(dst, d.enum, v)
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		f, bad := double(v, d.kind == protoreflect.FloatKind)
		if bad != nil {
			return dst, false, bad
		}
		zero := f == 0 && !math.Signbit(f)
		if d.kind == protoreflect.FloatKind {
			return protowire.AppendFixed32(dst, math.Float32bits(float32(f))), zero, nil
		}
		return protowire.AppendFixed64(dst, math.Float64bits(f)), zero, nil
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		n, ok := v.Uint()
		if !ok {
			return dst, false, misfit(v, "whole number of 64 bits without a sign")
		}
		return appendWhole(dst, d.kind, n), n == 0, nil
	}
	n, ok := v.Int()
	switch {
	case !ok:
		bad = misfit(v, "whole number of 64 bits")
	case d.kind == protoreflect.Uint32Kind || d.kind == protoreflect.Fixed32Kind:
		if n < 0 || n > math.MaxUint32 {
			bad = misfit(v, "whole number of 32 bits without a sign")
		}
	case d.kind == protoreflect.Int32Kind || d.kind == protoreflect.Sint32Kind || d.kind == protoreflect.Sfixed32Kind:
		if n < math.MinInt32 || n > math.MaxInt32 {
			bad = misfit(v, "whole number of 32 bits")
		}
	}
	if bad != nil {
		return dst, false, bad
	}
	return appendWhole(dst, d.kind, uint64(n)), n == 0, nil
}

func appendWhole(dst []byte, kind protoreflect.Kind, n uint64) []byte {
	switch kind {
	case protoreflect.Sint32Kind, protoreflect.Sint64Kind:
		n = protowire.EncodeZigZag(int64(n))
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind:
		return protowire.AppendFixed32(dst, uint32(n))
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind:
		return protowire.AppendFixed64(dst, n)
	}
	return protowire.AppendVarint(dst, n)
}

func appendEnum(dst []byte, e *protoEnum, v value.Value) ([]byte, bool, *Invalid) {
	n := int64(0)
	switch i, isInt := v.Int(); {
	case v.IsNull() && e.name == "google.protobuf.NullValue":
	case v.Kind() == value.String:
		known, there := e.numbers[v.Str()]
		if !there {
			return dst, false, broken("enum", "%s is not one of %s", short(v), strings.Join(e.order[:min(len(e.order), 20)], ", "))
		}
		n = int64(known)
	case isInt && i >= math.MinInt32 && i <= math.MaxInt32:
		if _, there := e.names[int32(i)]; !there && e.closed {
			return dst, false, broken("enum", "%d is no number of %s", i, e.name)
		}
		n = i
	default:
		return dst, false, misfit(v, "symbol of "+e.name)
	}
	return protowire.AppendVarint(dst, uint64(n)), n == 0, nil
}

// appendKnown writes a message of google.protobuf from the value it stands for.
func appendKnown(dst []byte, m *protoMessage, v value.Value, depth int) ([]byte, *Invalid) {
	switch m.known {
	case protoWrapper:
		return appendField(dst, &m.fields[0], v, depth)
	case protoStruct, protoList:
		return appendField(dst, &m.fields[0], v, depth)
	case protoValue:
		return appendAny(dst, m, v, depth)
	}
	var seconds, nanos int64
	ns, ok := v.Nanos()
	if ok = ok && (v.Kind() == value.Duration) == (m.known == protoDuration); ok {
		if seconds, nanos = ns/1e9, ns%1e9; nanos < 0 && m.known == protoTimestamp {
			seconds, nanos = seconds-1, nanos+1e9
		}
	} else if m.known == protoTimestamp && v.Kind() == value.String {
		seconds, nanos, ok = instant(v.Str())
	}
	if !ok {
		return dst, misfit(v, m.name)
	}
	dst, bad := appendField(dst, &m.fields[0], value.OfInt(seconds), depth)
	if bad == nil {
		dst, bad = appendField(dst, &m.fields[1], value.OfInt(nanos), depth)
	}
	return dst, bad
}

// appendAny writes a google.protobuf.Value, whose numbers are doubles.
func appendAny(dst []byte, m *protoMessage, v value.Value, depth int) ([]byte, *Invalid) {
	name := ""
	switch kind := v.Kind(); {
	case kind == value.Null:
		name = "null_value"
	case kind == value.Bool:
		name = "bool_value"
	case kind.Number():
		name = "number_value"
	case kind == value.String:
		name = "string_value"
	case kind == value.List:
		name = "list_value"
	case kind == value.Object:
		name = "struct_value"
	default:
		return dst, misfit(v, m.name)
	}
	i := slices.Index(m.names, name)
	return appendField(dst, &m.fields[i], v, depth+1)
}
