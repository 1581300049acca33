package store

import (
	"os"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
)

// TestSourcesSurviveARestart keeps how far a source was copied beside the messages,
// which are gone, over a flush and with none.
func TestSourcesSurviveARestart(t *testing.T) {
	for _, flush := range []bool{false, true} {
		dir, copied := t.TempDir(), t.TempDir()
		f := newFeeder(t, Options{Dir: dir, FlushInterval: time.Hour})
		f.do(func() {
			cfg := topics.Config{Name: "T", Sources: []*topics.StreamSource{{Name: "O"}}}
			if err := f.s.CreateTopic(1, "A", cfg, f.now); err != nil {
				t.Fatal(err)
			}
		})
		p := pub(1, "a", "NATS/1.0\r\nNats-Stream-Source: O 41 > > a\r\n\r\n", "x")
		p.Flags = topics.PublishSourced
		f.publish(p)
		f.do(func() {
			if _, fault := f.s.Purge(1, Purge{}); fault != nil {
				t.Fatal(fault)
			}
		})
		if flush {
			if err := f.s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		s := f.s
		if flush { // what the flush has written is all there is
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			var err error
			if s, err = Open(Options{Dir: copied}); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
		}
		if seq, at, ok := s.Topic(1).Sourced("O", ">", ">"); seq != 41 || at != f.now || !ok {
			t.Errorf("flushed %v: %d at %d, %v", flush, seq, at, ok)
		}
	}
}
