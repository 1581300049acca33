package schema

import (
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/heraldmq/herald/topics/value"
)

// protoReader reads one payload.
type protoReader struct{ left int } // values that may still be made

func notProto(format string, args ...any) *Invalid { return broken("encoding", format, args...) }

const errProtoEnd = "it ends within a field, or is no Protobuf"

// filling is what has been read of one message.
type filling struct {
	values []value.Value
	lists  [][]value.Value
	maps   []*mapFilling
	parts  []string // of messages: their bytes, one after the other
	set    []bool
}

type mapFilling struct {
	names  []string
	values []value.Value
	index  map[string]int
}

// message reads a message from all of s.
func (r *protoReader) message(m *protoMessage, s string, depth int) (value.Value, *Invalid) {
	if depth > value.DepthMax {
		return value.Value{}, notProto("more than %d levels", value.DepthMax)
	}
	if r.left -= 1 + len(m.fields); r.left < 0 {
		return value.Value{}, notProto("it has more values than may be made of its bytes")
	}
	f := &filling{values: make([]value.Value, len(m.fields)), set: make([]bool, len(m.fields))}
	for len(s) > 0 {
		num, typ, rest, ok := fieldTag(s)
		if !ok {
			return value.Value{}, notProto("%s", errProtoEnd)
		}
		raw, next, ok := rawField(num, typ, rest, 0)
		if !ok {
			return value.Value{}, notProto("%s", errProtoEnd)
		}
		s = next
		i, known := m.byNum[num]
		if !known {
			continue // of a newer version
		}
		if bad := r.field(m, f, i, typ, raw, depth); bad != nil {
			return value.Value{}, within(m.fields[i].name, bad)
		}
	}
	return r.finish(m, f, depth)
}

func within(name string, bad *Invalid) *Invalid {
	bad.Pointer = pointer(name, bad.Pointer)
	return bad
}

// field takes one occurrence of a field.
func (r *protoReader) field(m *protoMessage, f *filling, i int, typ protowire.Type, raw string, depth int) *Invalid {
	d := &m.fields[i]
	switch {
	case d.mapKey != nil:
		return r.entry(m, f, i, typ, raw, depth)
	case d.list:
		return r.items(m, f, i, typ, raw, depth)
	case d.message != nil:
		if typ != protowire.BytesType && typ != protowire.StartGroupType {
			return notProto("wire type %d where a message should be", typ)
		}
		f.choose(m, i)
		if f.parts == nil {
			f.parts = make([]string, len(m.fields))
		}
		if f.set[i] && len(f.parts[i]) > 0 && len(raw) > 0 {
			// Twice is the same as both in one. It is unusual: what it costs is bounded by
			// the values that copies count as.
			if r.left -= len(f.parts[i]) / 16; r.left < 0 {
				return notProto("a message that comes in too many parts")
			}
			if !wellFormed(f.parts[i]) || !wellFormed(raw) {
				return notProto("%s", errProtoEnd)
			}
			raw = f.parts[i] + raw
		} else if len(raw) == 0 {
			raw = f.parts[i]
		}
		f.parts[i], f.set[i] = raw, true
		return nil
	}
	v, known, bad := r.scalar(d, typ, raw)
	if bad != nil || !known {
		return bad
	}
	f.choose(m, i)
	f.values[i], f.set[i] = v, true
	return nil
}

// choose forgets the others of a oneof.
func (f *filling) choose(m *protoMessage, i int) {
	if m.fields[i].oneof < 0 || f.set[i] {
		return
	}
	for j := range m.fields {
		if j != i && m.fields[j].oneof == m.fields[i].oneof {
			f.set[j] = false
			if f.parts != nil {
				f.parts[j] = ""
			}
		}
	}
}

