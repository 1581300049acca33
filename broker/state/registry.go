package state

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// registry is the topics of this node. Finding one takes no lock.
type registry struct {
	ids   sync.Map // topics.TopicID → *Topic
	names sync.Map // topicName → *Topic

	mu    sync.Mutex
	lists map[string]*topicList // by account
}

// topicList is an account's topics by name. What was added or removed since it was
// last asked for is merged in when it is asked for again.
type topicList struct {
	sorted []*Topic // never changed in place: readers have it
	added  []*Topic
	stale  bool // sorted holds topics that are gone
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
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lists[t.account]
	if l == nil {
		if r.lists == nil {
			r.lists = map[string]*topicList{}
		}
		l = &topicList{}
		r.lists[t.account] = l
	}
	l.added = append(l.added, t)
	return true
}

func (r *registry) remove(t *Topic) {
	t.gone.Store(true)
	r.ids.Delete(t.id)
	r.names.CompareAndDelete(topicName{t.account, t.name}, t)
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.lists[t.account]; l != nil {
		l.stale = true
	}
}

// accounts returns the accounts that have or had topics, sorted.
func (r *registry) accounts() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.lists))
}

// sorted returns an account's topics by name. The caller must not change it.
func (r *registry) sorted(account string) []*Topic {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lists[account]
	if l == nil {
		return nil
	}
	if len(l.added) > 0 || l.stale {
		l.merge()
	}
	return l.sorted
}

func (l *topicList) merge() {
	slices.SortFunc(l.added, compareTopics)
	all := make([]*Topic, 0, len(l.sorted)+len(l.added))
	old, added := l.sorted, l.added
	for len(old) > 0 || len(added) > 0 {
		from := &old
		if len(old) == 0 || len(added) > 0 && compareTopics(added[0], old[0]) < 0 {
			from = &added
		}
		if t := (*from)[0]; !t.gone.Load() {
			all = append(all, t)
		}
		*from = (*from)[1:]
	}
	l.sorted, l.added, l.stale = all, nil, false
}

// compareTopics orders the topics of one account. Two can have the same name while
// one is on its way out.
func compareTopics(a, b *Topic) int {
	return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
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
	g := s.groups.get(s, group)
	r := g.local.Load()
	if s.movedLocked(g, r, id, c) {
		return
	}
	t, known := s.topics.find(id)
	switch c {
	case Created:
		data := r.data.Topic(id)
		if data == nil { // deleted by the same entry
			return
		}
		if !known || t.Data() != data {
			s.attachLocked(g, data)
			r.expiry.touch(id)
		}
		return
	case Updated:
		if !known || t.Data() == nil {
			return
		}
		t.configure(t.Data().SharedConfig())
	case Deleted:
		if !known {
			return
		}
		s.topics.remove(t)
	}
	r.expiry.touch(id)
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
	g := s.groups.get(s, group)
	if r := g.local.Load(); r != nil {
		r.expiry.grown(ids)
	}
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

// advertisementsRestored is told that the whole catalogue is another one.
func (s *State) advertisementsRestored() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hooks.OnAdvertisements != nil {
		s.hooks.OnAdvertisements()
	}
}
