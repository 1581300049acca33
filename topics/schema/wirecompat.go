package schema

import (
	"errors"
	"strings"

	"github.com/twmb/avro"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// avro tells whether Avro resolves what a writer writes to what a reader expects. The
// first thing that it doesn't is told.
func (r *relation) avro(reader, writer *avroSchema) {
	err := avro.CheckCompatibility(writer.parsed, reader.parsed)
	var bad *avro.CompatibilityError
	switch {
	case errors.As(err, &bad):
		at := ""
		if bad.Path != "" {
			at = "/" + strings.ReplaceAll(pointerEscapes.Replace(bad.Path), ".", "/")
		}
		if bad.WriterType == "" {
			r.add(at, "resolution", "%s", bad.Detail)
		} else {
			r.add(at, "resolution", "%s doesn't resolve to %s: %s", bad.WriterType, bad.ReaderType, bad.Detail)
		}
	case err != nil:
		r.add("", "resolution", "%s", firstLine(err.Error()))
	}
}

// proto tells what a reader with one message misreads of what a writer with another
// writes: on the wire, and by the names that conditions use.
func (r *relation) proto(reader, writer *protoMessage, at string, been map[[2]*protoMessage]bool) {
	pair := [2]*protoMessage{reader, writer}
	if been[pair] {
		return
	}
	been[pair] = true
	if reader.known != writer.known {
		r.add(at, "message", "%s became %s or the other way round", writer.name, reader.name)
		return
	}
	for i := range writer.fields {
		w := &writer.fields[i]
		where := at + pointer(w.name, "")
		j, there := reader.byNum[w.num]
		if !there {
			if _, moved := reader.index[w.name]; moved {
				r.add(where, "number", "field %q has another number than %d", w.name, w.num)
			}
			continue // it is passed over
		}
		r.protoField(&reader.fields[j], w, where, been)
	}
	for i := range reader.fields {
		d := &reader.fields[i]
		if j, there := writer.byNum[d.num]; d.required && (!there || !writer.fields[j].required) {
			r.add(at, "required", "field %q may be missing", d.name)
		}
	}
}

func (r *relation) protoField(d, w *protoField, at string, been map[[2]*protoMessage]bool) {
	if d.name != w.name {
		r.add(at, "name", "number %d is %q with one and %q with the other", d.num, w.name, d.name)
	}
	if (d.mapKey == nil) != (w.mapKey == nil) || d.mapKey != nil && !widens(w.mapKey.kind, d.mapKey.kind) {
		r.add(at, "map", "a map, or its keys, became something else")
		return
	}
	if w.list && !d.list {
		r.add(at, "cardinality", "of many only the last is read")
	}
	if (w.oneof >= 0) != (d.oneof >= 0) {
		r.unknown(at, "oneof", "whether it is set beside others of the oneof can't be told")
	}
	switch {
	case d.message != nil && w.message != nil && d.kind == w.kind:
		r.proto(d.message, w.message, at, been)
	case d.enum != nil && w.enum != nil:
		r.protoEnum(d.enum, w.enum, at)
	case d.message != nil || w.message != nil || !widens(w.kind, d.kind):
		r.add(at, "type", "what is written as %s is misread as %s", w.kind, d.kind)
	}
}

func (r *relation) protoEnum(d, w *protoEnum, at string) {
	for _, name := range w.order {
		n := w.numbers[name]
		known, there := d.names[n]
		switch {
		case there && known != name:
			r.add(at, "enum", "number %d is %s with one and %s with the other", n, name, known)
		case !there && d.closed:
			r.add(at, "enum", "the symbol %s is not known, and is read as not set", name)
		}
	}
}

// widens tells whether every value of one kind is read as the same with another.
func widens(from, to protoreflect.Kind) bool {
	if from == to {
		return true
	}
	for _, pair := range [...][2]protoreflect.Kind{
		{protoreflect.Int32Kind, protoreflect.Int64Kind},
		{protoreflect.Uint32Kind, protoreflect.Uint64Kind},
		{protoreflect.Uint32Kind, protoreflect.Int64Kind},
		{protoreflect.Sint32Kind, protoreflect.Sint64Kind},
		{protoreflect.BoolKind, protoreflect.Int32Kind},
		{protoreflect.BoolKind, protoreflect.Int64Kind},
		{protoreflect.BoolKind, protoreflect.Uint32Kind},
		{protoreflect.BoolKind, protoreflect.Uint64Kind},
		{protoreflect.EnumKind, protoreflect.Int32Kind},
		{protoreflect.EnumKind, protoreflect.Int64Kind},
		{protoreflect.StringKind, protoreflect.BytesKind},
	} {
		if pair[0] == from && pair[1] == to {
			return true
		}
	}
	return false
}
