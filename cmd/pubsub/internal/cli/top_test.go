package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// objects reads a list printed with -o json.
func objects(t *testing.T, text string) []map[string]any {
	t.Helper()
	var list []map[string]any
	if err := json.Unmarshal([]byte(text), &list); err != nil || list == nil {
		t.Fatalf("%v in %q", err, text)
	}
	return list
}

func TestTop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, what := range []string{"topics", "consumers", "operators"} {
		if got := objects(t, w.must("top", what, "--once", "--every", "50ms", "-o", "json")); len(got) != 0 {
			t.Errorf("top %s of nothing: %v", what, got)
		}
	}
	w.store(30)
	w.must("topic", "create", "small")
	w.must("consumer", "create", "orders", "a")
	got := objects(t, w.must("top", "--once", "--every", "50ms", "--sort", "messages", "-o", "json"))
	if len(got) != 2 || got[0]["topic"] != "orders" || got[0]["messages"] != 30.0 || got[0]["consumers"] != 1.0 || got[0]["msgs_per_second"] != 0.0 {
		t.Error(got)
	}
	if got = objects(t, w.must("top", "topics", "--once", "--every", "50ms", "--filter", "mal", "-o", "json")); len(got) != 1 || got[0]["topic"] != "small" {
		t.Error(got)
	}
	if got = objects(t, w.must("top", "--once", "--every", "50ms", "--limit", "1", "-o", "json")); len(got) != 1 {
		t.Error(got)
	}
	if got = objects(t, w.must("top", "consumers", "--once", "--every", "50ms", "-o", "json")); len(got) != 1 || got[0]["consumer"] != "orders/a" || got[0]["pending"] != 30.0 {
		t.Error(got)
	}
	if got = objects(t, w.must("top", "connections", "--once", "--every", "50ms", "-o", "json")); len(got) != 1 || !strings.HasSuffix(got[0]["connection"].(string), "pubsub top") || got[0]["subs"] == 0.0 {
		t.Error(got)
	}
	table := w.must("top", "--once", "--every", "50ms")
	if lines := strings.Split(table, "\n"); !strings.HasPrefix(lines[0], "TOPIC") || strings.ContainsRune(table, 0x1b) {
		t.Errorf("%q", table)
	}
	for args, says := range map[string]string{
		"top topcs":              `did you mean "topics"`,
		"top topics --sort byte": `did you mean "bytes"`,
		"top --every 1ms":        "at least 50ms",
	} {
		if o := w.run(strings.Fields(args)...); o.code != exitUsage || !strings.Contains(o.err, says) {
			t.Errorf("%s: %+v", args, o)
		}
	}
}

func TestTopShowsWhatHasGrown(t *testing.T) {
	was := newTopRow("topic", "a", nil, map[string]float64{"msgs": 100})
	rows := []*topRow{
		newTopRow("topic", "a", nil, map[string]float64{"msgs": 150}),
		newTopRow("topic", "new", nil, map[string]float64{"msgs": 7}),
	}
	rate(rows, map[string]*topRow{"a": was}, 2*time.Second)
	if rows[0].sort["msgs/s"] != 25 || rows[1].sort["msgs/s"] != 0 {
		t.Error(rows[0].sort, rows[1].sort)
	}
	rate(rows[:1], map[string]*topRow{"a": newTopRow("topic", "a", nil, map[string]float64{"msgs": 999})}, time.Second)
	if rows[0].sort["msgs/s"] != 0 {
		t.Error("a count that began anew has a rate of", rows[0].sort["msgs/s"])
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := objects(t, w.must("doctor", "--dir", t.TempDir(), "-o", "json"))
	seen := map[string]string{}
	for _, f := range got {
		seen[f["check"].(string)] = f["verdict"].(string)
		if f["found"] == "" || f["verdict"] == verdictWarn && f["do"] == nil {
			t.Errorf("says too little: %v", f)
		}
	}
	for _, check := range []string{"connection", "clock", "versions", "quorum"} {
		if seen[check] != verdictOK {
			t.Errorf("%s: %q of %v", check, seen[check], got)
		}
	}
	for _, check := range []string{"durable messages", "disk", "open files"} {
		if seen[check] != verdictOK && seen[check] != verdictWarn { // a slow machine is warned of
			t.Errorf("%s: %q of %v", check, seen[check], got)
		}
	}
	if got := w.must("topic", "ls", "-o", "json"); strings.TrimSpace(got) != "[]" {
		t.Errorf("the doctor left %s", got)
	}
	if o := w.run("doctor", "--no-write", "--dir", "/nowhere/at/all"); o.code != exitUnhealthy || strings.Contains(o.out, "durable messages") {
		t.Error(o)
	}
	if o := nowhere(t).run("doctor"); o.code != exitUnhealthy {
		t.Error(o)
	}
}

func TestDoctorsVerdicts(t *testing.T) {
	now := time.Now()
	node := func(name, version string, off time.Duration) nodeAnswer {
		n := nodeAnswer{at: now.Add(10 * time.Millisecond)}
		n.Server.Name, n.Server.Ver, n.Data.Now = name, version, now.Add(5*time.Millisecond+off)
		return n
	}
	for off, want := range map[time.Duration]string{0: verdictOK, time.Second: verdictWarn, -time.Second: verdictWarn, time.Minute: verdictFail, -time.Hour: verdictFail} {
		if f := examineClocks([]nodeAnswer{node("a", "1", 0), node("b", "1", off)}, now); f.Verdict != want || want != verdictOK && !strings.Contains(f.Found, "b is") {
			t.Errorf("%v off: %+v", off, f)
		}
	}
	if f := examineVersions([]nodeAnswer{node("a", "1", 0), node("b", "2", 0)}); f.Verdict != verdictWarn || f.Found != "1: a; 2: b" {
		t.Error(f)
	}
	if f := examineVersions([]nodeAnswer{node("a", "1", 0), node("b", "1", 0)}); f.Verdict != verdictOK {
		t.Error(f)
	}
}
