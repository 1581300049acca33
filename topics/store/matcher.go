package store

import (
	"sync/atomic"

	"github.com/heraldmq/herald/topics"
)

// matchersMax bounds how many filters a topic remembers the verdicts of.
const matchersMax = 16

// matcher is a filter's verdicts on a topic's subjects, by slot, so that a
// message costs an array access and not a match. A nil matcher lets everything
// through.
type matcher struct {
	filter *topics.Filter
	only   uint32 // the one slot that matches, plus one; 0 if the filter is general
	none   bool   // nothing matches
	// verdicts are written by readers (under the read lock) and reset by the apply
	// side (under the write lock) when a slot changes its subject.
	verdicts []atomic.Uint32
}

const (
	verdictYes = 1
	verdictNo  = 2
)

// one returns a matcher for the subject in a slot.
func (t *Topic) one(i uint32) *matcher { return &matcher{only: i + 1} }

// matcher returns the matcher of a filter; it is good for as long as the store's
// lock is held.
func (t *Topic) matcher(f *topics.Filter) *matcher {
	if f == nil {
		return nil
	}
	if name, ok := f.Literal(); ok {
		i, ok := t.subjects.peek(name)
		if ok && t.subjects.live == 1 {
			return nil
		}
		return &matcher{only: i + 1, none: !ok}
	}
	if t.subjects.live <= subjectFew {
		yes := 0
		t.subjects.each(func(_ uint32, e *subjectEntry) bool {
			if f.Match(e.name) {
				yes++
			}
			return true
		})
		if yes == t.subjects.live {
			return nil
		}
		if yes == 0 {
			return &matcher{none: true}
		}
	}
	t.matchMu.Lock()
	defer t.matchMu.Unlock()
	for i, m := range t.matchers {
		if m.filter == f && len(m.verdicts) >= len(t.subjects.entries) {
			return m
		}
		if m.filter == f {
			bigger := newMatcher(f, 2*len(t.subjects.entries))
			for j := range m.verdicts {
				bigger.verdicts[j].Store(m.verdicts[j].Load())
			}
			t.matchers[i] = bigger
			return bigger
		}
	}
	m := newMatcher(f, len(t.subjects.entries)+len(t.subjects.entries)/4)
	if len(t.matchers) == matchersMax {
		copy(t.matchers, t.matchers[1:])
		t.matchers[matchersMax-1] = m
	} else {
		t.matchers = append(t.matchers, m)
	}
	return m
}

func newMatcher(f *topics.Filter, n int) *matcher {
	return &matcher{filter: f, verdicts: make([]atomic.Uint32, n)}
}

// once is matcher for a pattern that nobody will ask for again.
func (t *Topic) once(pattern string) *matcher {
	f := topics.NewFilter([]string{pattern})
	if f == nil {
		return nil
	}
	return &matcher{filter: f}
}

// match tells whether the filter lets the subject in slot i through.
func (m *matcher) match(t *Topic, i uint32) bool {
	if m == nil {
		return true
	}
	if m.filter == nil {
		return !m.none && m.only == i+1
	}
	if int(i) >= len(m.verdicts) {
		return m.filter.Match(t.subjects.entries[i].name)
	}
	switch m.verdicts[i].Load() {
	case verdictYes:
		return true
	case verdictNo:
		return false
	}
	ok := m.filter.Match(t.subjects.entries[i].name)
	if ok {
		m.verdicts[i].Store(verdictYes)
	} else {
		m.verdicts[i].Store(verdictNo)
	}
	return ok
}

// matchName is match for a message of a data file.
func (m *matcher) matchName(t *Topic, name string) bool {
	if m == nil {
		return true
	}
	if m.filter == nil {
		return !m.none && t.subjects.entries[m.only-1].name == name
	}
	i, ok := t.subjects.peek(name)
	return ok && m.match(t, i)
}

// forgetMatches resets the verdicts on a slot that got another subject.
func (t *Topic) forgetMatches(i uint32) {
	for _, m := range t.matchers {
		if int(i) < len(m.verdicts) {
			m.verdicts[i].Store(0)
		}
	}
}

func (t *Topic) forgetAllMatches() { t.matchers = nil }
