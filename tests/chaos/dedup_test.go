package chaos

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/tests/harness"
)

// Test11Retries publishes with message ids and tries again on every timeout,
// while leaders are killed, handed over, paused and restarted. Every message is
// stored once; whatever was called a duplicate is there.
func Test11Retries(t *testing.T) {
	w := begin(t, 11, harness.ClusterOptions{})
	w.create("T", 3, nil)
	for _, name := range []string{"r1", "r2", "r3"} {
		w.publish("T", name, func(p *publisher) {
			p.ids, p.retry, p.wait, p.every = true, true, 150*time.Millisecond, 5*time.Millisecond
		})
	}
	for end := time.Now().Add(pick(8*time.Second, some(5*time.Minute))); time.Now().Before(end); {
		pause(time.Duration(300+w.rng.IntN(1200)) * time.Millisecond)
		n := w.leader("T")
		switch w.rng.IntN(4) {
		case 0:
			n.Kill()
			pause(time.Duration(w.rng.IntN(500)) * time.Millisecond)
			w.must(n.Start())
		case 1:
			n.Pause()
			pause(time.Duration(200+w.rng.IntN(2500)) * time.Millisecond)
			n.Resume()
		case 2:
			n.Stop()
			w.must(n.Start())
		default:
			_ = w.lead("T", w.shuffled(w.others(n))[0], 10*time.Second)
		}
	}
	w.progress(60 * time.Second)
	repeats := 0
	for _, p := range w.publishers {
		p.mu.Lock()
		for _, s := range p.msgs {
			if s.duplicate {
				repeats++
			}
		}
		p.mu.Unlock()
	}
	w.figure("%d answers said duplicate", repeats)
	w.audit("T")
}

// Test11Window keeps a replica away for longer than the window of deduplication,
// then lets it lead. Ids it knew from before the window are new again, as they
// are to everybody; ids inside the window are not stored twice.
func Test11Window(t *testing.T) {
	w := begin(t, 11, harness.ClusterOptions{})
	const window = 3 * time.Second
	w.create("T", 3, map[string]any{"duplicate_window": window})
	nc := w.connect("ids")
	js, err := jetstream.New(nc)
	w.must(err)
	put := func(id string) *jetstream.PubAck {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; pause(50 * time.Millisecond) {
			m := &nats.Msg{Subject: "t.x", Data: []byte(id), Header: nats.Header{jetstream.MsgIDHeader: {id}}}
			var ack *jetstream.PubAck
			err := within(3*time.Second, func(ctx ctx) (err error) {
				ack, err = js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
				return err
			})
			if err == nil {
				return ack
			}
			if time.Now().After(deadline) {
				t.Fatalf("publish %s: %v", id, err)
			}
		}
	}
	leader := w.leader("T")
	away := w.shuffled(w.others(leader))[0]
	first := put("old")
	away.Kill()
	pause(window + 2*time.Second)
	second := put("old")
	if second.Duplicate || second.Sequence == first.Sequence {
		w.broken("false duplicate", "an id from before the window was called a duplicate of %d", second.Sequence)
	}
	w.must(away.Start())
	w.waitJetStream()
	fresh := put("fresh")
	w.must(w.lead("T", away, time.Minute))
	if again := put("fresh"); !again.Duplicate && again.Sequence == fresh.Sequence {
		w.broken("nonsense", "sequence %d was acknowledged twice, not as a duplicate", again.Sequence)
	}
	for _, n := range w.shuffled(w.Nodes) {
		w.must(w.lead("T", n, time.Minute))
		id := "lead-" + n.Name
		if a := put(id); a.Duplicate {
			w.broken("false duplicate", "as %s leads, a new id was called a duplicate of %d", n.Name, a.Sequence)
		} else if b := put(id); b.Sequence != a.Sequence {
			w.broken("dup", "as %s leads, an id was stored at %d and %d", n.Name, a.Sequence, b.Sequence)
		}
	}
}
