package chaos

import (
	"testing"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// Test00Calm does no harm at all: what is wrong here is wrong everywhere.
func Test00Calm(t *testing.T) {
	w := begin(t, 0, harness.ClusterOptions{})
	w.create("T", 3, nil)
	w.load("T")
	h := w.exercise("L", 3, 4, 20*time.Millisecond)
	pause(pick(3*time.Second, time.Minute))
	h.finish()
	w.audit("T")
}

// Test00Proxies delays what nodes tell each other, by proxies.
func Test00Proxies(t *testing.T) {
	w := newWorld(t, 0, harness.ClusterOptions{Wire: harness.WireProxies})
	if w.target != herald {
		t.Skip("SKIPPED: the routes of nats-server don't stay on the proxies")
	}
	w.must(w.Start())
	w.waitJetStream()
	w.create("T", 3, nil)
	w.load("T")
	w.Delay(20*time.Millisecond, 60*time.Millisecond)
	pause(pick(3*time.Second, time.Minute))
	w.progress(20 * time.Second)
	w.must(w.Heal())
	w.audit("T")
}
