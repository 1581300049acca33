package cli

import (
	"strings"
	"testing"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/broker/config"
)

// has checks that a text has all of the parts.
func has(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s: no %q in:\n%s", what, part, text)
		}
	}
}

func TestAnAdvertisementSaysTimesAsTheCommandLineDoes(t *testing.T) {
	w := newWorld(t)
	w.ok("advertise", "-f", w.file("a.yaml", "name: a\nsubject: a.>\ndurable: {max_age: 7d}\nrate: {silence_after: 1d12h}\n"))
	has(t, "the topic", w.must("topic", "info", "a"), "at most 7d")
	has(t, "the advertisement", w.must("discover", "a", "-o", "json"), `"168h0m0s"`, `"36h0m0s"`)
	if o := w.run("advertise", "-f", w.file("b.yaml", "name: b\nsubject: b.>\ndurable: {max_age: 7 days}\n")); o.code != exitUsage || !strings.Contains(o.err, "not a duration like 90s, 15m or 7d") {
		t.Errorf("%d %s", o.code, o.err)
	}
}

func TestAMessageOfAProtoFileIsChosen(t *testing.T) {
	w := newWorld(t)
	proto := w.file("two.proto", "syntax = \"proto3\"; package p; message A { int32 x = 1; } message B { string y = 1; }")
	if o := w.run("advertise", "put", "a", "--subject", "a", "--schema", proto); o.code != exitUsage || !strings.Contains(o.err, "p.A, p.B") {
		t.Errorf("%d %s", o.code, o.err)
	}
	w.ok("advertise", "put", "a", "--subject", "a", "--schema", proto+"#p.B")
	has(t, "types", w.must("discover", "a", "--go"), "type B struct", "Y string")
	if o := w.run("advertise", "put", "b", "--subject", "b", "--schema", w.file("s.json", "{}")+"#x"); o.code != exitUsage || !strings.Contains(o.err, "not a .proto") {
		t.Errorf("%d %s", o.code, o.err)
	}
}

func TestWhatIsInQuarantineIsListedAndSentAgain(t *testing.T) {
	w := newWorld(t)
	schema := func(minimum string) string {
		return w.file("s.json", `{"type":"object","properties":{"n":{"type":"integer","minimum":`+minimum+`}}}`)
	}
	w.ok("advertise", "put", "q", "--subject", "q.>", "--schema", schema("5"), "--enforce", "quarantine", "--durable")
	w.must("pub", "--durable", "q.1", `{"n":1}`)
	w.must("pub", "--durable", "q.2", `{"n":9}`)
	has(t, "where there are some", w.must("dlq", "ls"), "advertisement q", "$HERALD.QUARANTINE.q.>")
	for _, of := range []string{"QUARANTINE_q", "$HERALD.QUARANTINE.q.>"} {
		has(t, "the list of "+of, w.must("dlq", "ls", of), "advertisement q", "schema", "/n: minimum")
	}
	has(t, "the completion", w.run("__complete", "dlq", "redrive", "").out, "QUARANTINE_q")
	if o := w.run("dlq", "redrive", "QUARANTINE_q", "--all"); o.code != exitRefused || !strings.Contains(o.err, "1 of them went back to quarantine") {
		t.Errorf("%d %s", o.code, o.err)
	}
	w.ok("advertise", "put", "q", "--subject", "q.>", "--schema", schema("0"), "--enforce", "quarantine", "--durable")
	w.must("dlq", "redrive", "QUARANTINE_q", "--all")
	if got := w.must("sub", "--topic", "q", "q.>", "--all", "--to", "end", "-o", "raw"); got != "{\"n\":9}\n{\"n\":1}\n" {
		t.Errorf("stored: %s", got)
	}
	if o := w.run("dlq", "ls", "QUARANTINE_q", "-o", "json"); strings.TrimSpace(o.out) != "[]" {
		t.Errorf("left: %s", o.out)
	}
}

func TestAConsumerShowsWhatItsConditionHasDone(t *testing.T) {
	w := newWorld(t)
	w.must("topic", "create", "orders")
	for _, payload := range []string{`{"n":1}`, `{"n":9}`, `{}`} {
		w.must("pub", "--durable", "orders.a", payload)
	}
	w.must("topic", "create", "dead")
	w.must("consumer", "create", "orders", "c", "--filter", "orders.>", "--where", "n > 5", "--dead-letters", "dead.c", "--key", "json:/n")
	w.must("consumer", "next", "orders", "c")
	w.eventually("3 scanned, 1 matched, 1 error, missing 1", "consumer", "info", "orders", "c")
	has(t, "the consumer", w.must("consumer", "info", "orders", "c"), "n > 5", "dead.c", "json:/n", "no such key: n; of orders.a at 3: {}")
	if o := w.run("sub", "orders.>", "--name", "c", "--where", "n > 7"); o.code != exitConflict || !strings.Contains(o.err, `the condition "n > 5"`) {
		t.Errorf("%d %s", o.code, o.err)
	}
}

