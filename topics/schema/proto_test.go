package schema

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/heraldmq/herald/topics/value"
)

func mustProto(t testing.TB, text, message string) *Schema {
	t.Helper()
	s, err := Compile(Source{Format: Protobuf, Text: text, Message: message})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const orderProto = `syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
enum State { NEW = 0; PAID = 1; SENT = 2; }
message Order {
  uint64 id = 1;
  string customer = 2;
  repeated Line lines = 3;
  State state = 4;
  optional int32 rank = 5;
  google.protobuf.Timestamp at = 6;
  google.protobuf.Duration took = 7;
  map<string, int64> counts = 8;
  map<int32, Line> by_place = 9;
  oneof payment { string card = 10; Line cash = 11; bool free = 12; }
  google.protobuf.Int64Value limit = 13;
  google.protobuf.Struct extra = 14;
  bytes token = 15;
  repeated sint32 steps = 16;
  repeated State states = 17;
  double price = 18;
  float weight = 19;
  Order parent = 20;
  fixed64 f64 = 21;
  sfixed32 s32 = 22;
  sint64 s64 = 23;
  message Line { string sku = 1; int64 qty = 2; }
}
message Other { Order order = 1; }
`

// theirs is a message in the module's JSON, as bytes.
func theirs(t *testing.T, s *Schema, json string) []byte {
	t.Helper()
	m := dynamicpb.NewMessage(s.codec.(*protoSchema).desc)
	if err := protojson.Unmarshal([]byte(json), m); err != nil {
		t.Fatal(err)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const orderZeros = `"lines":[],"state":"NEW","counts":{},"by_place":{},"steps":[],"states":[],"price":0,"weight":0,"f64":0,"s32":0,"s64":0`

// TestProtobufReadsWhatOthersWrite: the module writes, we read.
func TestProtobufReadsWhatOthersWrite(t *testing.T) {
	s := mustProto(t, orderProto, "shop.Order")
	for _, c := range []struct{ json, field, want string }{
		{`{"id":"18446744073709551615"}`, "id", `18446744073709551615`},
		{`{}`, "id", `0`},
		{`{}`, "customer", `""`},
		{`{}`, "lines", `[]`},
		{`{}`, "state", `"NEW"`},
		{`{}`, "counts", `{}`},
		{`{}`, "rank", ``},
		{`{"rank":0}`, "rank", `0`},
		{`{"rank":-5}`, "rank", `-5`},
		{`{}`, "at", ``},
		{`{"at":"2026-01-31T08:00:00.000000001Z"}`, "at", `"2026-01-31T08:00:00.000000001Z"`},
		{`{"at":"1969-12-31T23:59:59.5Z"}`, "at", `"1969-12-31T23:59:59.5Z"`},
		{`{"at":"0001-01-01T00:00:00Z"}`, "at", `"0001-01-01T00:00:00Z"`},
		{`{"at":"9999-12-31T23:59:59Z"}`, "at", `"9999-12-31T23:59:59Z"`},
		{`{"took":"-1.5s"}`, "took", `"-1.5s"`},
		{`{"counts":{"a":"9007199254740993"}}`, "counts", `{"a":9007199254740993}`},
		{`{"byPlace":{"-7":{"sku":"x"}}}`, "by_place", `{"-7":{"sku":"x","qty":0}}`},
		{`{"card":""}`, "card", `""`},
		{`{}`, "card", ``},
		{`{"cash":{}}`, "cash", `{"sku":"","qty":0}`},
		{`{"limit":"5"}`, "limit", `5`},
		{`{"limit":"0"}`, "limit", `0`},
		{`{}`, "limit", ``},
		{`{"extra":{"a":[1,null,{"b":true}]}}`, "extra", `{"a":[1,null,{"b":true}]}`},
		{`{"token":"/wA="}`, "token", `"/wA="`},
		{`{"steps":[-1,1,2147483647]}`, "steps", `[-1,1,2147483647]`},
		{`{"states":["PAID","NEW",7]}`, "states", `["PAID","NEW",7]`},
		{`{"price":0.1}`, "price", `0.1`},
		{`{"weight":0.5}`, "weight", `0.5`},
		{`{"parent":{"parent":{"customer":"x"}}}`, "parent.parent.customer", `"x"`},
		{`{"f64":"1","s32":-2,"s64":"-9223372036854775808"}`, "s64", `-9223372036854775808`},
		{`{"f64":"1","s32":-2,"s64":"-3"}`, "s32", `-2`},
	} {
		v, err := s.Decode(theirs(t, s, c.json))
		if err != nil {
			t.Errorf("%s: %v", c.json, err)
			continue
		}
		there := true
		for _, name := range strings.Split(c.field, ".") {
			v, there = v.Get(name)
		}
		switch {
		case c.want == "" && there:
			t.Errorf("%s: %s is %v, and isn't set", c.json, c.field, v)
		case c.want != "" && (!there || v.String() != c.want):
			t.Errorf("%s: %s is %v (%v), want %s", c.json, c.field, v, there, c.want)
		}
	}
}

// TestProtobufWritesWhatOthersRead: what we write is what the module writes.
func TestProtobufWritesWhatOthersRead(t *testing.T) {
	s := mustProto(t, orderProto, "shop.Order")
	for _, c := range []struct{ value, json string }{
		{`{}`, `{}`},
		{`{` + orderZeros + `,"id":0,"customer":""}`, `{}`},
		{`{"rank":0,"card":"","limit":0}`, `{"rank":0,"card":"","limit":"0"}`},
		{`{"rank":null,"at":null,"lines":null}`, `{}`},
		{`{"id":18446744073709551615,"state":"SENT","states":["NEW","PAID"],"steps":[-1,0]}`, `{"id":"18446744073709551615","state":"SENT","states":["NEW","PAID"],"steps":[-1,0]}`},
		{`{"lines":[{"sku":"a","qty":9007199254740993},{}]}`, `{"lines":[{"sku":"a","qty":"9007199254740993"},{}]}`},
		{`{"at":"1969-12-31T23:59:59.5Z"}`, `{"at":"1969-12-31T23:59:59.5Z"}`},
		{`{"at":"0001-01-01T00:00:00Z"}`, `{"at":"0001-01-01T00:00:00Z"}`},
		{`{"counts":{"a":1}}`, `{"counts":{"a":"1"}}`},
		{`{"by_place":{"3":{"qty":1}}}`, `{"byPlace":{"3":{"qty":"1"}}}`},
		{`{"cash":{"qty":1},"card":null}`, `{"cash":{"qty":"1"}}`},
		{`{"extra":{"a":[1,null,{"b":true,"c":"x"}]}}`, `{"extra":{"a":[1,null,{"b":true,"c":"x"}]}}`},
		{`{"price":3,"weight":0.25,"f64":7,"s32":-1,"s64":-5,"parent":{"id":1}}`, `{"price":3,"weight":0.25,"f64":"7","s32":-1,"s64":"-5","parent":{"id":"1"}}`},
	} {
		got, err := s.Append([]byte("x"), mustParse(t, c.value))
		if want := theirs(t, s, c.json); err != nil || !bytes.Equal(got[1:], want) {
			m := dynamicpb.NewMessage(s.codec.(*protoSchema).desc)
			if err != nil || proto.Unmarshal(got[1:], m) != nil || !proto.Equal(m, func() proto.Message {
				o := dynamicpb.NewMessage(s.codec.(*protoSchema).desc)
				_ = proto.Unmarshal(want, o)
				return o
			}()) {
				t.Errorf("%s is written as %x (%v), want %x", c.value, got, err, want)
			}
		}
	}
}

func TestProtobufOfTheWire(t *testing.T) {
	s := mustProto(t, `syntax = "proto3"; message M { M m = 1; int32 a = 2; repeated int32 l = 3; oneof o { M x = 4; string y = 5; } map<string,int32> p = 6; string t = 7; }`, "")
	for _, c := range []struct{ name, payload, field, want string }{
		{"a message in two parts is one", "0a021001" + "0a031a0105" + "3a0174", "m", `{"a":1,"l":[5],"p":{},"t":""}`},
		{"of a number the last counts", "10011002", "a", "2"},
		{"packed and not", "1801" + "1a020203" + "1804", "l", "[1,2,3,4]"},
		{"of a oneof the last counts", "22021001" + "2a0161", "y", `"a"`},
		{"and the others are not set", "22021001" + "2a0161", "x", ""},
		{"back again it starts anew", "22021001" + "2a0161" + "22021a00", "x", `{"a":0,"l":[],"p":{},"t":""}`},
		{"of an entry the last counts", "32050a01611001" + "32050a01611002", "p", `{"a":2}`},
		{"an entry without key and value", "3200", "p", `{"":0}`},
		{"unknown fields are passed over", "7a0161" + "800101" + "8d0100000000" + "1007", "a", "7"},
		{"groups that nobody knows too", "8b01" + "1001" + "8c01" + "1007", "a", "7"},
		{"an int32 of ten bytes is negative", "10ffffffffffffffffff01", "a", "-1"},
	} {
		payload, err := hex.DecodeString(c.payload)
		if err != nil {
			t.Fatal(err)
		}
		m := dynamicpb.NewMessage(s.codec.(*protoSchema).desc)
		if err := proto.Unmarshal(payload, m); err != nil {
			t.Errorf("%s: the module doesn't read it: %v", c.name, err)
		}
		v, err := s.Decode(payload)
		f, there := v.Get(c.field)
		if err != nil || there != (c.want != "") || there && f.String() != c.want {
			t.Errorf("%s: got %v (%v) %v, want %s", c.name, f, there, err, c.want)
		}
	}
	for _, c := range []struct{ name, payload, at, want string }{
		{"cut", "10", "", "ends within"},
		{"cut in a string", "3a0561", "", "ends within"},
		{"field 0", "0001", "", "no Protobuf"},
		{"an end without a group", "14", "", "no Protobuf"},
		{"another wire type", "3a0161" + "15000000ff", "/a", "wire type 5"},
		{"not UTF-8", "3a01ff", "/t", "UTF-8"},
		{"within", "0a04" + "3a0130" + "10", "/m", "ends within"},
		{"a long number", "10ffffffffffffffffff7f", "", "ends within"},
	} {
		payload, _ := hex.DecodeString(c.payload)
		err := s.Validate(payload)
		var bad *Invalid
		if !errors.As(err, &bad) || bad.Keyword != "encoding" || bad.Pointer != c.at || !strings.Contains(bad.Message, c.want) {
			t.Errorf("%s: got %v, want %q at %q", c.name, err, c.want, c.at)
		}
	}
	deep := []byte{}
	for range value.DepthMax + 2 {
		deep = append(append([]byte{0x0a}, appendLen(len(deep))...), deep...)
	}
	if err := s.Validate(deep); err == nil || !strings.Contains(err.Error(), "levels") {
		t.Errorf("too deep: %v", err)
	}
}

func appendLen(n int) []byte {
	if n < 128 {
		return []byte{byte(n)}
	}
	return []byte{byte(n) | 128, byte(n >> 7)}
}

// TestManyValuesOfFewBytesAreRefused: a message of two bytes may have a thousand fields
// that are there with their defaults.
func TestManyValuesOfFewBytesAreRefused(t *testing.T) {
	var text strings.Builder
	text.WriteString(`syntax = "proto3"; message R { repeated M m = 1; } message M {`)
	for i := range 1000 {
		fmt.Fprintf(&text, "int32 f%d = %d;", i, i+1)
	}
	text.WriteString("}")
	s := mustProto(t, text.String(), "R")
	if err := s.Validate(bytes.Repeat([]byte{0x0a, 0}, 10)); err != nil {
		t.Error(err)
	}
	if err := s.Validate(bytes.Repeat([]byte{0x0a, 0}, 100_000)); err == nil || !strings.Contains(err.Error(), "more values") {
		t.Errorf("got %v", err)
	}
}

func TestProtobufRefusesToWriteWhatDoesNotFit(t *testing.T) {
	s := mustProto(t, orderProto, "shop.Order")
	for _, c := range []struct{ value, at, want string }{
		{`7`, "", "message shop.Order"},
		{`{"id":-1}`, "/id", "without a sign"},
		{`{"rank":2147483648}`, "/rank", "32 bits"},
		{`{"rank":1.0}`, "/rank", "whole number"},
		{`{"state":"GONE"}`, "/state", "not one of NEW, PAID, SENT"},
		{`{"customer":7}`, "/customer", "string"},
		{`{"lines":[{"qty":1},{"quantity":1}]}`, "/lines/1", `"quantity" is not in shop.Order.Line`},
		{`{"unknown":1}`, "", `"unknown" is not in`},
		{`{"card":"a","free":true}`, "", "only one of"},
		{`{"by_place":{"x":{}}}`, "/by_place", "whole number"},
		{`{"at":"soon"}`, "/at", "Timestamp"},
		{`{"price":9007199254740993}`, "/price", "not exact"},
		{`{"counts":{"a":"x"}}`, "/counts/a", ""},
	} {
		got, err := s.Append([]byte("x"), mustParse(t, c.value))
		var bad *Invalid
		if !errors.As(err, &bad) || !strings.HasPrefix(c.at, bad.Pointer) || !strings.Contains(bad.Error(), c.want) || string(got) != "x" {
			t.Errorf("%s: got %q %v, want %q at %q", c.value, got, err, c.want, c.at)
		}
	}
}

func TestProto2(t *testing.T) {
	s := mustProto(t, `syntax = "proto2"; enum E { A = 1; B = 2; } message M { required int32 r = 1; optional int32 o = 2 [default = 5]; optional E e = 3; repeated group G = 4 { optional string s = 1; } }`, "M")
	payload, err := s.Append(nil, mustParse(t, `{"r":0,"e":"B"}`))
	if err != nil || hex.EncodeToString(payload) != "08001802" {
		t.Errorf("written: %x %v", payload, err)
	}
	for text, want := range map[string]string{
		"0800":                         `{"r":0,"g":[]}`, // what isn't set is missing, whatever its default
		"08001809":                     `{"r":0,"g":[]}`, // a closed enum doesn't know 9
		"0801" + "230a016124" + "2324": `{"r":1,"g":[{"s":"a"},{}]}`,
	} {
		payload, _ := hex.DecodeString(text)
		v, err := s.Decode(payload)
		if err != nil || v.String() != want {
			t.Errorf("%s: got %v %v, want %s", text, v, err, want)
		}
		again, err := s.Append(nil, v)
		if v2, err2 := s.Decode(again); err != nil || err2 != nil || !value.Equal(v, v2) {
			t.Errorf("%s: written %x %v, read %v %v", text, again, err, v2, err2)
		}
	}
	if err := s.Validate(nil); err == nil || !strings.Contains(err.Error(), `"r" of M is missing`) {
		t.Errorf("without a required field: %v", err)
	}
}

func TestDescriptorSets(t *testing.T) {
	file := protodesc.ToFileDescriptorProto(mustProto(t, `syntax = "proto3"; package p; message M { int32 a = 1; } message N { M m = 1; }`, "p.M").codec.(*protoSchema).desc.ParentFile())
	raw, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{file}})
	if err != nil {
		t.Fatal(err)
	}
	s := mustProto(t, base64.StdEncoding.EncodeToString(raw), "p.N")
	if v, err := s.Decode([]byte{0x0a, 2, 8, 5}); err != nil || v.String() != `{"m":{"a":5}}` {
		t.Errorf("got %v %v", v, err)
	}
}

func TestWrongProtobufSchemasSayWhy(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "no message",
		"!":                              "neither",
		"AAAA":                           "FileDescriptorSet",
		`syntax = "proto3"; messag M {}`: "1:20",
		"syntax = \"proto3\";\nmessage M {\n  Nothing a = 1; }": "3:3",
		`syntax = "proto3"; import "other.proto"; message M {}`: "may only import google",
		`syntax = "proto3"; import "/etc/passwd"; message M {}`: "may only import google",
		`syntax = "proto3";`:                           "no message",
		`syntax = "proto3"; message A {} message B {}`: "say which payloads are (A, B)",
		"message M {" + strings.Repeat("message M {", 100) + strings.Repeat("}", 101):                        "levels",
		"/* } */ message M {" + strings.Repeat("message M { /* } */ // }\n", 100) + strings.Repeat("}", 101): "levels",
	} {
		_, err := Compile(Source{Format: Protobuf, Text: text})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: got %v, want something with %q", text, err, want)
		}
	}
	if _, err := Compile(Source{Format: Protobuf, Text: orderProto, Message: "shop.Nothing"}); err == nil || !strings.Contains(err.Error(), "shop.Order, shop.Other") {
		t.Errorf("a message that isn't there: %v", err)
	}
	if _, err := Compile(Source{Format: Protobuf, Text: orderProto, Message: "shop.Order.Line"}); err != nil {
		t.Errorf("a message in another: %v", err)
	}
	var many strings.Builder
	many.WriteString(`syntax = "proto3"; message M {`)
	for i := range NodesMax {
		fmt.Fprintf(&many, "int32 f%d = %d;", i, i+1)
	}
	if _, err := Compile(Source{Format: Protobuf, Text: many.String() + "}"}); err == nil || !strings.Contains(err.Error(), "more than 5000") {
		t.Errorf("too many fields: %v", err)
	}
}

