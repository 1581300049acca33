package store

import (
	"fmt"
	"slices"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/subject"
)

// CreateConsumer adds a consumer. Faults: 10059, 10148 (the name is in use), 10026
// (max_consumers), and on a work queue 10099 and 10100 (its messages would have
// two readers).
func (s *Store) CreateConsumer(id topics.TopicID, name string, cfg topics.ConsumerConfig) (topics.ConsumerID, *topics.Fault) {
	t := s.find(id)
	if t == nil {
		return 0, faultNoTopic
	}
	if t.members == nil {
		t.members = newConsumers()
	}
	ms := t.members
	if m := ms.byName[name]; m != nil {
		// Whoever doesn't know whether it was made asks again.
		if m.c.AsMade(cfg) {
			return m.c.ID(), nil
		}
		return 0, faultConsumerExists
	}
	if n := t.cfg.MaxConsumers; n > 0 && len(ms.byName) >= n {
		return 0, faultMaxConsumers
	}
	if f := t.conflicts(name, &cfg); f != nil {
		return 0, f
	}
	ms.lastID++
	t.adopt(&member{c: consumer.New(ms.lastID, name, cfg, s.now, view{t}), dirty: true})
	t.touch()
	return ms.lastID, nil
}

func newConsumers() *consumers {
	return &consumers{byName: make(map[string]*member), byID: make(map[topics.ConsumerID]*member)}
}

func (t *Topic) adopt(m *member) {
	t.members.byName[m.c.Name()] = m
	t.members.byID[m.c.ID()] = m
}

// touch marks the consumer as changed.
func (m *member) touch() { m.dirty, m.summed = true, false }

// conflicts tells whether a consumer would share messages of a work queue with
// another one.
func (t *Topic) conflicts(name string, cfg *topics.ConsumerConfig) *topics.Fault {
	if t.cfg.Retention != topics.RetainWorkQueue {
		return nil
	}
	mine := cfg.Filters()
	var fault *topics.Fault
	for other, m := range t.members.byName {
		if other == name {
			continue
		}
		theirs := m.c.Filter().Patterns()
		if len(mine) == 0 || len(theirs) == 0 {
			return faultQueueUnfiltered // whichever of them was come to first
		}
		for _, a := range mine {
			if slices.ContainsFunc(theirs, func(b string) bool { return subject.Overlap(a, b) }) {
				fault = faultQueueOverlap
			}
		}
	}
	return fault
}

// member looks a consumer up by name.
func (t *Topic) member(name string) *member {
	if t == nil || t.members == nil {
		return nil
	}
	return t.members.byName[name]
}

// UpdateConsumer gives a consumer another config. Faults: 10059, 10014, 10099,
// 10100.
func (s *Store) UpdateConsumer(id topics.TopicID, name string, cfg topics.ConsumerConfig) *topics.Fault {
	t := s.find(id)
	if t == nil {
		return faultNoTopic
	}
	m := t.member(name)
	if m == nil {
		return faultConsumerMissing
	}
	if f := t.conflicts(name, &cfg); f != nil {
		return f
	}
	m.c.Update(cfg)
	m.touch()
	t.releaseUnneeded()
	t.touch()
	return nil
}

// DeleteConsumer drops a consumer, and with it the messages of an interest topic
// that only it still needed; false if there is none of that name.
func (s *Store) DeleteConsumer(id topics.TopicID, name string) bool {
	t := s.find(id)
	m := t.member(name)
	if m == nil {
		return false
	}
	delete(t.members.byName, name)
	delete(t.members.byID, m.c.ID())
	t.members.dropped = append(t.members.dropped, m.c.ID())
	t.releaseUnneeded()
	t.touch()
	return true
}

// ResetConsumer moves a consumer to a sequence (0: to its ack floor), forgets
// what it waits for, and returns the sequence gone to.
func (s *Store) ResetConsumer(id topics.TopicID, name string, seq topics.Sequence) (topics.Sequence, *topics.Fault) {
	t := s.find(id)
	m := t.member(name)
	if m == nil {
		return 0, faultConsumerMissing
	}
	at := m.c.Reset(seq)
	m.touch()
	t.touch()
	return at, nil
}

// PauseConsumer sets until when a consumer delivers nothing; 0 goes on at once.
func (s *Store) PauseConsumer(id topics.TopicID, name string, until topics.Nanos) *topics.Fault {
	t := s.find(id)
	m := t.member(name)
	if m == nil {
		return faultConsumerMissing
	}
	m.c.Pause(until)
	m.touch()
	t.touch()
	return nil
}

// Delivered applies a record of deliveries. ErrUnknownTopic and
// ErrUnknownConsumer mean that the record came late and has no effect; other
// errors are damage.
func (s *Store) Delivered(id topics.TopicID, c topics.ConsumerID, body []byte) error {
	t, m, err := s.reader(id, c)
	if err != nil {
		return err
	}
	m.touch()
	t.touch()
	return m.c.ApplyDelivered(body, t.releaser())
}

