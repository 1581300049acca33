package chaos

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// size returns how many bytes of disk the files below a folder take.
func size(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}

// Test12Snapshot leaves a leader alone with writes that will never be committed,
// writes so much elsewhere that the log it would need is gone, and lets it come
// back: it has to throw its end away, install a snapshot and go on from there.
func Test12Snapshot(t *testing.T) {
	w := begin(t, 12, harness.ClusterOptions{})
	if err := w.CanCut(); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	w.create("T", 3, nil)
	rounds := pick(1, 5)
	var slowest time.Duration
	for round := range rounds {
		alone := w.leader("T")
		rest := w.others(alone)
		doomed := w.publish("T", fmt.Sprintf("doomed%d", round), func(p *publisher) { p.window = 32 }, alone)
		live := w.publish("T", fmt.Sprintf("live%d", round), nil, rest...)
		w.progress(30 * time.Second)
		w.must(w.Allow(func(a, b *harness.Node) bool { return a != alone && b != alone }))
		bulk := w.publish("T", fmt.Sprintf("bulk%d", round), func(p *publisher) { p.size, p.window, p.every = 64<<10, 64, 0 }, rest...)
		enough := pick(1800, 4000) // 64 KiB each
		for deadline := time.Now().Add(2 * time.Minute); bulk.acked() < enough && time.Now().Before(deadline); {
			pause(20 * time.Millisecond)
		}
		if bulk.acked() < enough {
			w.broken("stuck", "the majority acknowledged %d of %d large messages", bulk.acked(), enough)
		}
		bulk.halt()
		healed := time.Now()
		w.must(w.Heal())
		w.must(w.lead("T", alone, 90*time.Second))
		took := time.Since(healed)
		slowest = max(slowest, took)
		w.note("%s leads %s after the healing", alone.Name, took.Round(10*time.Millisecond))
		if took > 20*time.Second && w.target == herald {
			w.broken("slow", "%s needed %s to catch up", alone.Name, took)
		}
		w.progress(30 * time.Second)
		doomed.halt()
		live.halt()
	}
	w.halt()
	pause(time.Second)
	before := make([]int64, len(w.Nodes))
	for i, n := range w.Nodes {
		before[i] = size(n.Store)
	}
	pause(pick(2*time.Second, 20*time.Second))
	for i, n := range w.Nodes {
		if grown := size(n.Store) - before[i]; grown > 64<<20 {
			w.broken("grows", "%s's store grew by %d MiB with nothing to do", n.Name, grown>>20)
		}
	}
	w.figure("caught up at most %s after healing", slowest.Round(10*time.Millisecond))
	w.audit("T")
}

// Test24ColdStart starts a cluster that holds much, and fills an empty node
// again under live traffic.
func Test24ColdStart(t *testing.T) {
	w := begin(t, 24, harness.ClusterOptions{})
	w.create("T", 3, nil)
	bytes := int64(pick(48<<20, 1<<30))
	each := int64(32 << 10)
	bulk := w.publish("T", "bulk", func(p *publisher) { p.size, p.window, p.every, p.wait = int(each), 128, 0, 20*time.Second })
	began := time.Now()
	for int64(bulk.acked())*each < bytes && time.Since(began) < 5*time.Minute {
		pause(20 * time.Millisecond)
	}
	bulk.halt()
	w.note("%d MiB in %s", bytes>>20, time.Since(began).Round(100*time.Millisecond))
	for _, n := range w.Nodes {
		if !n.Stop() {
			w.broken("stop", "%s did not stop within a minute", n.Name)
		}
	}
	began = time.Now()
	w.must(w.Start())
	w.waitJetStream()
	live := w.publish("T", "live", func(p *publisher) { p.window, p.every, p.timed = 8, 5*time.Millisecond, true })
	w.progress(2 * time.Minute)
	ready := time.Since(began)
	if limit := pick(30*time.Second, 30*time.Second); ready > limit && w.target == herald {
		w.broken("slow", "ready %s after a cold start", ready)
	}
	live.times()
	pause(pick(2*time.Second, 10*time.Second))
	calm := live.times()

	empty := w.shuffled(w.others(w.leader("T")))[0]
	had := w.voting(empty)
	empty.Kill()
	w.must(os.RemoveAll(empty.Store))
	pause(time.Second) // that its disk is wiped, on a disk that all share, is not what is timed
	live.times()
	began = time.Now()
	w.must(empty.Start())
	w.current("T", empty, had, bytes, 5*time.Minute)
	refill := time.Since(began)
	busy := live.times()
	speed := float64(bytes) / 1e6 / refill.Seconds()
	disk := diskSpeed(empty.Dir, pick(int64(64<<20), 512<<20))
	w.figure("%d MiB: ready after %s; refill %s, %.0f MB/s (disk %.0f MB/s); live ack p99 %s, during refill %s",
		bytes>>20, ready.Round(10*time.Millisecond), refill.Round(10*time.Millisecond), speed, disk, p99(calm), p99(busy))
	w.audit("T", empty)
}

// voting returns a node's replicas that vote, by group; none of nats-server.
func (w *world) voting(n *harness.Node) (of map[int]string) {
	w.t.Helper()
	if w.target == herald {
		w.until(n.Name+" votes", time.Minute, func(s status) bool { of = s.replicas(n.Name); return len(of) > 0 })
	}
	return of
}

// current waits until a node that had lost everything holds all of a stream of so many
// bytes again. What the leader says of it at first is of the replica that is gone: the new
// ones have other names and vote once they are filled, and what was sent is on the disk.
func (w *world) current(stream string, n *harness.Node, had map[int]string, bytes int64, patience time.Duration) {
	w.t.Helper()
	nc := w.connect("current", w.others(n)...)
	defer nc.Close()
	deadline := time.Now().Add(patience)
	if len(had) > 0 {
		w.until(n.Name+" votes again", patience, func(s status) bool {
			now := s.replicas(n.Name)
			for id, replica := range had {
				if now[id] == "" || now[id] == replica {
					return false
				}
			}
			return true
		})
	}
	for ; time.Now().Before(deadline); pause(20 * time.Millisecond) {
		i, err := w.info(nc, stream, 2*time.Second)
		if err != nil || i.Cluster == nil {
			continue
		}
		for _, r := range i.Cluster.Replicas {
			if r.Name == n.Name && r.Current && r.Lag < 100 && !r.Offline && size(n.Store) >= bytes {
				return
			}
		}
	}
	w.broken("not filled", "%s isn't current after %s", n.Name, patience)
}

func p99(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	s := slices.Clone(times)
	slices.Sort(s)
	return s[len(s)*99/100].Round(100 * time.Microsecond)
}

// diskSpeed writes and syncs a file and returns how many MB/s that is.
func diskSpeed(dir string, n int64) float64 {
	f, err := os.CreateTemp(dir, "speed")
	if err != nil {
		return 0
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * 7)
	}
	began := time.Now()
	for written := int64(0); written < n; written += int64(len(block)) {
		if _, err := f.Write(block); err != nil {
			return 0
		}
	}
	_ = f.Sync()
	return float64(n) / 1e6 / time.Since(began).Seconds()
}
