package cli

import (
	"strings"
	"testing"
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
