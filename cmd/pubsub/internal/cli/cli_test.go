package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/broker/config"
)

func TestExitCodesAndErrorTexts(t *testing.T) {
	w := newWorld(t)
	w.store(3)
	w.must("consumer", "create", "orders", "billing")
	for _, c := range []struct {
		args string
		code int
		says string // a part of the one line on standard error
	}{
		{"topic ls", exitOK, ""},
		{"pbu a b", exitUsage, `no command "pbu" (did you mean "pub"?)  try: pubsub --help`},
		{"topic crate x", exitUsage, `(did you mean "create"?)`},
		{"topic dance", exitUsage, `pubsub topic has no command "dance"  try: pubsub topic --help`},
		{"sub a --durabel", exitUsage, `has no flag --durabel (did you mean "--durable"?)`},
		{"sub a -Z", exitUsage, `has no flag -Z`},
		{"sub", exitUsage, `pubsub sub needs SUBJECT`},
		{"topic info", exitUsage, `needs TOPIC`},
		{"topic info a b", exitUsage, `"b" is too much`},
		{"topic ls -o jsn", exitUsage, `(did you mean "json"?)`},
		{"topic ls --template {{", exitUsage, `--template`},
		{"sub orders.> --from yesterday", exitUsage, `"yesterday" is not a place`},
		{"sub orders.> --all --last", exitUsage, `only one of`},
		{"sub a b --durable", exitUsage, `one SUBJECT`},
		{"pub a b --id x", exitUsage, `need --durable`},
		{"pub a -i yaml", exitUsage, `body, lines, ndjson or json`},
		{"topic create x --max-age soon", exitUsage, `"soon" is not a duration`},
		{"topic create x --retention never", exitUsage, `--retention`},
		{"topic rm orders", exitUsage, `needs --yes`},
		{"topic info order", exitNotFound, `topic "order" not found (did you mean "orders"?)  try: pubsub topic ls`},
		{"topic rm ordres --yes", exitNotFound, `(did you mean "orders"?)`},
		{"topic get orders 99", exitNotFound, `topic orders has no message 99`},
		{"consumer info orders biling", exitNotFound, `(did you mean "billing"?)`},
		{"sub nowhere.> --all", exitNotFound, `no topic captures "nowhere.>"; topics: orders`},
		{"discover nothing", exitNotFound, `nobody advertises "nothing"`},
		{"context select nope", exitNotFound, `no context "nope"`},
		{"topic ls --context nope", exitNotFound, `context "nope"`},
		{"request nobody", exitNoResponder, `nobody answers on "nobody"`},
		{"pub nowhere.1 x --durable --no-create", exitNoResponder, `no topic captures "nowhere.1"`},
		{"sub quiet --wait 20ms", exitTimeout, `no message in 20ms`},
		{"sub order.> --wait 20ms", exitTimeout, `no message in 20ms (did you mean "orders.>"?)`},
		{"sub orders.> --all --count 9 --wait 200ms", exitTimeout, `after 3 messages of 9`},
		{"topic create orders --subjects other", exitConflict, `exists with other settings`},
		{"topic create twice --subjects orders.1", exitConflict, `overlap`},
		{"advertise put x --subject x..y", exitUsage, `subject`},
		{"pub orders.1 x --durable --topic other --no-create", exitRefused, ``},
		{"-s nats://127.0.0.1:1 topic ls", exitUnhealthy, `no broker at nats://127.0.0.1:1 (from flag --server)`},
		{"completion tcsh", exitUsage, `no completion for "tcsh"`},
		{"help nothing", exitUsage, `no command "nothing"`},
	} {
		t.Run(c.args, func(t *testing.T) {
			o := w.run(strings.Fields(c.args)...)
			if o.code != c.code {
				t.Fatalf("exit code %d, want %d: %s", o.code, c.code, o.err)
			}
			if c.code == 0 {
				return
			}
			lines := strings.Split(strings.TrimSpace(o.err), "\n")
			last := lines[len(lines)-1]
			if !strings.HasPrefix(last, "pubsub: ") || !strings.Contains(last, c.says) {
				t.Errorf("says %q, want %q in it", o.err, c.says)
			}
			if strings.Contains(o.err, "Usage:") {
				t.Errorf("prints the whole help: %s", o.err)
			}
		})
	}
}

