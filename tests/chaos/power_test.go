package chaos

import (
	"syscall"
	"testing"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// Test01PowerCut takes the power of all nodes away in one moment, under load:
// 2 times, 20 in full. Nothing acknowledged may be lost.
func Test01PowerCut(t *testing.T) {
	w := begin(t, 1, harness.ClusterOptions{DiskMB: 700})
	w.needDisks()
	w.create("T", 3, nil)
	w.load("T")
	cuts, done := pick(2, 20), 0
	var slowest time.Duration
	for range cuts {
		pause(time.Duration(300+w.rng.IntN(1200)) * time.Millisecond)
		w.must(harness.PowerCut(w.Nodes...))
		done++
		w.must(w.Start())
		slowest = max(slowest, w.progress(90*time.Second))
		if t.Failed() {
			break
		}
	}
	w.figure("%d cuts, slowest return to service %s", done, slowest.Round(100*time.Millisecond))
	w.audit("T")
}

// Test02OneOSCrash loses the unsynced data of one node in the worst moment: a
// follower was away, the leader and the other follower acknowledge, that follower
// loses power and the leader is killed, and the two who may know nothing of it
// are the majority. In all six role orders in full, in one for short.
func Test02OneOSCrash(t *testing.T) {
	w := begin(t, 2, harness.ClusterOptions{DiskMB: 700})
	w.needDisks()
	w.create("T", 3, nil)
	w.load("T")
	orders := [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	if !long() {
		orders = orders[w.rng.IntN(len(orders)):][:1]
	}
	done := 0
	for _, o := range orders {
		leader, away, crash := w.Nodes[o[0]], w.Nodes[o[1]], w.Nodes[o[2]]
		w.must(w.lead("T", leader, time.Minute))
		w.progress(30 * time.Second)
		syscall.Sync() // what came before is not what this is about
		away.Kill()
		w.progress(30 * time.Second)
		pause(pick(700*time.Millisecond, 3*time.Second))
		w.must(harness.PowerCut(crash))
		leader.Kill()
		w.must(away.Start())
		w.must(crash.Start())
		w.progress(90 * time.Second)
		pause(500 * time.Millisecond)
		w.must(leader.Start())
		w.progress(60 * time.Second)
		done++
		w.note("%s led, %s was away, %s lost power", leader.Name, away.Name, crash.Name)
		if t.Failed() {
			break
		}
	}
	w.figure("%d role orders", done)
	w.audit("T")
}

// Test03Kills ends nodes with SIGKILL at random moments, often two at once.
func Test03Kills(t *testing.T) {
	w := begin(t, 3, harness.ClusterOptions{})
	w.create("T", 3, nil)
	w.load("T")
	kills := 0
	for end := time.Now().Add(pick(8*time.Second, some(10*time.Minute))); time.Now().Before(end); {
		pause(time.Duration(float64(pick(500, 2000))*(1+1.5*w.rng.Float64())) * time.Millisecond)
		victims := w.shuffled(w.Nodes)[:1+w.rng.IntN(2)]
		for _, n := range victims {
			n.Kill()
			kills++
		}
		pause(time.Duration(w.rng.IntN(800)) * time.Millisecond)
		for _, n := range victims {
			w.must(n.Start())
		}
	}
	took := w.progress(60 * time.Second)
	if took > 10*time.Second && w.target == herald {
		w.broken("slow", "ready %s after the last kill, more than 10 s", took.Round(time.Millisecond))
	}
	w.figure("%d kills, ready %s after the last", kills, took.Round(100*time.Millisecond))
	w.audit("T")
}
