package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/record"
)

// messages draws what can be published: any payload, header names and values
// that a header can hold.
func drawMessages(t *rapid.T, prefix string) []record.Message {
	name := rapid.StringMatching(`[A-Za-z][A-Za-z0-9-]{0,8}`)
	value := rapid.StringMatching(`[!-~äß€]{1,12}`)
	body := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 60), rapid.Map(rapid.SampledFrom([]string{"", `{"a":1.0}`, `{"a": 1}`, `[null]`, "\x00", "\xff\xfe", "<&>\u2028", "12"}), func(s string) []byte { return []byte(s) }))
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) record.Message {
		m := record.Message{Subject: prefix + "." + rapid.StringMatching(`[a-zé0-9_-]{1,10}`).Draw(t, "subject"), Payload: body.Draw(t, "payload")}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			if m.Headers == nil {
				m.Headers = map[string][]string{}
			}
			key := "X-" + name.Draw(t, "name")
			m.Headers[key] = append(m.Headers[key], value.Draw(t, "value"))
		}
		return m
	}), 1, 20).Draw(t, "messages")
}

func lines(t *rapid.T, messages []record.Message) string {
	var b strings.Builder
	for _, m := range messages {
		line, err := record.Append(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}

func parse(t *rapid.T, out string) []record.Message {
	var all []record.Message
	for line := range strings.Lines(out) {
		m, err := record.Parse([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func differ(a, b record.Message) string {
	if a.Subject != b.Subject || a.Reply != b.Reply || !bytes.Equal(a.Payload, b.Payload) || fmt.Sprint(a.Headers) != fmt.Sprint(b.Headers) {
		return fmt.Sprintf("sent %+v\ngot  %+v", a, b)
	}
	return ""
}

// What pub stores from ndjson, sub gives back; that piped on gives the same
// again, stored and live.
func TestPipesLoseNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.client()
	for _, name := range []string{"a", "b"} {
		if _, err := c.CreateTopic(t.Context(), client.TopicConfig{Name: name, Subjects: []string{name + ".>"}}); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		sent := drawMessages(rt, "a")
		for _, name := range []string{"a", "b"} {
			if err := c.PurgeTopic(t.Context(), name, client.Purge{}); err != nil {
				rt.Fatal(err)
			}
		}
		if o := w.with(t.Context(), lines(rt, sent), "pub", "-i", "ndjson", "--durable"); o.code != 0 {
			rt.Fatalf("%+v", o)
		}
		out := w.must("sub", "a.>", "--all", "--to", "end", "-o", "ndjson")
		got := parse(rt, out)
		if len(got) != len(sent) {
			rt.Fatalf("sent %d, got %d", len(sent), len(got))
		}
		for i := range sent {
			if d := differ(sent[i], got[i]); d != "" {
				rt.Fatal(d)
			}
		}
		// On to another topic, from what sub printed.
		if o := w.with(t.Context(), strings.ReplaceAll(out, `"subject":"a.`, `"subject":"b.`), "pub", "-i", "ndjson", "-d"); o.code != 0 {
			rt.Fatalf("%+v", o)
		}
		for i, m := range parse(rt, w.must("sub", "b.>", "--all", "--to", "end", "-o", "ndjson")) {
			m.Subject = "a" + m.Subject[1:]
			if d := differ(sent[i], m); d != "" {
				rt.Fatal(d)
			}
		}
	})
}

func TestLivePipesKeepReplies(t *testing.T) {
	w := newWorld(t)
	b := w.start("sub", "live.>", "-o", "ndjson", "--count", "3")
	b.until(&b.err, "listening")
	in := `{"subject":"live.1","reply":"answers.here","headers":{"k":["1","2"],"K":["3"]},"payload_base64":"AP8="}
{"subject":"live.2","payload":""}
{"subject":"live.3","payload_json":{"a":[1,2]}}
`
	if o := w.with(t.Context(), in, "pub", "-i", "ndjson"); o.code != 0 {
		t.Fatalf("%+v", o)
	}
	want := strings.Replace(in, `{"k":["1","2"],"K":["3"]}`, `{"K":["3"],"k":["1","2"]}`, 1)
	if o := b.wait(); o.code != 0 || o.out != want {
		t.Errorf("%+v", o)
	}
}

func TestLinesAndBodies(t *testing.T) {
	w := newWorld(t)
	w.must("topic", "create", "t")
	if o := w.with(t.Context(), "one\n\ntwo", "pub", "t.lines", "-i", "lines", "-d"); o.code != 0 {
		t.Fatalf("%+v", o)
	}
	if o := w.with(t.Context(), "all\nof it\n", "pub", "t.body", "-d"); o.code != 0 {
		t.Fatalf("%+v", o)
	}
	if out := w.must("sub", "t.>", "--all", "--to", "end", "-o", "ndjson", "--template", "{{.subject}}={{.size}}"); out != "t.lines=3\nt.lines=0\nt.lines=3\nt.body=10\n" {
		t.Errorf("%q", out)
	}
	if o := w.with(t.Context(), "{\"subject\":\"t.x\"}\nnonsense\n", "pub", "-i", "ndjson"); o.code != exitUsage || !strings.Contains(o.err, "input line 2") {
		t.Errorf("%+v", o)
	}
	if o := w.run("pub", "t.dry", "x", "--dry-run", "-o", "ndjson", "--count", "2"); o.code != 0 || strings.Count(o.out, "\n") != 2 {
		t.Errorf("%+v", o)
	}
	if out := w.must("sub", "t.dry", "--all", "--to", "end"); out != "" {
		t.Errorf("a dry run stored %q", out)
	}
}

func TestAnIdStoresOnce(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		w.must("pub", "-d", "t.x", "x", "--id", "one")
	}
	o := w.run("pub", "-d", "t.x", "x", "--id", "one")
	if !strings.Contains(o.err, "(1 already there)") {
		t.Errorf("%+v", o)
	}
	if out := w.must("sub", "t.>", "--all", "--to", "end", "-o", "raw"); out != "x\n" {
		t.Errorf("%q", out)
	}
}