// Acked applies a record of acknowledgements, and removes what a work queue or
// interest topic need not keep any more. Errors as with Delivered.
func (s *Store) Acked(id topics.TopicID, c topics.ConsumerID, body []byte) error {
	t, m, err := s.reader(id, c)
	if err != nil {
		return err
	}
	m.touch()
	t.touch()
	return m.c.ApplyAcks(body, t.releaser())
}

// Letters applies a record of what becomes of the dead letters of a consumer. Errors as
// with Delivered.
func (s *Store) Letters(id topics.TopicID, c topics.ConsumerID, body []byte) error {
	t, m, err := s.reader(id, c)
	if err != nil {
		return err
	}
	m.touch()
	t.touch()
	return m.c.ApplyLetters(body, t.releaser())
}

// releaser returns what to do with a message that a consumer has done with.
func (t *Topic) releaser() func(topics.Sequence) {
	switch t.cfg.Retention {
	case topics.RetainWorkQueue:
		return func(seq topics.Sequence) {
			if t.alive(seq) {
				t.remove(seq)
			}
		}
	case topics.RetainInterest:
		return func(seq topics.Sequence) {
			if t.alive(seq) && !t.needed(seq) {
				t.remove(seq)
			}
		}
	}
	return nil
}

func (s *Store) reader(id topics.TopicID, c topics.ConsumerID) (*Topic, *member, error) {
	t := s.find(id)
	if t == nil {
		return nil, nil, fmt.Errorf("topic %d: %w", id, ErrUnknownTopic)
	}
	if t.members != nil {
		if m := t.members.byID[c]; m != nil {
			return t, m, nil
		}
	}
	return nil, nil, fmt.Errorf("consumer %d of topic %d: %w", c, id, ErrUnknownConsumer)
}

// needed tells whether a consumer still wants a live message.
func (t *Topic) needed(seq topics.Sequence) bool {
	if t.members == nil {
		return false
	}
	sub := t.meta(seq).sub
	if sub == lost {
		return true // better kept than lost
	}
	name := t.subjects.entries[sub].name
	for _, m := range t.members.byID {
		if m.c.Filter().Match(name) && m.c.Needs(seq) {
			return true
		}
	}
	return false
}

// releaseUnneeded removes the messages of an interest topic that no consumer
// wants.
func (t *Topic) releaseUnneeded() {
	if t.cfg.Retention != topics.RetainInterest {
		return
	}
	if t.members == nil || len(t.members.byID) == 0 {
		t.clear()
		return
	}
	end := t.last
	for seq := t.dead.nextLive(t.first); seq <= end; seq = t.dead.nextLive(max(seq+1, t.first)) {
		if !t.needed(seq) {
			t.remove(seq)
		}
	}
}

// trimConsumers tells the consumers what a purge left.
func (t *Topic) trimConsumers() {
	if t.members == nil {
		return
	}
	for _, m := range t.members.byID {
		m.c.Trim(t.first)
		m.touch()
	}
}

// Consumer returns a copy of a consumer's replicated state, nil if there is none
// of that name.
func (t *Topic) Consumer(name string) *consumer.Consumer {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	if m := t.member(name); m != nil {
		return m.c.Clone()
	}
	return nil
}

// LookAt calls f with the replicated copy of a consumer, nil if there is none of that name.
// f must not keep or change it, nor call the store.
func (t *Topic) LookAt(name string, f func(*consumer.Consumer)) {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	if m := t.member(name); m != nil {
		f(m.c)
		return
	}
	f(nil)
}

// HasConsumer tells whether there is a consumer with an identifier.
func (t *Topic) HasConsumer(id topics.ConsumerID) bool {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	return t.members != nil && t.members.byID[id] != nil
}

// ConsumerID returns the identifier of a consumer, 0 if there is none of that
// name.
func (t *Topic) ConsumerID(name string) topics.ConsumerID {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	if m := t.member(name); m != nil {
		return m.c.ID()
	}
	return 0
}

// ConsumerNames returns the names of the topic's consumers, sorted.
func (t *Topic) ConsumerNames() []string {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	if t.members == nil {
		return nil
	}
	names := make([]string, 0, len(t.members.byName))
	for name := range t.members.byName {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// InMemory calls f for each consumer of the group that asks to be kept in memory
// only (mem_storage). f must not call the store.
func (s *Store) InMemory(f func(id topics.TopicID, name string)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for id, t := range s.topics {
		if t.members == nil || t.hidden() {
			continue
		}
		for name, m := range t.members.byName {
			if cfg := m.c.Config(); cfg.MemoryStorage {
				f(id, name)
			}
		}
	}
}

// Consumers calls f with a copy of each consumer, by name, until it returns
// false.
func (t *Topic) Consumers(f func(*consumer.Consumer) bool) {
	for _, name := range t.ConsumerNames() {
		if c := t.Consumer(name); c != nil && !f(c) {
			return
		}
	}
}
