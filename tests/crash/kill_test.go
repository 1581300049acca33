package crash

import (
	"testing"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// TestKillWhilePublishing ends the broker with SIGKILL at random points of a
// stream of publishes: 50 times in the long form, 8 in the short one. Every
// acknowledged message must be there once, in order, at its sequence.
func TestKillWhilePublishing(t *testing.T) {
	kills := 8
	if long() {
		kills = 50
	}
	random := seeded(t)
	b := harness.Start(t, "")
	l := &ledger{lines: quakes(t), acked: map[int]uint64{}}
	nc := connect(t, b)
	createTopic(t, nc)
	for range kills {
		stop, done := make(chan struct{}), make(chan struct{})
		go func() { l.publish(nc, 1+random.IntN(500), stop); close(done) }()
		<-time.After(time.Duration(20+random.IntN(300)) * time.Millisecond)
		b.Kill()
		close(stop)
		<-done
		nc.Close()
		must(t, b.Run())
		nc = connect(t, b)
	}
	if len(l.acked) == 0 {
		t.Fatal("nothing was acknowledged between the kills")
	}
	l.check(t, nc)
}
