package schema

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/heraldmq/herald/topics/value"
)

// CodecTextMax is how many bytes the naming of a codec may have.
const CodecTextMax = 64 << 10

// ReadCodec reads how filters and operators name the codec of payloads that have a
// schema. It is an object, of JSON or YAML:
//
//	{avro: {type: record, …}, framing: raw}
//	{protobuf: 'syntax = "proto3"; …', message: shop.Order}
//	{avro: {type: record, …}, framing: confluent, id: 7, writers: {5: {type: record, …}}}
//
// An Avro schema may also be a string: the schema's JSON, or the name of a type.
func ReadCodec(v value.Value) (Source, error) {
	var src Source
	if v.Kind() != value.Object {
		return src, fmt.Errorf("a codec with a schema is an object; this is: %s", v.Kind())
	}
	for i := range v.Len() {
		f := v.Field(i)
		format := Format(f.Name)
		switch {
		case src.Format != "" && (format == Avro || format == Protobuf):
			return src, fmt.Errorf("a codec is avro or protobuf, not both")
		case format == Avro:
			src.Format, src.Text = Avro, avroText(f.Value)
		case format == Protobuf:
			if f.Value.Kind() != value.String {
				return src, fmt.Errorf("protobuf: it is the text of a .proto file, or a FileDescriptorSet in base64; this is: %s", f.Value.Kind())
			}
			src.Format, src.Text = Protobuf, f.Value.Str()
		case f.Name == "message" && f.Value.Kind() == value.String:
			src.Message = f.Value.Str()
		case f.Name == "framing" && f.Value.Kind() == value.String:
			src.Framing = Framing(f.Value.Str())
		case f.Name == "id" && (f.Value.Kind() == value.Int || f.Value.Kind() == value.String):
			src.ID = f.Value.Str()
			if f.Value.Kind() == value.Int {
				src.ID = f.Value.String()
			}
		case f.Name == "writers" && (f.Value.Kind() == value.Object || f.Value.Kind() == value.List):
			src.Writers = f.Value.String()
		default:
			return src, fmt.Errorf("a codec has avro, framing, id and writers, or protobuf, message, framing and id; %s with a %s is something else", f.Name, f.Value.Kind())
		}
	}
	switch {
	case src.Format == "":
		return src, fmt.Errorf("a codec with a schema has avro or protobuf")
	case len(src.Text)+len(src.Writers) > CodecTextMax:
		return src, fmt.Errorf("the schemas have %d bytes, and a codec may have %d", len(src.Text)+len(src.Writers), CodecTextMax)
	}
	return src, nil
}

func avroText(v value.Value) string {
	if text := strings.TrimSpace(v.Str()); text != "" && strings.ContainsRune(`{["`, rune(text[0])) && json.Valid([]byte(text)) {
		return text
	}
	return v.String()
}

// ParseCodec is ReadCodec of JSON.
func ParseCodec(text string) (Source, error) {
	if len(text) > 4*CodecTextMax {
		return Source{}, fmt.Errorf("the codec has %d bytes, which is too much", len(text))
	}
	v, err := value.Parse([]byte(strings.TrimSpace(text)), value.Options{})
	if err != nil {
		return Source{}, fmt.Errorf("the codec is no JSON: %w", err)
	}
	return ReadCodec(v)
}

// Codec names the codec of a source in the one form that ParseCodec reads the source
// from again.
func (s Source) Codec() value.Value {
	text := value.OfString(s.Text)
	if s.Format == Avro {
		if v, err := value.Parse([]byte(s.Text), value.Options{}); err == nil {
			text = v
		}
	}
	fields := []value.Field{{Name: string(s.Format), Value: text}}
	if s.Message != "" {
		fields = append(fields, value.Field{Name: "message", Value: value.OfString(s.Message)})
	}
	if s.Framing != "" {
		fields = append(fields, value.Field{Name: "framing", Value: value.OfString(string(s.Framing))})
	}
	if s.ID != "" {
		fields = append(fields, value.Field{Name: "id", Value: value.OfString(s.ID)})
	}
	if s.Writers != "" {
		if v, err := value.Parse([]byte(s.Writers), value.Options{}); err == nil {
			fields = append(fields, value.Field{Name: "writers", Value: v})
		}
	}
	return value.OfObject(fields...)
}
