package schema

import (
	"strings"
	"testing"
)

func TestCodecs(t *testing.T) {
	for text, want := range map[string]Source{
		`{"avro": {"type": "array", "items": "long"}}`: {Format: Avro, Text: `{"type":"array","items":"long"}`},
		`{"avro":"long","framing":"raw"}`:              {Format: Avro, Text: `"long"`, Framing: Raw},
		`{"avro":"{\"type\": \"long\"}"}`:              {Format: Avro, Text: `{"type": "long"}`},
		`{"protobuf":"message M {}","message":"M"}`:    {Format: Protobuf, Text: `message M {}`, Message: "M"},
	} {
		got, err := ParseCodec(text)
		if err != nil || got != want {
			t.Errorf("%s: got %+v %v, want %+v", text, got, err, want)
		}
		again, err := ParseCodec(got.Codec().String())
		if third, err3 := ParseCodec(again.Codec().String()); err != nil || err3 != nil || third != again || again.Format != got.Format {
			t.Errorf("%s: named as %s, which is read as %+v %v", text, got.Codec(), again, err)
		}
	}
	for text, want := range map[string]string{
		`avro`: "no JSON", `[]`: "this is: list", `{}`: "avro or protobuf", `{"avro":"int","protobuf":""}`: "not both",
		`{"protobuf":{}}`: "this is: object", `{"xml":1}`: "something else", `{"avro":"int","framing":1}`: "something else",
		`{"avro":"` + strings.Repeat("a", CodecTextMax) + `"}`: "may have",
	} {
		if _, err := ParseCodec(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want something with %q", text, err, want)
		}
	}
}
