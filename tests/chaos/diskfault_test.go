package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// Test13FailedWrites makes a sync or a write of one node fail once. The process
// ends within a second, comes back clean, and nothing is lost.
func Test13FailedWrites(t *testing.T) {
	for _, c := range []struct{ name, rule string }{
		{"SyncOnce", "fdatasync,fsync:error=EIO:when=%d"},
		{"SyncAlways", "fdatasync,fsync:error=EIO:when=%d+"},
		{"WriteOnce", "pwrite64,pwritev,pwritev2:error=EIO:when=%d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := harness.CanInject(); err != nil {
				t.Skipf("SKIPPED: %v", err)
			}
			w := begin(t, 13, harness.ClusterOptions{})
			w.create("T", 3, nil)
			w.load("T")
			w.progress(30 * time.Second)
			rounds, exits := pick(1, some(12)), 0
			var slowest time.Duration
			for round := range rounds {
				n := w.leader("T")
				if round%2 == 1 {
					n = w.shuffled(w.others(n))[0]
				}
				ended, took := w.failOnce(n, fmt.Sprintf(c.rule, 2+w.rng.IntN(30)))
				if ended {
					exits++
					slowest = max(slowest, took)
				}
				if n.Running() { // whoever goes on after a failed sync knows nothing of its disk
					n.Kill()
				}
				w.must(n.Start())
				w.progress(60 * time.Second)
			}
			w.figure("%d of %d ended, at most %s after the fault", exits, rounds, slowest.Round(time.Millisecond))
			w.audit("T")
		})
	}
}

// failOnce injects into a node under load, and waits until it ends. What the
// kernel takes to end a traced process is not its fault.
func (w *world) failOnce(n *harness.Node, rule string) (ended bool, took time.Duration) {
	w.t.Helper()
	in, err := n.Inject(rule)
	w.must(err)
	defer in.End()
	var at time.Time
	for deadline := time.Now().Add(15 * time.Second); at.IsZero(); pause(5 * time.Millisecond) {
		if first, ok := in.First(); ok {
			at = first
		}
		if time.Now().After(deadline) {
			w.note("%s: %s never came to pass", n.Name, rule)
			return false, 0
		}
	}
	select {
	case <-n.Exited():
		took = time.Since(at)
	case <-time.After(5 * time.Second):
		if w.target == herald {
			w.broken("goes on", "%s still runs 5 s after %s", n.Name, rule)
		}
		w.note("%s goes on after %s", n.Name, rule)
		return false, 0
	}
	w.note("%s ended %s after %s", n.Name, took.Round(time.Millisecond), rule)
	if took > 3*time.Second && w.target == herald {
		w.broken("slow", "%s ended %s after the fault", n.Name, took.Round(time.Millisecond))
	}
	return true, took
}

// Test14HungDisk makes every sync of the leader's take 30 seconds. Somebody else
// must acknowledge soon.
func Test14HungDisk(t *testing.T) {
	if err := harness.CanInject(); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	w := begin(t, 14, harness.ClusterOptions{})
	w.create("T", 3, nil)
	w.load("T")
	w.progress(30 * time.Second)
	var times []time.Duration
	for range pick(1, some(6)) {
		n := w.leader("T")
		p := w.publish("T", fmt.Sprintf("after%d", len(times)), func(p *publisher) { p.window, p.every, p.wait = 64, 10*time.Millisecond, 150*time.Millisecond }, w.others(n)...)
		w.progress(30 * time.Second)
		in, err := n.Inject("fdatasync,fsync:delay_enter=30000000")
		w.must(err)
		began := time.Now()
		pause(300 * time.Millisecond) // acks of what was synced before
		for before := p.acked(); p.acked() == before && time.Since(began) < 29*time.Second; {
			pause(5 * time.Millisecond)
		}
		took := time.Since(began)
		times = append(times, took)
		w.note("%s's disk hangs: acknowledged again after %s", n.Name, took.Round(10*time.Millisecond))
		if took > 5500*time.Millisecond && w.target == herald {
			w.broken("slow", "nobody acknowledged for %s while the leader's disk hung", took.Round(10*time.Millisecond))
		}
		in.End()
		n.Kill()
		w.must(n.Start())
		p.halt()
		w.progress(60 * time.Second)
	}
	w.figure("acknowledged elsewhere after %s", spread(times))
	w.audit("T")
}

// Test15FullDisk fills the disk of the leader, of a follower, and of all, under
// load, and frees the space again. Publishes may be refused with an error; nothing
// is lost, and all is in service again without anybody's help.
func Test15FullDisk(t *testing.T) {
	for _, c := range []string{"Leader", "Follower", "All"} {
		t.Run(c, func(t *testing.T) {
			w := begin(t, 15, harness.ClusterOptions{DiskMB: 400})
			w.needDisks()
			w.create("T", 3, nil)
			w.load("T")
			w.publish("T", "big", func(p *publisher) { p.size, p.every = 32<<10, 30*time.Millisecond })
			w.progress(30 * time.Second)
			leader := w.leader("T")
			victims := map[string][]*harness.Node{"Leader": {leader}, "Follower": w.others(leader)[:1], "All": w.Nodes}[c]
			var frees []func() error
			for _, n := range victims {
				free, err := n.Fill()
				w.must(err)
				frees = append(frees, free)
			}
			before := w.acked()
			pause(pick(2*time.Second, 8*time.Second)) // to get used to it
			late := w.acked()
			pause(pick(2*time.Second, 8*time.Second))
			meanwhile := w.acked() - before
			w.note("%d acknowledged while full, refusals %v", meanwhile, w.refusals())
			if w.acked() == late && c != "All" {
				w.broken("refuses", "nothing was acknowledged while one of three disks was full")
			}
			for _, free := range frees {
				w.must(free())
			}
			since := time.Now()
			for _, n := range victims {
				if !n.Running() { // its supervisor would
					w.note("%s ended", n.Name)
					w.must(n.Start())
				}
			}
			took := w.progress(60 * time.Second)
			if took > 30*time.Second && w.target == herald {
				w.broken("slow", "back in service %s after space was free", took.Round(time.Second))
			}
			for _, n := range victims {
				if err := w.lead("T", n, 60*time.Second); err != nil {
					w.broken("disabled", "%v after space was freed", err)
					n.Kill()
					w.must(n.Start())
				}
			}
			w.figure("%d acknowledged while full, in service %s after space was free, victims could lead after %s", meanwhile, took.Round(10*time.Millisecond), time.Since(since).Round(100*time.Millisecond))
			w.audit("T")
		})
	}
}

// refusals returns how often publishers were refused with which error.
func (w *world) refusals() map[string]int {
	sum := map[string]int{}
	for _, p := range w.publishers {
		for text, n := range p.refusals() {
			sum[text] += n
		}
	}
	return sum
}