func TestAMessageIsShownAsItWasStored(t *testing.T) {
	w := newWorld(t)
	w.ok("advertise", "put", "d", "--subject", "d.>", "--durable") // its topic allows direct gets
	w.must("pub", "--durable", "d.1", "x", "-H", "Mine: 1")
	if got := w.must("topic", "get", "d", "1", "-o", "ndjson"); !strings.Contains(got, `"headers":{"Mine":["1"]}`) {
		t.Errorf("with headers: %s", got)
	}
	w.must("pub", "--durable", "d.2", "x")
	if got := w.must("topic", "get", "d", "2", "-o", "ndjson"); strings.Contains(got, "headers") {
		t.Errorf("without headers: %s", got)
	}
}

func TestPlacesFromTheEnd(t *testing.T) {
	w := newWorld(t)
	w.store(9)
	w.must("consumer", "create", "orders", "c")
	for _, args := range [][]string{{"-3"}, {"--", "-3"}, {"--dry-run=false", "-3"}} {
		w.must(append([]string{"consumer", "seek", "orders", "c"}, args...)...)
		has(t, strings.Join(args, " "), w.must("consumer", "info", "orders", "c"), "pending             3")
	}
	if o := w.run("replay", "orders", "--range", "8..3", "--preview"); o.code != exitUsage || !strings.Contains(o.err, "ends, at 3, before it begins, at 8") {
		t.Errorf("%d %s", o.code, o.err)
	}
}

