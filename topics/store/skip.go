package store

import "github.com/heraldmq/herald/topics"

// SkipTo uses up the sequences up to last: a mirror keeps its origin's
// sequences, and the origin no longer has them all. What is not ahead changes
// nothing.
func (s *Store) SkipTo(id topics.TopicID, last topics.Sequence) {
	if t := s.find(id); t != nil {
		t.skipTo(last)
	}
}

// skipTo takes a time that hardly depends on how far it is: whole blocks of the dead
// set cost nothing but their entry, and the references to the tail are left out.
func (t *Topic) skipTo(last topics.Sequence) {
	if last <= t.last {
		return
	}
	t.touch()
	if t.messages == 0 {
		t.last, t.first = last, last+1
		t.dead.trim(t.first)
		return
	}
	t.dead.addRange(t.last+1, last)
	t.refs.skip(last)
	t.last = last
}
