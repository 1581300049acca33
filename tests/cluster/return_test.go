package cluster_test

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// TestANodeThatWasAwayIsBackAtOnce: a node that comes back, killed or stopped, whether it
// was away for a moment or for longer than leaders go on asking for it, needs no more than
// the cluster took to form and its leaders' next notices.
func TestANodeThatWasAwayIsBackAtOnce(t *testing.T) {
	t.Parallel()
	w := prepare(t, harness.ClusterOptions{Nodes: 3})
	began := time.Now()
	w.start(w.Nodes...)
	formed := time.Since(began)
	js := w.js(w.connect(w.Nodes...))
	s := w.stream(js, "S", 3)
	l := w.publish("S", 2, 2*time.Second)
	w.reached(l, 50)
	for _, c := range []struct {
		name string
		stop func(n *harness.Node)
		away time.Duration
	}{
		{"killed", (*harness.Node).Kill, 0},
		{"killed for long", (*harness.Node).Kill, 6 * time.Second},
		{"stopped for long", func(n *harness.Node) { n.Stop() }, 6 * time.Second},
	} {
		lead := w.leader(s)
		n := w.others(lead)[0]
		c.stop(n)
		w.eventually("the others to miss it", func() bool { return w.away(n) >= c.away })
		w.reached(l, 20)
		back := time.Now()
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		w.ready(n)
		took := time.Since(back)
		t.Logf("%s: ready after %s; the cluster formed in %s", c.name, took.Round(time.Millisecond), formed.Round(time.Millisecond))
		// It starts a process and catches up; its leader sends it what it lacks with the next
		// of its notices, two of them at most, each within two seconds. What used to go wrong
		// took ten seconds.
		if took > 2*formed+5*time.Second {
			t.Errorf("%s: back after %s, the whole cluster took %s to form", c.name, took, formed)
		}
	}
	w.check(l, "S", w.Nodes[0])
}

// away returns for how long no leader has heard from a node, as far as they tell; negative
// when none does.
func (w *world) away(n *harness.Node) time.Duration {
	least := time.Duration(-1)
	for _, m := range w.others(n) {
		_, text, err := get(m, "/metrics")
		if err != nil {
			return -1
		}
		for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), " ")
			if !strings.HasPrefix(name, "herald_group_contact_seconds{") || !strings.HasSuffix(name, fmt.Sprintf(`,node=%q}`, n.Name)) {
				continue
			}
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				if d := time.Duration(v * float64(time.Second)); least < 0 || d < least {
					least = d
				}
			}
		}
	}
	return least
}
