package spec

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/schema"
)

// advertsIn compiles a spec and returns what its outputs advertise, by name.
func advertsIn(t *testing.T, text string) (map[string]graph.Advert, error) {
	t.Helper()
	s, err := Parse("op.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	g, _, err := Compile(s, Options{})
	if err != nil {
		return nil, err
	}
	again, err := Parse("op.json", g.JSON)
	if err != nil || again.Digest() != g.Digest {
		t.Errorf("the canonical form means something else (%v): %s", err, g.JSON)
	}
	all := map[string]graph.Advert{}
	for _, a := range g.Adverts {
		var name string
		if err := json.Unmarshal(a.Fields["name"], &name); err != nil {
			t.Fatal(err)
		}
		all[name] = a
	}
	return all, nil
}

const advertised = `
operator: op
version: "1"
ADVERTISE
inputs:
  - {topic: A, subjects: [a.x, a.y]}
  - {topic: B}
steps:
  - {name: left, from: A, map: {n: v, text: string(v), big: v > 3, half: double(v) / 2.0, at: time, list: '[1]', odd: 'v > 1 ? dyn(1) : dyn("a")'}}
  - {name: keyed, from: B, key: k}
  - {window: {tumble: 1m}}
  - {name: sums, aggregate: {n: count(), mean: avg(v), most: max(v), all: 'collect(v, max: 3)'}}
outputs:
  - {topic: 'LEFT+1', from: left, OUTPUT}
  - {topic: SUMS, subject: 'sums.{k}.{string(n)}', key: k}
  - {live: 'now.{k}.x', from: sums}
  - {topic: RAW, from: B}
`

func specWith(operator, output string) string {
	return strings.NewReplacer("ADVERTISE", operator, ", OUTPUT", output).Replace(advertised)
}

func TestOutputsAdvertiseByDefault(t *testing.T) {
	all, err := advertsIn(t, specWith("", ""))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"LEFT_1": {`"lineage":["A","a.x","a.y"]`, `"summary":"output LEFT+1 of operator op"`, `"owner":{"service":"op","version":"1"}`, `"implicit":true`, `"operator":"op"`, `"role":"operator"`, `"mode":"permanent"`, `"content_type":"application/json"`},
		"SUMS":   {`"lineage":["B"]`, `"subject":"sums.{k}.*"`, `"key":{"header":"Herald-Key"}`},
		"now.x":  {`"subject":"now.{k}.x"`, `"lineage":["B"]`},
		"RAW":    {`"lineage":["B"]`},
	} {
		a, ok := all[name]
		if !ok {
			t.Errorf("%s isn't advertised", name)
			continue
		}
		body, _ := json.Marshal(a.Fields)
		for _, part := range want {
			if !strings.Contains(string(body), part) {
				t.Errorf("%s has no %s: %s", name, part, body)
			}
		}
		if ad, f := catalogue.ParseAdvertisement(advertBody(t, a)); f != nil || ad.Decides() || ad.Enforced() || ad.Exclusive {
			t.Errorf("%s demands something of messages, or is none (%v)", name, f)
		}
		if !a.Implicit || a.Why != "" {
			t.Errorf("%s: implicit %t, %s", name, a.Implicit, a.Why)
		}
	}
	if len(all) != 4 {
		t.Errorf("there are %d", len(all))
	}
}

