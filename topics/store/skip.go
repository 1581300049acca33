package store

import "github.com/heraldmq/herald/topics"

// SkipTo uses up the sequences up to last: a mirror keeps its origin's
// sequences, and the origin no longer has them all. What is not ahead changes
// nothing.
func (s *Store) SkipTo(id topics.TopicID, last topics.Sequence) {
	t := s.find(id)
	if t == nil || last <= t.last {
		return
	}
	if t.messages == 0 {
		t.last, t.first = last, last+1
		t.dead.trim(t.first)
		t.touch()
		return
	}
	at := t.lastTime // what comes next may be older than this entry
	for t.last < last {
		t.skip()
	}
	t.lastTime = at
}