func TestWhatIsForbiddenIsRefused(t *testing.T) {
	t.Parallel()
	o := config.Defaults()
	o.Port, o.JetStream.Enabled = -1, true
	only := func(subjects ...string) *config.Subjects { return &config.Subjects{Allow: subjects} }
	o.Auth.Users = []config.User{{Name: "u", Password: "p", Permissions: &config.Permissions{
		Publish: only("ok", "_INBOX.>", "$JS.>"), Subscribe: only("ok", "_INBOX.>"),
	}}}
	w := newWorldOf(t, broker.Config{Options: o})
	w.env = map[string]string{"NATS_USER": "u", "NATS_PASSWORD": "p"}
	w.must("pub", "ok", "x")
	for _, args := range []string{"pub secret x", "sub secret", "reply secret x", "request secret x --timeout 300ms", "pub secret x -d --no-create --timeout 300ms", "topic ls --password wrong", "topic ls --user nobody"} {
		if o := w.run(strings.Fields(args)...); o.code != exitRefused || strings.Count(o.err, "\n") != 1 || strings.Contains(o.err, "wrong") {
			t.Errorf("%s: %+v", args, o)
		}
	}
}

func TestHelpSaysWhatTheExitCodesAre(t *testing.T) {
	o := nowhere(t).run("--help")
	if o.code != 0 || !strings.Contains(o.out, "5 time-out") || !strings.Contains(o.out, "130 interrupted") {
		t.Errorf("%d: %s", o.code, o.out)
	}
}

func TestNothingIsAnEmptyListInJSON(t *testing.T) {
	w := newWorld(t)
	for _, args := range []string{"topic ls", "discover", "advertise ls", "context ls", "discover --subject a.>"} {
		if out := w.must(append(strings.Fields(args), "-o", "json")...); strings.TrimSpace(out) != "[]" {
			t.Errorf("%s: %q", args, out)
		}
		if out := w.must(append(strings.Fields(args), "-o", "ndjson")...); out != "" {
			t.Errorf("%s as ndjson: %q", args, out)
		}
		if out := w.must(strings.Fields(args)...); out != "" {
			t.Errorf("%s as a table prints to standard output: %q", args, out)
		}
	}
	w.must("topic", "create", "empty")
	for _, args := range []string{"consumer ls empty", "topic info empty --subjects", "sub empty.> --all --to end"} {
		if out := w.must(append(strings.Fields(args), "-o", "json")...); strings.TrimSpace(out) != "[]" {
			t.Errorf("%s: %q", args, out)
		}
	}
	if o := w.run("sub", "quiet", "--wait", "10ms", "-o", "json"); o.out != "[]\n" || o.code != exitTimeout {
		t.Errorf("%+v", o)
	}
}

func TestOnlyDataGoesToStandardOutput(t *testing.T) {
	w := newWorld(t)
	o := w.run("pub", "--durable", "orders.1", "x")
	if o.out != "" || !strings.Contains(o.err, "created topic orders: subjects orders.>; kept for ever; 1 replica") || !strings.Contains(o.err, "stored 1 message") {
		t.Errorf("%+v", o)
	}
	if o := w.run("pub", "--durable", "orders.1", "x", "-q"); o.out+o.err != "" {
		t.Errorf("quiet, but says %+v", o)
	}
	if o := w.run("sub", "orders.>", "--all", "--to", "end", "-o", "raw"); o.out != "x\nx\n" || !strings.Contains(o.err, "reading") {
		t.Errorf("%+v", o)
	}
}

