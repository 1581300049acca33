package yaml

import (
	"encoding/json"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestDocuments(t *testing.T) {
	for _, c := range []struct{ name, doc, want string }{
		{"empty", "# nothing\n\n", `null`},
		{"mapping", "a: 1\nb: two words # comment\nc:\n", `{"a":1,"b":"two words","c":null}`},
		{"nested", "---\nowner:\n  team: quakes\n  contact: 'it''s me'\nx: true\n", `{"owner":{"contact":"it's me","team":"quakes"},"x":true}`},
		{"flow", "owner: { team: a, tags: [x, \"y: z\", 3, -1.5], n: null }\n", `{"owner":{"n":null,"tags":["x","y: z",3,-1.5],"team":"a"}}`},
		{"flow over lines", "a: {\n  b: 1,   # one\n  c: [\n    2,\n  ],\n}\nd: 1\n", `{"a":{"b":1,"c":[2]},"d":1}`},
		{"lists", "a:\n- 1\n-\n  b: 2\n- c: 3\n  d: 4\n- - 5\n  - 6\n", `{"a":[1,{"b":2},{"c":3,"d":4},[5,6]]}`},
		{"list at the top", "- a\n- b: c\n", `["a",{"b":"c"}]`},
		{"literal", "a: |\n  one\n    two\n\n  three\nb: 1\n", `{"a":"one\n  two\n\nthree\n","b":1}`},
		{"folded", "a: >-\n  one\n  two\n\n  three\n", `{"a":"one two\nthree"}`},
		{"subjects stay text", "subject: quakes.{net}.{type}\nurl: nats://a:4222\nttl: 30s\nrate: 50/s\n", `{"rate":"50/s","subject":"quakes.{net}.{type}","ttl":"30s","url":"nats://a:4222"}`},
		{"quoted keys", "\"a b\": 1\n'c': \"\\u00e9\\n\"\n", `{"a b":1,"c":"é\n"}`},
		{"types", "a: 007\nb: 1e3\nc: 1.2.3\nd: -\ne: 2026-11-30\nf: .5\n", `{"a":7,"b":1000,"c":"1.2.3","d":"-","e":"2026-11-30","f":0.5}`},
		{"json", "{\"a\": {\"b\": [1, 2]}}\n", `{"a":{"b":[1,2]}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ToJSON([]byte(c.doc))
			if err != nil || string(got) != c.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, c.want)
			}
		})
	}
}

func TestWhatIsNotUnderstoodIsRefusedWithItsLine(t *testing.T) {
	for _, c := range []struct {
		name, doc string
		line      int
	}{
		{"anchor", "a: 1\nb: &x 2\n", 2},
		{"alias", "b: *x\n", 1},
		{"tag", "b: !!str 2\n", 1},
		{"tab", "a:\n\tb: 1\n", 2},
		{"twice", "a: 1\na: 2\n", 2},
		{"twice in brackets", "x: {a: 1, a: 2}\n", 1},
		{"indentation", "a: 1\n  b: 2\n", 2},
		{"two documents", "a: 1\n---\nb: 2\n", 2},
		{"no key", "a: 1\njust text\n", 2},
		{"open bracket", "a: [1, 2\n", 1},
		{"open quote", "a: \"x\n", 1},
		{"junk after", "a: [1] 2\n", 1},
		{"colon in plain", "a: b: c\n", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ToJSON([]byte(c.doc))
			var syntax *SyntaxError
			if !errors.As(err, &syntax) || syntax.Line < c.line || syntax.Line > c.line+1 {
				t.Errorf("got %s, %v; want an error at line %d", got, err, c.line)
			}
		})
	}
}

// JSON is YAML: whatever encoding/json writes must be read as the same value.
func TestJSONIsUnderstood(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var value func(depth int) any
		value = func(depth int) any {
			switch kind := rapid.IntRange(0, 6).Draw(t, "kind"); {
			case kind == 0 && depth < 4:
				list := []any{}
				for range rapid.IntRange(0, 3).Draw(t, "n") {
					list = append(list, value(depth+1))
				}
				return list
			case kind == 1 && depth < 4:
				m := map[string]any{}
				for range rapid.IntRange(0, 3).Draw(t, "n") {
					m[rapid.String().Draw(t, "key")] = value(depth + 1)
				}
				return m
			case kind == 2:
				return rapid.Bool().Draw(t, "bool")
			case kind == 3:
				return rapid.Int64().Draw(t, "int")
			case kind == 4:
				return nil
			default:
				return rapid.String().Draw(t, "string")
			}
		}
		want, err := json.MarshalIndent(value(0), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		got, err := ToJSON(want)
		if err != nil {
			t.Fatalf("%s\n%v", want, err)
		}
		var a, b any
		if json.Unmarshal(want, &a) != nil || json.Unmarshal(got, &b) != nil {
			t.Fatal("not JSON")
		}
		wa, _ := json.Marshal(a)
		wb, _ := json.Marshal(b)
		if string(wa) != string(wb) {
			t.Fatalf("%s\nbecame\n%s", wa, wb)
		}
	})
}

func FuzzToJSON(f *testing.F) {
	f.Add([]byte("a: {b: [1, 'x']}\nc: |\n  t\n- d\n"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if got, err := ToJSON(doc); err == nil && !json.Valid(got) {
			t.Fatalf("not JSON: %s", got)
		}
	})
}
