package schema

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/heraldmq/herald/topics/value"
)

// written is a payload of a schema, without a mark.
func written(t *testing.T, schema, json string) []byte {
	t.Helper()
	s, err := Compile(Source{Format: Avro, Text: schema, Framing: Raw})
	if err != nil {
		t.Fatalf("%s: %v", schema, err)
	}
	v, err := value.Parse([]byte(json), value.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(schema, `"bytes"`) || strings.Contains(schema, `"fixed"`) {
		v = value.OfBytes([]byte("hi"))
	}
	b, err := s.Append(nil, v)
	if err != nil {
		t.Fatalf("%s of %s: %v", json, schema, err)
	}
	return b
}

func confluent(id uint32, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, id), body...)
}

// The rules are those of "Schema Resolution" in Avro's specification 1.11.
func TestAvroResolution(t *testing.T) {
	rec := func(fields string) string { return `{"type":"record","name":"R","fields":[` + fields + `]}` }
	enum := func(symbols, more string) string {
		return `{"type":"enum","name":"E","symbols":[` + symbols + `]` + more + `}`
	}
	for _, c := range []struct{ rule, writer, reader, in, want string }{
		{"the same", `"int"`, `"int"`, `7`, `7`},
		{"int is promoted to long", `"int"`, `"long"`, `7`, `7`},
		{"int is promoted to float", `"int"`, `"float"`, `7`, `7`},
		{"int is promoted to double", `"int"`, `"double"`, `7`, `7`},
		{"long is promoted to float", `"long"`, `"float"`, `16777217`, `16777216`},
		{"long is promoted to double", `"long"`, `"double"`, `16777217`, `16777217`},
		{"float is promoted to double", `"float"`, `"double"`, `1.5`, `1.5`},
		{"string is promoted to bytes", `"string"`, `"bytes"`, `"hi"`, `"aGk="`},
		{"bytes is promoted to string", `"bytes"`, `"string"`, `"aGk="`, `"hi"`},
		{"fields in another order", rec(`{"name":"a","type":"int"},{"name":"b","type":"string"}`), rec(`{"name":"b","type":"string"},{"name":"a","type":"long"}`), `{"a":1,"b":"x"}`, `{"b":"x","a":1}`},
		{"the writer's field is ignored", rec(`{"name":"a","type":"int"},{"name":"gone","type":{"type":"array","items":"string"}},{"name":"b","type":"int"}`), rec(`{"name":"b","type":"int"}`), `{"a":1,"gone":["x","y"],"b":2}`, `{"b":2}`},
		{"the reader's default", rec(`{"name":"a","type":"int"}`), rec(`{"name":"a","type":"int"},{"name":"b","type":{"type":"array","items":"int"},"default":[1,2]},{"name":"c","type":["null","string"],"default":null}`), `{"a":1}`, `{"a":1,"b":[1,2],"c":null}`},
		{"a default with a meaning", rec(``), rec(`{"name":"t","type":{"type":"long","logicalType":"timestamp-millis"},"default":0}`), `{}`, `{"t":"1970-01-01T00:00:00Z"}`},
		{"an alias of a field", rec(`{"name":"old","type":"int"}`), rec(`{"name":"new","type":"long","aliases":["old"]}`), `{"old":5}`, `{"new":5}`},
		{"an alias of a record", `{"type":"record","name":"a.Old","fields":[{"name":"x","type":"int"}]}`, `{"type":"record","name":"b.New","aliases":["a.Old"],"fields":[{"name":"x","type":"int"}]}`, `{"x":1}`, `{"x":1}`},
		{"another namespace", `{"type":"record","name":"a.R","fields":[]}`, `{"type":"record","name":"b.R","fields":[]}`, `{}`, `{}`},
		{"symbols by name", enum(`"A","B"`, ""), enum(`"B","C","A"`, ""), `"B"`, `"B"`},
		{"the enum's default", enum(`"A","B"`, ""), enum(`"A","Z"`, `,"default":"Z"`), `"B"`, `"Z"`},
		{"items", `{"type":"array","items":"int"}`, `{"type":"array","items":"double"}`, `[1,2]`, `[1,2]`},
		{"values", `{"type":"map","values":"int"}`, `{"type":"map","values":"long"}`, `{"k":1}`, `{"k":1}`},
		{"both unions", `["null","int"]`, `["string","long","null"]`, `3`, `3`},
		{"the reader's is a union", `"int"`, `["string","double"]`, `3`, `3`},
		{"the same type goes before a wider one", `"int"`, `["double","int"]`, `3`, `3`},
		{"the writer's is a union", `["string","int"]`, `"long"`, `3`, `3`},
		{"a fixed of the same size", `{"type":"fixed","name":"F","size":2}`, `{"type":"fixed","name":"x.F","size":2}`, `"aGk="`, `"aGk="`},
		{"a record in itself", rec(`{"name":"v","type":"int"},{"name":"next","type":["null","R"]}`), rec(`{"name":"next","type":["null","R"]},{"name":"v","type":"double"},{"name":"w","type":"int","default":9}`), `{"v":1,"next":{"v":2,"next":null}}`, `{"next":{"next":null,"v":2,"w":9},"v":1,"w":9}`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			payload := written(t, c.writer, c.in)
			s, err := Compile(Source{Format: Avro, Text: c.reader, Framing: Confluent, ID: "1", Writers: `{"2":` + c.writer + `}`})
			if err != nil {
				t.Fatal(err)
			}
			v, err := s.Decode(confluent(2, payload))
			if err != nil || v.String() != c.want {
				t.Errorf("read as %s, %v, wanted %s", v.String(), err, c.want)
			}
			if wide := c.reader == `"double"` || c.reader == `"float"`; wide != (v.Kind() == value.Double) && !strings.Contains(c.reader, "double") {
				t.Errorf("read as a %s", v.Kind())
			}
			// And by the fingerprint of single object encoding.
			w, err := Compile(Source{Format: Avro, Text: c.writer})
			if err != nil {
				t.Fatal(err)
			}
			if s, err = Compile(Source{Format: Avro, Text: c.reader, Writers: `[` + c.writer + `]`}); err != nil {
				t.Fatal(err)
			}
			marked := binary.LittleEndian.AppendUint64([]byte{0xc3, 0x01}, w.Fingerprint())
			if v, err := s.Decode(append(marked, payload...)); err != nil || v.String() != c.want && c.writer != c.reader {
				t.Errorf("marked: read as %s, %v, wanted %s", v.String(), err, c.want)
			}
		})
	}
}

