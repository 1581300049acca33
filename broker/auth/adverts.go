package auth

import (
	"slices"

	"github.com/heraldmq/herald/topics/subject"
)

// lists tells what a permission's lists say about all subjects of a pattern: denied
// where one is denied, allowed where all are on the allow list.
func (s *SubjectPermission) lists(pattern string) (allowed, denied bool) {
	denied = slices.ContainsFunc(s.Deny, func(p string) bool { return subject.Overlap(p, pattern) })
	allowed = slices.ContainsFunc(s.Allow, func(p string) bool { return subject.Covers(p, pattern) })
	return allowed, denied
}

// only tells whether a permission is there, and what it says by itself: with an allow
// list what is on it, without one everything that is not denied.
func (s *SubjectPermission) only(pattern string) (there, ok bool) {
	if s == nil {
		return false, false
	}
	allowed, denied := s.lists(pattern)
	return true, !denied && (allowed || s.Allow == nil)
}

// Advertise tells whether the pattern may be advertised. Without a permission of its own
// who publishes may advertise what it may publish, and who reads what it may subscribe to.
func (r *Rules) Advertise(pattern string, publishes bool) bool {
	if r == nil {
		return true
	}
	if there, ok := r.source.advertise().only(pattern); there {
		return ok
	}
	if publishes {
		return r.Publish(pattern)
	}
	return r.Subscribe(pattern, "")
}

// Discover tells whether advertisements and traffic of the pattern are shown: what may be
// subscribed to, and what is allowed besides; not what is denied.
func (r *Rules) Discover(pattern string) bool {
	if r == nil {
		return true
	}
	if p := r.source.discover(); p != nil {
		allowed, denied := p.lists(pattern)
		if allowed || denied {
			return !denied
		}
	}
	return r.Subscribe(pattern, "")
}

// Sample tells whether messages of the pattern may be looked at. Without a permission of
// its own those that may be subscribed to.
func (r *Rules) Sample(pattern string) bool {
	if r == nil {
		return true
	}
	if there, ok := r.source.sample().only(pattern); there {
		return ok
	}
	return r.Subscribe(pattern, "")
}

// Enforce tells whether what others publish on the pattern may be checked, refused or
// claimed. Who has permissions at all needs this one.
func (r *Rules) Enforce(pattern string) bool {
	if r == nil {
		return true
	}
	_, ok := r.source.enforce().only(pattern)
	return ok
}

func (p *Permissions) advertise() *SubjectPermission {
	if p == nil {
		return nil
	}
	return p.Advertise
}

func (p *Permissions) discover() *SubjectPermission {
	if p == nil {
		return nil
	}
	return p.Discover
}

func (p *Permissions) sample() *SubjectPermission {
	if p == nil {
		return nil
	}
	return p.Sample
}

func (p *Permissions) enforce() *SubjectPermission {
	if p == nil {
		return nil
	}
	return p.Enforce
}
