package state

import (
	"sync/atomic"
	"testing"

	"github.com/heraldmq/herald/topics"
)

// TestTimeNeverGoesBackOverARestart stops a node, sets the clock back and starts
// it again: what the log's readers find by time relies on times that rise.
func TestTimeNeverGoesBackOverARestart(t *testing.T) {
	dir := t.TempDir()
	var clock atomic.Int64
	clock.Store(2_000_000_000)
	settable := func(o *Options) { o.Now = func() topics.Nanos { return topics.Nanos(clock.Load()) } }
	n := open(t, dir, settable)
	top := n.create(conf("T", "t.>"))
	n.publish(top, "t.a", "", "one")
	n.ack()
	n.close()
	clock.Store(1_000_000_000)
	n = open(t, dir, settable)
	top, _ = n.Topic("A", "T")
	n.publish(top, "t.a", "", "two")
	n.ack()
	var times []topics.Nanos
	for seq := range topics.Sequence(2) {
		m, err := top.Data().Load(seq + 1)
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, m.Time)
	}
	if times[1] < times[0] {
		t.Fatalf("the second message is of %d, the first of %d", times[1], times[0])
	}
}
