package jetstream

import "github.com/heraldmq/herald/topics"

// A client that creates a push consumer expects the answer before the first
// message: one that counts messages could otherwise be through with them, and
// gone, while its request is still under way. So a request that creates one
// holds back the news of it, which sets delivery going, until it has answered.

type gateKey struct {
	topic topics.TopicID
	name  string
}

type gate struct{ tell func() }

// hold begins to hold back the news of a consumer; release passes them on.
func (s *Service) hold(id topics.TopicID, name string) (release func()) {
	k, g := gateKey{id, name}, &gate{}
	s.gatesMu.Lock()
	s.gates[k] = g
	s.gatesMu.Unlock()
	return func() {
		s.gatesMu.Lock()
		if s.gates[k] == g {
			delete(s.gates, k)
		}
		tell := g.tell
		s.gatesMu.Unlock()
		if tell != nil {
			tell()
		}
	}
}

// ConsumerCreated passes the news of a consumer on by calling tell: at once, or
// when the request that creates it has been answered. It may be called where
// entries are applied.
func (s *Service) ConsumerCreated(id topics.TopicID, name string, tell func()) {
	s.gatesMu.Lock()
	g := s.gates[gateKey{id, name}]
	if g != nil {
		g.tell = tell
	}
	s.gatesMu.Unlock()
	if g == nil {
		tell()
	}
}
