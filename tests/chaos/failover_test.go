package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/tests/harness"
)

// spread returns the median and the 99th percentile of some durations, by rank.
func spread(times []time.Duration) string {
	if len(times) == 0 {
		return "(none)"
	}
	s := slices.Clone(times)
	slices.Sort(s)
	rank := func(p float64) time.Duration {
		return s[min(int(p*float64(len(s))), len(s)-1)].Round(10 * time.Millisecond)
	}
	return fmt.Sprintf("p50 %s, p99 %s (n=%d)", rank(0.5), rank(0.99), len(s))
}

// Test19Failover kills and pauses leaders and takes the time until a client of
// another node is acknowledged, publishing every 150 ms.
func Test19Failover(t *testing.T) {
	for _, how := range []string{"Kill", "Pause"} {
		t.Run(how, func(t *testing.T) {
			w := begin(t, 19, harness.ClusterOptions{})
			w.create("T", 3, nil)
			var times []time.Duration
			for range pick(3, some(30)) {
				times = append(times, w.failOver(how))
			}
			w.figure("time to first ack: %s", spread(times))
			w.note("%v", times)
			s := slices.Clone(times)
			slices.Sort(s)
			if worst := s[len(s)-1]; worst > 15*time.Second && w.target == herald {
				w.broken("slow", "one failover took %s", worst)
			}
		})
	}
}

func (w *world) failOver(how string) time.Duration {
	w.t.Helper()
	for _, n := range w.Nodes { // all replicas are there and current
		w.must(w.lead("T", n, time.Minute))
	}
	leader := w.leader("T")
	nc := w.connect("failover", w.others(leader)...)
	defer nc.Close()
	js, err := jetstream.New(nc)
	w.must(err)
	try := func() error {
		return within(150*time.Millisecond, func(ctx ctx) error {
			_, err := js.Publish(ctx, "t.x", []byte("x"), jetstream.WithRetryAttempts(0))
			return err
		})
	}
	for range 20 {
		_ = try()
		pause(20 * time.Millisecond)
	}
	began := time.Now()
	if how == "Kill" {
		leader.Kill()
	} else {
		leader.Pause()
	}
	for {
		err := try()
		if err == nil {
			break
		}
		if time.Since(began) > time.Minute {
			w.broken("stuck", "nobody acknowledged for a minute after %s of the leader: %v", how, err)
			break
		}
		pause(5 * time.Millisecond) // an error may come at once
	}
	took := time.Since(began)
	if how == "Kill" {
		w.must(leader.Start())
		w.must(leader.Ready(time.Minute))
	} else {
		leader.Resume()
	}
	w.waitJetStream()
	return took
}

// Test18Transfers hands the lead over, to nodes at random, under load: every
// transfer ends, and publishes go on.
func Test18Transfers(t *testing.T) {
	w := begin(t, 18, harness.ClusterOptions{})
	w.create("T", 3, nil)
	w.load("T")
	nc := w.connect("transfers")
	var times []time.Duration
	count, without, asked, missed := pick(25, some(1000)), 0, 0, 0
	for i := range count {
		before := w.leader("T")
		began := time.Now()
		var body any
		preferred := ""
		if w.rng.IntN(2) == 0 {
			preferred = w.shuffled(w.others(before))[0].Name
			body = map[string]any{"placement": map[string]any{"preferred": preferred}}
		}
		if err := w.ask(nc, 10*time.Second, "STREAM.LEADER.STEPDOWN.T", body, nil); err != nil {
			w.broken("refused", "transfer %d from %s: %v", i, before.Name, err)
		}
		at := w.acked()
		if preferred != "" {
			asked++
			if now := w.leader("T"); now.Name != preferred {
				missed++
				w.note("transfer %d from %s to %s: %s leads", i, before.Name, preferred, now.Name)
			}
		}
		for w.acked() == at && time.Since(began) < 30*time.Second {
			pause(2 * time.Millisecond)
		}
		times = append(times, time.Since(began))
		if took := time.Since(began); took > 5*time.Second {
			without++
			if w.target == herald && took > 10*time.Second {
				w.broken("slow", "transfer %d from %s: nothing acknowledged for %s", i, before.Name, took)
			}
		}
		if t.Failed() && w.faults["refused"] > 10 {
			break
		}
	}
	for _, n := range w.Nodes { // none refuses writes
		w.must(w.lead("T", n, time.Minute))
		w.progress(20 * time.Second)
	}
	w.figure("%d transfers, first ack after %s, %d took over 5 s, %d of %d went elsewhere than asked", count, spread(times), without, missed, asked)
	w.audit("T")
}
