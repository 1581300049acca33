package schema

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/avro"

	"github.com/heraldmq/herald/topics/value"
)

func mustAvro(t testing.TB, text string, framing Framing) *Schema {
	t.Helper()
	s, err := Compile(Source{Format: Avro, Text: text, Framing: framing})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustParse(t testing.TB, text string) value.Value {
	t.Helper()
	v, err := value.Parse([]byte(text), value.Options{Decimals: true})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestAvroTypes gives each type's value, and what is written for it, which the module
// must read as we do.
func TestAvroTypes(t *testing.T) {
	for _, c := range []struct{ schema, value, payload, reads string }{
		{`"null"`, `null`, ``, ``},
		{`"boolean"`, `true`, `01`, ``},
		{`"int"`, `-64`, `7f`, ``},
		{`"long"`, `9223372036854775807`, `feffffffffffffffff01`, ``},
		{`"long"`, `-9223372036854775808`, `ffffffffffffffffff01`, ``},
		{`"float"`, `0.5`, `0000003f`, ``},
		{`"double"`, `0.1`, `9a9999999999b93f`, ``},
		{`"double"`, `3`, `0000000000000840`, ``},
		{`"string"`, `"ä"`, `04c3a4`, ``},
		{`{"type":"array","items":"int"}`, `[1,2]`, `04020400`, ``},
		{`{"type":"array","items":"int"}`, `[]`, `00`, ``},
		{`{"type":"map","values":"int"}`, `{"b":1,"a":2}`, `0402620202610400`, ``},
		{`{"type":"enum","name":"E","symbols":["A","B"]}`, `"B"`, `02`, ``},
		{`["null","string"]`, `null`, `00`, ``},
		{`["null","string"]`, `"a"`, `020261`, ``},
		{`["null",{"type":"record","name":"X","fields":[{"name":"a","type":"int"}]},{"type":"record","name":"Y","fields":[{"name":"b","type":"int"}]}]`, `{"b":1}`, `0402`, ``},
		{`{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"next","type":["null","R"]}]}`, `{"a":1,"next":{"a":2,"next":null}}`, `02020400`, ``},
		{`{"type":"record","name":"n.R","fields":[{"name":"a","type":{"type":"fixed","name":"F","size":2}},{"name":"b","type":"F"}]}`, ``, `01020304`, `{"a":"AQI=","b":"AwQ="}`},
		{`{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":7},{"name":"b","type":["string","null"],"default":"x"}]}`, `{}`, `0e000278`, `{"a":7,"b":"x"}`},
		{`{"type":"bytes","logicalType":"decimal","precision":6,"scale":2}`, `-12.50`, `04fb1e`, ``},
		{`{"type":"bytes","logicalType":"decimal","precision":6,"scale":2}`, `1.28`, `040080`, ``},
		{`{"type":"bytes","logicalType":"decimal","precision":30,"scale":0}`, `12345678901234567890123`, `14029d42b64e76714244cb`, ``},
		{`{"type":"fixed","name":"D","size":4,"logicalType":"decimal","precision":9,"scale":3}`, `-0.001`, `ffffffff`, ``},
		{`{"type":"long","logicalType":"timestamp-millis"}`, `"2026-01-31T08:00:00.123Z"`, `f69187b18267`, ``},
		{`{"type":"long","logicalType":"timestamp-micros"}`, `"2026-01-31T08:00:00.123456Z"`, ``, ``},
		{`{"type":"long","logicalType":"timestamp-nanos"}`, `"2026-01-31T08:00:00.123456789Z"`, ``, ``},
		{`{"type":"int","logicalType":"date"}`, `"2026-01-31"`, ``, `"2026-01-31T00:00:00Z"`},
		{`{"type":"int","logicalType":"time-millis"}`, `1`, `02`, `"1ms"`},
		{`{"type":"string","logicalType":"uuid"}`, `"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"`, ``, ``},
		{`{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}`, `"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"`, `f81d4fae7dec11d0a76500a0c91e6bf6`, ``},
		{`{"type":"fixed","name":"T","size":12,"logicalType":"duration"}`, `{"months":1,"days":2,"millis":3}`, `010000000200000003000000`, ``},
		{`{"type":"int","logicalType":"nobody-knows"}`, `5`, `0a`, ``},
	} {
		s := mustAvro(t, c.schema, Raw)
		payload, err := hex.DecodeString(c.payload)
		if err != nil {
			t.Fatal(err)
		}
		if c.value != "" {
			got, err := s.Append([]byte("x"), mustParse(t, c.value))
			if err != nil || got[0] != 'x' {
				t.Errorf("%s of %s: %v", c.value, c.schema, err)
				continue
			}
			if c.payload != "" && !bytes.Equal(got[1:], payload) {
				t.Errorf("%s of %s is written as %x, want %s", c.value, c.schema, got[1:], c.payload)
			}
			payload = got[1:]
		}
		v, err := s.Decode(payload)
		want := c.reads
		if want == "" {
			want = c.value
		}
		if err != nil || v.String() != want {
			t.Errorf("%x of %s: got %v %v, want %s", payload, c.schema, v, err, want)
		}
		var theirs any
		if rest, err := avro.MustParse(c.schema).Decode(payload, &theirs); err != nil || len(rest) > 0 {
			t.Errorf("the module doesn't read %x of %s: %v", payload, c.schema, err)
		}
	}
}

func TestAvroReadsTimesAndDecimalsAsWhatTheyAre(t *testing.T) {
	s := mustAvro(t, `{"type":"record","name":"R","fields":[
		{"name":"at","type":{"type":"long","logicalType":"timestamp-micros"}},
		{"name":"day","type":{"type":"int","logicalType":"date"}},
		{"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
		{"name":"raw","type":"bytes"},{"name":"f","type":"float"}]}`, "")
	at := time.Date(2026, 1, 31, 8, 0, 0, 123456000, time.UTC)
	v := value.OfObject(value.Field{Name: "at", Value: value.OfTime(at)}, value.Field{Name: "day", Value: value.OfTime(at.Truncate(24 * time.Hour))},
		value.Field{Name: "price", Value: value.OfInt(7)}, value.Field{Name: "raw", Value: value.OfBytes([]byte{0xff})}, value.Field{Name: "f", Value: value.OfDouble(0.25)})
	payload, err := s.Append(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Decode(payload)
	if err != nil || !value.Equal(got, v) {
		t.Fatalf("got %v %v, want %v", got, err, v)
	}
	for i, want := range []value.Kind{value.Time, value.Time, value.Decimal, value.Bytes, value.Double} {
		if f := got.Field(i); f.Value.Kind() != want {
			t.Errorf("%s is a %s, not a %s", f.Name, f.Value.Kind(), want)
		}
	}
	if price, _ := got.Get("price"); price.String() != "7.00" {
		t.Errorf("the price is %s: its scale is lost", price)
	}
}

func TestAvroFramings(t *testing.T) {
	text := `{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}`
	one := mustParse(t, `{"a":1}`)
	either, raw, marked := mustAvro(t, text, ""), mustAvro(t, text, Raw), mustAvro(t, text, SingleObject)
	bare, _ := raw.Append(nil, one)
	full, _ := either.Append(nil, one)
	if string(bare) != "\x02" || len(full) != 11 || full[0] != 0xc3 || full[1] != 1 {
		t.Fatalf("written: %x, %x", bare, full)
	}
	var theirs any
	if _, err := avro.MustParse(text).DecodeSingleObject(full, &theirs); err != nil {
		t.Errorf("the module reads another fingerprint: %v", err)
	}
	other, _ := mustAvro(t, strings.ReplaceAll(text, `"a"`, `"b"`), "").Append(nil, mustParse(t, `{"b":1}`))
	for _, c := range []struct {
		name    string
		s       *Schema
		payload []byte
		want    string // of the error; "" is fine
	}{
		{"either reads bare", either, bare, ""},
		{"either reads marked", either, full, ""},
		{"either says that another schema wrote it", either, other, "another schema"},
		{"raw reads bare", raw, bare, ""},
		{"raw doesn't look for a mark", raw, full, "follow"},
		{"marked reads marked", marked, full, ""},
		{"marked refuses bare", marked, bare, "single object"},
		{"marked refuses another", marked, other, "another schema"},
	} {
		v, err := c.s.Decode(c.payload)
		if c.want == "" && (err != nil || !value.Equal(v, one)) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v %v, want %q", c.name, v, err, c.want)
		}
	}
}

func TestAvroRefusesWhatIsNotOne(t *testing.T) {
	for _, c := range []struct{ schema, payload, at, want string }{
		{`"boolean"`, `02`, "", "boolean"},
		{`"int"`, `feffffffff01`, "", "32 bits"},
		{`"long"`, `80`, "", "ends in a number"},
		{`"long"`, `ffffffffffffffffffff01`, "", "64 bits"},
		{`"long"`, `0202`, "", "follow"},
		{`"string"`, `0a61`, "", "1 bytes left where 5"},
		{`"string"`, `01`, "", "left where -1"},
		{`"string"`, `02ff`, "", "UTF-8"},
		{`{"type":"enum","name":"E","symbols":["A"]}`, `02`, "", "symbol 1"},
		{`["null"]`, `02`, "", "branch 1"},
		{`{"type":"map","values":"int"}`, `0402610202610200`, "", "twice"},
		{`{"type":"array","items":"null"}`, `feffffffffffffffff0100`, "", "items"},
		{`{"type":"array","items":{"type":"record","name":"E","fields":[]}}`, `feffffff0f00`, "", "items"},
		{`{"type":"array","items":"null"}`, `ffffffffffffffffff01`, "", "block"},
		{`{"type":"int","logicalType":"date"}`, `feffffff0f`, "", "out of range"},
		{`{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":{"type":"map","values":"boolean"}}}]}`, `02020278090000`, "/a/0/x", "boolean"},
		{`{"type":"record","name":"R","fields":[{"name":"n","type":["null","R"]}]}`, strings.Repeat("02", 200) + "00", strings.Repeat("/n", value.DepthMax), "levels"},
	} {
		payload, _ := hex.DecodeString(c.payload)
		err := mustAvro(t, c.schema, Raw).Validate(payload)
		var bad *Invalid
		if !errors.As(err, &bad) || bad.Keyword != "encoding" || bad.Pointer != c.at || !strings.Contains(bad.Message, c.want) {
			t.Errorf("%s of %s: got %v, want %q at %q", c.payload, c.schema, err, c.want, c.at)
		}
	}
}

func TestAvroRefusesToWriteWhatDoesNotFit(t *testing.T) {
	for _, c := range []struct{ schema, value, at, want string }{
		{`"int"`, `2147483648`, "", "32 bits"},
		{`"int"`, `1.0`, "", "type"},
		{`"long"`, `9223372036854775808`, "", "type"},
		{`"double"`, `9007199254740993`, "", "not exact"},
		{`"float"`, `1e300`, "", "float"},
		{`"string"`, `7`, "", "string"},
		{`{"type":"fixed","name":"F","size":2}`, `"a"`, "", "F"},
		{`{"type":"enum","name":"E","symbols":["A"]}`, `"B"`, "", "not one of A"},
		{`{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}`, `{}`, "", `"a" is missing`},
		{`{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}`, `{"a":1,"b":2}`, "", `"b" is not in R`},
		{`{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array","items":"int"}}]}`, `{"a":[1,"x"]}`, "/a/1", "string"},
		{`["null","int","string"]`, `1.5`, "", "null or int or string"},
		{`{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}`, `1.234`, "", "does not fit"},
		{`{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}`, `123.45`, "", "does not fit"},
		{`{"type":"long","logicalType":"timestamp-millis"}`, `"2026-01-31T08:00:00.1234Z"`, "", "more precise"},
		{`{"type":"long","logicalType":"timestamp-millis"}`, `"soon"`, "", "timestamp"},
	} {
		got, err := mustAvro(t, c.schema, Raw).Append([]byte("x"), mustParse(t, c.value))
		var bad *Invalid
		if !errors.As(err, &bad) || bad.Pointer != c.at || !strings.Contains(bad.Error(), c.want) || string(got) != "x" {
			t.Errorf("%s of %s: got %q %v, want %q at %q", c.value, c.schema, got, err, c.want, c.at)
		}
	}
}

func TestWrongAvroSchemasSayWhy(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                            "JSON",
		`"nothing"`:                    "nothing",
		`{"type":"record","name":"R"}`: "fields",
		`{"type":"record","name":"R","fields":[{"name":"a","type":"R"}]}`:                                     "without an end",
		`{"type":"array","items":[` + strings.Repeat(`{"type":"array","items":"int"},`, NodesMax) + `"int"]}`: "more than 5000",
		`{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}`:                     "default",
		strings.Repeat(`{"type":"array","items":`, 200) + `"int"` + strings.Repeat(`}`, 200):                  "levels",
	} {
		_, err := Compile(Source{Format: Avro, Text: text})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: got %v, want something with %q", text, err, want)
		}
	}
	if _, err := Compile(Source{Format: Avro, Text: `"int"`, Framing: "xml"}); err == nil {
		t.Error("an unknown framing is not refused")
	}
}

