package store

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
)

func dataFiles(t *testing.T, dir string) int {
	names, err := filepath.Glob(filepath.Join(dir, "data", "*.run"))
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func TestCompaction(t *testing.T) {
	dir := t.TempDir()
	s := benchStore(t, Options{Dir: dir, FlushInterval: time.Hour, TailBytes: 4096, FlushBytes: 1 << 20}, 3, topics.Config{Name: "T"})
	f := &feeder{t: t, s: s, index: s.Applied(), now: 5}
	put := func(i int) {
		var ps []topics.Publish
		for k := range 60 {
			ps = append(ps, pub(topics.TopicID(1+k%3), fmt.Sprint("s.", k%7), "", fmt.Sprintf("%d/%d", i, k)))
		}
		f.publish(ps...)
	}
	for i := range 40 {
		put(i)
		flushNow(t, s)
	}
	if n := dataFiles(t, dir); n > 2*mergeFiles {
		t.Errorf("40 small flushes left %d files", n)
	}
	for id := topics.TopicID(1); id <= 3; id++ {
		if n, err := served(t, s.Topic(id), 800); n != 800 || err != nil {
			t.Fatalf("topic %d serves %d, %v", id, n, err)
		}
	}
	// Runs that were cut finely are joined.
	if n := len(s.Topic(1).runs); n > 2*mergeFiles {
		t.Errorf("a topic of 800 messages is in %d runs", n)
	}
	// Most of the messages go: the files are rewritten, and shrink.
	f.do(func() {
		for id := topics.TopicID(1); id <= 3; id++ {
			for seq := topics.Sequence(2); seq <= 800; seq++ {
				if seq%10 != 0 {
					_, _ = s.DeleteMessage(id, seq)
				}
			}
		}
	})
	flushNow(t, s)
	total := uint64(0)
	for _, file := range s.files {
		total += file.total
	}
	if total > 3*81*2 {
		t.Errorf("%d messages are held in files, %d are alive", total, 3*81)
	}
	// All go: no file stays.
	f.do(func() {
		for id := topics.TopicID(1); id <= 3; id++ {
			s.DeleteTopic(id)
		}
	})
	flushNow(t, s)
	if n := dataFiles(t, dir); n != 0 {
		t.Errorf("%d files of no topic stay", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Topics(func(tp *Topic) bool { t.Errorf("topic %d is back", tp.ID()); return true })
}
