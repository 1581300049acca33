package schema

import (
	"fmt"
	"strings"
	"testing"
)

func TestInfer(t *testing.T) {
	var samples [][]byte
	for i := range 40 {
		samples = append(samples, fmt.Appendf(nil, `{"id":"f81d4fae-7dec-11d0-a765-00a0c91e6b%02x","at":"2026-01-31T08:00:%02dZ","kind":%q,"n":%d,"price":%d.5,"who":"a%d@example.com","name":"n%d","tags":[{"k":"x"},{"k":"y","v":null}]%s}`,
			i, i, []string{"new", "paid"}[i%2], i, i, i, i, []string{"", `,"note":null`, `,"note":"x"`}[i%3]))
	}
	samples = append(samples, []byte(`{"broken`))
	got, stats := Infer(samples)
	want := `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "required": ["id","at","kind","n","price","who","name","tags"],
  "properties": {
    "id": {
      "type": "string",
      "format": "uuid"
    },
    "at": {
      "type": "string",
      "format": "date-time"
    },
    "kind": {
      "type": "string",
      "enum": ["new","paid"]
    },
    "n": {
      "type": "integer"
    },
    "price": {
      "type": "number"
    },
    "who": {
      "type": "string",
      "format": "email"
    },
    "name": {
      "type": "string"
    },
    "tags": {
      "type": "array",
      "items": {
        "type": "object",
        "required": ["k"],
        "properties": {
          "k": {
            "type": "string",
            "enum": ["x","y"]
          },
          "v": {
            "type": "null"
          }
        }
      }
    },
    "note": {
      "type": ["null","string"]
    }
  }
}
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
	if again, _ := Infer(samples); again != got {
		t.Error("the same samples give another schema")
	}
	if stats.Samples != 40 || stats.Broken != 1 {
		t.Errorf("%+v", stats)
	}
	for _, f := range stats.Fields {
		if f.Pointer == "/note" && (f.Seen != 26 || f.Of != 40 || f.Types["null"] != 13 || f.Types["string"] != 13) {
			t.Errorf("%+v", f)
		}
	}
	s := mustJSON(t, got)
	for _, p := range samples[:40] {
		if err := s.Validate(p); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func TestInferIsCarefulWithFewSamples(t *testing.T) {
	for name, c := range map[string]struct {
		samples []string
		want    string // in the schema, without spaces
		not     string
	}{
		"no enum of few":       {[]string{`{"a":"x"}`, `{"a":"y"}`, `{"a":"x"}`}, `"a":{"type":"string"}`, "enum"},
		"no format of some":    {[]string{`{"a":"a@b.cd"}`, `{"a":"x"}`}, `"a":{"type":"string"}`, "format"},
		"integers and numbers": {[]string{`{"a":1}`, `{"a":1.5}`}, `"a":{"type":"number"}`, "integer"},
		"1.0 is a number":      {[]string{`{"a":1.0}`}, `"a":{"type":"number"}`, "integer"},
		"several types":        {[]string{`{"a":1}`, `{"a":"x"}`, `{"a":null}`}, `"a":{"type":["null","integer","string"]}`, "enum"},
		"an empty list":        {[]string{`{"a":[]}`}, `"a":{"type":"array"}`, "items"},
		"nothing":              {nil, `{"$schema":"https://json-schema.org/draft/2020-12/schema"}`, "type"},
		"not an object":        {[]string{`7`}, `"type":"integer"`, "properties"},
	} {
		var samples [][]byte
		for _, s := range c.samples {
			samples = append(samples, []byte(s))
		}
		text, _ := Infer(samples)
		short := strings.NewReplacer(" ", "", "\n", "").Replace(text)
		if !strings.Contains(short, c.want) || strings.Contains(short, c.not) {
			t.Errorf("%s: %s, want %s without %s", name, short, c.want, c.not)
		}
	}
}

func TestInferIsBounded(t *testing.T) {
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, `"k%d":{"a":[{"b":1}]},`, i)
	}
	text, _ := Infer([][]byte{[]byte(`{` + many.String() + `"z":1}`)})
	if strings.Contains(text, "properties") || len(text) > TextMax {
		t.Errorf("an object of 5000 fields is described in %d bytes, and is a map", len(text))
	}
}

func FuzzInfer(f *testing.F) {
	f.Add([]byte(`{"a":1}`), []byte(`{"a":[1,"x",null],"b":{}}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		text, stats := Infer([][]byte{a, b})
		s, err := Compile(Source{Format: JSONSchema, Text: text})
		if err != nil {
			if strings.Contains(err.Error(), "more than") || strings.Contains(err.Error(), "at most") {
				return
			}
			t.Fatalf("%s: %v", text, err)
		}
		if stats.Broken > 0 {
			return
		}
		for _, p := range [][]byte{a, b} {
			if err := s.Validate(p); err != nil {
				t.Errorf("%s says of its own sample %s: %v", text, p, err)
			}
		}
	})
}
