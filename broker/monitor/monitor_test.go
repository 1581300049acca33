package monitor

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestUptime(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m1s", time.Hour: "1h0m0s",
		50*time.Hour + 3*time.Second: "2d2h0m3s", 366 * 24 * time.Hour: "1y1d0h0m0s",
	} {
		if got := Uptime(d); got != want {
			t.Errorf("Uptime(%s) = %s, want %s", d, got, want)
		}
	}
}

// TestPagesStayInBounds: no offset and limit, however absurd, lead outside the
// list or to a page without bound.
func TestPagesStayInBounds(t *testing.T) {
	extreme := rapid.OneOf(rapid.Int(), rapid.SampledFrom([]int{math.MinInt, -1, 0, 1, math.MaxInt}))
	rapid.Check(t, func(t *rapid.T) {
		offset, limit, n := extreme.Draw(t, "offset"), extreme.Draw(t, "limit"), rapid.IntRange(0, 300_000).Draw(t, "n")
		from, to, shown := page(offset, limit, 1024, n)
		if from < 0 || to < from || to > n || to-from > pageMax || shown <= 0 || shown > pageMax {
			t.Fatalf("page(%d, %d, 1024, %d) = %d, %d, %d", offset, limit, n, from, to, shown)
		}
	})
}

func TestConnStateOnTheWire(t *testing.T) {
	for text, want := range map[string]ConnState{`0`: 0, `1`: 1, `2`: 2, `"open"`: 0, `"closed"`: 1, `"any"`: 2, `"ALL"`: 2} {
		var s ConnState
		if err := json.Unmarshal([]byte(text), &s); err != nil || s != want {
			t.Errorf("%s: %d, %v; want %d", text, s, err, want)
		}
	}
	for _, text := range []string{`3`, `-1`, `"bored"`, `{}`} {
		var s ConnState
		if err := json.Unmarshal([]byte(text), &s); err == nil {
			t.Errorf("%s: %d, want an error", text, s)
		}
	}
}

func TestTheMachineIsMeasured(t *testing.T) {
	if residentBytes() <= 0 || diskShare(t.TempDir()) <= 0 {
		t.Errorf("resident %d, disk %d", residentBytes(), diskShare(t.TempDir()))
	}
	var c cpuMeter
	now := time.Now()
	if first := c.percent(now); first != 0 {
		t.Errorf("CPU before anything was measured: %v", first)
	}
	if p := c.percent(now.Add(2 * time.Second)); p < 0 || p > 6400 {
		t.Errorf("CPU %v %%", p)
	}
}