func TestOffATerminalNothingMovesTheCursor(t *testing.T) {
	w := newWorld(t)
	w.store(5)
	escape := regexp.MustCompile("[\x1b\r╭│─]")
	for _, args := range []string{"topic ls", "topic info orders", "sub orders.> --all --to end", "pub x y --count 100", "topic info nope", "--help", "bench pub -n 1000", "context ls"} {
		if o := w.run(strings.Fields(args)...); escape.MatchString(o.out + o.err) {
			t.Errorf("%s: %q", args, o.out+o.err)
		}
	}
	w.must("pub", "--durable", "orders.evil", "\x1b[2J\x07")
	if out := w.must("sub", "orders.evil", "--all", "--to", "end"); escape.MatchString(out) || !strings.Contains(out, `\u001b[2J`) {
		t.Errorf("%q", out)
	}
}

func TestEveryFormatOfMessages(t *testing.T) {
	w := newWorld(t)
	w.must("topic", "create", "t")
	w.must("pub", "-d", "t.a", `{"n":1}`, "-H", "K: v")
	for format, want := range map[string]string{
		"raw":    "{\"n\":1}\n",
		"ndjson": `^{"subject":"t.a","topic":"t","sequence":1,"time":"[^"]+","delivered":1,"headers":{"K":\["v"\]},"payload_json":{"n":1}}\n$`,
		"json":   `^\[\n  {"subject":"t.a",.*}\n\]\n$`,
		"hex":    `^1 \S+ t.a K=v\n00000000  7b 22 6e 22 3a 31 7d .*\n$`,
		"table":  `^1 \S+ t.a K=v  {"n":1}\n$`,
		"csv":    "^subject,reply,topic,sequence,time,payload\nt.a,,t,1,\\S+,\"{\"\"n\"\":1}\"\n$",
	} {
		out := w.must("sub", "t.>", "--all", "--to", "end", "-o", format)
		if format != "raw" && !regexp.MustCompile(want).MatchString(out) || format == "raw" && out != want {
			t.Errorf("%s: %q", format, out)
		}
	}
	if out := w.must("sub", "t.>", "--all", "--to", "end", "--template", "{{.sequence}} {{.json.n}} {{index .headers.K 0}} {{.payload}}"); out != "1 1 v {\"n\":1}\n" {
		t.Errorf("%q", out)
	}
}

func TestListsInEveryFormat(t *testing.T) {
	w := newWorld(t)
	w.store(2)
	if out := w.must("topic", "ls", "-o", "raw"); out != "orders\n" {
		t.Errorf("%q", out)
	}
	if out := w.must("topic", "ls", "-o", "csv"); !strings.HasPrefix(out, "name,messages,size,consumers,last,subjects\norders,2,") {
		t.Errorf("%q", out)
	}
	if out := w.must("topic", "ls", "--template", "{{.config.name}}={{.state.messages}}"); out != "orders=2\n" {
		t.Errorf("%q", out)
	}
	var all []map[string]any
	if err := json.Unmarshal([]byte(w.must("topic", "ls", "-o", "json")), &all); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	if out := w.must("topic", "info", "orders"); !strings.Contains(out, "messages           2\n") {
		t.Errorf("%q", out)
	}
}

