package state

import (
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/front"
)

// BenchmarkForward measures durable publishes on three nodes that are captured where
// the group is led and where it isn't.
func BenchmarkForward(b *testing.B) {
	for _, away := range []bool{false, true} {
		b.Run(map[bool]string{false: "leader", true: "other"}[away], func(b *testing.B) {
			f := startFleet(b, 3)
			f.create("a", replicated(3, "T", "t.>"))
			other := f.notLeading("T")
			topic, _ := f.nodes[other].Topic("A", "T")
			on := topic.Group().Leader()
			if away {
				on = other
			}
			topic, _ = f.nodes[on].Topic("A", "T")
			payload := make([]byte, 128)
			batch := make([]front.Captured, 200)
			for i := range batch {
				batch[i] = front.Captured{Topic: topic.ID(), Subject: []byte("t.x"), Payload: payload}
			}
			b.ResetTimer()
			for n := b.N; n > 0; n -= len(batch) {
				topic.Group().Capture(batch[:min(n, len(batch))])
			}
			if a := f.publish(on, "T", "t.x", "", "last"); a == "" {
				b.Fatal("no answer")
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			b.StopTimer()
			<-time.After(10 * time.Millisecond)
		})
	}
}
