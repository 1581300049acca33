package store

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
)

// TestReadersBesideFlushes has readers of every kind run beside an apply side
// whose messages move from the tail into files, get compacted and are dropped.
func TestReadersBesideFlushes(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir(), TailBytes: 64 << 10, FlushBytes: 16 << 10, FlushInterval: time.Millisecond, CacheBytes: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	f := &feeder{t: t, s: s, now: 5}
	f.do(func() {
		_ = s.CreateTopic(1, "A", topics.Config{Name: "T", MaxMsgs: 5000}, 5)
		_ = s.CreateTopic(2, "A", topics.Config{Name: "K", MaxMsgsPer: 2}, 5)
	})
	var stop atomic.Bool
	var wg sync.WaitGroup
	filter := topics.NewFilter([]string{"a.*"})
	reader := func(id topics.TopicID, f *topics.Filter) {
		defer wg.Done()
		tp := s.Topic(id)
		var msgs []topics.Message
		for !stop.Load() {
			next, last := topics.Sequence(0), topics.Sequence(0)
			for {
				var err error
				if msgs, next, err = tp.Read(f, next, 50, 0, msgs[:0]); err != nil {
					t.Error(err)
					return
				}
				if len(msgs) == 0 {
					break
				}
				for _, m := range msgs {
					if m.Sequence <= last || !f.Match(m.Subject) || len(m.Payload) != 9 {
						t.Errorf("message %d on %s after %d", m.Sequence, m.Subject, last)
						return
					}
					last = m.Sequence
				}
			}
			mid := (tp.State().First + last) / 2
			tp.Count(f, mid)
			tp.Next(f, mid)
			tp.Prev(f, mid)
			tp.LastPerSubject(f)
			tp.SequenceAt(topics.Nanos(mid))
			if _, err := tp.Load(mid); err != nil && !errors.Is(err, ErrNotFound) {
				t.Error(err)
				return
			}
		}
	}
	for _, id := range []topics.TopicID{1, 2} {
		for _, f := range []*topics.Filter{nil, filter} {
			wg.Add(1)
			go reader(id, f)
		}
	}
	subjects := []string{"a.x", "a.y", "b", "c.d", "a.z"}
	for i := range 1500 {
		var ps []topics.Publish
		for k := range 20 {
			ps = append(ps, pub(topics.TopicID(1+k%2), subjects[(i*7+k/2)%len(subjects)], "", "123456789"))
		}
		f.now++
		f.publish(ps...)
		if i%50 == 49 {
			flushNow(t, s)
			f.do(func() { _, _ = s.Purge(1, Purge{Subject: "b", Keep: 10}) })
		}
	}
	stop.Store(true)
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