// items takes one or more items of a list.
func (r *protoReader) items(m *protoMessage, f *filling, i int, typ protowire.Type, raw string, depth int) *Invalid {
	d := &m.fields[i]
	if f.lists == nil {
		f.lists = make([][]value.Value, len(m.fields))
	}
	f.set[i] = true
	if d.message != nil {
		if typ != protowire.BytesType && typ != protowire.StartGroupType {
			return notProto("wire type %d where a message should be", typ)
		}
		v, bad := r.message(d.message, raw, depth+1)
		if bad != nil {
			return within(strconv.Itoa(len(f.lists[i])), bad)
		}
		f.lists[i] = append(f.lists[i], v)
		return nil
	}
	if typ != protowire.BytesType || d.kind == protoreflect.StringKind || d.kind == protoreflect.BytesKind {
		return r.item(f, i, d, typ, raw)
	}
	for one := wireType(d.kind); len(raw) > 0; {
		item, next, ok := rawField(0, one, raw, 0)
		if !ok {
			return notProto("%s", errProtoEnd)
		}
		if bad := r.item(f, i, d, one, item); bad != nil {
			return bad
		}
		raw = next
	}
	return nil
}

func (r *protoReader) item(f *filling, i int, d *protoField, typ protowire.Type, raw string) *Invalid {
	v, known, bad := r.scalar(d, typ, raw)
	if bad != nil {
		return within(strconv.Itoa(len(f.lists[i])), bad)
	}
	if r.left--; r.left < 0 {
		return notProto("it has more values than may be made of its bytes")
	}
	if known {
		f.lists[i] = append(f.lists[i], v)
	}
	return nil
}

// entry takes an entry of a map; of those with the same key the last counts.
func (r *protoReader) entry(m *protoMessage, f *filling, i int, typ protowire.Type, raw string, depth int) *Invalid {
	d := &m.fields[i]
	if typ != protowire.BytesType {
		return notProto("wire type %d where an entry should be", typ)
	}
	if r.left -= 2; r.left < 0 {
		return notProto("it has more values than may be made of its bytes")
	}
	key, v, known := d.mapKey.zero, d.zero, true
	parts := ""
	for len(raw) > 0 {
		num, kind, rest, ok := fieldTag(raw)
		if !ok {
			return notProto("%s", errProtoEnd)
		}
		part, next, ok := rawField(num, kind, rest, 0)
		if !ok {
			return notProto("%s", errProtoEnd)
		}
		raw = next
		var bad *Invalid
		switch {
		case num == 1:
			key, _, bad = r.scalar(d.mapKey, kind, part)
		case num == 2 && d.message != nil && kind == protowire.BytesType:
			parts = part // maps' writers never split it
		case num == 2 && d.message != nil:
			bad = notProto("wire type %d where a message should be", kind)
		case num == 2:
			v, known, bad = r.scalar(d, kind, part)
		}
		if bad != nil {
			return bad
		}
	}
	name := key.Str()
	if key.Kind() != value.String {
		name = key.String()
	}
	if d.message != nil {
		var bad *Invalid
		if v, bad = r.message(d.message, parts, depth+1); bad != nil {
			return within(name, bad)
		}
	}
	if !known {
		return nil
	}
	if f.maps == nil {
		f.maps = make([]*mapFilling, len(m.fields))
	}
	to := f.maps[i]
	if to == nil {
		to = &mapFilling{index: map[string]int{}}
		f.maps[i], f.set[i] = to, true
	}
	if at, there := to.index[name]; there {
		to.values[at] = v
		return nil
	}
	to.index[name] = len(to.names)
	to.names, to.values = append(to.names, name), append(to.values, v)
	return nil
}

