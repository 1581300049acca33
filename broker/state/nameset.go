package state

import "slices"

// nameSetScanMax is how many names are searched one by one before a map is made of
// them. Most topics have few consumers, and there can be very many topics.
const nameSetScanMax = 8

// nameSet is a set of names. The zero value is empty.
type nameSet struct {
	few  []string            // unless many is there
	many map[string]struct{} // nil while there are few
}

func (s *nameSet) len() int { return max(len(s.few), len(s.many)) }

func (s *nameSet) has(name string) bool {
	if s.many == nil {
		return slices.Contains(s.few, name)
	}
	_, has := s.many[name]
	return has
}

// add tells whether the name is new.
func (s *nameSet) add(name string) bool {
	switch {
	case s.has(name):
		return false
	case s.many == nil && len(s.few) < nameSetScanMax:
		s.few = append(s.few, name)
		return true
	case s.many == nil:
		s.many = make(map[string]struct{}, 2*len(s.few))
		for _, n := range s.few {
			s.many[n] = struct{}{}
		}
		s.few = nil
	}
	s.many[name] = struct{}{}
	return true
}

// remove tells whether the name was there.
func (s *nameSet) remove(name string) bool {
	if s.many == nil {
		n := len(s.few)
		s.few = slices.DeleteFunc(s.few, func(f string) bool { return f == name })
		return len(s.few) < n
	}
	_, had := s.many[name]
	delete(s.many, name)
	return had
}
