package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

// A pipe of -o json into -i json keeps bytes that are no text, and headers with their case,
// order and repetitions.
func TestAJSONArrayIsInputToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("topic", "create", "rt", "--subjects", "rt.>")
	for _, m := range []struct {
		in   string
		args []string
	}{
		{"bin\x00\xff\n", []string{"rt.1", "-H", "A: 1", "-H", "a: 2", "-H", "A: 3"}},
		{`{"n": 12345678901234567890}`, []string{"rt.2"}},
		{"", []string{"rt.3", "-H", "Empty: x"}},
	} {
		if o := w.with(t.Context(), m.in, append([]string{"pub", "--durable"}, m.args...)...); o.code != 0 {
			t.Fatal(o)
		}
	}
	read := func(subject string) []map[string]any {
		list := objects(t, w.must("sub", subject, "--all", "--to", "end", "-o", "json"))
		for _, m := range list {
			for _, k := range []string{"topic", "sequence", "time", "delivered"} {
				delete(m, k)
			}
		}
		return list
	}
	first := w.must("sub", "rt.>", "--all", "--to", "end", "-o", "json")
	w.must("topic", "create", "again", "--subjects", "again.>")
	if o := w.with(t.Context(), strings.ReplaceAll(first, `"rt.`, `"again.`), "pub", "--durable", "-i", "json"); o.code != 0 {
		t.Fatal(o)
	}
	was, is := read("rt.>"), read("again.>")
	a, _ := json.Marshal(was)
	b, _ := json.Marshal(is)
	if len(was) != 3 || strings.ReplaceAll(string(b), `"again.`, `"rt.`) != string(a) {
		t.Errorf("was\n%s\nis\n%s", a, b)
	}
}

// Every list of nothing is an array, and every format that a list doesn't have is a mistake
// of the caller's.
func TestEveryListOfNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, command := range []string{
		"topic ls", "dlq ls", "schedule ls", "context ls", "discover", "discover --violating", "discover --silent", "discover --unused",
		"operator ls", "top topics --once --every 50ms", "top consumers --once --every 50ms", "top operators --once --every 50ms",
	} {
		if out := w.must(append(strings.Fields(command), "-o", "json")...); strings.TrimSpace(out) != "[]" {
			t.Errorf("%s: %q", command, out)
		}
		if out := w.must(append(strings.Fields(command), "-o", "ndjson")...); out != "" {
			t.Errorf("%s -o ndjson: %q", command, out)
		}
		if o := w.run(append(strings.Fields(command), "-o", "hex")...); o.code != exitUsage || !strings.Contains(o.err, "-o hex is for messages") || o.out != "" {
			t.Errorf("%s -o hex: %+v", command, o)
		}
	}
}

func TestErrorCodesAreCompleted(t *testing.T) {
	if out := nowhere(t).must("__complete", "explain", "1005"); !strings.Contains(out, "10059\tstream not found") {
		t.Errorf("%q", out)
	}
}
