package store

import (
	"errors"
	"sync"
)

// damageReport passes on the first damage that is met.
type damageReport struct {
	mu    sync.Mutex
	first error
	tell  func(error)
	told  bool
}

// OnDamage says whom to tell of damage, be it met before or later, by opening the
// store, by reading or by Scrub: that something of this replica can't be served. f is
// called at most once; it must not block.
func (s *Store) OnDamage(f func(error)) {
	s.mu.RLock()
	first := s.missing
	for _, err := range s.damaged {
		first = err
	}
	s.mu.RUnlock()
	s.ReportDamage(first)
	s.damage.mu.Lock()
	s.damage.tell = f
	s.damage.mu.Unlock()
	s.damage.pass()
}

// ReportDamage takes note of an error if it Is damage.
func (s *Store) ReportDamage(err error) {
	var damage *CorruptError
	if err == nil || !errors.As(err, &damage) {
		return
	}
	s.damage.mu.Lock()
	if s.damage.first == nil {
		s.damage.first = err
	}
	s.damage.mu.Unlock()
	s.damage.pass()
}

func (d *damageReport) pass() {
	d.mu.Lock()
	tell, err := d.tell, d.first
	if tell == nil || err == nil || d.told {
		d.mu.Unlock()
		return
	}
	d.told = true
	d.mu.Unlock()
	tell(err)
}

// Damage returns the first damage that was met, nil if there was none.
func (s *Store) Damage() error {
	s.damage.mu.Lock()
	defer s.damage.mu.Unlock()
	return s.damage.first
}
