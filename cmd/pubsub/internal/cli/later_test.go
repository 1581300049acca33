package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/client"
)

// eventually waits until a command's output has a text.
func (w *world) eventually(text string, args ...string) string {
	w.t.Helper()
	var out string
	for end := time.After(15 * time.Second); ; {
		if out = w.run(args...).out; strings.Contains(out, text) {
			return out
		}
		select {
		case <-end:
			w.t.Fatalf("pubsub %s never says %q: %s", strings.Join(args, " "), text, out)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// dead makes n dead letters of orders.1 … orders.n under dead.orders.
func (w *world) dead(n int) *client.Client {
	w.t.Helper()
	w.must("topic", "create", "dead")
	w.store(n)
	w.must("consumer", "create", "orders", "worker", "--dead-letters", "dead.orders", "--max-deliver", "3")
	c := w.client()
	for got := 0; got < n; {
		all, err := c.Fetch(w.t.Context(), "orders", "worker", n)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, m := range all {
			got++
			if err := m.Term("no " + string(m.Payload)); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.eventually(fmt.Sprintf(`"moved":%d`, n), "dlq", "ls", "-o", "ndjson")
	return c
}

func TestDeadLettersAreListedSentAgainAndDropped(t *testing.T) {
	w := newWorld(t)
	c := w.dead(4)
	list := w.must("dlq", "ls", "dead.orders", "-o", "ndjson")
	if strings.Count(list, "\n") != 4 || !strings.Contains(list, `"detail":"no 2"`) || !strings.Contains(list, `"topic":"orders"`) {
		t.Errorf("listed %s", list)
	}
	if out := w.must("dlq", "ls", "dead.orders", "--reason", "max_deliver"); strings.Contains(out, "orders.1") {
		t.Errorf("listed %s", out)
	}
	var l letter
	if err := json.Unmarshal([]byte(w.must("dlq", "ls", "dead.orders", "-o", "ndjson", "--where", `header["Herald-Dead-Subject"] == "orders.3"`)), &l); err != nil {
		t.Fatal(err)
	}
	seq := fmt.Sprint(l.Sequence)
	if out := w.must("dlq", "show", "dead.orders", seq); !strings.Contains(out, "Herald-Dead-Reason") || !strings.Contains(out, "  3\n") {
		t.Errorf("shown %q", out)
	}
	w.must("dlq", "redrive", "dead.orders", seq, "--dry-run")
	w.must("dlq", "redrive", "dead.orders", seq)
	again, err := c.Fetch(t.Context(), "orders", "worker", 10)
	if err != nil || len(again) != 1 || again[0].Subject != "orders.3" || string(again[0].Payload) != "3" || again[0].Header.Get("Herald-Dead-Reason") != "" {
		t.Fatalf("came again: %v %v", again, err)
	}
	if o := w.run("dlq", "redrive", "dead.orders", seq); o.code != exitNotFound {
		t.Errorf("a second time: %d %s", o.code, o.err)
	}
	if o := w.run("dlq", "redrive", "dead.orders"); o.code != exitUsage {
		t.Errorf("without saying which: %d %s", o.code, o.err)
	}
	if o := w.run("dlq", "drop", "dead.orders", "--all"); o.code != exitUsage || !strings.Contains(o.err, "--yes") {
		t.Errorf("without --yes: %d %s", o.code, o.err)
	}
	w.must("dlq", "drop", "dead.orders", "--consumer", "worker", "--yes")
	if out := w.run("dlq", "ls", "dead.orders"); !strings.Contains(out.err, "no dead letters") {
		t.Errorf("left: %s %s", out.out, out.err)
	}
	if o := w.run("consumer", "create", "orders", "other", "--dead-letters", "nowhere"); o.code == 0 || !strings.Contains(o.err, "kept by no stream") {
		t.Errorf("%d %s", o.code, o.err)
	}
}

// What was stored again before an interruption is not stored twice.
func TestRedrivingAgainStoresOnce(t *testing.T) {
	w := newWorld(t)
	c := w.dead(1)
	m, err := c.Message(t.Context(), "dead", 1)
	if err != nil {
		t.Fatal(err)
	}
	l, _ := letterOf(m)
	a := &app{env: Env{Now: time.Now}, client: c}
	for range 2 {
		if _, err := a.redrive(t.Context(), m, l, ""); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := c.Topic(t.Context(), "orders"); err != nil || info.State.Msgs != 2 {
		t.Errorf("%+v, %v", info.State, err)
	}
}

func TestReplayingARange(t *testing.T) {
	w := newWorld(t)
	w.store(20) // orders.1 has sequence 1
	w.must("topic", "create", "copy")
	show := func(args ...string) (p preview) {
		t.Helper()
		if err := json.Unmarshal([]byte(w.must(append([]string{"replay", "orders", "--preview", "-o", "json"}, args...)...)), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		args           []string
		n              int
		first, last    uint64
		firstSubject   string
		wantsNoSubject bool
	}{
		{nil, 20, 1, 20, "orders.1", false},
		{[]string{"--from", "-5"}, 5, 16, 20, "orders.16", false},
		{[]string{"--range", "3..7", "--to-subject", "copy.>"}, 5, 3, 7, "copy.orders.3", false},
		{[]string{"--range", "..4", "--to-subject", "one"}, 4, 1, 4, "one", false},
		{[]string{"--from", "-1h", "--to", "@0s"}, 20, 1, 20, "orders.1", false},
		{[]string{"--from", "@2099-01-01"}, 0, 0, 0, "", true},
		{[]string{"--where", "this > 18"}, 2, 19, 20, "orders.19", false},
		{[]string{"--subject", "orders.*", "--to-subject", "x.{{wildcard(1)}}.y", "--count", "1"}, 1, 1, 1, "x.1.y", false},
		{[]string{"--from", "end"}, 0, 0, 0, "", true},
		{[]string{"--from", "last"}, 1, 20, 20, "orders.20", false},
	} {
		p := show(c.args...)
		if p.Messages != c.n || c.n > 0 && (p.First.Sequence != c.first || p.Last.Sequence != c.last || p.Subjects[0] != c.firstSubject) {
			t.Errorf("%v: %+v", c.args, p)
		}
	}
	for range 2 { // the second stores nothing more
		w.must("replay", "orders", "--range", "3..7", "--to-subject", "copy.>", "--rate", "1000/s", "--id", "once")
	}
	var stored []string
	c := w.client()
	err := c.Scan(t.Context(), client.Scan{Topic: "copy"}, func(m *client.Message) error {
		stored = append(stored, m.Subject+" "+string(m.Payload)+" "+m.Header.Get("Herald-Replay-Sequence"))
		return nil
	})
	if err != nil || fmt.Sprint(stored) != "[copy.orders.3 3 3 copy.orders.4 4 4 copy.orders.5 5 5 copy.orders.6 6 6 copy.orders.7 7 7]" {
		t.Errorf("%v, %v", stored, err)
	}
	if o := w.run("replay", "orders"); o.code != exitUsage {
		t.Errorf("onto itself unasked: %d %s", o.code, o.err)
	}
	live := w.start("sub", "test.>", "--count", "2", "-o", "raw")
	live.until(&live.err, "listening")
	w.must("replay", "orders", "--range", "1..2", "--to-subject", "test.>", "--rate", "original")
	if o := live.wait(); o.out != "1\n2\n" {
		t.Errorf("live %q", o.out)
	}
}

func TestPaces(t *testing.T) {
	base := time.Unix(1000, 0)
	for text, want := range map[string]time.Duration{"max": 0, "original": 4 * time.Second, "2x": 2 * time.Second, "0.5x": 8 * time.Second, "4/s": 500 * time.Millisecond} {
		p, err := parsePace(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		p.wait(base, base)
		p.wait(base.Add(time.Second), base)
		if got := p.wait(base.Add(4*time.Second), base); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "x", "-1x", "0/s", "1", "fast", "1/m"} {
		if _, err := parsePace(text); err == nil {
			t.Errorf("%q is taken as a rate", text)
		}
	}
}

func TestSeekingMovesAConsumerExactly(t *testing.T) {
	w := newWorld(t)
	w.store(10)
	w.must("consumer", "create", "orders", "new", "--from", "new") // its policy would not let RESET move it
	c := w.client()
	next := func() uint64 {
		t.Helper()
		got, err := c.Fetch(t.Context(), "orders", "new", 1)
		if err != nil {
			t.Fatal(err)
		}
		return got[0].Stored.Sequence // unacknowledged: forgotten by the next seek
	}
	for _, s := range []struct {
		place string
		want  uint64
	}{{"start", 1}, {"7", 7}, {"-3", 8}, {"@1h", 1}, {"last", 10}, {"-1h", 1}} {
		w.must("consumer", "seek", "orders", "new", "--", s.place)
		if got := next(); got != s.want {
			t.Errorf("%s: %d, want %d", s.place, got, s.want)
		}
	}
	if got := next(); got != 2 {
		t.Errorf("then %d", got)
	}
	o := w.run("consumer", "seek", "orders", "new", "end")
	if o.code != 0 || !strings.Contains(o.err, "2 acknowledgements") {
		t.Errorf("end: %d %s", o.code, o.err)
	}
	info, err := c.Consumer(t.Context(), "orders", "new")
	if err != nil || info.NumAckPending != 0 || info.NumPending != 0 || info.AckFloor.Stream != 10 {
		t.Errorf("%+v, %v", info, err)
	}
	if o := w.run("consumer", "seek", "orders", "none", "1"); o.code != exitNotFound {
		t.Errorf("no consumer: %d %s", o.code, o.err)
	}
	if o := w.run("consumer", "seek", "orders", "new", "somewhere"); o.code != exitUsage {
		t.Errorf("no place: %d %s", o.code, o.err)
	}
}

func TestMessagesArePublishedLater(t *testing.T) {
	w := newWorld(t)
	name := strings.TrimSpace(w.must("pub", "reminders.call", "hello", "--delay", "1h", "--schedule", "one"))
	if name != "schedule.reminders.call.one" {
		t.Errorf("named %q", name)
	}
	w.must("pub", "reminders.call", "often", "--every", "30m", "--schedule", "two")
	w.must("pub", "reminders.call", "soon", "--delay", "0s")
	w.must("pub", "reminders.mail", "later", "--at", "2099-01-01")
	w.must("pub", "reminders.mail", "again", "--every", "0 30 8 * * *", "--zone", "Europe/Berlin", "--schedule", "cron")
	if out := w.eventually("soon", "sub", "reminders.>", "--all", "--to", "end", "-o", "raw"); out != "soon\n" {
		t.Errorf("published %q", out)
	}
	list := w.must("schedule", "ls", "-o", "ndjson")
	for _, want := range []string{`"name":"schedule.reminders.call.one"`, `"target":"reminders.call"`, `"schedule":"@every 30m0s"`, `"next":"2099-01-01T00:00:00Z"`, `"zone":"Europe/Berlin"`} {
		if !strings.Contains(list, want) {
			t.Errorf("%s is missing in %s", want, list)
		}
	}
	if n := strings.Count(list, "\n"); n != 4 {
		t.Errorf("%d schedules: %s", n, list)
	}
	w.must("pub", "reminders.call", "other", "--delay", "2h", "--schedule", "one") // replaces
	w.must("schedule", "rm", "schedule.reminders.call.two", name)
	if list := w.must("schedule", "ls", "reminders", "-o", "ndjson"); strings.Count(list, "\n") != 2 || strings.Contains(list, "reminders.call") {
		t.Errorf("left: %s", list)
	}
	if o := w.run("schedule", "rm", name); o.code != exitNotFound {
		t.Errorf("a second time: %d %s", o.code, o.err)
	}
	w.must("topic", "create", "orders")
	if o := w.run("pub", "orders.1", "x", "--delay", "1s"); o.code != exitRefused || !strings.Contains(o.err, "topic edit orders --schedules") {
		t.Errorf("a topic without schedules: %d %s", o.code, o.err)
	}
	w.must("topic", "edit", "orders", "--schedules")
	w.must("pub", "orders.1", "x", "--delay", "1h")
	for _, bad := range [][]string{{"--delay", "x"}, {"--delay", "1s", "--every", "1s"}, {"--every", "1ms"}, {"--at", "noon"}, {"--delay", "1s", "--schedule", "a b"}} {
		if o := w.run(append([]string{"pub", "orders.1", "x"}, bad...)...); o.code != exitUsage {
			t.Errorf("%v: %d %s", bad, o.code, o.err)
		}
	}
}
