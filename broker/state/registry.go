package state

import (
	"sync"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/store"
)

// registry is the topics of this node. Reading takes no lock.
type registry struct {
	ids   sync.Map // topics.TopicID → *Topic
	names sync.Map // topicName → *Topic
}

type topicName struct{ account, name string }

func (r *registry) find(id topics.TopicID) (*Topic, bool) {
	v, ok := r.ids.Load(id)
	if !ok {
		return nil, false
	}
	t, ok := v.(*Topic)
	return t, ok
}

func (r *registry) named(account, name string) (*Topic, bool) {
	v, ok := r.names.Load(topicName{account, name})
	if !ok {
		return nil, false
	}
	t, ok := v.(*Topic)
	return t, ok
}

// add tells whether the topic is new. A name is taken over from a topic that is
// on its way out.
func (r *registry) add(t *Topic) bool {
	if _, had := r.ids.LoadOrStore(t.id, t); had {
		return false
	}
	k := topicName{t.account, t.name}
	if old, ok := r.named(t.account, t.name); !ok || old.id < t.id {
		r.names.Store(k, t)
	}
	return true
}

func (r *registry) remove(t *Topic) {
	t.gone.Store(true)
	r.ids.Delete(t.id)
	r.names.CompareAndDelete(topicName{t.account, t.name}, t)
}

func (r *registry) each(f func(*Topic) bool) {
	r.ids.Range(func(_, v any) bool {
		t, ok := v.(*Topic)
		return !ok || f(t)
	})
}

// topicChanged implements telling.
func (s *State) topicChanged(group topics.GroupID, id topics.TopicID, c Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[group-1]
	t, known := s.topics.find(id)
	switch c {
	case Created:
		data := g.data.Topic(id)
		if known || data == nil { // deleted by the same entry
			return
		}
		t = newTopic(g, data)
		s.topics.add(t)
	case Updated:
		if !known {
			return
		}
		cfg := t.data.Config()
		t.configure(&cfg)
	case Deleted:
		if !known {
			return
		}
		s.topics.remove(t)
	}
	g.expiry.touch(id)
	if s.hooks.OnTopic != nil {
		s.hooks.OnTopic(t, c)
	}
}

// consumerChanged implements telling.
func (s *State) consumerChanged(id topics.TopicID, name string, c Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.topics.find(id); ok && s.hooks.OnConsumer != nil {
		s.hooks.OnConsumer(t, name, c)
	}
}

// grown implements telling.
func (s *State) grown(group topics.GroupID, ids []topics.TopicID) {
	g := s.groups[group-1]
	g.expiry.grown(ids)
	if tell := s.onGrown.Load(); tell != nil {
		(*tell)(g, ids)
	}
}

// advertisementChanged is told of changes of the advertisements.
func (s *State) advertisementChanged(e catalogue.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hooks.OnAdvertisement != nil {
		s.hooks.OnAdvertisement(e)
	}
}

// Usage is what an account holds. The reserved bytes are the sums of the
// topics' max_bytes.
type Usage struct {
	Topics, Consumers            int
	FileBytes, MemoryBytes       uint64
	FileMessages, MemoryMessages uint64
	FileReserved, MemoryReserved int64
}

// Usage returns what an account holds at the moment; account "" sums up all.
func (s *State) Usage(account string) Usage {
	var u Usage
	s.topics.each(func(t *Topic) bool {
		if account != "" && t.account != account {
			return true
		}
		st, cfg := t.data.State(), t.Config()
		u.Topics++
		u.Consumers += st.Consumers
		if cfg.Storage == topics.StoreMemory {
			u.MemoryBytes += st.Bytes
			u.MemoryMessages += st.Messages
			u.MemoryReserved += max(cfg.MaxBytes, 0)
		} else {
			u.FileBytes += st.Bytes
			u.FileMessages += st.Messages
			u.FileReserved += max(cfg.MaxBytes, 0)
		}
		return true
	})
	return u
}

// consumersElsewhere returns how many consumers an account has in other groups
// than g.
func (s *State) consumersElsewhere(account string, g *Group) int {
	if len(s.groups) == 1 {
		return 0
	}
	n := 0
	for _, other := range s.groups {
		if other == g {
			continue
		}
		other.data.Topics(func(t *store.Topic) bool {
			if t.Account() == account {
				n += t.State().Consumers
			}
			return true
		})
	}
	return n
}
