package chaos

import (
	"testing"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// Test01PowerCut takes the power of all nodes away in one moment, under load:
// 3 times, 20 in full. Nothing acknowledged may be lost.
func Test01PowerCut(t *testing.T) {
	w := begin(t, 1, harness.ClusterOptions{DiskMB: 700})
	w.needDisks()
	w.create("T", 3, nil)
	w.load("T")
	cuts := pick(2, 20)
	var slowest time.Duration
	for range cuts {
		pause(time.Duration(300+w.rng.IntN(1200)) * time.Millisecond)
		w.must(harness.PowerCut(w.Nodes...))
		w.must(w.Start())
		slowest = max(slowest, w.progress(90*time.Second))
		if t.Failed() {
			break
		}
	}
	w.figure("%d cuts, slowest return to service %s", cuts, slowest.Round(100*time.Millisecond))
	w.audit("T")
}