// finish makes the message's value of what was read.
func (r *protoReader) finish(m *protoMessage, f *filling, depth int) (value.Value, *Invalid) {
	missing := 0
	for i := range m.fields {
		d := &m.fields[i]
		switch {
		case d.mapKey != nil && f.set[i]:
			f.values[i] = value.OfFields(f.maps[i].names, f.maps[i].values)
		case d.mapKey != nil:
			f.values[i] = value.OfFields(nil, nil)
		case d.list && f.set[i]:
			f.values[i] = value.OfList(f.lists[i])
		case d.list:
			f.values[i] = value.OfList(nil)
		case d.message != nil && f.set[i]:
			var bad *Invalid
			if f.values[i], bad = r.message(d.message, f.parts[i], depth+1); bad != nil {
				return value.Value{}, within(d.name, bad)
			}
		case f.set[i]:
		case d.required:
			return value.Value{}, broken("required", "field %q of %s is missing", d.name, m.name)
		case d.presence:
			missing++
			continue
		default:
			f.values[i] = d.zero
		}
		if d.list || d.mapKey != nil || !d.presence {
			f.set[i] = true
		}
	}
	if m.known != notKnown {
		return wellKnownValue(m, f)
	}
	if missing == 0 {
		return value.OfFields(m.names, f.values), nil
	}
	names, values := make([]string, 0, len(m.fields)-missing), f.values[:0]
	for i, is := range f.set {
		if is {
			names, values = append(names, m.names[i]), append(values, f.values[i])
		}
	}
	return value.OfFields(names, values), nil
}

// wellKnownValue is what a message of google.protobuf says. Its fields are by number.
func wellKnownValue(m *protoMessage, f *filling) (value.Value, *Invalid) {
	switch m.known {
	case protoWrapper:
		return f.values[0], nil
	case protoStruct, protoList:
		return f.values[0], nil
	case protoValue:
		for i, is := range f.set {
			if is {
				return f.values[i], nil
			}
		}
		return value.Value{}, nil
	}
	seconds, _ := f.values[0].Int()
	nanos, _ := f.values[1].Int()
	const most = math.MaxInt64/1_000_000_000 - 1
	if nanos <= -1e9 || nanos >= 1e9 || m.known == protoTimestamp && nanos < 0 {
		return value.Value{}, notProto("%d nanoseconds in a %s", nanos, m.name)
	}
	switch {
	case m.known == protoDuration && seconds > -most && seconds < most:
		return value.OfDuration(time.Duration(seconds*1e9 + nanos)), nil
	case m.known == protoDuration:
		return value.Value{}, notProto("a duration of %d seconds is out of range: 292 years", seconds)
	}
	return timeOrText(seconds, nanos)
}

// timeOrText is a timestamp, or text as in RFC 3339 where a timestamp can't hold it.
func timeOrText(seconds, nanos int64) (value.Value, *Invalid) {
	const most = math.MaxInt64/1_000_000_000 - 1
	switch {
	case seconds > -most && seconds < most:
		return value.OfNanos(seconds*1e9 + nanos), nil
	case seconds < -62135596800 || seconds > 253402300799:
		return value.Value{}, notProto("a time of %d seconds is out of range: years 1 to 9999", seconds)
	}
	return value.OfString(time.Unix(seconds, nanos).UTC().Format(time.RFC3339Nano)), nil
}

// scalar makes a value of a field's bytes. known is false for a number that a closed enum
// doesn't have.
func (r *protoReader) scalar(d *protoField, typ protowire.Type, raw string) (v value.Value, known bool, bad *Invalid) {
	if want := wireType(d.kind); typ != want {
		return v, false, notProto("wire type %d where a %s should be", typ, d.kind)
	}
	n := uint64(0)
	switch typ {
	case protowire.VarintType:
		n, _, _ = uvarint(raw)
	case protowire.Fixed32Type:
		for i := 3; i >= 0; i-- {
			n = n<<8 | uint64(raw[i])
		}
	case protowire.Fixed64Type:
		for i := 7; i >= 0; i-- {
			n = n<<8 | uint64(raw[i])
		}
	}
	switch d.kind {
	case protoreflect.BoolKind:
		return value.OfBool(n != 0), true, nil
	case protoreflect.EnumKind:
		_, has := d.enum.names[int32(n)]
		return d.enum.value(int32(n)), has || !d.enum.closed, nil
	case protoreflect.Int32Kind, protoreflect.Sfixed32Kind:
		return value.OfInt(int64(int32(n))), true, nil
	case protoreflect.Sint32Kind:
		return value.OfInt(protowire.DecodeZigZag(n & math.MaxUint32)), true, nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return value.OfInt(int64(uint32(n))), true, nil
	case protoreflect.Int64Kind, protoreflect.Sfixed64Kind:
		return value.OfInt(int64(n)), true, nil
	case protoreflect.Sint64Kind:
		return value.OfInt(protowire.DecodeZigZag(n)), true, nil
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return value.OfUint(n), true, nil
	case protoreflect.FloatKind:
		return value.OfDouble(float64(math.Float32frombits(uint32(n)))), true, nil
	case protoreflect.DoubleKind:
		return value.OfDouble(math.Float64frombits(n)), true, nil
	case protoreflect.StringKind:
		if !utf8.ValidString(raw) {
			return v, false, notProto("a string that is not UTF-8")
		}
		return value.OfString(raw), true, nil
	}
	return value.OfBytes([]byte(raw)), true, nil
}

