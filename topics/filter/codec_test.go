package filter

import (
	"errors"
	"strings"
	"testing"

	"github.com/heraldmq/herald/topics/schema"
	"github.com/heraldmq/herald/topics/value"
)

const (
	avroCodec = `{"avro":{"type":"record","name":"Order","fields":[
		{"name":"id","type":"long"},{"name":"region","type":["null","string"]},
		{"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":12,"scale":2}},
		{"name":"at","type":{"type":"long","logicalType":"timestamp-micros"}},
		{"name":"kind","type":{"type":"enum","name":"Kind","symbols":["NEW","PAID"]}},
		{"name":"tags","type":{"type":"map","values":"int"}},{"name":"token","type":"bytes"}]}}`
	registered = `{"avro":{"type":"record","name":"R","fields":[{"name":"n","type":"long"},{"name":"m","type":"int","default":4}]},
		"framing":"confluent","id":1,"writers":{"2":{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}}}`
	protoCodec = `{"protobuf":"syntax = \"proto3\"; import \"google/protobuf/timestamp.proto\"; message Order { uint64 id = 1; optional string region = 2; google.protobuf.Timestamp at = 3; enum Kind { NEW = 0; PAID = 1; } Kind kind = 4; map<string, int32> tags = 5; bytes token = 6; }"}`
)

// encoded is a payload of a codec.
func encoded(t testing.TB, codec string, v value.Value) string {
	t.Helper()
	src, err := schema.ParseCodec(codec)
	if err != nil {
		t.Fatal(err)
	}
	s, err := schema.Compile(src)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Append(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func field(name string, v value.Value) value.Field { return value.Field{Name: name, Value: v} }

// order is what both codecs write.
func order(more ...value.Field) value.Value {
	return value.OfObject(append([]value.Field{
		field("id", value.OfInt(9007199254740993)), field("region", value.OfString("eu")), field("at", value.OfString("2026-01-31T08:00:00Z")),
		field("kind", value.OfString("PAID")), field("tags", value.OfObject(field("a", value.OfInt(7)))), field("token", value.OfBytes([]byte{0xff, 0})),
	}, more...)...)
}

// TestConditionsOverSchemas is the contract of docs/filters.md for payloads that have one.
func TestConditionsOverSchemas(t *testing.T) {
	price, err := value.Parse([]byte("129.95"), value.Options{Decimals: true})
	if err != nil {
		t.Fatal(err)
	}
	avro, proto := encoded(t, avroCodec, order(field("price", price))), encoded(t, protoCodec, order())
	for _, c := range []struct {
		codec, where, payload string
		want                  bool
		reason                Reason
	}{
		{avroCodec, `id == 9007199254740993`, avro, true, ""},
		{avroCodec, `id == 9007199254740992`, avro, false, ""},
		{avroCodec, `price > decimal("129.94") && price < decimal("129.96") && price == decimal("129.95")`, avro, true, ""},
		{avroCodec, `region == "eu" && kind == "PAID" && tags.a == 7`, avro, true, ""},
		{avroCodec, `at == timestamp("2026-01-31T08:00:00Z") && at.getFullYear() == 2026`, avro, true, ""},
		{avroCodec, `token == b"\xff\x00" && size(token) == 2`, avro, true, ""},
		{avroCodec, `nothing == 1`, avro, false, Missing},
		{avroCodec, `id == 1`, `{"id":1}`, false, Payload},
		{avroCodec, `id == 1`, ``, false, Payload},
		{avroCodec, `header["a"] == "b" || true`, `not read`, true, ""},
		{registered, `n == 3 && m == 4`, "\x00\x00\x00\x00\x02\x06", true, ""}, // by the writer of id 2
		{registered, `n == 3 && m == 5`, "\x00\x00\x00\x00\x01\x06\x0a", true, ""},
		{registered, `n == 3`, "\x00\x00\x00\x00\x09\x06", false, Payload}, // of an id that isn't known
		{protoCodec, `id == 9007199254740993`, proto, true, ""},
		{protoCodec, `region == "eu" && kind == "PAID" && tags.a == 7`, proto, true, ""},
		{protoCodec, `at == timestamp("2026-01-31T08:00:00Z")`, proto, true, ""},
		{protoCodec, `token == b"\xff\x00"`, proto, true, ""},
		{protoCodec, `id == 0 && kind == "NEW" && !has(region) && !has(at)`, ``, true, ""},
		{protoCodec, `region == ""`, ``, false, Missing},
		{protoCodec, `id == 1`, "\xff", false, Payload},
	} {
		f, err := NewSet().Get(c.where, c.codec)
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.Match(message("a.b", "", c.payload))
		var e *Error
		reason := Reason("")
		if errors.As(err, &e) {
			reason = e.Reason
		}
		if got != c.want || reason != c.reason {
			t.Errorf("%s by %.10s: got %v %v, want %v and reason %q", c.where, c.codec, got, err, c.want, c.reason)
		}
	}
}

func TestFiltersOfOneSchemaAreShared(t *testing.T) {
	s := NewSet()
	a, err := s.Get(`id > 1`, avroCodec)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Get(` id > 1 `, strings.Join(strings.Fields(avroCodec), ""))
	if err != nil || a != b {
		t.Errorf("two filters for one condition and schema (%v)", err)
	}
	if text, err := Canonical(avroCodec); err != nil || text != a.Codec() || strings.Contains(text, "\n") {
		t.Errorf("the canonical codec is %q (%v), the filter's %q", text, err, a.Codec())
	}
}

// TestOneMessageIsReadBySeveralSchemas: each filter sees the payload by its own, read
// once for those that share it.
func TestOneMessageIsReadBySeveralSchemas(t *testing.T) {
	s := NewSet()
	m := message("a", "", `{"id":1}`)
	get := func(where, codec string) *Filter {
		f, err := s.Get(where, codec)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	json, again := get(`id == 1`, JSON), get(`id < 2`, JSON)
	avro, proto := get(`id == 1`, avroCodec), get(`id == 1`, protoCodec)
	for range 2 {
		for _, f := range []*Filter{json, avro, again, proto} {
			ok, err := f.Match(m)
			if isJSON := f.Codec() == JSON; ok != isJSON || (err == nil) != isJSON {
				t.Errorf("%s by %.10s: %v %v", f.Text(), f.Codec(), ok, err)
			}
		}
		m.payload = nil // reading it once more would fail
	}
	if len(m.others) != 2 {
		t.Errorf("it was read %d times for three codecs", len(m.others)+1)
	}
}

func BenchmarkMatchBySchema(b *testing.B) {
	price, _ := value.Parse([]byte("129.95"), value.Options{Decimals: true})
	for _, c := range []struct{ name, codec, payload, where string }{
		{"json", JSON, `{"id":9007199254740993,"region":"eu","price":129.95,"at":"2026-01-31T08:00:00Z","kind":"PAID","tags":{"a":7},"token":"/wA="}`, `id > 1`},
		{"avro", avroCodec, encoded(b, avroCodec, order(field("price", price))), `id > 1`},
		{"protobuf", protoCodec, encoded(b, protoCodec, order()), `id > 1`},
	} {
		f, err := NewSet().Get(c.where, c.codec)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var m Message
			for b.Loop() {
				m.Reset("orders.eu.created", nil, []byte(c.payload))
				if ok, err := f.Match(&m); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}
