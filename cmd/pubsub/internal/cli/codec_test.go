package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heraldmq/herald/client"
)

func TestCodecFlags(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	avro := file("r.avsc", `{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}`)
	proto := file("r.proto", `syntax = "proto3"; package p; message A { sint64 n = 1; } message B { sint64 n = 2; }`)
	w.must("topic", "create", "orders")
	c := w.client()
	for _, payload := range []string{"\x02", "\x16", "\x10\x18"} { // 1 and 11 in Avro, 12 in B
		if _, err := c.PublishDurable(t.Context(), "orders.x", []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(codec string) string {
		t.Helper()
		return w.must("sub", "orders.>", "--all", "--where", "n > 10", "--codec", codec, "-o", "raw", "--count", "1")
	}
	if out := read("@" + avro); out != "\x16\n" {
		t.Errorf("by Avro: %q", out)
	}
	if out := read("@" + proto + "#p.B"); out != "\x10\x18\n" {
		t.Errorf("by Protobuf: %q", out)
	}
	written := file("older.json", `{"avro":{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]},"framing":"confluent","id":7,"writers":{"8":{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}}}`)
	if _, err := c.PublishDurable(t.Context(), "orders.x", []byte("\x00\x00\x00\x00\x08\x1a")); err != nil {
		t.Fatal(err)
	}
	if out := read("@" + written); out != "\x00\x00\x00\x00\x08\x1a\n" {
		t.Errorf("by a codec with writers: %q", out)
	}
	o := w.run("sub", "orders.>", "--where", "n > 10", "--codec", "advertised")
	if o.code != exitUsage || !strings.Contains(o.err, "no advertisement") {
		t.Errorf("nothing is advertised: %+v", o)
	}
	if _, err := c.PutAdvertisement(t.Context(), client.Advertisement{
		Name: "orders", Subject: "orders.>", Schema: &client.Schema{Format: "avro", Inline: []byte(`{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}`)},
	}); err != nil {
		t.Fatal(err)
	}
	if out := read("advertised"); out != "\x16\n" {
		t.Errorf("as advertised: %q", out)
	}
	o = w.with(t.Context(), "{\"n\":11}\n{\"n\":1}\n", "filter", "test", "n > 10", "--codec", "@"+proto+"#p.A")
	if o.code != exitOK || !strings.HasPrefix(o.out, "match     {\"n\":11}\nno match  {\"n\":1}\n") {
		t.Errorf("%+v", o)
	}
	for _, args := range [][]string{{"@" + proto}, {"@" + file("bad.json", `{"avro":"int","writers":5}`)}, {"@" + dir + "/none"}, {"xml"}} {
		if o := w.run("filter", "test", "n > 10", "--codec", args[0]); o.code != exitUsage {
			t.Errorf("%v: %+v", args, o)
		}
	}
}
