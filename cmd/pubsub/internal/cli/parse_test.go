package cli

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDurations(t *testing.T) {
	for in, want := range map[string]time.Duration{"90s": 90 * time.Second, "7d": 168 * time.Hour, "1.5d": 36 * time.Hour, "2w": 336 * time.Hour, "1h30m": 90 * time.Minute, "0": 0} {
		if got, err := parseDuration(in); err != nil || got != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "d", "-1d", "-5m", "7", "1e300d", "x"} {
		if got, err := parseDuration(in); err == nil {
			t.Errorf("%q: %s", in, got)
		}
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{"512": 512, "64KiB": 64 << 10, "1MB": 1e6, "10 GiB": 10 << 30, "1.5k": 1536, "-1": -1, "unlimited": -1, "3b": 3} {
		if got, err := parseSize(in); err != nil || got != want {
			t.Errorf("%s: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "x", "-5", "1e30", "KiB"} {
		if got, err := parseSize(in); err == nil {
			t.Errorf("%q: %d", in, got)
		}
	}
}

func TestTimes(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"now": now, "15m": now.Add(-15 * time.Minute), "-15m": now.Add(-15 * time.Minute), "1d": now.Add(-24 * time.Hour),
		"2026-11-30": now.Add(-12 * time.Hour), "2026-11-30T11:00": now.Add(-time.Hour), "2026-11-30T13:00:00+01:00": now, "1517365101235": time.UnixMilli(1517365101235),
	} {
		if got, err := parseTime(in, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	if got, err := parseTime("yesterday", now); err == nil {
		t.Errorf("yesterday: %s", got)
	}
}

func TestSuggestions(t *testing.T) {
	known := []string{"pub", "sub", "topic", "discover", "--durable", "ORD", "--creds"}
	for in, want := range map[string]string{"pbu": "pub", "topci": "topic", "disc": "discover", "--durabel": "--durable", "zzzz": "", "pub": "", "x": "", "nope": "", "--yes": "", "sud": "sub"} {
		got := suggestion(in, known)
		if want == "" && got != "" || want != "" && got != ` (did you mean "`+want+`"?)` {
			t.Errorf("%s: %q", in, got)
		}
	}
}

func TestDistanceIsAMetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.StringN(0, 8, -1).Draw(t, "a"), rapid.StringN(0, 8, -1).Draw(t, "b")
		d := distance(a, b)
		if d != distance(b, a) || (d == 0) != (a == b) || d > max(len([]rune(a)), len([]rune(b))) {
			t.Fatalf("distance(%q, %q) = %d", a, b, d)
		}
	})
}