func TestPlacesToReadFrom(t *testing.T) {
	w := newWorld(t)
	w.store(6)
	for _, c := range []struct{ args, want string }{
		{"orders.> --all --to end", "1 2 3 4 5 6"},
		{"orders.> --from start --to 3", "1 2 3"},
		{"orders.> --from 5 --to end", "5 6"},
		{"orders.> --from -2 --to end", "5 6"},
		{"orders.> --from -100 --to end", "1 2 3 4 5 6"},
		{"orders.> --last --to end", "6"},
		{"orders.* --last-per-subject --to end", "1 2 3 4 5 6"},
		{"orders.2 --all --to end", "2"},
		{"orders.> --from @1h --to end", "1 2 3 4 5 6"},
		{"orders.> --since 1h --to end", "1 2 3 4 5 6"},
		{"orders.> --from @2020-01-01 --to @2020-01-02", ""},
		{"orders.> --from 9 --to end", ""},
		{"orders.> --from new --to end", ""},
		{"orders.nothing --all --to end", ""},
		{"orders.> --all --count 2", "1 2"},
		{"orders.> --topic orders --to 1", "1"},
	} {
		out := w.must(append([]string{"sub", "-o", "raw"}, strings.Fields(c.args)...)...)
		if got := strings.Join(strings.Fields(out), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
}

func TestANamedReaderTakesEachMessageOnce(t *testing.T) {
	w := newWorld(t)
	w.store(5)
	if out := w.must("sub", "orders.>", "--name", "r", "-o", "raw", "--count", "2"); out != "1\n2\n" {
		t.Errorf("%q", out)
	}
	o := w.run("consumer", "next", "orders", "r", "--count", "9", "--timeout", "500ms", "-o", "raw")
	got := strings.Fields(o.out) // given back, so in any order
	slices.Sort(got)
	if o.code != exitTimeout || strings.Join(got, " ") != "3 4 5" || !strings.Contains(o.err, "had 3 of 9 messages in 500ms") {
		t.Errorf("%+v", o)
	}
}

func TestConsumers(t *testing.T) {
	w := newWorld(t)
	w.store(4)
	w.must("consumer", "create", "orders", "r", "--from", "2", "--filter", "orders.3", "--ack-wait", "1m")
	w.must("consumer", "create", "orders", "r", "--from", "2", "--filter", "orders.3", "--ack-wait", "1m")
	if o := w.run("consumer", "create", "orders", "r", "--filter", "orders.1"); o.code != exitConflict {
		t.Errorf("%+v", o)
	}
	w.must("consumer", "create", "orders", "r", "--filter", "orders.1", "--if-not-exists")
	if out := w.must("consumer", "next", "orders", "r", "-o", "raw"); out != "3\n" {
		t.Errorf("%q", out)
	}
	var all []struct{ Name string }
	if err := json.Unmarshal([]byte(w.must("consumer", "ls", "orders", "-o", "json")), &all); err != nil || len(all) != 1 || all[0].Name != "r" {
		t.Errorf("%v %v", all, err)
	}
	w.must("consumer", "rm", "orders", "r", "--dry-run")
	w.must("consumer", "info", "orders", "r")
	w.must("consumer", "rm", "orders", "r", "--yes")
	w.must("consumer", "rm", "orders", "r", "--if-exists")
}

func TestTheLifeOfATopic(t *testing.T) {
	w := newWorld(t)
	w.must("topic", "create", "a", "--dry-run")
	if out := w.must("topic", "ls", "-o", "raw"); out != "" {
		t.Errorf("a dry run created %q", out)
	}
	w.must("topic", "create", "a", "--max-age", "7d", "--max-bytes", "1GiB", "--max-msg-size", "1KiB", "--discard", "new", "--metadata", "team=x")
	w.must("topic", "create", "a", "--if-not-exists", "--max-age", "1h")
	w.must("topic", "edit", "a", "--description", "for tests")
	var info struct {
		Config struct {
			Subjects    []string          `json:"subjects"`
			MaxAge      time.Duration     `json:"max_age"`
			MaxBytes    int64             `json:"max_bytes"`
			MaxMsgSize  int               `json:"max_msg_size"`
			Description string            `json:"description"`
			Metadata    map[string]string `json:"metadata"`
		} `json:"config"`
		State struct{ Messages int } `json:"state"`
	}
	if err := json.Unmarshal([]byte(w.must("topic", "info", "a", "-o", "json")), &info); err != nil {
		t.Fatal(err)
	}
	c := info.Config
	if c.MaxAge != 7*24*time.Hour || c.MaxBytes != 1<<30 || c.MaxMsgSize != 1024 || c.Description != "for tests" || c.Subjects[0] != "a.>" || c.Metadata["team"] != "x" {
		t.Errorf("%+v", c)
	}
	if o := w.with(t.Context(), strings.Repeat("x", 2000), "pub", "-d", "a.1"); o.code != exitRefused {
		t.Errorf("too large: %+v", o)
	}
	w.must("pub", "-d", "a.{{.Count}}", "x", "-e", "--count", "5")
	w.must("topic", "purge", "a", "--dry-run")
	if o := w.run("topic", "purge", "a", "--keep", "2", "--yes"); o.code != 0 || !strings.Contains(o.err, "deleted 3 messages, 2 left") {
		t.Errorf("%+v", o)
	}
	if out := w.must("topic", "info", "a", "--subjects", "-o", "raw"); out != "a.4\na.5\n" {
		t.Errorf("%q", out)
	}
	if out := w.must("topic", "get", "a", "--last", "a.*", "--template", "{{.sequence}}"); out != "5\n" {
		t.Errorf("%q", out)
	}
	w.must("topic", "rm", "a", "--yes")
	w.must("topic", "rm", "a", "--if-exists", "--yes")
}

func TestRequestAndReply(t *testing.T) {
	w := newWorld(t)
	r := w.start("reply", "up.>", "--command", "tr a-z A-Z", "--count", "2")
	r.until(&r.err, "answering")
	if out := w.must("request", "up.x", "hello"); out != "HELLO\n" {
		t.Errorf("%q", out)
	}
	if o := w.with(t.Context(), "from stdin", "request", "up.x", "-", "--replies", "0", "--wait", "300ms"); o.out != "FROM STDIN\n" {
		t.Errorf("%+v", o)
	}
	if o := r.wait(); o.code != 0 || !strings.Contains(o.out, "up.x  hello") {
		t.Errorf("%+v", o)
	}
}

func TestInterruptIs130(t *testing.T) {
	w := newWorld(t)
	for _, args := range []string{"sub a.>", "reply a x", "discover --watch", "advertise put x --subject x --hold"} {
		b := w.start(strings.Fields(args)...)
		b.until(&b.err, map[byte]string{'s': "listening", 'r': "answering", 'd': "all there is", 'a': "advertising"}[args[0]])
		b.cancel()
		if o := b.wait(); o.code != exitInterrupted {
			t.Errorf("%s: %+v", args, o)
		}
	}
	if out := w.must("advertise", "ls", "-o", "raw"); out != "" {
		t.Errorf("--hold left %q", out)
	}
}

func TestAdvertisements(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "orders.yaml")
	err := os.WriteFile(file, []byte(`
name: orders
subject: orders.{region}.created
owner: {team: sales, contact: "#sales"}
summary: Orders as they are placed
durable:
  topic: orders
  max_age: 168h
schema:
  format: json-schema
  inline: {type: object, required: [id]}
x_runbook: https://example.org/orders
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	watch := w.start("discover", "--watch", "-o", "ndjson")
	watch.until(&watch.out, "caught-up")
	w.must("advertise", "put", "-f", file, "--dry-run")
	w.must("advertise", "put", "-f", file, "--kind", "event")
	watch.until(&watch.out, `"event":"added"`)
	var got map[string]any
	if err := json.Unmarshal([]byte(w.must("discover", "orders", "-o", "json")), &got); err != nil {
		t.Fatal(err)
	}
	if got["kind"] != "event" || got["x_runbook"] != "https://example.org/orders" || got["pattern"] != "orders.*.created" {
		t.Errorf("%v", got)
	}
	if out := w.must("topic", "ls", "-o", "raw"); out != "orders\n" {
		t.Errorf("topics %q", out)
	}
	if out := w.must("discover", "--subject", "orders.eu.>"); !strings.Contains(out, "Orders as they are placed") {
		t.Errorf("%q", out)
	}
	if o := w.run("advertise", "withdraw", "order"); o.code != exitNotFound || !strings.Contains(o.err, `did you mean "orders"?`) {
		t.Errorf("%+v", o)
	}
	w.must("advertise", "withdraw", "orders", "--dry-run")
	w.must("advertise", "withdraw", "orders")
	w.must("advertise", "withdraw", "orders", "--if-exists")
	watch.until(&watch.out, `"event":"withdrawn"`)
	if o := w.with(t.Context(), "name: a\nname: b\n", "advertise", "put", "-f", "-"); o.code != exitUsage || !strings.Contains(o.err, "line 2") {
		t.Errorf("%+v", o)
	}
}

func TestContexts(t *testing.T) {
	w := newWorld(t)
	url := w.url
	w.env = map[string]string{"NATS_URL": ""}
	w.must("context", "add", "here", "-s", url, "--user", "u", "--password", "secret", "--select")
	w.must("topic", "ls")
	out := w.must("context", "show", "--explain")
	if !strings.Contains(out, "context here") || strings.Contains(out, "secret") {
		t.Errorf("%q", out)
	}
	if out := w.must("context", "ls", "-o", "raw"); out != "here\n" {
		t.Errorf("%q", out)
	}
	if out := w.must("context", "show", "-s", "nats://x:1", "--explain", "-o", "csv"); !strings.Contains(out, "url,nats://x:1,flag --server") {
		t.Errorf("%q", out)
	}
	w.must("context", "rm", "here", "--yes")
	if out := w.must("context", "show", "--explain", "-o", "csv"); !strings.Contains(out, "default") {
		t.Errorf("%q", out)
	}
}

func TestCompletion(t *testing.T) {
	w := newWorld(t)
	w.store(1)
	w.must("consumer", "create", "orders", "billing")
	w.must("advertise", "put", "quakes", "--subject", "quakes.{net}")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := w.must("completion", shell); len(out) < 1000 || !strings.Contains(out, "pubsub") {
			t.Errorf("%s: %d bytes", shell, len(out))
		}
	}
	for _, c := range []struct{ args, want string }{
		{"topic info |", "orders"},
		{"consumer info orders |", "billing"},
		{"sub |", "quakes.*"},
		{"sub |", "orders.>"},
		{"discover |", "quakes"},
		{"topic ls -o |", "ndjson"},
		{"advertise withdraw |", "quakes"},
		{"topic |", "create"},
	} {
		out := w.must(append([]string{"__complete"}, strings.Split(strings.ReplaceAll(c.args, "|", ""), " ")...)...)
		if !strings.Contains(out, c.want) {
			t.Errorf("%s: %q", c.args, out)
		}
	}
	begin := time.Now()
	if o := nowhere(t).run("__complete", "topic", "info", ""); o.code != 0 || strings.Contains(o.out+o.err, "no broker") {
		t.Errorf("%+v", o)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("completion without a broker took %s", took)
	}
}

func TestBench(t *testing.T) {
	w := newWorld(t)
	for _, args := range []string{"bench pub -n 2000 --subs 2 --clients 2", "bench durable -n 500 --clients 2", "bench durable -n 20 --sync"} {
		var results []result
		if err := json.Unmarshal([]byte(w.must(append(strings.Fields(args), "-o", "json")...)), &results); err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.PerSecond <= 0 || r.Lost != 0 || r.Latency != nil && (r.Latency.P50 > r.Latency.P99 || r.Latency.P99 > r.Latency.Max) {
				t.Errorf("%s: %+v", args, r)
			}
		}
	}
	if out := w.must("topic", "ls", "-o", "raw"); out != "" {
		t.Errorf("bench left topics %q", out)
	}
	b := w.start("bench", "sub", "-n", "100", "-o", "json")
	b.until(&b.err, "waiting")
	w.must("bench", "pub", "-n", "100")
	if o := b.wait(); o.code != 0 || !strings.Contains(o.out, `"messages": 100`) {
		t.Errorf("%+v", o)
	}
}
