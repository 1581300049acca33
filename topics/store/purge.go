package store

import (
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/subject"
)

// Purge says which messages go: those of Subject (a pattern; "" is all) below
// Sequence (0: no bound), or all but the last Keep.
type Purge struct {
	Sequence topics.Sequence
	Subject  string
	Keep     uint64
}

// Purge removes messages and returns how many. Consumers move past what is gone.
func (s *Store) Purge(id topics.TopicID, p Purge) (uint64, *topics.Fault) {
	t := s.find(id)
	switch {
	case t == nil:
		return 0, faultNoTopic
	case t.cfg.Sealed:
		return 0, faultSealed
	case p.Keep > 0 && p.Sequence > 0:
		return 0, faultKeepAndSeq
	}
	before := t.messages
	switch {
	case p.Subject != "" && p.Subject != ">":
		if p.Sequence > 0 {
			t.purgeMatching(p.Subject, p.Sequence-1, t.messages)
		} else {
			t.purgeSubject(p.Subject, p.Keep)
		}
	case p.Sequence > 0:
		t.purgeBelow(p.Sequence)
	case p.Keep > 0:
		for t.messages > p.Keep {
			t.remove(t.first)
		}
	default:
		t.clear()
	}
	t.trimConsumers()
	t.touch()
	return before - t.messages, nil
}

// DeleteMessage removes one message; false if it is not alive.
func (s *Store) DeleteMessage(id topics.TopicID, seq topics.Sequence) (bool, *topics.Fault) {
	t := s.find(id)
	switch {
	case t == nil:
		return false, faultNoTopic
	case t.cfg.Sealed:
		return false, faultSealed
	case t.cfg.DenyDelete:
		return false, faultDeleteDenied
	case !t.alive(seq):
		return false, faultNoSequence(seq)
	}
	t.remove(seq)
	t.touch()
	return true, nil
}

// clear removes every message at once.
func (t *Topic) clear() {
	t.leaveRuns()
	if t.messages > 0 {
		t.removed(t.messages, t.last)
	}
	t.messages, t.bytes = 0, 0
	t.first, t.firstTime = t.last+1, 0
	t.dead = deadSet{}
	t.refs = refRing{}
	t.subjects = subjectTable{histories: t.subjects.histories}
	t.expiries = nil
	t.forgetAllMatches()
}

// purgeBelow removes what is below seq. A topic may be purged beyond its end:
// the next message then gets seq.
func (t *Topic) purgeBelow(seq topics.Sequence) {
	if seq > t.last {
		t.last = max(t.last, seq-1)
		t.clear()
		return
	}
	for t.messages > 0 && t.first < seq {
		t.remove(t.first)
	}
}

// purgeSubject removes all but the last keep messages of a pattern.
func (t *Topic) purgeSubject(pattern string, keep uint64) {
	n := t.matchCount(pattern)
	if n > keep {
		t.purgeMatching(pattern, t.last, n-keep)
	}
}

// matchCount returns how many live messages a pattern has.
func (t *Topic) matchCount(pattern string) (n uint64) {
	if subject.IsLiteral(pattern) {
		if i, ok := t.subjects.find(pattern); ok {
			n = t.subjects.entries[i].count
		}
		return n
	}
	t.subjects.each(func(_ uint32, e *subjectEntry) bool {
		if subject.Match(pattern, e.name) {
			n += e.count
		}
		return true
	})
	return n
}

// purgeMatching removes the first n messages of a pattern up to a sequence.
func (t *Topic) purgeMatching(pattern string, upTo topics.Sequence, n uint64) {
	if subject.IsLiteral(pattern) {
		for ; n > 0; n-- {
			i, ok := t.subjects.find(pattern)
			if !ok {
				return
			}
			seq := t.firstOf(i)
			if seq > upTo {
				return
			}
			t.remove(seq)
		}
		return
	}
	m := t.once(pattern)
	for seq := t.first; n > 0; n-- {
		var ok bool
		if seq, ok = t.nextNow(m, seq); !ok || seq > upTo {
			return
		}
		t.remove(seq)
	}
}