func wireType(k protoreflect.Kind) protowire.Type {
	switch k {
	case protoreflect.Sfixed32Kind, protoreflect.Fixed32Kind, protoreflect.FloatKind:
		return protowire.Fixed32Type
	case protoreflect.Sfixed64Kind, protoreflect.Fixed64Kind, protoreflect.DoubleKind:
		return protowire.Fixed64Type
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType
	case protoreflect.GroupKind:
		return protowire.StartGroupType
	}
	return protowire.VarintType
}

// uvarint reads a number of at most 64 bits.
func uvarint(s string) (n uint64, rest string, ok bool) {
	for i := 0; i < len(s) && i < 10; i++ {
		c := s[i]
		if i == 9 && c > 1 {
			return 0, "", false
		}
		n |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return n, s[i+1:], true
		}
	}
	return 0, "", false
}

// fieldTag reads what stands in front of a field.
func fieldTag(s string) (num protowire.Number, typ protowire.Type, rest string, ok bool) {
	tag, rest, ok := uvarint(s)
	num = protowire.Number(min(tag>>3, math.MaxInt32))
	return num, protowire.Type(tag & 7), rest, ok && num.IsValid()
}

// rawField splits s behind the bytes of a field; of a group they are what is in it.
func rawField(num protowire.Number, typ protowire.Type, s string, depth int) (raw, rest string, ok bool) {
	switch typ {
	case protowire.VarintType:
		_, rest, ok = uvarint(s)
		return s[:len(s)-len(rest)], rest, ok
	case protowire.Fixed32Type:
		if len(s) < 4 {
			return "", "", false
		}
		return s[:4], s[4:], true
	case protowire.Fixed64Type:
		if len(s) < 8 {
			return "", "", false
		}
		return s[:8], s[8:], true
	case protowire.BytesType:
		n, rest, ok := uvarint(s)
		if !ok || n > uint64(len(rest)) {
			return "", "", false
		}
		return rest[:n], rest[n:], true
	case protowire.StartGroupType:
		return rawGroup(num, s, depth)
	}
	return "", "", false
}

// wellFormed tells whether s is whole fields.
func wellFormed(s string) bool {
	for len(s) > 0 {
		num, typ, rest, ok := fieldTag(s)
		if !ok {
			return false
		}
		if _, s, ok = rawField(num, typ, rest, 0); !ok {
			return false
		}
	}
	return true
}

func rawGroup(num protowire.Number, s string, depth int) (raw, rest string, ok bool) {
	if depth > value.DepthMax {
		return "", "", false
	}
	rest = s
	for len(rest) > 0 {
		before := rest
		inner, typ, next, ok := fieldTag(rest)
		if !ok {
			return "", "", false
		}
		if typ == protowire.EndGroupType {
			return s[:len(s)-len(before)], next, inner == num
		}
		if _, rest, ok = rawField(inner, typ, next, depth+1); !ok {
			return "", "", false
		}
	}
	return "", "", false
}

func sortedNumbers[V any](m map[protowire.Number]V) []protowire.Number {
	out := make([]protowire.Number, 0, len(m))
	for n := range m {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}
