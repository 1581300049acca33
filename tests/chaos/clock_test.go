package chaos

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/tests/harness"
)

// Test23Clocks gives every node another clock, up to an hour wrong, and other
// ones again and again. Acks, the lead and deduplication don't care, and the
// replicas agree on what has expired.
func Test23Clocks(t *testing.T) {
	w := newWorld(t, 23, harness.ClusterOptions{})
	if w.target != herald {
		t.Skip("SKIPPED: nats-server reads the machine's clock, which is one for all")
	}
	offsets := []time.Duration{0, time.Hour, -time.Hour}
	for i, n := range w.Nodes {
		n.Env = []string{"HERALD_TEST_CLOCK_OFFSET=" + offsets[i].String()}
	}
	w.must(w.Start())
	w.waitJetStream()
	w.create("T", 3, nil)
	w.create("OLD", 3, map[string]any{"max_age": 2 * time.Second, "duplicate_window": time.Second})
	w.load("T")
	w.publish("OLD", "brief", nil)
	w.across()
	for range pick(2, some(40)) { // strobing
		n := w.Nodes[w.rng.IntN(3)]
		n.Kill()
		n.Env = []string{"HERALD_TEST_CLOCK_OFFSET=" + (time.Duration(w.rng.Int64N(int64(2*time.Hour))) - time.Hour).String()}
		w.must(n.Start())
		w.must(w.lead("T", n, time.Minute))
		if took := w.progress(30 * time.Second); took > 15*time.Second {
			w.broken("slow", "nothing acknowledged for %s after a clock changed", took)
		}
	}
	w.audit("T")
	w.agree("OLD")
}

// across publishes an id and retries it as each node leads in turn: however
// their clocks differ, hardly any time has passed.
func (w *world) across() {
	w.t.Helper()
	nc := w.connect("across")
	js, err := jetstream.New(nc)
	w.must(err)
	var first uint64
	for _, n := range append(w.shuffled(w.Nodes), w.shuffled(w.Nodes)...) {
		w.must(w.lead("T", n, time.Minute))
		var ack *jetstream.PubAck
		for deadline := time.Now().Add(30 * time.Second); ; pause(50 * time.Millisecond) {
			m := &nats.Msg{Subject: "across", Data: []byte("x"), Header: nats.Header{jetstream.MsgIDHeader: {"across"}}}
			m.Subject = "t.across"
			if first == 0 {
				m.Data = []byte("chaos/across/0/0|")
			}
			err = within(3*time.Second, func(ctx ctx) (err error) {
				ack, err = js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
				return err
			})
			if err == nil || time.Now().After(deadline) {
				break
			}
		}
		w.must(err)
		switch {
		case first == 0:
			first = ack.Sequence
			w.expect("T", first)
		case ack.Sequence != first:
			w.broken("dup", "as %s leads, an id of a moment ago was stored again, at %d after %d: its clock decides", n.Name, ack.Sequence, first)
			w.expect("T", ack.Sequence)
		}
	}
}

// expect says that a sequence holds a message of the test's own, which isn't any
// publisher's.
func (w *world) expect(stream string, seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.own == nil {
		w.own = map[string]map[uint64]bool{}
	}
	if w.own[stream] == nil {
		w.own[stream] = map[uint64]bool{}
	}
	w.own[stream][seq] = true
}

// agree waits until a stream whose messages expire is empty, as each node leads.
func (w *world) agree(stream string) {
	w.t.Helper()
	nc := w.connect("agree")
	var last uint64
	for _, n := range w.Nodes {
		w.must(w.lead(stream, n, time.Minute))
		i, err := w.info(nc, stream, 10*time.Second)
		w.must(err)
		if last != 0 && i.State.LastSeq != last {
			w.broken("divergence", "as %s leads, %s ends at %d, before at %d", n.Name, stream, i.State.LastSeq, last)
		}
		last = i.State.LastSeq
	}
}