func TestAvroThatDoesNotResolveIsRefused(t *testing.T) {
	rec := func(fields string) string { return `{"type":"record","name":"R","fields":[` + fields + `]}` }
	for _, c := range []struct{ writer, reader, want string }{
		{`"long"`, `"int"`, "a long can't be read as a int"},
		{`"string"`, `"int"`, "a string can't be read as a int"},
		{`"double"`, `"float"`, "can't be read"},
		{rec(``), rec(`{"name":"a","type":"int"}`), "/a: the writer has no such field, and it has no default"},
		{rec(`{"name":"a","type":"string"}`), rec(`{"name":"a","type":"int"}`), "/a: a string can't"},
		{rec(``), `{"type":"record","name":"Other","fields":[]}`, "record R can't be read as a record Other"},
		{`{"type":"fixed","name":"F","size":2}`, `{"type":"fixed","name":"F","size":3}`, "2 bytes"},
		{`"int"`, `["string","null"]`, "no branch for a int"},
		{`{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}`, `{"type":"bytes","logicalType":"decimal","precision":9,"scale":3}`, "decimal of 9 digits, 2 behind"},
	} {
		_, err := Compile(Source{Format: Avro, Text: c.reader, Writers: `[` + c.writer + `]`})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "/writers/0") {
			t.Errorf("%s by %s: %v, wanted %q", c.writer, c.reader, err, c.want)
		}
	}
	// Of a writer's union a branch matters only when a payload has it.
	if _, err := Compile(Source{Format: Avro, Text: `"int"`, Framing: Confluent, Writers: `{"4":["int","string"],"5":{"type":"enum","name":"E","symbols":["A"]}}`}); err == nil {
		t.Error("an enum is read as an int")
	}
	s, err := Compile(Source{Format: Avro, Text: `"int"`, Framing: Confluent, Writers: `{"4":["int","string"]}`})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := s.Decode(confluent(4, []byte{0, 6})); err != nil || v.String() != "3" {
		t.Errorf("the branch that fits: %v, %v", v, err)
	}
	if _, err := s.Decode(confluent(4, []byte{2, 2, 'x'})); err == nil || !strings.Contains(err.Error(), "a string can't be read") {
		t.Errorf("the branch that doesn't: %v", err)
	}
	one := `{"type":"enum","name":"E","symbols":["A","B"]}`
	if s, err = Compile(Source{Format: Avro, Text: `{"type":"enum","name":"E","symbols":["A"]}`, Framing: Confluent, Writers: `{"4":` + one + `}`}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Decode(confluent(4, []byte{2})); err == nil || !strings.Contains(err.Error(), "B is no symbol") {
		t.Errorf("a symbol nobody knows: %v", err)
	}
}

