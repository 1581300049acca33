package schema

import (
	"strings"
	"testing"
)

// said is problems in short: < breaks backward, > forward, ? can't be told.
func said(problems []Problem) string {
	var out []string
	for _, p := range problems {
		s := map[Mode]string{Backward: "<", Forward: ">"}[p.Direction]
		if p.Unknown {
			s += "?"
		}
		out = append(out, s+p.Rule+"@"+p.Pointer)
	}
	return strings.Join(out, " ")
}

func TestJSONSchemaCompatibility(t *testing.T) {
	closed := func(props string) string {
		return `{"type":"object","additionalProperties":false,"properties":{` + props + `}}`
	}
	for _, c := range []struct{ old, new, want string }{
		{`{"type":"integer"}`, `{"type":"number"}`, ">type@"},
		{`{"type":["integer","null"]}`, `{"type":["null","integer"]}`, ""},
		{`{"type":"integer"}`, `{"type":"integer","title":"x"}`, ""},
		{`{}`, `{"type":"string"}`, "<type@"},
		{`{"enum":["a"]}`, `{"enum":["a","b"]}`, ">enum@"},
		{`{"enum":["a"]}`, `{"type":"string"}`, ">enum@"},
		{`{"const":5}`, `{"minimum":5}`, ">const@"},
		{`{"const":5}`, `{"minimum":6}`, "<minimum@ >const@"},
		{`{"type":"boolean"}`, `{"enum":[true,false]}`, ""},
		{`{"type":"integer","minimum":0}`, `{"type":"integer","minimum":1}`, "<minimum@"},
		{`{"type":"integer","exclusiveMinimum":0}`, `{"type":"integer","minimum":0}`, ">minimum@"},
		{`{"type":"integer","maximum":9}`, `{"type":"integer"}`, ">maximum@"},
		{`{"type":"integer","multipleOf":4}`, `{"type":"integer","multipleOf":2}`, ">multipleOf@"},
		{`{"type":"string","maxLength":5}`, `{"type":"string","maxLength":9}`, ">maxLength@"},
		{`{"type":"string","pattern":"^a"}`, `{"type":"string","pattern":"^a"}`, ""},
		{`{"type":"string","pattern":"^ab"}`, `{"type":"string","pattern":"^a"}`, "<?pattern@ >?pattern@"},
		{`{"type":"string","format":"date-time"}`, `{"type":"string"}`, ">?format@"},
		{closed(`"a":{"type":"integer"}`), closed(`"a":{"type":"integer"},"b":{"type":"string"}`), ">false schema@/b"},
		{closed(`"a":{"type":"integer"}`), closed(`"a":{"type":"string"}`), "<type@/a >type@/a"},
		{`{"type":"object","properties":{"a":{"type":"integer"}}}`, `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}}}`, "<?properties@/b"},
		{`{"type":"object","additionalProperties":{"type":"string"}}`, `{"type":"object","properties":{"b":{"type":"string"}}}`, ">type@/*"},
		{`{"type":"object","required":["a"]}`, `{"type":"object","required":["a","b"]}`, "<required@"},
		{`{"type":"object","required":["a","b"]}`, `{"type":"object","minProperties":2}`, ">required@ >required@"},
		{`{"type":"array","items":{"type":"integer"}}`, `{"type":"array","items":{"type":"number"}}`, ">type@/*"},
		{`{"type":"array","prefixItems":[{"type":"integer"}],"items":false}`, `{"type":"array","items":{"type":"integer"}}`, ">false schema@/*"},
		{`{"type":"array","uniqueItems":true}`, `{"type":"array"}`, ">uniqueItems@"},
		{`{"type":"array","maxItems":1}`, `{"type":"array","uniqueItems":true}`, ">maxItems@"},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"type":"integer"}}}`, `{"type":"integer"}`, ""},
		{`{"allOf":[{"type":"integer"},{"minimum":1}]}`, `{"type":"integer","minimum":1}`, ""},
		{`{"anyOf":[{"type":"integer"},{"type":"string"}]}`, `{"type":["integer","string"]}`, ">?anyOf@"},
		{`{"anyOf":[{"type":"integer"},{"type":"string"}]}`, `{"anyOf":[{"type":"string"},{"type":"integer"},{"type":"null"}]}`, ">anyOf@"},
		{`{"oneOf":[{"type":"integer"},{"type":"string"}]}`, `{"oneOf":[{"type":"integer"},{"type":"string"}],"title":"x"}`, ""},
		{`{"oneOf":[{"type":"integer"},{"type":"string"}]}`, `{"oneOf":[{"type":"string"},{"type":"integer"}]}`, "<?oneOf@ <?oneOf@ >?oneOf@ >?oneOf@"},
		{`{"not":{"type":"integer"}}`, `{"not":{"type":"string"}}`, "<?not@ >?not@"},
		{`{"type":"object","properties":{"n":{"$ref":"#"}},"additionalProperties":false}`, `{"type":"object","properties":{"n":{"$ref":"#"}},"additionalProperties":false,"title":"x"}`, ""},
		{`{"type":"object","properties":{"n":{"$ref":"#"},"v":{"type":"integer"}},"additionalProperties":false}`, `{"type":"object","properties":{"n":{"$ref":"#"},"v":{"type":"number"}},"additionalProperties":false}`, ">type@/n/v >type@/v"},
	} {
		got := said(Compatible(mustJSON(t, c.old), mustJSON(t, c.new), Full))
		if got != c.want {
			t.Errorf("%s\nto %s\nsaid %q, want %q", c.old, c.new, got, c.want)
		}
		if same := Compatible(mustJSON(t, c.new), mustJSON(t, c.new+" "), Full); len(same) > 0 {
			t.Errorf("%s is not compatible with itself: %v", c.new, same)
		}
	}
}

// TestCompatibilityIsSound: where nothing speaks against it, what the one allows the other
// allows; where something certain does, a payload that shows it is among these.
func TestCompatibilityIsSound(t *testing.T) {
	var schemas []*Schema
	for _, text := range []string{
		`{}`, `false`, `{"type":"integer"}`, `{"type":"number","minimum":1}`, `{"type":["string","null"]}`, `{"enum":[1,"a",null]}`, `{"const":2}`,
		`{"type":"object"}`, `{"type":"object","required":["a"]}`, `{"type":"object","properties":{"a":{"type":"integer"}}}`,
		`{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false}`, `{"type":"object","properties":{"a":true,"b":{"type":"string"}},"additionalProperties":false}`,
		`{"type":"object","additionalProperties":{"type":"integer"}}`, `{"type":"object","patternProperties":{"^a":{"type":"integer"}},"additionalProperties":false}`,
		`{"type":"object","maxProperties":1}`, `{"type":"object","minProperties":1}`, `{"type":"array","items":{"type":"integer"}}`, `{"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"string"}}`,
		`{"type":"array","maxItems":1}`, `{"type":"array","uniqueItems":true}`, `{"type":"array","contains":{"const":1}}`, `{"anyOf":[{"type":"integer"},{"type":"string"}]}`,
		`{"oneOf":[{"type":"integer"},{"minimum":2}]}`, `{"not":{"type":"integer"}}`, `{"if":{"type":"integer"},"then":{"minimum":2}}`, `{"type":"string","minLength":2}`, `{"type":"string","pattern":"a"}`,
		`{"type":"object","dependentRequired":{"a":["b"]}}`, `{"type":"object","properties":{"a":{"type":"integer"}},"unevaluatedProperties":false}`, `{"type":"integer","multipleOf":2}`, `{"propertyNames":{"maxLength":1}}`,
	} {
		schemas = append(schemas, mustJSON(t, text))
	}
	payloads := []string{`null`, `true`, `0`, `1`, `2`, `3`, `1.5`, `"a"`, `"ab"`, `"bb"`, `""`, `{}`, `{"a":1}`, `{"a":"x"}`, `{"b":"x"}`, `{"b":1}`, `{"a":1,"b":"x"}`, `{"ab":1}`, `{"c":1}`, `[]`, `[1]`, `[1,1]`, `[1,"x"]`, `["x"]`, `["x",2]`, `[2,3]`}
	for _, old := range schemas {
		for _, new := range schemas {
			problems := Compatible(old, new, Backward)
			broken := ""
			for _, p := range payloads {
				if old.Validate([]byte(p)) == nil && new.Validate([]byte(p)) != nil {
					broken = p
				}
			}
			certain := false
			for _, p := range problems {
				certain = certain || !p.Unknown
			}
			if len(problems) == 0 && broken != "" {
				t.Errorf("%s to %s: nothing was found, and %s breaks", old.Source().Text, new.Source().Text, broken)
			}
			if certain && broken == "" {
				t.Logf("%s to %s: said for certain, and nothing shows it: %v", old.Source().Text, new.Source().Text, problems)
			}
		}
	}
}

