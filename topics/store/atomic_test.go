package store

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/heraldmq/herald/topics"
)

// atomically applies the publishes as one atomic batch.
func atomically(s *Store, now topics.Nanos, ps []topics.Publish) ([]topics.PublishResult, *topics.Fault) {
	entry := topics.AppendEntryHeader(nil, now)
	batch := make([]Batched, len(ps))
	for i := range ps {
		batch[i].Offset = len(entry)
		entry = topics.AppendPublish(entry, &ps[i])
	}
	for i := range batch {
		_, body, _, err := topics.NextRecord(entry, batch[i].Offset)
		if err != nil {
			panic(err)
		}
		if batch[i].Publish, err = topics.ParsePublish(body); err != nil {
			panic(err)
		}
	}
	s.Begin(s.Applied()+1, now, entry)
	defer s.End()
	return s.PublishAtomic(batch)
}

// TestAtomicBatchesAreStoredWholeOrNotAtAll throws random batches at topics of all
// kinds: a batch gives one result per message and dense sequences, or a fault and
// a state as before; two stores agree, and so does one that starts from the files.
func TestAtomicBatchesAreStoredWholeOrNotAtAll(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "herald-atomic-")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		var stores [2]*Store
		open := func(i int) {
			if stores[i], err = Open(Options{Dir: fmt.Sprint(dir, "/", i), FlushInterval: time.Hour}); err != nil {
				rt.Fatal(err)
			}
		}
		open(0)
		open(1)
		defer func() { stores[0].Close(); stores[1].Close() }()
		cfg := drawConfig(rt, topics.RetainLimits)
		cfg.AllowAtomic = true
		cfg.AllowMsgCounter = cfg.Discard == topics.DiscardOld && rapid.IntRange(0, 3).Draw(rt, "counter") == 0
		cfg.AllowMsgSchedules = rapid.IntRange(0, 3).Draw(rt, "schedules") == 0
		if cfg.AllowMsgTTL && rapid.Bool().Draw(rt, "markers") {
			cfg.SubjectDeleteMarkerTTL = 3 * time.Second
		}
		now := topics.Nanos(1e18)
		both := func(apply func(s *Store) any) any {
			a, b := apply(stores[0]), apply(stores[1])
			if !reflect.DeepEqual(a, b) {
				rt.Fatalf("the stores answer %+v and %+v", a, b)
			}
			return a
		}
		both(func(s *Store) any {
			s.Begin(s.Applied()+1, now, topics.AppendEntryHeader(nil, now))
			defer s.End()
			return s.CreateTopic(1, "A", cfg, now)
		})
		for range rapid.IntRange(1, 12).Draw(rt, "batches") {
			now += topics.Nanos(rapid.Int64Range(0, 3e9).Draw(rt, "later"))
			last := stores[0].Topic(1).State().Last
			ps := make([]topics.Publish, rapid.IntRange(1, 6).Draw(rt, "n"))
			for i := range ps {
				ps[i] = drawBatched(rt, &cfg, last+topics.Sequence(i))
			}
			before, _ := stores[0].Digest()
			type outcome struct {
				Results []topics.PublishResult
				Fault   *topics.Fault
			}
			got := both(func(s *Store) any { r, f := atomically(s, now, ps); return outcome{r, f} }).(outcome)
			after, _ := stores[0].Digest()
			if got.Fault != nil {
				// Looking for a message id may forget those past the window.
				if stores[0].Topic(1).State().Last != last || after != before && cfg.Duplicates == 0 {
					rt.Fatalf("refused with %v, and yet something changed", got.Fault)
				}
				continue
			}
			for i, r := range got.Results {
				if r.Fault != nil || r.Duplicate || r.Sequence != last+1+topics.Sequence(i) {
					rt.Fatalf("message %d of the batch behind %d: %+v", i, last, r)
				}
			}
			if rapid.IntRange(0, 4).Draw(rt, "restart") == 0 {
				if err := stores[1].Close(); err != nil {
					rt.Fatal(err)
				}
				open(1)
			}
			a, _ := stores[0].Digest()
			if b, _ := stores[1].Digest(); a != b {
				rt.Fatal("the stores differ")
			}
		}
	})
}

func drawBatched(rt *rapid.T, cfg *topics.Config, last topics.Sequence) topics.Publish {
	var h strings.Builder
	field := func(often int, key string, value any) {
		if rapid.IntRange(0, 99).Draw(rt, key) < often {
			fmt.Fprintf(&h, "%s: %v\r\n", key, value)
		}
	}
	field(15, "Nats-Msg-Id", rapid.IntRange(0, 30).Draw(rt, "id"))
	field(10, "Nats-Expected-Last-Sequence", last)
	field(10, "Nats-Expected-Last-Subject-Sequence", rapid.IntRange(0, int(last)).Draw(rt, "seq"))
	field(10, "Nats-Rollup", rapid.SampledFrom([]string{"sub", "all"}).Draw(rt, "rollup"))
	field(15, "Nats-TTL", rapid.SampledFrom([]string{"1", "5", "never"}).Draw(rt, "ttl"))
	if cfg.AllowMsgCounter {
		field(90, "Nats-Incr", rapid.IntRange(-20, 20).Draw(rt, "incr"))
	}
	if cfg.AllowMsgSchedules {
		field(20, "Nats-Schedule", "@at 2100-01-01T00:00:00Z\r\nNats-Schedule-Target: target")
	}
	p := topics.Publish{Topic: 1, Subject: []byte(rapid.SampledFrom(testSubjects).Draw(rt, "subject"))}
	if !cfg.AllowMsgCounter {
		p.Payload = []byte(strings.Repeat("x", rapid.IntRange(0, 80).Draw(rt, "size")))
	}
	if h.Len() > 0 {
		p.Header = []byte("NATS/1.0\r\n" + h.String() + "\r\n")
	}
	return p
}

// TestABatchMayPushOutWhatItReliedOn: the checks are made before any of it is
// stored, and hold even where storing it changes what they looked at.
func TestABatchMayPushOutWhatItReliedOn(t *testing.T) {
	f := newFeeder(t, Options{})
	f.do(func() {
		if err := f.s.CreateTopic(1, "A", topics.Config{Name: "T", Subjects: []string{">"}, MaxMsgs: 1, AllowAtomic: true, Storage: topics.StoreFile}, f.now); err != nil {
			t.Fatal(err)
		}
	})
	f.publish(pub(1, "b", "", ""))
	r, fault := atomically(f.s, f.now, []topics.Publish{
		pub(1, "a", "", ""), pub(1, "b", "NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 1\r\n\r\n", ""),
	})
	if fault != nil || len(r) != 2 || r[1].Sequence != 3 {
		t.Fatalf("%+v, %v", r, fault)
	}
	if st := f.s.Topic(1).State(); st.Messages != 1 || st.First != 3 {
		t.Errorf("state %+v", st)
	}
}
