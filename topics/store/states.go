package store

import (
	"slices"

	"github.com/heraldmq/herald/topics"
)

// statesAtOnce is for how many topics States holds the lock at once.
const statesAtOnce = 1024

// States calls f for every topic with its state, which is much faster than asking
// each of very many topics. f must be quick and must not call the store.
func (s *Store) States(f func(t *Topic, cfg *topics.Config, st topics.State)) {
	s.mu.RLock()
	all := make([]*Topic, 0, len(s.topics))
	for _, t := range s.topics {
		if !t.hidden() {
			all = append(all, t)
		}
	}
	s.mu.RUnlock()
	for some := range slices.Chunk(all, statesAtOnce) {
		s.mu.RLock()
		for _, t := range some {
			f(t, t.cfg, t.state())
		}
		s.mu.RUnlock()
	}
}

// SharedConfig returns the topic's config without copying it. It never changes: an
// update puts another in its place. The caller must not change it either.
func (t *Topic) SharedConfig() *topics.Config {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	return t.cfg
}
