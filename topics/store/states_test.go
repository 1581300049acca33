package store

import (
	"fmt"
	"testing"

	"github.com/heraldmq/herald/topics"
)

func TestStatesSeesEveryTopicOnce(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir(), Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const n = 2*statesAtOnce + 7
	for i := range n {
		s.Begin(topics.Index(i+1), 1, nil)
		if err := s.CreateTopic(topics.TopicID(i+1), "A", topics.Config{Name: fmt.Sprint("T", i)}, 1); err != nil {
			t.Fatal(err)
		}
		s.End()
	}
	seen := map[string]bool{}
	s.States(func(top *Topic, cfg *topics.Config, st topics.State) {
		if seen[cfg.Name] || top.Account() != "A" || st.Messages != 0 {
			t.Errorf("topic %s of account %s with %d messages, seen before: %t", cfg.Name, top.Account(), st.Messages, seen[cfg.Name])
		}
		seen[cfg.Name] = true
	})
	if len(seen) != n {
		t.Errorf("%d topics, want %d", len(seen), n)
	}
}