// moduleReads tells what the module says of a payload; nothing where it panics, as it
// does for some entries of maps.
func moduleReads(desc protoreflect.MessageDescriptor, payload []byte) (result error, told bool) {
	defer func() { _ = recover() }()
	result = proto.Unmarshal(payload, dynamicpb.NewMessage(desc))
	return result, true
}

// FuzzProtobuf reads anything the module reads, and what it reads it writes so that it
// reads the same.
func FuzzProtobuf(f *testing.F) {
	s := mustProto(f, orderProto, "shop.Order")
	desc := s.codec.(*protoSchema).desc
	f.Add([]byte{8, 1, 18, 1, 97, 26, 2, 16, 5, 50, 2, 8, 7, 114, 7, 10, 5, 10, 1, 97, 18, 0})
	f.Add([]byte{66, 5, 10, 1, 97, 16, 1, 162, 1, 2, 8, 1, 106, 0, 130, 1, 2, 1, 2})
	f.Fuzz(func(t *testing.T, payload []byte) {
		v, err := s.Decode(payload)
		if theirs, told := moduleReads(desc, payload); told && (theirs == nil) != (err == nil) {
			for _, ours := range []string{"levels", "nanoseconds", "out of range", "wire type", "more values"} {
				if err != nil && strings.Contains(err.Error(), ours) {
					return
				}
			}
			t.Fatalf("%x: the module says %v, we say %v", payload, theirs, err)
		}
		if err != nil {
			return
		}
		out, err := s.Append(nil, v)
		if err != nil {
			t.Fatalf("%x was read as %v, which can't be written: %v", payload, v, err)
		}
		again, err := s.Decode(out)
		if err != nil || !bytes.Equal(value.AppendKey(nil, v), value.AppendKey(nil, again)) {
			t.Fatalf("%x: %v, then %v %v", payload, v, again, err)
		}
	})
}

func FuzzProtobufSchema(f *testing.F) {
	f.Add(orderProto, []byte{8, 1, 18, 1, 97})
	f.Add(`syntax = "proto2"; message M { required group G = 1 { optional M m = 2; } extensions 100 to max; }`, []byte{11, 12})
	f.Add(`edition = "2023"; message M { int32 a = 1 [features.field_presence = IMPLICIT]; }`, []byte{8, 1})
	f.Fuzz(func(t *testing.T, text string, payload []byte) {
		if s, err := Compile(Source{Format: Protobuf, Text: text}); err == nil {
			if v, err := s.Decode(payload); err == nil {
				_, _ = s.Append(nil, v)
			}
		}
	})
}
