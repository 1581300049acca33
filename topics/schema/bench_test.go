package schema

import (
	"testing"

	"github.com/heraldmq/herald/topics/value"
)

// BenchmarkSchema is what a payload of an order costs in each format: about 170 bytes of
// JSON.
func BenchmarkSchema(b *testing.B) {
	json := mustJSON(b, `{"type":"object","required":["id","region","at","price","kind","lines"],"additionalProperties":false,"properties":{
		"id":{"type":"integer","minimum":0},"region":{"type":"string","pattern":"^[a-z]{2}$"},"at":{"type":"string","format":"date-time"},
		"price":{"type":"number","minimum":0},"kind":{"enum":["NEW","PAID"]},
		"lines":{"type":"array","items":{"type":"object","required":["sku","qty"],"properties":{"sku":{"type":"string"},"qty":{"type":"integer"}},"additionalProperties":false}}}}`)
	avro := mustAvro(b, `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},{"name":"region","type":"string"},
		{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},{"name":"price","type":"double"},{"name":"kind","type":{"type":"enum","name":"K","symbols":["NEW","PAID"]}},
		{"name":"lines","type":{"type":"array","items":{"type":"record","name":"L","fields":[{"name":"sku","type":"string"},{"name":"qty","type":"long"}]}}}]}`, "")
	proto := mustProto(b, `syntax = "proto3"; import "google/protobuf/timestamp.proto"; message Order { int64 id = 1; string region = 2; google.protobuf.Timestamp at = 3; double price = 4; enum K { NEW = 0; PAID = 1; } K kind = 5; repeated L lines = 6; message L { string sku = 1; int64 qty = 2; } }`, "")
	const text = `{"id":12345678901234567,"region":"eu","at":"2026-01-31T08:00:00.123Z","price":129.95,"kind":"PAID","lines":[{"sku":"a-4711","qty":2},{"sku":"b-0815","qty":1},{"sku":"c","qty":7}]}`
	order, err := value.Parse([]byte(text), value.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		s    *Schema
	}{{"json", json}, {"avro", avro}, {"protobuf", proto}} {
		payload, err := c.s.Append(nil, order)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("validate/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.ReportMetric(float64(len(payload)), "payload-bytes")
			for b.Loop() {
				if err := c.s.Validate(payload); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("decode/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.s.Decode(payload); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("encode/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			dst := make([]byte, 0, 512)
			for b.Loop() {
				if _, err := c.s.Append(dst, order); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, c := range []Source{
		{Format: JSONSchema, Text: `{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"region":{"type":"string","pattern":"^[a-z]{2}$"}}}`},
		{Format: Avro, Text: `{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"region","type":"string"}]}`},
		{Format: Protobuf, Text: `syntax = "proto3"; message M { int64 id = 1; string region = 2; }`},
	} {
		b.Run(string(c.Format), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Compile(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
