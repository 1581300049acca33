package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func mustJSON(t testing.TB, text string) *Schema {
	t.Helper()
	s, err := Compile(Source{Format: JSONSchema, Text: text})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestJSONSchema is each keyword with what it allows (bad is "") and what it doesn't:
// where, and by which keyword.
func TestJSONSchema(t *testing.T) {
	for _, c := range []struct{ schema, payload, at, keyword string }{
		{`{}`, `[1]`, "", ""},
		{`true`, `1`, "", ""},
		{`false`, `1`, "", "false schema"},
		{`{"type":"integer"}`, `9223372036854775808`, "", ""},
		{`{"type":"integer"}`, `1.0`, "", ""},
		{`{"type":"integer"}`, `1e300`, "", ""},
		{`{"type":"integer"}`, `1.5`, "", "type"},
		{`{"type":["string","null"]}`, `null`, "", ""},
		{`{"type":["string","null"]}`, `7`, "", "type"},
		{`{"type":"number"}`, `"7"`, "", "type"},
		{`{"type":"object"}`, `{"a":`, "", "encoding"},
		{`{"type":"object"}`, ``, "", "encoding"},
		{`{"type":"object"}`, `{"a":1,"a":2}`, "", "encoding"},
		{`{"enum":[1,"a",{"b":[1.0]}]}`, `{"b":[1]}`, "", ""},
		{`{"enum":[1,"a"]}`, `1.0`, "", ""},
		{`{"enum":[1,"a"]}`, `true`, "", "enum"},
		{`{"const":9007199254740993}`, `9007199254740993`, "", ""},
		{`{"const":9007199254740993}`, `9007199254740992`, "", "const"},
		{`{"const":1,"enum":[2]}`, `1`, "", "enum"},
		{`{"minimum":0.1}`, `0.1`, "", ""},
		{`{"minimum":0.1}`, `0`, "", "minimum"},
		{`{"maximum":18446744073709551615}`, `18446744073709551615`, "", ""},
		{`{"maximum":18446744073709551615}`, `18446744073709551616`, "", "maximum"},
		{`{"exclusiveMinimum":1}`, `1.0`, "", "exclusiveMinimum"},
		{`{"exclusiveMaximum":1}`, `0.99`, "", ""},
		{`{"multipleOf":0.01}`, `19.99`, "", ""},
		{`{"multipleOf":0.01}`, `19.999`, "", "multipleOf"},
		{`{"multipleOf":3}`, `9223372036854775806`, "", ""},
		{`{"multipleOf":3}`, `9223372036854775807`, "", "multipleOf"},
		{`{"multipleOf":7}`, `1e308`, "", "multipleOf"},
		{`{"maxLength":2}`, `"äö"`, "", ""},
		{`{"maxLength":2}`, `"äöü"`, "", "maxLength"},
		{`{"pattern":"^[A-Z]{3}$"}`, `"EUR"`, "", ""},
		{`{"pattern":"^[A-Z]{3}$"}`, `"eur"`, "", "pattern"},
		{`{"format":"date-time"}`, `"2026-01-31T08:00:00Z"`, "", ""},
		{`{"format":"date-time"}`, `"yesterday"`, "", "format"},
		{`{"format":"uuid"}`, `"x"`, "", "format"},
		{`{"format":"what-nobody-knows"}`, `"x"`, "", ""},
		{`{"properties":{"a":{"properties":{"b/c":{"type":"string"}}}}}`, `{"a":{"b/c":1}}`, "/a/b~1c", "type"},
		{`{"required":["a","b"]}`, `{"a":null}`, "", "required"},
		{`{"additionalProperties":false,"properties":{"a":true}}`, `{"a":1}`, "", ""},
		{`{"additionalProperties":false,"properties":{"a":true}}`, `{"a":1,"b":2}`, "", "additionalProperties"},
		{`{"additionalProperties":{"type":"string"}}`, `{"a":1}`, "/a", "type"},
		{`{"patternProperties":{"^x-":{"type":"string"}},"additionalProperties":false}`, `{"x-a":"1"}`, "", ""},
		{`{"patternProperties":{"^x-":{"type":"string"}}}`, `{"x-a":1}`, "/x-a", "type"},
		{`{"propertyNames":{"maxLength":1}}`, `{"ab":1}`, "", "propertyNames"},
		{`{"minProperties":1}`, `{}`, "", "minProperties"},
		{`{"maxProperties":1}`, `{"a":1,"b":1}`, "", "maxProperties"},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, "", "dependentRequired"},
		{`{"dependentRequired":{"a":["b"]}}`, `{"b":1}`, "", ""},
		{`{"dependentSchemas":{"a":{"required":["b"]}}}`, `{"a":1}`, "", "required"},
		{`{"items":{"type":"integer"}}`, `[1,2,"c"]`, "/2", "type"},
		{`{"prefixItems":[{"type":"string"}],"items":false}`, `["a",1]`, "", "items"},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}],"additionalItems":false}`, `["a",1]`, "", "items"},
		{`{"uniqueItems":true}`, `[1,{"a":1,"b":2},{"b":2,"a":1.0}]`, "", "uniqueItems"},
		{`{"uniqueItems":true}`, `[1,"1",true,[1]]`, "", ""},
		{`{"contains":{"const":1},"minContains":2}`, `[1,2]`, "", "contains"},
		{`{"contains":{"const":1},"maxContains":1}`, `[1,1]`, "", "maxContains"},
		{`{"minItems":1}`, `[]`, "", "minItems"},
		{`{"maxItems":1}`, `[1,2]`, "", "maxItems"},
		{`{"allOf":[{"required":["a"]},{"properties":{"a":{"minimum":2}}}]}`, `{"a":1}`, "/a", "minimum"},
		{`{"anyOf":[{"type":"string"},{"properties":{"a":{"type":"string"}}}]}`, `{"a":1}`, "/a", "anyOf"},
		{`{"anyOf":[{"type":"string"},{"minimum":3}]}`, `4`, "", ""},
		{`{"oneOf":[{"type":"integer"},{"minimum":3}]}`, `4`, "", "oneOf"},
		{`{"oneOf":[{"type":"integer"},{"minimum":3}]}`, `2`, "", ""},
		{`{"not":{"type":"integer"}}`, `2`, "", "not"},
		{`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}}`, `{"a":1}`, "", "required"},
		{`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}}`, `{"c":1}`, "", ""},
		{`{"$ref":"#/$defs/t","$defs":{"t":{"properties":{"next":{"$ref":"#/$defs/t"},"v":{"type":"integer"}}}}}`, `{"v":1,"next":{"next":{"v":"x"}}}`, "/next/next/v", "type"},
		{`{"$id":"https://example.com/a.json","$ref":"b.json","$defs":{"b":{"$id":"b.json","type":"string"}}}`, `1`, "", "type"},
		{`{"allOf":[{"properties":{"a":true}}],"unevaluatedProperties":false}`, `{"a":1}`, "", ""},
		{`{"allOf":[{"properties":{"a":true}}],"unevaluatedProperties":false}`, `{"a":1,"b":1}`, "", "unevaluatedProperties"},
		{`{"anyOf":[{"properties":{"a":{"const":1}},"required":["a"]},{"properties":{"b":true}}],"unevaluatedProperties":false}`, `{"a":1,"b":1}`, "", ""},
		{`{"prefixItems":[true],"contains":{"const":7},"unevaluatedItems":false}`, `["a",7]`, "", ""},
		{`{"prefixItems":[true],"contains":{"const":7},"unevaluatedItems":false}`, `["a",7,8]`, "", "unevaluatedItems"},
	} {
		err := mustJSON(t, c.schema).Validate([]byte(c.payload))
		var bad *Invalid
		switch {
		case err == nil && c.keyword != "":
			t.Errorf("%s allows %s, want %s", c.schema, c.payload, c.keyword)
		case err != nil && !errors.As(err, &bad):
			t.Errorf("%s of %s: %T", c.schema, c.payload, err)
		case err != nil && (bad.Keyword != c.keyword || bad.Pointer != c.at || bad.Message == ""):
			t.Errorf("%s of %s: got %q at %q (%s), want %q at %q", c.schema, c.payload, bad.Keyword, bad.Pointer, bad.Message, c.keyword, c.at)
		}
	}
}

func TestWrongJSONSchemasSayWhy(t *testing.T) {
	wide := `{"allOf":[` + strings.Repeat(`{},`, NodesMax) + `{}]}`
	for text, want := range map[string]string{
		``:                                     "invalid JSON",
		`[]`:                                   "",
		`{"type":"strin"}`:                     "/type",
		`{"type":7}`:                           "/type",
		`{"properties":{"a":{"minimum":"1"}}}`: "/properties/a/minimum",
		`{"pattern":"(?=a)"}`:                  "look-around",
		`{"pattern":"("}`:                      "missing closing",
		`{"patternProperties":{"a{999}b{999}c{99}":true}}`:        "costly",
		`{"pattern":"` + strings.Repeat("a", PatternMax+1) + `"}`: "1024 bytes",
		`{"$ref":"#/nowhere"}`:                                    "nowhere",
		`{"$ref":"https://example.com/x.json"}`:                   "only lead to the document",
		`{"$ref":"file:///etc/passwd"}`:                           "only lead to the document",
		`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`: "only lead to the document",
		`{"$schema":"https://example.com/mine"}`:                  "only lead to the document",
		`{"items":{"$dynamicRef":"#x"},"$dynamicAnchor":"x"}`:     "not supported",
		`{"$ref":"#"}`: "itself",
		`{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"anyOf":[{"$ref":"#"}]}}}`: "itself",
		`{"maximum":1e-100000}`: "too close to zero",
		`{"maximum":1e100000}`:  "double",
		wide:                    "more than 5000",
		strings.Repeat(`{"not":`, 200) + `{}` + strings.Repeat(`}`, 200): "levels",
		`{"a":"` + strings.Repeat("a", TextMax) + `"}`:                   "at most",
	} {
		_, err := Compile(Source{Format: JSONSchema, Text: text})
		var bad *SourceError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.80s: got %v, want something with %q", text, err, want)
		}
	}
	if _, err := Compile(Source{Format: "xml", Text: "<a/>"}); err == nil || !strings.Contains(err.Error(), "json-schema, avro or protobuf") {
		t.Error(err)
	}
	if _, err := Compile(Source{Format: JSONSchema, Text: "{}", Message: "x"}); err == nil {
		t.Error("a message in a JSON Schema is not refused")
	}
}

// TestHostileJSONSchemasAreBounded: what would take for ever is given up after a number
// of steps, and says so.
func TestHostileJSONSchemasAreBounded(t *testing.T) {
	var doubling strings.Builder // 2^40 evaluations
	doubling.WriteString(`{"$ref":"#/$defs/a0","$defs":{`)
	for i := range 40 {
		fmt.Fprintf(&doubling, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	doubling.WriteString(`"a40":{}}}`)
	var names strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&names, "\"a%d\",", i)
	}
	var numbers strings.Builder
	for i := range 50000 {
		fmt.Fprintf(&numbers, "%d,", i+2)
	}
	deep := strings.Repeat(`{"x":`, 100) + `1` + strings.Repeat(`}`, 100)
	for _, c := range []struct{ name, schema, payload string }{
		{"doubling", doubling.String(), `1`},
		{"doubling by level", `{"anyOf":[{"properties":{"x":{"$ref":"#"}},"allOf":[{"required":["y"]}]},{"properties":{"x":{"$ref":"#"}},"allOf":[{"not":{}}]}]}`, deep},
		{"tracked", `{"$defs":{"t":{"allOf":[{"properties":{"x":{"$ref":"#/$defs/t"}}},{"properties":{"x":{"$ref":"#/$defs/t"}}}],"unevaluatedProperties":false}},"$ref":"#/$defs/t"}`, deep},
		{"patterns", `{"items":{"pattern":"(a|aa|aaa|a{1,200}){1,4}b$"}}`, `[` + strings.Repeat(`"`+strings.Repeat("a", 10000)+`b",`, 20) + `""]`},
		{"required", `{"required":[` + names.String() + `"z"]}`, `{` + strings.ReplaceAll(names.String(), ",", ":1,") + `"z":1}`},
		{"unique", `{"items":{"allOf":[` + strings.Repeat(`{"uniqueItems":true},`, 1000) + `{}]}}`, `[[` + numbers.String() + `1]]`},
	} {
		s := mustJSON(t, c.schema)
		begun := time.Now()
		err := s.Validate([]byte(c.payload))
		t.Logf("%s: given up after %v", c.name, time.Since(begun))
		var bad *Invalid
		if !errors.As(err, &bad) || bad.Keyword != "cost" {
			t.Errorf("%s: got %v, want that it is given up", c.name, err)
		}
	}
}

func TestTheSamePayloadGivesTheSameProblem(t *testing.T) {
	s := mustJSON(t, `{"patternProperties":{"a":{"type":"string"},"b":{"minimum":5},"c":{"type":"null"}},"dependentRequired":{"x":["y"],"z":["y"]}}`)
	want := s.Validate([]byte(`{"abc":1,"x":1,"z":1}`)).Error()
	for range 50 {
		again := mustJSON(t, s.Source().Text)
		if got := again.Validate([]byte(`{"abc":1,"x":1,"z":1}`)).Error(); got != want {
			t.Fatalf("%s, then %s", want, got)
		}
	}
}

func TestCacheKeepsWhatIsUsed(t *testing.T) {
	c := NewCache(4 * (entryBytes + 100))
	source := func(i int) Source { return Source{Format: JSONSchema, Text: fmt.Sprintf(`{"const":%d}`, i)} }
	first, err := c.Get(source(0))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err := c.Get(source(i)); err != nil {
			t.Fatal(err)
		}
		if again, _ := c.Get(source(0)); again != first {
			t.Fatal("compiled again")
		}
	}
	if n := c.Len(); n > 4 {
		t.Errorf("%d schemas are kept, there is room for 4", n)
	}
	if _, err := c.Get(Source{Format: JSONSchema, Text: `{`}); err == nil {
		t.Error("a wrong schema has no error")
	}
	if _, err := c.Get(Source{Format: JSONSchema, Text: `{`}); err == nil {
		t.Error("a wrong schema has no error the second time")
	}
}

func FuzzJSONSchema(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"pattern":"^a"}},"required":["a"]}`, `{"a":"b"}`)
	f.Add(`{"anyOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"items":{"$ref":"#"}}}}`, `[[[]]]`)
	f.Add(`{"allOf":[{"prefixItems":[{"const":1}]}],"unevaluatedItems":{"multipleOf":0.1},"if":{"contains":{}},"then":{"uniqueItems":true}}`, `[1,0.3,1e300]`)
	f.Add(`{"$schema":"http://json-schema.org/draft-04/schema#","maximum":3,"exclusiveMaximum":true,"dependencies":{"a":["b"]}}`, `{"a":3}`)
	f.Fuzz(func(t *testing.T, text, payload string) {
		s, err := Compile(Source{Format: JSONSchema, Text: text})
		if err != nil {
			return
		}
		begun := time.Now()
		err = s.Validate([]byte(payload))
		if again := s.Validate([]byte(payload)); (err == nil) != (again == nil) || err != nil && err.Error() != again.Error() {
			t.Errorf("%v, then %v", err, again)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
		if _, err := s.Decode([]byte(payload)); err == nil != (s.Validate([]byte(payload)) == nil || s.Validate([]byte(payload)).(*Invalid).Keyword != "encoding") {
			t.Errorf("decoding says %v", err)
		}
	})
}
