package store

import (
	"fmt"
	"testing"

	"github.com/heraldmq/herald/topics"
)

// feeder plays the apply side: it builds entries and applies them.
type feeder struct {
	t     testing.TB
	s     *Store
	index topics.Index
	now   topics.Nanos
}

func (f *feeder) publish(ps ...topics.Publish) []topics.PublishResult {
	entry := topics.AppendEntryHeader(nil, f.now)
	for i := range ps {
		entry = topics.AppendPublish(entry, &ps[i])
	}
	topics.SetRecords(entry, uint32(len(ps)))
	return f.apply(entry)
}

func (f *feeder) apply(entry []byte) (results []topics.PublishResult) {
	f.index++
	now, records, err := topics.ParseEntryHeader(entry)
	if err != nil {
		f.t.Fatal(err)
	}
	f.s.Begin(f.index, now, entry)
	defer f.s.End()
	return publishAll(f.t, f.s, entry, int(records))
}

// publishAll applies the publishes of an entry as broker/state does.
func publishAll(t fataler, s *Store, entry []byte, records int) (results []topics.PublishResult) {
	for off := topics.EntryHeader; len(results) < records; {
		first, n, next := s.PublishRun(off, records-len(results))
		for i := range n {
			results = append(results, topics.PublishResult{Sequence: first + topics.Sequence(i)})
		}
		if off = next; n > 0 {
			continue
		}
		r, next := publishOne(t, s, entry, off)
		results = append(results, r)
		off = next
	}
	return results
}

func publishOne(t fataler, s *Store, entry []byte, off int) (topics.PublishResult, int) {
	_, body, next, err := topics.NextRecord(entry, off)
	if err != nil {
		t.Fatal(err)
	}
	p, err := topics.ParsePublish(body)
	if err != nil {
		t.Fatal(err)
	}
	return s.Publish(off, p), next
}

// do runs f between Begin and End.
func (f *feeder) do(g func()) {
	f.index++
	f.s.Begin(f.index, f.now, topics.AppendEntryHeader(nil, f.now))
	g()
	f.s.End()
}

func newFeeder(t testing.TB, o Options) *feeder {
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &feeder{t: t, s: s, now: 1_000_000_000}
}

func pub(topic topics.TopicID, subj, header, payload string) topics.Publish {
	return topics.Publish{Topic: topic, Subject: []byte(subj), Header: []byte(header), Payload: []byte(payload)}
}

func TestPublishAndRead(t *testing.T) {
	f := newFeeder(t, Options{})
	f.do(func() {
		if err := f.s.CreateTopic(7, "A", topics.Config{Name: "T", Subjects: []string{"a.>"}, Storage: topics.StoreFile}, f.now); err != nil {
			t.Fatal(err)
		}
	})
	for i, r := range f.publish(pub(7, "a.x", "", "one"), pub(7, "a.y", "", "two"), pub(7, "a.x", "", "three")) {
		if r.Fault != nil || r.Sequence != topics.Sequence(i+1) {
			t.Fatalf("publish %d: %+v", i, r)
		}
	}
	tp := f.s.Topic(7)
	msgs, next, err := tp.Read(topics.NewFilter([]string{"a.x"}), 1, 10, 0, nil)
	if err != nil || next != 4 || fmt.Sprintf("%s %s", msgs[0].Payload, msgs[1].Payload) != "one three" {
		t.Fatalf("read %v, next %d, %v", msgs, next, err)
	}
	if st := tp.State(); st.Messages != 3 || st.Bytes != 3*(3+30)+3+3+5 || st.Subjects != 2 {
		t.Fatalf("state %+v", st)
	}
}
