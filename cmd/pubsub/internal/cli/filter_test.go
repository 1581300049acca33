package cli

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestFilterTestSaysWhy(t *testing.T) {
	w := nowhere(t) // it asks no broker
	o := w.with(t.Context(), "{\"n\":1}\n{\"n\":2}\n{}\nbroken\n", "filter", "test", "n > 1")
	want := "no match  {\"n\":1}\nmatch     {\"n\":2}\nerror     {}\n"
	if o.code != exitOK || !strings.HasPrefix(o.out, want) || !strings.Contains(o.out, "missing") || !strings.Contains(o.out, "payload") {
		t.Errorf("%+v", o)
	}
	o = w.with(t.Context(), `{"subject":"a.eu","headers":{"X":["1"]},"payload":"1"}`+"\n", "filter", "test", "--messages", "-o", "ndjson", `tokens[1] == "eu" && header["X"] == "1"`)
	if o.code != exitOK || o.out != "{\"line\":1,\"match\":true}\n" {
		t.Errorf("%+v", o)
	}
	for in, want := range map[string]string{"": "[]\n", "{\"n\":2}\n{\"n\":1}\n": "[\n{\"line\":1,\"match\":true},\n{\"line\":2,\"match\":false}\n]\n"} {
		if o := w.with(t.Context(), in, "filter", "test", "n > 1", "-o", "json"); o.code != exitOK || o.out != want {
			t.Errorf("%q: %+v", in, o)
		}
	}
	if o := w.run("filter", "test", "seq > 1"); o.code != exitUsage || !strings.Contains(o.err, "--messages") {
		t.Errorf("%+v", o)
	}
	if o := w.run("filter", "test", "n > > 1"); o.code != exitUsage || !strings.Contains(o.err, "column") {
		t.Errorf("%+v", o)
	}
}

func TestSubWhere(t *testing.T) {
	w := newWorld(t)
	w.store(5) // payloads 1 to 5
	if out := w.must("sub", "orders.>", "--all", "--where", "this % 2 == 1", "-o", "raw", "--count", "3"); out != "1\n3\n5\n" {
		t.Errorf("%q", out)
	}
}

// TestSubWhereEnds: a bounded reading ends though the message at its end doesn't match.
func TestSubWhereEnds(t *testing.T) {
	w := newWorld(t)
	w.store(6) // payloads 1 to 6
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--to", "end", "--where", "this < 3"}, "1\n2\n"},
		{[]string{"--to", "end", "--where", "this > 99"}, ""},
		{[]string{"--to", "end", "--name", "named", "--where", "this % 4 == 1"}, "1\n5\n"},
		{[]string{"--to", "end", "--name", "named", "--where", "this % 4 == 1"}, ""}, // it has read all already
		{[]string{"--from", "2", "--to", "4", "--where", "this < 3"}, "2\n"},
		{[]string{"--from", "2", "--to", "4", "--where", "this % 4 == 2"}, "2\n"}, // 6 is behind the end
		{[]string{"--all", "--to", "@0s", "--where", "this < 3"}, "1\n2\n"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		o := w.with(ctx, "", append([]string{"sub", "orders.>", "-o", "raw"}, c.args...)...)
		cancel()
		if o.code != exitOK || o.out != c.want {
			t.Errorf("%v: %+v, want %q", c.args, o, c.want)
		}
	}
}