func TestAvroCompatibility(t *testing.T) {
	record := func(fields string) string { return `{"type":"record","name":"R","fields":[` + fields + `]}` }
	for _, c := range []struct{ old, new, want string }{
		{record(`{"name":"a","type":"int"}`), record(`{"name":"a","type":"long"}`), ">resolution@/a"},
		{record(`{"name":"a","type":"int"}`), record(`{"name":"a","type":"int"},{"name":"b","type":"string","default":""}`), ""},
		{record(`{"name":"a","type":"int"}`), record(`{"name":"a","type":"int"},{"name":"b","type":"string"}`), "<resolution@/b"},
		{`{"type":"enum","name":"E","symbols":["A"]}`, `{"type":"enum","name":"E","symbols":["A","B"]}`, ">resolution@"},
		{`"int"`, `["null","int"]`, ">resolution@"},
	} {
		got := said(Compatible(mustAvro(t, c.old, ""), mustAvro(t, c.new, ""), Full))
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s\nto %s\nsaid %q, want %q", c.old, c.new, got, c.want)
		}
	}
}

func TestProtobufCompatibility(t *testing.T) {
	message := func(fields string) string {
		return `syntax = "proto3"; message M { ` + fields + ` } enum E { A = 0; B = 1; } enum F { A2 = 0; B2 = 1; }`
	}
	for _, c := range []struct{ old, new, want string }{
		{`int32 a = 1;`, `int64 a = 1;`, ">type@/a"},
		{`int32 a = 1;`, `int32 a = 1; string b = 2;`, ""},
		{`int32 a = 1;`, `sint32 a = 1;`, "<type@/a >type@/a"},
		{`int32 a = 1;`, `int32 a = 2;`, "<number@/a >number@/a"},
		{`int32 a = 1;`, `int32 b = 1;`, "<name@/a >name@/b"},
		{`int32 a = 1;`, `repeated int32 a = 1;`, ">cardinality@/a"},
		{`string a = 1;`, `bytes a = 1;`, ">type@/a"},
		{`E a = 1;`, `F a = 1;`, "<enum@/a <enum@/a >enum@/a >enum@/a"},
		{`M m = 1; int32 a = 2;`, `M m = 1; bytes a = 2;`, "<type@/a >type@/a"},
		{`map<string, int32> a = 1;`, `map<string, int64> a = 1;`, ">type@/a"},
		{`map<string, int32> a = 1;`, `map<int32, int32> a = 1;`, "<map@/a >map@/a"},
		{`int32 a = 1; int32 b = 2;`, `oneof o { int32 a = 1; int32 b = 2; }`, "<?oneof@/a <?oneof@/b >?oneof@/a >?oneof@/b"},
	} {
		got := said(Compatible(mustProto(t, message(c.old), "M"), mustProto(t, message(c.new), "M"), Full))
		if got != c.want {
			t.Errorf("%s to %s: said %q, want %q", c.old, c.new, got, c.want)
		}
	}
	old := mustProto(t, `syntax = "proto2"; message M { optional int32 a = 1; }`, "")
	new := mustProto(t, `syntax = "proto2"; message M { required int32 a = 1; }`, "")
	if got := said(Compatible(old, new, Full)); got != "<required@" {
		t.Errorf("said %q", got)
	}
}

func TestModes(t *testing.T) {
	a, b := mustJSON(t, `{"type":"integer"}`), mustJSON(t, `{"type":"number"}`)
	for mode, want := range map[Mode]string{None: "", "": "", Backward: "", Forward: ">type@", Full: ">type@"} {
		if got := said(Compatible(a, b, mode)); got != want {
			t.Errorf("%s: said %q, want %q", mode, got, want)
		}
	}
	if p := Compatible(a, mustAvro(t, `"int"`, ""), Full); len(p) != 2 || p[0].Rule != "format" {
		t.Errorf("another format: %v", p)
	}
	if p := Compatible(a, b, "sideways"); len(p) != 1 || !p[0].Unknown {
		t.Errorf("an unknown mode: %v", p)
	}
}