func TestACopyOfATopicBesideIt(t *testing.T) {
	w := newWorld(t)
	w.store(9)
	dir := t.TempDir() + "/b"
	w.must("backup", dir)
	w.must("export", "orders", "-f", dir+".ndjson")
	for _, again := range [][]string{{"restore", dir, "orders", "--as", "copy1"}, {"import", "-f", dir + ".ndjson", "--as", "copy2"}} {
		if o := w.run(again...); o.code != exitConflict || !strings.Contains(o.err, "--subjects") {
			t.Errorf("%v: %d %s", again, o.code, o.err)
		}
		name := again[len(again)-1]
		w.must(append(again, "--subjects", name+".>")...)
		has(t, name, w.must("topic", "info", name), name+".>", "messages           9")
		if got, want := w.must("sub", "--topic", name, "orders.>", "--all", "--to", "end", "-o", "raw"), w.must("sub", "orders.>", "--all", "--to", "end", "-o", "raw"); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
}

func TestReplayingTwiceSaysSo(t *testing.T) {
	w := newWorld(t)
	w.store(3)
	w.must("topic", "create", "copy")
	for _, want := range []string{"sent 3 messages, 3 of them stored\n", "sent 3 messages, 0 of them stored, 3 stored already"} {
		has(t, "a replay", w.ok("replay", "orders", "--to-subject", "copy.>", "--id", "r").err, want)
	}
}

func TestSubjectsThatWereSeenAreCompleted(t *testing.T) {
	w := newWorld(t)
	w.must("pub", "seen.here", "x")
	w.eventually("seen.here", "__completeNoDesc", "sub", "")
}

func TestRemovingASchedule(t *testing.T) {
	w := newWorld(t)
	if o := w.run("schedule", "rm", "schedule.no.such"); o.code != exitNotFound {
		t.Errorf("%d %s", o.code, o.err)
	}
	w.must("schedule", "rm", "schedule.no.such", "--if-exists")
}

func TestErrorCodesAreReadWithTheirLetter(t *testing.T) {
	w := nowhere(t)
	if w.must("explain", "E10148") != w.must("explain", "10148") {
		t.Error("E10148 is not 10148")
	}
}

func TestDiscoveringNeedsNoMicroServices(t *testing.T) {
	o := config.Defaults()
	o.Port, o.JetStream.Enabled = -1, true
	only := func(subjects ...string) *config.Subjects { return &config.Subjects{Allow: subjects} }
	inbox := only("_INBOX.>")
	o.Auth.Users = []config.User{
		{Name: "all", Password: "secret"},
		{Name: "some", Password: "secret", Permissions: &config.Permissions{Publish: only("$HERALD.ADV.>"), Subscribe: inbox, Discover: only("a")}},
		{Name: "none", Password: "secret", Permissions: &config.Permissions{Publish: only("x"), Subscribe: inbox}},
	}
	w := newWorldOf(t, broker.Config{Options: o})
	w.env = map[string]string{"NATS_PASSWORD": "secret"}
	w.ok("advertise", "put", "a", "--subject", "a", "--user", "all")
	if o := w.run("discover", "--user", "some"); o.code != exitOK || !strings.Contains(o.out, "a     a        publishes") {
		t.Errorf("who may only discover: %+v", o)
	}
	if o := w.run("discover", "--user", "none", "--timeout", "300ms"); o.code != exitRefused || !strings.Contains(o.err, "$HERALD.ADV.LIST") {
		t.Errorf("who may not: %+v", o)
	}
	for _, url := range []string{"nats://no:secret@127.0.0.1:1", "nats://secret@127.0.0.1:1", strings.Replace(w.url, "://", "://no:secret@", 1)} {
		if o := w.run("discover", "-s", url); o.code == exitOK || !strings.Contains(o.err, "********@127.0.0.1") || strings.Contains(o.err, "secret") {
			t.Errorf("a password is told: %+v", o)
		}
		if o := w.run("context", "show", "--explain", "-s", url); strings.Contains(o.out, "secret") {
			t.Errorf("a password is told: %+v", o)
		}
	}
}

func TestPublishingWhereItIsExclusive(t *testing.T) {
	w := newWorld(t)
	w.ok("advertise", "put", "mine", "--subject", "mine.>", "--exclusive", "--team", "us", "--durable")
	if o := w.run("pub", "--durable", "mine.1", "x"); o.code != exitRefused || !strings.Contains(o.err, "mine is exclusive") || !strings.Contains(o.err, "--advertisement") {
		t.Errorf("%+v", o)
	}
	w.must("pub", "--durable", "mine.1", "x", "--advertisement", "mine")
	w.must("pub", "mine.2", "y", "--advertisement", "mine")
	if got := w.must("sub", "mine.>", "--all", "--to", "end", "-o", "raw"); got != "x\ny\n" {
		t.Errorf("stored %q", got)
	}
	if o := w.run("pub", "mine.2", "y", "--advertisement", "mini"); o.code != exitNotFound || !strings.Contains(o.err, `did you mean "mine"`) {
		t.Errorf("%+v", o)
	}
}

// What a broker counts is no definition: the file is the same whatever happened meanwhile,
// and after all of it was removed and brought back.
func TestDefinitionsAreTheSameHoweverTheyAreUsed(t *testing.T) {
	w := newWorld(t)
	w.ok("advertise", "put", "ad", "--subject", "ad.>", "--durable", "--enforce", "quarantine", "--schema", w.file("s.json", `{"type":"object"}`))
	w.must("consumer", "create", "ad", "c", "--where", "n > 1", "--key", "token:2")
	before := w.must("definitions", "export")
	w.must("pub", "--durable", "ad.x", `{"n":2}`)
	w.must("consumer", "next", "ad", "c")
	if got := w.must("definitions", "export"); got != before || strings.Contains(got, "_herald") {
		t.Errorf("after use:\n%s\nbefore:\n%s", got, before)
	}
	w.must("advertise", "rm", "ad")
	for _, topic := range []string{"ad", "QUARANTINE_ad"} {
		w.must("topic", "rm", topic, "--yes")
	}
	file := w.file("all.yaml", before)
	w.must("definitions", "import", "-f", file)
	if got := w.must("definitions", "export"); got != before {
		t.Errorf("brought back:\n%s\nbefore:\n%s", got, before)
	}
	three := w.file("three.yaml", strings.ReplaceAll(strings.ReplaceAll(before, "num_replicas: 1", "num_replicas: 3"), "ad.>", "of3.>"))
	for _, topic := range []string{"ad", "QUARANTINE_ad"} {
		w.must("topic", "rm", topic, "--yes")
	}
	w.must("advertise", "rm", "ad")
	if o := w.run("definitions", "import", "-f", three); o.code == exitOK || !strings.Contains(o.err, "--replicas 1") {
		t.Errorf("three replicas on one node: %+v", o)
	}
	w.must("definitions", "import", "-f", three, "--replicas", "1")
	has(t, "the topic", w.must("topic", "info", "ad"), "of3.>", "replicas              1")
}

func TestWhereNothingCanGoIsRefused(t *testing.T) {
	w := newWorld(t)
	for _, args := range [][]string{{"x.>", "y"}, {"x..a", "y"}, {"x.*", "y", "--durable"}, {"a b", "y"}, {"x.a", "y", "--count", "-1"}} {
		if o := w.run(append([]string{"pub"}, args...)...); o.code != exitUsage {
			t.Errorf("%v: %+v", args, o)
		}
	}
	if o := w.run("topic", "ls", "-o", "json"); strings.TrimSpace(o.out) != "[]" {
		t.Errorf("made: %s", o.out)
	}
}

func TestOverlapsNameTheTopic(t *testing.T) {
	w := newWorld(t)
	w.must("topic", "create", "orders")
	for _, args := range [][]string{{"topic", "create", "o2", "--subjects", "orders.eu"}, {"advertise", "put", "a", "--subject", "orders.{x}", "--durable"}} {
		if o := w.run(args...); o.code != exitConflict || !strings.Contains(o.err, "topic orders has orders.>") {
			t.Errorf("%v: %+v", args, o)
		}
	}
	w.ok("advertise", "put", "a", "--subject", "orders.{x}", "--durable", "--topic", "orders")
	if o := w.run("consumer", "create", "orders", "c", "--key", "no"); !strings.Contains(o.err, "consumer orders/c:") {
		t.Errorf("%+v", o)
	}
}
