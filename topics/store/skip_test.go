package store

import (
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
)

// TestSkippingFarIsQuick: whatever the gap, what is around it is as it was.
func TestSkippingFarIsQuick(t *testing.T) {
	dir := t.TempDir()
	f := openFeeder(t, dir)
	f.do(func() {
		_ = f.s.CreateTopic(7, "A", topics.Config{Name: "T", Subjects: []string{"a"}, Storage: topics.StoreFile, Retention: topics.RetainLimits}, f.now)
	})
	const gap = 20_000_000
	f.publish(pub(7, "a", "", "one"))
	began := time.Now()
	f.do(func() { f.s.SkipTo(7, gap) })
	t.Logf("skipping %d sequences took %s", gap, time.Since(began))
	f.publish(pub(7, "a", "", "two"))
	f.do(func() { f.s.SkipTo(7, gap+100) })
	f.publish(pub(7, "a", "", "three"))
	check := func() {
		t.Helper()
		tp := f.s.Topic(7)
		if st := tp.State(); st.Messages != 3 || st.Last != gap+101 || st.Deleted != gap+101-3 {
			t.Fatalf("state %+v", st)
		}
		msgs, _, err := tp.Read(nil, 1, 10, 0, nil)
		if err != nil || len(msgs) != 3 || string(msgs[1].Payload) != "two" || msgs[1].Sequence != gap+1 || msgs[2].Sequence != gap+101 {
			t.Fatalf("%v, %v", msgs, err)
		}
	}
	check()
	if err := f.s.Flush(); err != nil {
		t.Fatal(err)
	}
	check()
	if err := f.s.Close(); err != nil {
		t.Fatal(err)
	}
	f = openFeeder(t, dir)
	check()
}