func TestConfluentFraming(t *testing.T) {
	file := `syntax = "proto3"; package p; message A { int32 a = 1; message In { int32 b = 1; } } message B { int32 c = 1; }`
	for _, c := range []struct {
		name string
		src  Source
		in   string
		want []byte // begins with
	}{
		{"avro", Source{Format: Avro, Text: `"long"`, ID: "258"}, `5`, []byte{0, 0, 0, 1, 2, 10}},
		{"the first message", Source{Format: Protobuf, Text: file, Message: "p.A", ID: "7"}, `{"a":5}`, []byte{0, 0, 0, 0, 7, 0, 8, 5}},
		{"the second message", Source{Format: Protobuf, Text: file, Message: "p.B", ID: "7"}, `{"c":5}`, []byte{0, 0, 0, 0, 7, 2, 2, 8, 5}},
		{"a message in a message", Source{Format: Protobuf, Text: file, Message: "p.A.In", ID: "7"}, `{"b":5}`, []byte{0, 0, 0, 0, 7, 4, 0, 0, 8, 5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.src.Framing = Confluent
			s, err := Compile(c.src)
			if err != nil {
				t.Fatal(err)
			}
			v, err := value.Parse([]byte(c.in), value.Options{})
			if err != nil {
				t.Fatal(err)
			}
			b, err := s.Append(nil, v)
			if err != nil || string(b) != string(c.want) {
				t.Fatalf("wrote % x, %v, wanted % x", b, err, c.want)
			}
			if got, err := s.Decode(b); err != nil || got.String() != c.in {
				t.Errorf("read %s, %v", got.String(), err)
			}
			if err := s.Validate(b); err != nil {
				t.Error(err)
			}
			for what, bad := range map[string][]byte{"known are": confluent(9, b[5:]), "begin with 0": append([]byte{1}, b[1:]...), "does not begin": {0, 0, 0}} {
				if err := s.Validate(bad); err == nil || !strings.Contains(err.Error(), what) {
					t.Errorf("% x: %v, wanted %q", bad, err, what)
				}
			}
			again, err := ParseCodec(c.src.Codec().String())
			if err != nil || again.Digest() != c.src.Digest() {
				t.Errorf("the codec reads back as %+v, %v", again, err)
			}
			// Without an id any is read, and none can be written.
			c.src.ID = ""
			if s, err = Compile(c.src); err != nil {
				t.Fatal(err)
			}
			if err := s.Validate(confluent(9, b[5:])); err != nil {
				t.Errorf("of any id: %v", err)
			}
			if _, err := s.Append(nil, v); err == nil || !strings.Contains(err.Error(), "names no id") {
				t.Errorf("written without an id: %v", err)
			}
		})
	}
	s, err := Compile(Source{Format: Protobuf, Text: file, Message: "p.A", Framing: Confluent, ID: "7"})
	if err != nil {
		t.Fatal(err)
	}
	for what, bad := range map[string][]byte{
		"message [1] of its file": {0, 0, 0, 0, 7, 2, 2, 8, 5}, "ends before": {0, 0, 0, 0, 7}, "messages deep": {0, 0, 0, 0, 7, 1, 2},
	} {
		if err := s.Validate(bad); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("% x: %v, wanted %q", bad, err, what)
		}
	}
	if err := s.Validate([]byte{0, 0, 0, 0, 7, 2, 0, 8, 5}); err != nil {
		t.Errorf("the first message in the long form: %v", err)
	}
	for i, src := range []Source{
		{Format: JSONSchema, Text: `{}`, Framing: Confluent},
		{Format: Avro, Text: `"int"`, ID: "1"},
		{Format: Avro, Text: `"int"`, Framing: Confluent, ID: "x"},
		{Format: Avro, Text: `"int"`, Framing: Confluent, Writers: `["int"]`},
		{Format: Avro, Text: `"int"`, Writers: `{"1":"int"}`},
		{Format: Avro, Text: `"int"`, Framing: Raw, Writers: `["int"]`},
		{Format: Protobuf, Text: file, Message: "p.A", Writers: `[]`},
		{Format: Avro, Text: `"int"`, Framing: Confluent, Writers: `{"a":"int"}`},
	} {
		if _, err := Compile(src); err == nil {
			t.Errorf("source %d is taken: %+v", i, src)
		}
	}
	codec := `{"avro":"long","framing":"confluent","id":7,"writers":{"5":"int"}}`
	src, err := ParseCodec(codec)
	if err != nil || src.ID != "7" || src.Writers != `{"5":"int"}` || fmt.Sprint(src.Framing) != "confluent" {
		t.Errorf("read %+v, %v", src, err)
	}
}
