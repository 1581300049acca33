package schema

import (
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	gotypes "go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heraldmq/herald/topics/value"
)

// testdata/generate holds schemas and what is generated of them; -rewrite writes it anew.
var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

var generated = []struct {
	file   string
	format Format
	also   string // a message
}{{"order.json", JSONSchema, ""}, {"reading.avsc", Avro, ""}, {"shop.proto", Protobuf, "shop.Order"}}

func generateSchema(t *testing.T, file string, f Format, message string) *Schema {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "generate", file))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Compile(Source{Format: f, Text: string(text), Message: message})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestGenerated(t *testing.T) {
	for _, c := range generated {
		s := generateSchema(t, c.file, c.format, c.also)
		for lang, ext := range map[Language]string{Go: ".go.txt", TypeScript: ".ts", JSONSchemaText: ".schema.json"} {
			got, err := Generate(s, lang, "order.created")
			if err != nil {
				t.Errorf("%s in %s: %v", c.file, lang, err)
				continue
			}
			path := filepath.Join("testdata", "generate", c.file+ext)
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil || got != string(want) {
				t.Errorf("%s in %s is not %s (%v):\n%s", c.file, lang, path, err, got)
			}
			if again, _ := Generate(s, lang, "order.created"); again != got {
				t.Errorf("%s in %s: twice, and not the same", c.file, lang)
			}
		}
	}
	if _, err := Generate(mustJSON(t, `{}`), "cobol", ""); err == nil {
		t.Error("an unknown language is not refused")
	}
}

// twoPackages has what generated Go may import: reading the real ones takes seconds.
type twoPackages struct{}

func (twoPackages) Import(path string) (*gotypes.Package, error) {
	types := map[string]string{"time": "Time", "encoding/json": "Number"}
	if types[path] == "" {
		return nil, fmt.Errorf("generated Go imports %s", path)
	}
	p := gotypes.NewPackage(path, filepath.Base(path))
	name := gotypes.NewTypeName(token.NoPos, p, types[path], nil)
	gotypes.NewNamed(name, gotypes.NewStruct(nil, nil), nil)
	p.Scope().Insert(name)
	p.MarkComplete()
	return p, nil
}

// checkGo tells whether text is formatted Go that compiles.
func checkGo(t *testing.T, text string) {
	t.Helper()
	formatted, err := format.Source([]byte(text))
	if err != nil || string(formatted) != text {
		t.Errorf("not as gofmt has it: %v\n%s", err, text)
		return
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "payloads.go", text, 0)
	if err != nil {
		t.Errorf("%v\n%s", err, text)
		return
	}
	conf := gotypes.Config{Importer: twoPackages{}}
	if _, err := conf.Check("payloads", fset, []*ast.File{file}, nil); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestGeneratedGoCompiles(t *testing.T) {
	for _, c := range generated {
		text, err := Generate(generateSchema(t, c.file, c.format, c.also), Go, "order.created")
		if err != nil {
			t.Fatal(err)
		}
		checkGo(t, text)
	}
	for _, s := range []*Schema{
		mustJSON(t, `{"type":"integer"}`), mustJSON(t, `{}`), mustJSON(t, `{"type":"array","items":{"type":"object","properties":{"a":{"type":"object","properties":{"a_":{},"a":{},"A":{}}}}}}`),
		mustJSON(t, `{"type":"object","required":["p"],"properties":{"p":{"$ref":"#"},"":{},"1":{"enum":["a",null]},"ü":{}}}`),
		mustJSON(t, `{"type":"array","items":{"$ref":"#"}}`), mustJSON(t, `{"properties":{"payload":{"properties":{"x":{"type":"string"}},"type":"object"}}}`),
		mustAvro(t, `{"type":"array","items":["null",{"type":"enum","name":"a_b","symbols":["x","X","x_"]},{"type":"record","name":"AB","fields":[{"name":"AbX","type":["null","AB"]}]}]}`, ""),
		mustProto(t, `syntax = "proto3"; message type { type type = 1; enum E { type2 = 0; TYPE = 1; } E e = 2; message E2 { } E2 e2 = 3; }`, ""),
	} {
		for _, name := range []string{"", "Payload", "string", "1x"} {
			text, err := Generate(s, Go, name)
			if err != nil {
				t.Errorf("%s: %v", s.Source().Text, err)
				continue
			}
			checkGo(t, text)
		}
	}
}

// TestTheGeneratedJSONSchemaAllowsWhatIsRead: payloads as JSON has them are of the schema
// that is generated.
func TestTheGeneratedJSONSchemaAllowsWhatIsRead(t *testing.T) {
	avro := generateSchema(t, "reading.avsc", Avro, "")
	price := value.Field{Name: "price", Value: mustParse(t, "7.25")}
	reading := mustParse(t, `{"sensor_id":"a","at":"2026-01-31T08:00:00Z","value":null,"state":"OK","n":7,"previous":null,"inner":{"f":0.5},"tags":{"a":null,"b":7}}`).
		With(price.Name, price.Value).With("raw", value.OfBytes([]byte{1}))
	payload, err := avro.Append(nil, reading)
	if err != nil {
		t.Fatal(err)
	}
	proto := generateSchema(t, "shop.proto", Protobuf, "shop.Order")
	full, err := proto.Append(nil, mustParse(t, `{"id":18446744073709551615,"note":"x","lines":[{"sku":"a","qty":3,"weight":0.5}],"by_sku":{"a":{}},"kind":"PAID","at":"2026-01-31T08:00:00Z","limit":7,"extra":{"a":[1]},"card":"x","parent":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		s       *Schema
		payload []byte
	}{{avro, payload}, {proto, full}, {proto, nil}} {
		text, err := Generate(c.s, JSONSchemaText, "")
		if err != nil {
			t.Fatal(err)
		}
		v, err := c.s.Decode(c.payload)
		if err != nil {
			t.Fatal(err)
		}
		js := mustJSON(t, text)
		if err := js.Validate([]byte(v.String())); err != nil {
			t.Errorf("%s: %v", v, err)
		}
		if err := js.Validate([]byte(strings.Replace(v.String(), `"n":7`, `"n":"x"`, 1))); c.s == avro && err == nil {
			t.Error("anything is of the generated schema")
		}
	}
}

func FuzzGenerate(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#"},"b c":{"enum":["x","y"]},"*/":{"type":["null","array"]}}}`, "x")
	f.Add(`{"anyOf":[{"type":"array","prefixItems":[true]},{"const":null}],"properties":{}}`, "type")
	f.Fuzz(func(t *testing.T, text, name string) {
		s, err := Compile(Source{Format: JSONSchema, Text: text})
		if err != nil {
			return
		}
		for _, lang := range []Language{Go, TypeScript} {
			if _, err := Generate(s, lang, name); err != nil {
				t.Errorf("%s in %s: %v", text, lang, err)
			}
		}
	})
}
