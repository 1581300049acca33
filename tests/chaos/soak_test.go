package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// Test27Soak does to three nodes under load what comes up, for an hour in full: nodes are
// killed, stopped, halted, cut off and lose power, one or several, and the lead is handed
// around meanwhile. After each fault all is healed and publishers go on; at the end nothing
// is lost, and the replicas are the same.
func Test27Soak(t *testing.T) {
	w := begin(t, 27, harness.ClusterOptions{DiskMB: 3000})
	w.create("T", 3, nil)
	w.load("T")
	faults := map[string]func(some []*harness.Node){
		"killed": func(some []*harness.Node) { w.down(some, (*harness.Node).Kill) },
		"stopped": func(some []*harness.Node) {
			w.down(some, func(n *harness.Node) {
				if !n.Stop() {
					w.broken("slow", "%s did not stop within a minute", n.Name)
				}
			})
		},
		"halted": func(some []*harness.Node) {
			for _, n := range some {
				n.Pause()
			}
			w.while()
			for _, n := range some {
				n.Resume()
			}
		},
		"led": func(some []*harness.Node) {
			if err := w.lead("T", some[0], time.Minute); err != nil {
				w.broken("no lead", "%v", err)
			}
		},
	}
	if w.CanCut() == nil {
		faults["cut off"] = func(some []*harness.Node) {
			w.must(w.Allow(func(a, b *harness.Node) bool { return in(some, a) == in(some, b) }))
			w.while()
			w.must(w.Heal())
		}
	}
	if w.Nodes[0].Disk != nil {
		faults["without power"] = func(some []*harness.Node) {
			w.must(harness.PowerCut(some...))
			w.down(some, func(*harness.Node) {})
		}
	}
	kinds := slices.Sorted(maps.Keys(faults))
	done := map[string]int{}
	var slowest time.Duration
	for end := time.Now().Add(pick(20*time.Second, some(time.Hour))); time.Now().Before(end) && !t.Failed(); {
		pause(time.Duration(w.rng.IntN(2000)) * time.Millisecond)
		kind := kinds[w.rng.IntN(len(kinds))]
		victims := w.shuffled(w.Nodes)[:1+w.rng.IntN(3)]
		faults[kind](victims)
		done[kind]++
		took := w.progress(2 * time.Minute)
		w.note("%d nodes %s: acknowledged again after %s", len(victims), kind, took.Round(10*time.Millisecond))
		slowest = max(slowest, took)
	}
	var counts []string
	for _, kind := range kinds {
		counts = append(counts, fmt.Sprintf("%d %s", done[kind], kind))
	}
	w.figure("%s; acknowledged again after %s at most", strings.Join(counts, ", "), slowest.Round(10*time.Millisecond))
	w.audit("T")
}

// while lasts as long as a fault does.
func (w *world) while() { pause(time.Duration(200+w.rng.IntN(4000)) * time.Millisecond) }

// down ends nodes and starts them again.
func (w *world) down(some []*harness.Node, end func(*harness.Node)) {
	w.t.Helper()
	for _, n := range some {
		end(n)
	}
	w.while()
	for _, n := range some {
		w.must(n.Start())
	}
}