var avroFuzzSchemas = []string{
	`"long"`, `{"type":"array","items":"null"}`, `["null","string",{"type":"array","items":"boolean"}]`,
	`{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"m","type":{"type":"map","values":["null","R","double"]}},{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":20,"scale":4}},{"name":"t","type":{"type":"long","logicalType":"timestamp-millis"}},{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]}}]}`,
}

// FuzzAvro reads anything, and what it reads it writes so that it reads the same.
func FuzzAvro(f *testing.F) {
	var schemas []*Schema
	for i, text := range avroFuzzSchemas {
		schemas = append(schemas, mustAvro(f, text, Raw))
		f.Add(i, []byte{2, 2, 2, 97, 0, 2, 1, 0, 2})
	}
	f.Fuzz(func(t *testing.T, i int, payload []byte) {
		s := schemas[uint(i)%uint(len(schemas))]
		v, err := s.Decode(payload)
		if err != nil {
			return
		}
		out, err := s.Append(nil, v)
		if err != nil {
			if strings.Contains(err.Error(), "decimal of") { // bytes may hold more digits than the precision
				return
			}
			t.Fatalf("%x was read as %v, which can't be written: %v", payload, v, err)
		}
		again, err := s.Decode(out)
		if err != nil || !bytes.Equal(value.Append(nil, v), value.Append(nil, again)) {
			t.Fatalf("%x: %v, then %v %v", payload, v, again, err)
		}
	})
}

func FuzzAvroSchema(f *testing.F) {
	for _, text := range avroFuzzSchemas {
		f.Add(text, []byte{2, 2, 2, 97, 0, 2, 1, 0, 2})
	}
	f.Fuzz(func(t *testing.T, text string, payload []byte) {
		if s, err := Compile(Source{Format: Avro, Text: text}); err == nil {
			if v, err := s.Decode(payload); err == nil {
				_, _ = s.Append(nil, v)
			}
		}
	})
}