func advertBody(t *testing.T, a graph.Advert) []byte {
	t.Helper()
	body, err := json.Marshal(a.With("any").Fields)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// derivedOf compiles the schema that is derived for an output; nil: none is.
func derivedOf(t *testing.T, a graph.Advert) *schema.Schema {
	t.Helper()
	raw := a.Fields[catalogue.FieldDerived]
	if raw == nil {
		return nil
	}
	var d struct {
		Format schema.Format
		Inline json.RawMessage
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	s, err := schema.Compile(schema.Source{Format: d.Format, Text: string(d.Inline)})
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return s
}

func TestDerivedSchemasSayWhatIsCertain(t *testing.T) {
	all, err := advertsIn(t, specWith("", ""))
	if err != nil {
		t.Fatal(err)
	}
	if s := derivedOf(t, all["RAW"]); s != nil {
		t.Error("a schema was made up for what isn't known")
	}
	for _, c := range []struct {
		of, payload string
		fits        bool
	}{
		{"LEFT_1", `{"n":{"any":1},"text":"x","big":true,"half":0.5,"at":"2026-01-31T08:00:00Z","list":[1],"odd":"a"}`, true},
		{"LEFT_1", `{"n":null,"text":"x","big":true,"half":null,"at":"2026-01-31T08:00:00Z","list":[],"odd":1}`, true},
		{"LEFT_1", `{"n":1,"text":2,"big":true,"half":0.5,"at":"2026-01-31T08:00:00Z","list":[1],"odd":1}`, false},
		{"LEFT_1", `{"text":"x","big":true,"half":0.5,"at":"2026-01-31T08:00:00Z","list":[1],"odd":1}`, false}, // n is missing
		{"SUMS", `{"k":"a","window_start":"2026-01-31T08:00:00Z","window_end":"2026-01-31T08:01:00Z","n":2,"mean":1.5,"most":"z","all":[]}`, true},
		{"SUMS", `{"k":"a","window_start":"2026-01-31T08:00:00Z","window_end":"2026-01-31T08:01:00Z","n":2,"mean":null,"most":null,"all":[1]}`, true},
		{"SUMS", `{"k":"a","window_start":1,"window_end":"2026-01-31T08:01:00Z","n":2,"mean":1.5,"most":"z","all":[]}`, false},
		{"SUMS", `{"k":"a","window_start":"2026-01-31T08:00:00Z","window_end":"2026-01-31T08:01:00Z","n":2.5,"mean":1.5,"most":"z","all":[]}`, false},
	} {
		s := derivedOf(t, all[c.of])
		if s == nil {
			t.Fatalf("nothing is derived for %s", c.of)
		}
		if err := s.Validate([]byte(c.payload)); (err == nil) != c.fits {
			t.Errorf("%s: %s: %v", c.of, c.payload, err)
		}
	}
}

func TestAdvertiseIsSaidForAllOrForOne(t *testing.T) {
	for _, c := range []struct {
		name, operator, output string
		want                   map[string]bool // implicit, by name
		has                    string          // of the first
	}{
		{"false for all", "advertise: false", "", nil, ""},
		{"false for one", "", ", advertise: false", map[string]bool{"SUMS": true, "now.x": true, "RAW": true}, ""},
		{"one after all", "advertise: false", ", advertise: true", map[string]bool{"LEFT_1": true}, ""},
		{"a block for one", "advertise: false", ", advertise: {summary: mine, name: left}", map[string]bool{"left": false}, `"summary":"mine"`},
		{"a block for all, with more for one", "advertise: {tags: [a], summary: all}", ", advertise: {summary: mine}", map[string]bool{"LEFT_1": false, "SUMS": false, "now.x": false, "RAW": false}, `"summary":"mine","tags":["a"]`},
		{"a name for all", "advertise: {name: x}", ", advertise: true", map[string]bool{"LEFT_1": true, "x.SUMS": false, "x.now.x": false, "x.RAW": false}, ""},
		{"a schema that is said", "", ", advertise: {schema: {format: json-schema, inline: {type: object}}}", map[string]bool{"LEFT_1": false, "SUMS": true, "now.x": true, "RAW": true}, `"schema":`},
	} {
		all, err := advertsIn(t, specWith(c.operator, c.output))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := map[string]bool{}
		first := ""
		for name, a := range all {
			got[name] = a.Implicit
			if a.Output == "LEFT+1" {
				body, _ := json.Marshal(a.Fields)
				first = string(body)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %v", c.name, got)
		}
		for name, implicit := range c.want {
			if is, ok := got[name]; !ok || is != implicit {
				t.Errorf("%s: %v", c.name, got)
			}
		}
		if !strings.Contains(first, c.has) {
			t.Errorf("%s: %s", c.name, first)
		}
		if strings.Contains(first, `"schema":`) && strings.Contains(first, catalogue.FieldDerived) {
			t.Errorf("%s: beside a schema that is said stands another one: %s", c.name, first)
		}
	}
	for _, c := range []struct{ output, want string }{
		{", advertise: {exclusive: true}", "can't say exclusive"},
		{", advertise: [a]", "a mapping like"},
		{", advertise: {implicit: true}", "can't say implicit"},
		{", advertise: {kind: nonsense}", "must be event, state, command or reply"},
	} {
		if _, err := advertsIn(t, specWith("", c.output)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.output, err)
		}
	}
}

// What is easily written wrong is told before a record stops the operator, or with what to do.
func TestWhatStopsAnOperatorLaterIsWarnedOf(t *testing.T) {
	join := func(kind, as string) string {
		return "operator: j\ninputs: [{topic: A}, {topic: B, table: true, key: id, time: {stored: true}}]\ntime: {event: at}\nsteps:\n  - {name: j, from: A, join: {with: B, on: {left: b, right: id}, table: true, kind: " + kind + ", as: " + as + "}}\noutputs: [{topic: C}]\n"
	}
	for _, c := range []struct{ text, want string }{
		{join("left", "{a: left.a, n: right.name}"), "op.yaml:5:110: warning: right.name is an error where there is no partner, at which the operator stops; 'right.?name' is null then"},
		{join("left", "{a: left.a, n: 'right.?name', m: 'right == null ? 1 : right.m'}"), ""},
		{join("inner", "{a: left.a, n: right.name}"), ""},
		{join("left", "{n: right.?name}"), "within braces a text with a question mark"},
		{strings.Replace(join("left", "{a: left.a}"), "stored: true", "stored: true, event: x", 1), "not both"},
		{"operator: f\ninputs: [{topic: A}]\nsteps: [{filter: a = 1}]\noutputs: [{topic: C}]\n", "what is equal is told by =="},
	} {
		s, err := Parse("op.yaml", []byte(c.text))
		said := ""
		if err == nil {
			var warnings Problems
			if _, warnings, err = Compile(s, Options{}); err == nil {
				said = warnings.Error()
			}
		}
		if err != nil {
			said = err.Error()
		}
		if !strings.Contains(said, c.want) || c.want == "" && strings.Contains(said, "partner") {
			t.Errorf("%s says %q, want %q", c.text, said, c.want)
		}
	}
}
