package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

const bunch = `
- name: orders
  subject: orders.{region}
  summary: "Orders: new ones"
  owner: {team: sales, service: shop}
  enforce: reject
  durable: {max_msgs: 100}
  key: {token: region}
  schema: {format: json-schema, version: "1", compat: full, inline: {type: object, required: [qty], properties: {qty: {type: integer, minimum: 1}, note: {type: string, pattern: "^<.*>$"}}}}
  examples: [{qty: 3}]
  lease: {mode: permanent}
- name: logs
  subject: logs.{host}.{rest...}
  tags: [ops]
  x-cost: {centre: 7}
  lease: {mode: ttl, ttl: 1h}
- {name: reads, subject: orders.*, role: consumes, lease: {mode: permanent}}
`

// ok is run of what must succeed.
func (w *world) ok(args ...string) outcome {
	w.t.Helper()
	o := w.run(args...)
	if o.code != exitOK {
		w.t.Fatalf("%s: %+v", strings.Join(args, " "), o)
	}
	return o
}

func (w *world) file(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.home, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func TestAdvertiseFromAFileGoesWhereTheFlagsSay(t *testing.T) {
	there, w := newWorld(t), nowhere(t)
	file := w.file("one.yaml", "{name: one, subject: one, lease: {mode: permanent}}")
	for _, command := range [][]string{{"advertise", "-f", file}, {"advertise", "put", "-f", file}} {
		w.must(append([]string{"--server", there.url}, command...)...)
		there.must("advertise", "rm", "one")
	}
}

func TestExportWipeImportExport(t *testing.T) {
	w := newWorld(t)
	w.must("advertise", "put", "-f", w.file("bunch.yaml", bunch))
	first := w.ok("discover", "--asyncapi").out
	for _, want := range []string{"asyncapi: 3.1.0", "address: orders.{region}", "x-herald-enforce: reject", "action: receive"} {
		if !strings.Contains(first, want) {
			t.Fatalf("no %q in\n%s", want, first)
		}
	}
	before := w.ok("discover", "-o", "json", "--no-services").out
	for _, name := range []string{"orders", "logs", "reads"} {
		w.must("advertise", "rm", name)
	}
	if o := w.ok("discover", "-o", "json", "--no-services"); o.out != "[]\n" {
		t.Fatalf("not wiped: %s", o.out)
	}
	w.must("advertise", "-f", w.file("api.yaml", first))
	if again := w.ok("discover", "--asyncapi").out; again != first {
		t.Errorf("exported again it differs:\n%s\n---\n%s", first, again)
	}
	drop := func(s string) string { // what the broker knows by itself
		var kept []string
		for line := range strings.Lines(s) {
			if key := strings.TrimSpace(line); !strings.HasPrefix(key, `"id"`) && !strings.HasPrefix(key, `"revision"`) && !strings.HasPrefix(key, `"created"`) && !strings.HasPrefix(key, `"changed"`) {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "")
	}
	if after := w.ok("discover", "-o", "json", "--no-services").out; drop(after) != drop(before) {
		t.Errorf("the advertisements are others:\n%s\n---\n%s", before, after)
	}
}

func TestCheckSampleInferAndWhatIsObserved(t *testing.T) {
	w := newWorld(t)
	for _, body := range []string{`{"qty":1,"note":"a"}`, `{"qty":0}`, `{"qty":2}`} {
		w.must("pub", "orders.eu", body, "--durable")
	}
	w.must("pub", "stray.17.x", "x")
	o := w.ok("advertise", "infer", "orders.>", "--samples", "10")
	if !strings.Contains(o.out, `"qty"`) || !strings.Contains(o.err, "proposed from 3 messages") {
		t.Errorf("inferred %s%s", o.out, o.err)
	}
	schema := w.file("order.json", `{"type":"object","properties":{"qty":{"minimum":1}}}`)
	bad := w.run("advertise", "check", "orders.>", "--schema", schema, "--last", "1h")
	if bad.code != exitRefused || !strings.Contains(bad.err, "1 of 3 messages would be refused") || !strings.Contains(bad.out, "/qty: minimum") {
		t.Errorf("check: %+v", bad)
	}
	w.must("advertise", "put", "orders", "--subject", "orders.{region}", "--schema", schema, "--enforce", "reject", "--compat", "backward", "--key", "token:region")
	if o := w.run("pub", "orders.eu", `{"qty":-1}`, "--durable"); o.code != exitRefused || !strings.Contains(o.err, "/qty: minimum") {
		t.Errorf("a message that is not as advertised: %+v", o)
	}
	w.must("pub", "orders.eu", `{"qty":5}`, "--durable")
	if o := w.ok("advertise", "sample", "orders", "--count", "1", "-o", "raw"); o.out != `{"qty":5}`+"\n" {
		t.Errorf("sample: %+v", o)
	}
	if o := w.ok("discover", "orders"); !strings.Contains(o.out, "50 % of 2 messages") || !strings.Contains(o.out, "enforce") {
		t.Errorf("discover: %s", o.out)
	}
	if o := w.ok("discover", "--violating", "-o", "raw"); o.out != "orders\n" {
		t.Errorf("violating: %+v", o)
	}
	if o := w.ok("discover", "--undeclared", "-o", "raw"); o.out != "stray.*.x\n" {
		t.Errorf("undeclared: %+v", o)
	}
	if o := w.ok("discover", "--unused", "-o", "raw"); o.out != "orders\n" {
		t.Errorf("unused: %+v", o)
	}
	if o := w.ok("discover", "orders", "--jsonschema"); !strings.Contains(o.out, `"minimum": 1`) {
		t.Errorf("schema: %+v", o)
	}
	if o := w.ok("discover", "orders", "--ts"); !strings.Contains(o.out, "qty?:") {
		t.Errorf("TypeScript: %s", o.out)
	}
	w.must("consumer", "create", "orders", "billing")
	if o := w.ok("advertise", "rm", "orders"); !strings.Contains(o.err, "1 consumer reads orders") {
		t.Errorf("rm: %s", o.err)
	}
}

func TestTypesOfAnySchema(t *testing.T) {
	w := newWorld(t)
	w.must("advertise", "put", "quakes", "--subject", "quakes", "--schema", w.file("quake.avsc", `{"type":"record","name":"Quake","fields":[{"name":"mag","type":"double"}]}`))
	w.must("advertise", "put", "trips", "--subject", "trips", "--schema", w.file("trip.proto", "syntax = \"proto3\";\nmessage Trip { int64 id = 1; string to = 2; }\n"))
	for _, c := range []struct{ name, flag, want string }{
		{"quakes", "--go", "Mag float64"},
		{"quakes", "--ts", "mag: number"},
		{"quakes", "--jsonschema", `"mag"`},
		{"trips", "--go", "To string"},
		{"trips", "--ts", "to"},
		{"trips", "--jsonschema", `"to"`},
	} {
		if o := w.ok("discover", c.name, c.flag); !strings.Contains(strings.Join(strings.Fields(o.out), " "), c.want) {
			t.Errorf("%s %s has no %q:\n%s", c.name, c.flag, c.want, o.out)
		}
	}
	if o := w.run("discover", "--go"); o.code != exitUsage {
		t.Errorf("without a name: %+v", o)
	}
	w.must("advertise", "put", "plain", "--subject", "plain")
	if o := w.run("discover", "plain", "--go"); o.code != exitNotFound || !strings.Contains(o.err, "advertise infer") {
		t.Errorf("without a schema: %+v", o)
	}
}

func TestHintsWhereNothingIs(t *testing.T) {
	w := newWorld(t)
	w.must("advertise", "put", "orders", "--subject", "orders.{region}.created")
	o := w.run("sub", "ordres.eu.created", "--wait", "20ms")
	if !strings.Contains(o.err, "nothing is advertised on ordres.eu.created") || !strings.Contains(o.err, "near it: orders.{region}.created") {
		t.Errorf("sub: %s", o.err)
	}
	if o := w.run("sub", "orders.eu.created", "--wait", "20ms"); strings.Contains(o.err, "nothing is advertised") {
		t.Errorf("sub where something is: %s", o.err)
	}
	if o := w.run("-q", "sub", "ordres", "--wait", "20ms"); strings.Contains(o.err, "nothing is advertised") {
		t.Errorf("sub -q: %s", o.err)
	}
	if o := w.ok("pub", "orders.eu.create", "x"); !strings.Contains(o.err, "nobody listens to the 1 message on orders.eu.create") || !strings.Contains(o.err, "orders.{region}.created") {
		t.Errorf("pub: %s", o.err)
	}
	w.must("pub", "kept.1", "x", "--durable")
	if o := w.ok("pub", "kept.1", "x"); strings.Contains(o.err, "nobody listens") {
		t.Errorf("pub where a topic keeps it: %s", o.err)
	}
}

func TestMicroServicesAreListed(t *testing.T) {
	w := newWorld(t)
	nc, err := nats.Connect(w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	s, err := micro.AddService(nc, micro.Config{Name: "Adder", Version: "1.2.3", Description: "adds"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop() }()
	err = s.AddEndpoint("sum", micro.HandlerFunc(func(r micro.Request) { _ = r.Respond(nil) }), micro.WithEndpointSubject("math.sum"))
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.FlushTimeout(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	o := w.ok("discover", "-o", "json")
	for _, want := range []string{`"Adder.sum"`, `"math.sum"`, `"responds"`, `"1.2.3"`} {
		if !strings.Contains(o.out, want) {
			t.Errorf("no %s in %s", want, o.out)
		}
	}
	if o := w.ok("discover", "--no-services", "-o", "json"); o.out != "[]\n" {
		t.Errorf("without services: %s", o.out)
	}
	m, err := nc.Request("$SRV.INFO.herald-advertise", nil, 5*time.Second)
	if err != nil || !strings.Contains(string(m.Data), "$HERALD.ADV.LIST") {
		t.Errorf("the broker's own service: %v, %v", m, err)
	}
}
