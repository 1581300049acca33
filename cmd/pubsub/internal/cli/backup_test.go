package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/vault"
)

// fill makes the topic things with n messages of any bytes, some of them deleted, and a
// consumer that is on its way.
func (w *world) fill(n int) {
	w.t.Helper()
	ctx := context.Background()
	c := w.client()
	cfg := client.TopicConfig{Name: "things", Subjects: []string{"things.>"}, AllowMsgTTL: true, Metadata: map[string]string{"a": "<b> & c"}}
	if _, err := c.CreateTopic(ctx, cfg); err != nil {
		w.t.Fatal(err)
	}
	w.add(n)
	for i := 5; i < n; i += 9 {
		if err := c.DeleteMessage(ctx, "things", uint64(i)); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := c.CreateConsumer(ctx, "things", client.ConsumerConfig{Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour, BackOff: []time.Duration{time.Hour, 2 * time.Hour}, MaxDeliver: 4}); err != nil {
		w.t.Fatal(err)
	}
	got, err := c.Fetch(ctx, "things", "worker", 6)
	if err != nil || len(got) != 6 {
		w.t.Fatal(len(got), err)
	}
	for _, m := range got[:3] {
		if err := m.AckSync(ctx); err != nil {
			w.t.Fatal(err)
		}
	}
}

// add stores n more messages of any bytes.
func (w *world) add(n int) {
	w.t.Helper()
	r := rand.New(rand.NewPCG(uint64(n), 7))
	c := w.client()
	for i := range n {
		b := make([]byte, r.IntN(300))
		for k := range b {
			b[k] = byte(r.Uint32())
		}
		if i%4 == 0 {
			b = []byte(fmt.Sprintf(`{"n":%d,"s":"<&>"}`, i))
		}
		h := client.Header{}
		if i%3 == 0 {
			h = client.Header{"lower-case": {"1", "2"}, "Trace": {"ä ö", ""}, "Nats-TTL": {"1h"}}
		}
		if _, err := c.PublishDurable(context.Background(), fmt.Sprintf("things.%d", i%7), b, client.WithHeaders(h)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// content is all that can be seen of things: the lines of its export but for when that was
// made, and its consumers.
func (w *world) content(topic string) string {
	w.t.Helper()
	var out strings.Builder
	for line := range strings.Lines(w.must("export", topic)) {
		if vault.IsFrame([]byte(line)) {
			continue
		}
		out.WriteString(strings.Replace(line, `"topic":"`+topic+`"`, `"topic":""`, 1))
	}
	infos, err := w.client().Consumers(context.Background(), topic)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, i := range infos {
		i.Delivered.Last, i.AckFloor.Last = nil, nil
		i.Config.Metadata = nil
		fmt.Fprintln(&out, i.Name, fmt.Sprintf("%+v", i.Config), i.Delivered, i.AckFloor, i.NumAckPending, i.NumPending)
	}
	info, err := w.client().Topic(context.Background(), topic)
	if err != nil {
		w.t.Fatal(err)
	}
	info.Config.Metadata = nil
	info.Config.Name = ""
	fmt.Fprintf(&out, "%+v\n%d %d %d\n", info.Config, info.State.Msgs, info.State.FirstSeq, info.State.LastSeq)
	return out.String()
}

func TestABackupBringsBackWhatWasThere(t *testing.T) {
	w := newWorld(t)
	w.fill(120)
	dir := filepath.Join(t.TempDir(), "b")
	if out := w.must("backup", dir, "--part-size", "4KiB", "-o", "json"); !strings.Contains(out, `"new": 107`) {
		t.Error(out)
	}
	w.must("verify", dir)
	was := w.content("things")

	// What is new is added, and what is gone is gone.
	w.add(15)
	if err := w.client().DeleteMessage(context.Background(), "things", 3); err != nil {
		t.Fatal(err)
	}
	w.must("topic", "create", "other")
	now := w.content("things")
	if now == was {
		t.Fatal("nothing was changed")
	}
	if out := w.must("backup", dir, "-o", "json"); !strings.Contains(out, `"new": 15`) {
		t.Error(out)
	}
	if out := w.must("verify", dir, "-o", "csv"); !strings.Contains(out, "things,121") {
		t.Errorf("verify: %s", out)
	}
	if o := w.run("restore", dir); o.code != exitConflict || !strings.Contains(o.err, `topic "other" exists`) {
		t.Error(o)
	}
	w.must("topic", "rm", "things", "--yes")
	if out := w.must("restore", dir, "--dry-run", "--if-not-exists", "-o", "csv"); !strings.Contains(out, "would be restored") || !strings.Contains(out, "exists") {
		t.Error(out)
	}
	if o := w.run("topic", "info", "things"); o.code != exitNotFound {
		t.Error("a dry run restored it")
	}
	w.must("restore", dir, "--if-not-exists")
	if got := w.content("things"); got != now {
		t.Errorf("restored:\n%s\nwanted:\n%s", got, now)
	}
	if o := w.run("restore", dir, "thigns"); o.code != exitNotFound || !strings.Contains(o.err, `did you mean "things"`) {
		t.Error(o)
	}
	if o := w.run("backup", dir, "thigns"); o.code != exitNotFound || !strings.Contains(o.err, `did you mean "things"`) {
		t.Error(o)
	}
	if o := w.run("verify", t.TempDir()); o.code != exitNotFound {
		t.Error(o)
	}
}

func TestABackupGoesOnWhereItWasInterrupted(t *testing.T) {
	w := newWorld(t)
	w.fill(100)
	dir := t.TempDir()
	b := &vault.Broker{Conn: w.client().Conn(), Prefix: "$JS.API", Timeout: 10 * time.Second}
	begin := func() *vault.Taking {
		taking, err := vault.Begin(dir, b, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		taking.PartSize = 1 << 10
		return taking
	}
	first := begin()
	if _, err := vault.Begin(dir, b, time.Now); err == nil || !strings.Contains(err.Error(), "another backup") {
		t.Errorf("two at once: %v", err)
	}
	// What receives the messages breaks in the middle.
	ctx, cancel := context.WithCancel(context.Background())
	first.Progress = func(_ string, done, _ uint64) {
		if done == 40 {
			panic(errStop)
		}
	}
	func() {
		defer func() {
			if r := recover(); r != errStop {
				t.Fatal(r)
			}
		}()
		_, _ = first.Topic(ctx, "things")
	}()
	cancel()
	first.Close()
	if o := w.run("verify", dir); o.code != exitError || !strings.Contains(o.err, "did not end") {
		t.Errorf("an unfinished backup: %+v", o)
	}
	second := begin()
	defer second.Close()
	added, err := second.Topic(context.Background(), "things")
	if err != nil || added == 0 || added > 60 {
		t.Fatalf("the second run took %d messages: %v", added, err)
	}
	if err := second.Finish(); err != nil {
		t.Fatal(err)
	}
	was := w.content("things")
	w.must("verify", dir)
	w.must("topic", "rm", "things", "--yes")
	w.must("restore", dir)
	if got := w.content("things"); got != was {
		t.Errorf("restored:\n%s\nwanted:\n%s", got, was)
	}
	// Another topic of that name is not taken for a longer one.
	w.must("topic", "rm", "things", "--yes")
	w.fill(20)
	second.Progress = nil
	if added, err := second.Topic(context.Background(), "things"); err != nil || added != 18 {
		t.Errorf("%d messages of the new topic: %v", added, err)
	}
}

var errStop = errors.New("stop")

func TestADamagedBackupIsFoundAndNothingOfItRestored(t *testing.T) {
	w := newWorld(t)
	w.fill(30)
	dir := t.TempDir()
	w.must("backup", dir, "--part-size", "1KiB")
	w.must("topic", "rm", "things", "--yes")
	var files []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != ".lock" {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		flipped := bytes.Clone(whole)
		at := bytes.IndexFunc(flipped[len(flipped)/2:], func(r rune) bool { return r >= '0' && r <= '9' || r >= 0x80 }) + len(flipped)/2
		flipped[max(at, 0)] ^= 1
		for what, damaged := range map[string][]byte{"flipped": flipped, "cut": whole[:len(whole)/2], "missing": nil} {
			if damaged == nil {
				err = os.Remove(path)
			} else {
				err = os.WriteFile(path, damaged, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			if o := w.run("verify", dir); o.code == exitOK {
				t.Errorf("%s %s: %+v", path, what, o)
			}
			if o := w.run("restore", dir, "--definitions"); o.code == exitOK {
				t.Errorf("%s %s: %+v", path, what, o)
			}
			if strings.HasSuffix(path, ".part") || strings.HasSuffix(path, ".json") {
				if o := w.run("topic", "info", "things"); o.code != exitNotFound {
					t.Fatalf("%s %s: a topic was made: %+v", path, what, o)
				}
			} else {
				w.must("topic", "rm", "things", "--yes", "--if-exists")
			}
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.must("restore", dir)
}

func TestAnExportLosesNothing(t *testing.T) {
	w := newWorld(t)
	w.fill(80)
	w.must("consumer", "rm", "things", "worker", "--yes")
	path := filepath.Join(t.TempDir(), "things.ndjson")
	w.must("export", "things", "-f", path)
	was := w.content("things")
	if o := w.run("import", "-f", path); o.code != exitConflict {
		t.Error(o)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w.must("topic", "rm", "things", "--yes")
	lines := bytes.SplitAfter(whole, []byte("\n"))
	for what, broken := range map[string][]byte{
		"cut":       bytes.Join(lines[:40], nil),
		"one less":  bytes.Join(append(slices.Clone(lines[:10]), lines[11:]...), nil),
		"no export": lines[3],
		"empty":     nil,
	} {
		o := w.with(t.Context(), string(broken), "import")
		if o.code != exitError && o.code != exitUsage {
			t.Errorf("%s: %+v", what, o)
		}
		if o := w.run("topic", "info", "things"); o.code != exitNotFound {
			t.Fatalf("%s: a topic was made: %+v", what, o)
		}
	}
	w.must("import", "-f", path)
	if got := w.content("things"); got != was {
		t.Errorf("imported:\n%s\nwanted:\n%s", got, was)
	}
	// Its lines are messages to publish, too.
	w.must("topic", "rm", "things", "--yes")
	w.must("topic", "create", "things", "--allow-ttl")
	if o := w.with(t.Context(), string(whole), "pub", "--durable", "-i", "ndjson"); o.code != exitOK || !strings.Contains(o.err, "stored 71 messages") {
		t.Error(o.err)
	}
	if got := strings.Count(w.must("export", "things", "--messages-only", "--from", "70", "--subject", "things.*"), "\n"); got != 2 {
		t.Errorf("%d lines from 70 on", got)
	}
	if o := w.run("export", "things", "--from", "nowhere"); o.code != exitUsage {
		t.Error(o)
	}
}

func TestDefinitionsComeBackTheSame(t *testing.T) {
	w := newWorld(t)
	w.fill(10)
	w.must("topic", "create", "QUAKES", "--subjects", "quakes.>", "--max-age", "7d")
	w.must("topic", "create", "BIG")
	op := filepath.Join(t.TempDir(), "op.yaml")
	if err := os.WriteFile(op, []byte(operatorFile), 0o600); err != nil {
		t.Fatal(err)
	}
	w.must("operator", "deploy", op)
	ad := filepath.Join(t.TempDir(), "ad.json")
	if err := os.WriteFile(ad, []byte(`{"name":"quakes","subject":"quakes.{net}","schema":{"format":"json-schema","inline":{"type":"object","properties":{"z":{"type":"number"},"a":{}}}},"lease":{"mode":"permanent"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	w.must("advertise", "put", "-f", ad)
	w.eventually("of operator big", "discover") // which comes with the operator, and isn't exported
	file := filepath.Join(t.TempDir(), "all.yaml")
	w.must("definitions", "export", "-f", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"max_age: 168h0m0s", "durable_name: worker", "operator: big", "subject: quakes.{net}", "- 2h0m0s"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	actions := func(o string) map[string]int {
		var list []struct{ Kind, Name, Action string }
		if err := json.Unmarshal([]byte(o), &list); err != nil {
			t.Fatal(err, o)
		}
		n := map[string]int{}
		for _, l := range list {
			n[l.Action]++
		}
		return n
	}
	if got := w.must("definitions", "import", "-f", file, "-o", "json"); actions(got)["same"] != 6 || len(actions(got)) != 1 {
		t.Errorf("importing what is there: %s", got)
	}
	// A change is shown, and only made without --dry-run.
	changed := strings.Replace(string(text), "168h0m0s", "2d", 1)
	for i, args := range [][]string{{"--dry-run"}, nil, {"--dry-run"}} {
		o := w.with(t.Context(), changed, append([]string{"definitions", "import", "-o", "json"}, args...)...)
		if want := 1 - i/2; actions(o.out)["change"] != want {
			t.Errorf("%d: %s %s", i, o.out, o.err)
		}
		if i == 0 && !strings.Contains(o.out, "max_age: 604800000000000 → 172800000000000") {
			t.Error(o.out)
		}
	}
	// On an empty broker.
	other := newWorld(t)
	if got := other.must("definitions", "import", "-f", file, "--dry-run", "-o", "json"); strings.Contains(got, "same") {
		t.Error(got)
	}
	if got := other.must("topic", "ls", "-o", "json"); strings.TrimSpace(got) != "[]" {
		t.Errorf("a dry run made %s", got)
	}
	if got := other.must("definitions", "import", "-f", file, "-o", "json"); actions(got)["create"] != 6 {
		t.Error(got)
	}
	if got := other.must("definitions", "export"); got != string(text) {
		t.Errorf("exported again:\n%s\nwanted:\n%s", got, text)
	}
	for text, want := range map[string]string{
		"herald_definitions: 1\ntopcis: []\n":                         "line 2",
		"topics: []\n":                                                "herald_definitions",
		"herald_definitions: 1\ntopics: [{subjects: [a]}]\n":          "no name",
		"herald_definitions: 1\ntopics: [{name: a, max_age: soon}]\n": "max_age",
	} {
		if o := other.with(t.Context(), text, "definitions", "import"); o.code != exitUsage || !strings.Contains(o.err, want) {
			t.Errorf("%q: %+v", text, o)
		}
	}
}
