package record

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func same(a, b Message) bool {
	return a.Subject == b.Subject && a.Reply == b.Reply && bytes.Equal(a.Payload, b.Payload) &&
		a.Topic == b.Topic && a.Sequence == b.Sequence && a.Time.Equal(b.Time) && a.Delivered == b.Delivered &&
		maps.EqualFunc(a.Headers, b.Headers, slices.Equal[[]string])
}

func TestEveryMessageSurvivesTheRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		anyBytes := rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 40), func(b []byte) string { return string(b) })
		anyText := rapid.OneOf(rapid.String(), anyBytes, rapid.SampledFrom([]string{"", "\x00", "\ufffd", "\u2028<&>", `{"a":1}`, `{"a": 1}`, `[1,2]`, "null", "\xff", `{"a":"\xff"}`}))
		m := Message{
			Subject: anyText.Draw(t, "subject"), Reply: anyText.Draw(t, "reply"),
			Payload:  []byte(anyText.Draw(t, "payload")),
			Sequence: rapid.Uint64().Draw(t, "sequence"), Delivered: rapid.Uint64().Draw(t, "delivered"),
		}
		if rapid.Bool().Draw(t, "stored") {
			m.Topic, m.Time = "T", time.Unix(0, rapid.Int64Range(1, 1<<60).Draw(t, "time")).UTC()
		}
		names := rapid.SliceOfNDistinct(anyText, 0, 4, rapid.ID).Draw(t, "names")
		for _, name := range names {
			if m.Headers == nil {
				m.Headers = map[string][]string{}
			}
			m.Headers[name] = rapid.SliceOfN(anyText, 1, 3).Draw(t, "values")
		}
		line, err := Append(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsRune(line, '\n') {
			t.Fatalf("a line with a newline: %q", line)
		}
		back, err := Parse(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if !same(m, back) {
			t.Fatalf("sent %#v\ngot  %#v\nline %s", m, back, line)
		}
	})
}

func TestLines(t *testing.T) {
	for _, c := range []struct {
		name string
		m    Message
		want string
	}{
		{"text", Message{Subject: "a.b", Payload: []byte("hi")}, `{"subject":"a.b","payload":"hi"}`},
		{"empty", Message{Subject: "a.b"}, `{"subject":"a.b","payload":""}`},
		{"json", Message{Subject: "a", Payload: []byte(`{"b":1.0,"b":"<"}`)}, `{"subject":"a","payload_json":{"b":1.0,"b":"<"}}`},
		{"spaced json", Message{Subject: "a", Payload: []byte(`{"b": 1}`)}, `{"subject":"a","payload":"{\"b\": 1}"}`},
		{"a number is text", Message{Subject: "a", Payload: []byte(`12`)}, `{"subject":"a","payload":"12"}`},
		{"binary", Message{Subject: "a", Payload: []byte{0xff, 0}}, `{"subject":"a","payload_base64":"/wA="}`},
		{
			"headers keep case and repeats",
			Message{Subject: "a", Headers: map[string][]string{"k": {"1", "2"}, "K": {"3"}}},
			`{"subject":"a","headers":{"K":["3"],"k":["1","2"]},"payload":""}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Append(nil, c.m)
			if err != nil || string(got) != c.want {
				t.Fatalf("got %s, %v\nwant %s", got, err, c.want)
			}
		})
	}
}

func TestBadLinesAreRefused(t *testing.T) {
	for _, c := range []struct{ line, says string }{
		{``, "EOF"},
		{`[]`, "array"},
		{`{"subject":"a","paylod":"x"}`, "paylod"},
		{`{"subject":"a"} {"subject":"b"}`, "more than one JSON value"},
		{`{"subject":"a","payload":"x","payload_base64":"eA=="}`, "more than one of"},
		{`{"subject":"a","headers_base64":{"!":["eA=="]}}`, "headers_base64"},
	} {
		if _, err := Parse([]byte(c.line)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want an error about %q", c.line, err, c.says)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"subject":"a.b","headers":{"K":["v"]},"payload_json":[1]}`))
	f.Add([]byte(`{"subject_base64":"/w==","payload":null}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := Parse(line)
		if err != nil {
			return
		}
		again, err := Append(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(again)
		if err != nil || !same(m, back) {
			t.Fatalf("%s -> %#v -> %s -> %#v, %v", line, m, again, back, err)
		}
	})
}
