package chaos

import (
	"testing"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// shape is a way to part five nodes: which of them, in an order of the moment,
// hear which.
type shape struct {
	name  string
	hears func(from, to int) bool
	fully bool // the nodes from the fourth on can't reach a majority
}

var shapes = []shape{
	{"majority and minority", func(a, b int) bool { return (a < 3) == (b < 3) }, true},
	{"leader alone", func(a, b int) bool { return (a < 4) == (b < 4) }, true},
	{"bridge", func(a, b int) bool { return a == 2 || b == 2 || (a < 2) == (b < 2) }, false},
	{"ring", func(a, b int) bool { d := (a - b + 5) % 5; return d == 1 || d == 4 }, false},
	{"one is not heard", func(a, _ int) bool { return a != 4 }, false},
	{"one does not hear", func(_, b int) bool { return b != 4 }, false},
	{"halves deaf one way", func(a, b int) bool { return (a < 3) == (b < 3) || a < 3 }, false},
}

// Test08Partitions parts five nodes in every shape, and at the end in changing
// ones, while clients of each node write with expectations and read. Whoever
// can't reach a majority acknowledges nothing; the history is linearizable; all
// nodes serve again soon after the parts are joined.
func Test08Partitions(t *testing.T) {
	w := begin(t, 8, harness.ClusterOptions{Nodes: 5})
	w.partitions(pick(2500*time.Millisecond, some(20*time.Second)))
}

// Test08PartitionsByProxy is the same through proxies, for machines without
// network namespaces: three nodes, and one shape.
func Test08PartitionsByProxy(t *testing.T) {
	w := newWorld(t, 8, harness.ClusterOptions{Nodes: 3, Wire: harness.WireProxies})
	if w.target != herald {
		t.Skip("SKIPPED: the routes of nats-server don't stay on the proxies")
	}
	w.must(w.Start())
	w.waitJetStream()
	h := w.exercise("L", 3, 4, 15*time.Millisecond)
	for range pick(1, 10) {
		pause(1500 * time.Millisecond)
		alone := w.leader("L")
		w.must(w.Allow(func(a, b *harness.Node) bool { return a != alone && b != alone }))
		from := time.Since(w.began)
		pause(3 * time.Second)
		to := time.Since(w.began)
		w.noAcks(h, []*harness.Node{alone}, from, to)
		w.must(w.Heal())
		took, err := h.served(30 * time.Second)
		if err != nil {
			w.broken("stuck", "%v", err)
		}
		w.figure("served %s after the leader's return", took.Round(10*time.Millisecond))
	}
	h.finish()
}

func (w *world) partitions(each time.Duration) {
	w.t.Helper()
	if err := w.CanCut(); err != nil {
		w.t.Skipf("SKIPPED: %v", err)
	}
	h := w.exercise("L", 5, 4, pick(15*time.Millisecond, 60*time.Millisecond))
	var slowest time.Duration
	heal := func(name string) {
		w.must(w.Heal())
		took, err := h.served(30 * time.Second)
		if err != nil {
			w.broken("stuck", "after %s: %v", name, err)
		}
		w.note("%s: served %s after the healing", name, took.Round(10*time.Millisecond))
		slowest = max(slowest, took)
	}
	for _, s := range w.someShapes() {
		// The leader comes last: it is the one that a shape treats worst.
		leader := w.leader("L")
		order := append(w.shuffled(w.others(leader)), leader)
		place := map[*harness.Node]int{}
		for i, n := range order {
			place[n] = i
		}
		w.must(w.Allow(func(a, b *harness.Node) bool { return s.hears(place[a], place[b]) }))
		from := time.Since(w.began)
		pause(each)
		to := time.Since(w.began)
		if s.fully {
			var minority []*harness.Node
			for _, n := range order {
				if !s.hears(place[n], 0) && place[n] != 0 {
					minority = append(minority, n)
				}
			}
			w.noAcks(h, minority, from, to)
		}
		heal(s.name)
	}
	for range pick(2, some(20)) { // flapping
		side := w.shuffled(w.Nodes)[:2]
		w.must(w.Allow(func(a, b *harness.Node) bool { return in(side, a) == in(side, b) }))
		pause(time.Duration(200+w.rng.IntN(1300)) * time.Millisecond)
		w.must(w.Heal())
		pause(time.Duration(200+w.rng.IntN(800)) * time.Millisecond)
	}
	heal("flapping")
	w.figure("every node served at most %s after healing", slowest.Round(10*time.Millisecond))
	h.finish()
}

// someShapes returns all shapes, or for the short form two.
func (w *world) someShapes() []shape {
	if long() {
		return append(append([]shape{}, shapes...), shapes...)
	}
	return []shape{shapes[w.rng.IntN(2)], shapes[2+w.rng.IntN(len(shapes)-2)]}
}

// noAcks reports writes that a side without a majority acknowledged. What it answers to
// reads is held against the register at the end.
func (w *world) noAcks(h *history, minority []*harness.Node, from, to time.Duration) {
	for _, n := range minority {
		if c := h.count(func(o operation) bool { return o.node == n.Name && o.write && o.ok && o.from > from && o.to < to }); c > 0 {
			w.broken("minority acks", "%s acknowledged %d writes that began and ended while it could not reach a majority", n.Name, c)
		}
	}
}

func (w *world) shuffled(nodes []*harness.Node) []*harness.Node {
	out := append([]*harness.Node{}, nodes...)
	w.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func in(nodes []*harness.Node, n *harness.Node) bool {
	for _, x := range nodes {
		if x == n {
			return true
		}
	}
	return false
}

// Test16PausedLeader halts the leader for 1 to 30 seconds under reads and
// writes, and lets it go on: no stale read, no ack after it was deposed.
func Test16PausedLeader(t *testing.T) {
	w := begin(t, 16, harness.ClusterOptions{})
	h := w.exercise("L", 3, 4, pick(10*time.Millisecond, 40*time.Millisecond))
	lengths := pick([]time.Duration{time.Second, 4 * time.Second}, nil)
	for i := 0; long() && i < some(15); i++ {
		lengths = append(lengths, time.Second+time.Duration(w.rng.Int64N(int64(29*time.Second))))
	}
	var slowest time.Duration
	for _, d := range lengths {
		pause(1500 * time.Millisecond)
		n := w.leader("L")
		n.Pause()
		pause(d)
		n.Resume()
		took, err := h.served(30 * time.Second)
		if err != nil {
			w.broken("stuck", "after a pause of %s: %v", d, err)
		}
		slowest = max(slowest, took)
	}
	w.figure("%d pauses, every node served at most %s after one", len(lengths), slowest.Round(10*time.Millisecond))
	h.finish()
}
