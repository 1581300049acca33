package store

import (
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
)

// TestMessagesKeepTheirOriginsTime: what a mirror stores has the time of its
// origin, before and after a flush, and everything that goes by time goes by it.
func TestMessagesKeepTheirOriginsTime(t *testing.T) {
	o := Options{Dir: t.TempDir()}
	first, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	f := &feeder{t: t, s: first}
	const second = topics.Nanos(time.Second)
	f.now = 100 * second
	f.do(func() {
		cfg := topics.Config{Name: "M", Storage: topics.StoreFile, Mirror: &topics.StreamSource{Name: "O"}, MaxAge: time.Minute, AllowMsgTTL: true}
		if err := f.s.CreateTopic(1, "A", cfg, f.now); err != nil {
			t.Fatal(err)
		}
	})
	timed := func(at topics.Nanos, header, payload string) topics.Publish {
		p := pub(1, "a", header, payload)
		p.Flags, p.Time = topics.PublishSourced|topics.PublishTimed, at
		return p
	}
	f.do(func() { f.s.SkipTo(1, 2) })
	results := f.publish(
		timed(50*second, "", "one"),
		timed(60*second, "NATS/1.0\r\nNats-TTL: 45\r\n\r\n", "two"),
		timed(40*second, "", "from a clock that went back"),
		timed(500*second, "", "from the future"),
	)
	for i, r := range results {
		if r.Fault != nil || r.Sequence != topics.Sequence(i+3) {
			t.Fatalf("publish %d: %+v", i, r)
		}
	}
	want := []topics.Nanos{50 * second, 60 * second, 60 * second, 100 * second}
	check := func(s *Store) {
		t.Helper()
		tp := s.Topic(1)
		msgs, _, err := tp.Read(nil, 0, 10, 0, nil)
		if err != nil || len(msgs) != len(want) {
			t.Fatalf("read %v, %v", msgs, err)
		}
		for i, m := range msgs {
			if m.Time != want[i] {
				t.Errorf("message %d is of %d, want %d", m.Sequence, m.Time, want[i])
			}
		}
		if st := tp.State(); st.FirstTime != 50*second || st.LastTime != 100*second {
			t.Errorf("state %+v", st)
		}
		if got := tp.SequenceAt(55 * second); got != 4 {
			t.Errorf("at 55 s: %d", got)
		}
		if got := tp.NextExpiry(); got != 105*second { // the TTL's, before max_age's 110
			t.Errorf("next expiry at %d", got)
		}
	}
	check(f.s)
	before, err := f.s.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	check(s)
	if after, err := s.Digest(); err != nil || after != before {
		t.Errorf("digest %x, after a restart %x, %v", before, after, err)
	}
	s.Begin(s.Applied()+1, 111*second, nil)
	s.Expire(1)
	s.End()
	if first, _ := s.Topic(1).Bounds(); first != 5 {
		t.Errorf("after the expiry of two the first is %d", first)
	}
}
