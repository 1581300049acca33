package sourcing_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestNothingIsCopiedBehindWhatIsRefused copies into a topic that has no room for
// one message, but would have for those behind it: they wait, or it would be lost
// to the copy for good.
func TestNothingIsCopiedBehindWhatIsRefused(t *testing.T) {
	for _, mirror := range []bool{false, true} {
		t.Run(fmt.Sprintf("mirror=%v", mirror), func(t *testing.T) {
			n := start(t)
			n.create(jetstream.StreamConfig{Name: "O", Subjects: []string{"o"}})
			sizes := []int{10, 3000, 10, 10}
			for _, size := range sizes {
				n.publish("o", strings.Repeat("x", size))
			}
			cfg := jetstream.StreamConfig{Name: "C", MaxBytes: 1000, Discard: jetstream.DiscardNew}
			if mirror {
				cfg.Mirror = &jetstream.StreamSource{Name: "O"}
			} else {
				cfg.Sources = []*jetstream.StreamSource{{Name: "O"}}
			}
			s := n.create(cfg)
			n.eventually("C", "begun", func(i *jetstream.StreamInfo) bool { return i.State.Msgs >= 1 })
			<-time.After(300 * time.Millisecond) // for what should not come
			cfg.MaxBytes = 100_000
			if _, err := n.js.UpdateStream(n.ctx(), cfg); err != nil {
				t.Fatal(err)
			}
			n.eventually("C", "caught up", func(i *jetstream.StreamInfo) bool { return i.State.Msgs == 4 })
			for i, size := range sizes {
				m, err := s.GetMsg(n.ctx(), uint64(i+1))
				if err != nil || len(m.Data) != size {
					t.Errorf("message %d: %v, want one of %d bytes", i+1, err, size)
				}
			}
		})
	}
}
