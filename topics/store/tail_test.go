package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
)

// TestTailDropsEntriesWhole mixes messages that are kept by reference into their
// entry with ones the store made itself, and has the tail drop its oldest slots
// at every place there is: the slots of one entry go together, because its
// messages refer to them in no order.
func TestTailDropsEntriesWhole(t *testing.T) {
	const entries = 12
	for kept := int64(1); kept < 4000; kept += 60 {
		f := newFeeder(t, Options{TailBytes: 1<<20 + kept, FlushBytes: 1 << 20, FlushInterval: time.Hour})
		f.do(func() {
			cfg := topics.Config{Name: "T", Subjects: []string{">"}, AllowMsgTTL: true}
			if err := f.s.CreateTopic(1, "A", cfg, f.now); err != nil {
				t.Fatal(err)
			}
		})
		timed := func(payload string) topics.Publish {
			p := pub(1, "b", "", payload)
			p.Flags, p.Time = topics.PublishTimed|topics.PublishSourced, f.now
			return p
		}
		for i := range entries {
			f.now++
			n := fmt.Sprint(i)
			f.publish(timed("made "+n), pub(1, "a", "", "kept "+n), timed("made again "+n), pub(1, "a", "", "kept again "+n))
			if i%3 == 2 {
				if err := f.s.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		for seq := range topics.Sequence(4 * entries) {
			i, k := seq/4, seq%4
			want := fmt.Sprint([]string{"made", "kept", "made again", "kept again"}[k], " ", i)
			if m, err := f.s.Topic(1).Load(seq + 1); err != nil || string(m.Payload) != want {
				t.Fatalf("%d bytes kept: sequence %d is %q, want %q (%v)", kept, seq+1, m.Payload, want, err)
			}
		}
	}
}
