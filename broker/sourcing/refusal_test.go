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

// TestWhatWasConsumedIsNotCopiedAgain copies into a work queue and empties it: how
// far the copy has come must not be read off the messages that are left.
func TestWhatWasConsumedIsNotCopiedAgain(t *testing.T) {
	n := start(t)
	n.create(jetstream.StreamConfig{Name: "O", Subjects: []string{"o"}})
	for i := range 10 {
		n.publish("o", fmt.Sprint(i))
	}
	s := n.create(jetstream.StreamConfig{Name: "Q", Retention: jetstream.WorkQueuePolicy, Sources: []*jetstream.StreamSource{{Name: "O"}}})
	n.eventually("Q", "copied", func(i *jetstream.StreamInfo) bool { return i.State.LastSeq == 10 })
	for seq := range uint64(10) {
		if seq != 3 { // one is left in the middle
			if err := s.DeleteMsg(n.ctx(), seq+1); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 { // replayed from the log, then read from the files
		n.stop()
		n.up()
		n.publish("o", "new")
	}
	info := n.eventually("Q", "going on", func(i *jetstream.StreamInfo) bool { return i.State.LastSeq >= 12 })
	if info.State.Msgs != 3 || info.State.LastSeq != 12 {
		t.Errorf("%+v, want 3 messages, the last at 12", info.State)
	}
}
