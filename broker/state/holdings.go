package state

import (
	"fmt"
	"maps"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/store"
)

// holdings is who has what in a group, kept by the machine beside the store,
// which it can't ask while it applies an entry.
type holdings struct {
	topics   map[topics.TopicID]*holding
	accounts map[string]*accountHolding

	metadata map[string]string // of the topic made last; see shared
}

type holding struct {
	account   string
	storage   topics.Storage
	consumers nameSet
}

type accountHolding struct {
	topics    map[topics.TopicID]struct{}
	consumers int
}

func holdingsOf(data *store.Store) holdings {
	h := holdings{topics: map[topics.TopicID]*holding{}, accounts: map[string]*accountHolding{}}
	data.Topics(func(t *store.Topic) bool {
		h.add(t.ID(), t.Account(), t.Config().Storage)
		for _, name := range t.ConsumerNames() {
			h.addConsumer(t.ID(), name)
		}
		return true
	})
	return h
}

// shared returns metadata equal to m: the same map for topics made one after the
// other, which mostly have the same. Nobody changes it.
func (h *holdings) shared(m map[string]string) map[string]string {
	if len(m) == 0 {
		return m
	}
	if maps.Equal(m, h.metadata) {
		return h.metadata
	}
	h.metadata = m
	return m
}

func (h *holdings) add(id topics.TopicID, account string, s topics.Storage) {
	if h.topics[id] != nil {
		return
	}
	a := h.accounts[account]
	if a == nil {
		a = &accountHolding{topics: map[topics.TopicID]struct{}{}}
		h.accounts[account] = a
	}
	a.topics[id] = struct{}{}
	h.topics[id] = &holding{account: account, storage: s}
}

func (h *holdings) drop(id topics.TopicID) {
	t := h.topics[id]
	if t == nil {
		return
	}
	a := h.accounts[t.account]
	a.consumers -= t.consumers.len()
	delete(a.topics, id)
	if len(a.topics) == 0 {
		delete(h.accounts, t.account)
	}
	delete(h.topics, id)
}

// addConsumer tells whether the consumer is new.
func (h *holdings) addConsumer(id topics.TopicID, name string) bool {
	t := h.topics[id]
	if t == nil {
		return false
	}
	if !t.consumers.add(name) {
		return false
	}
	h.accounts[t.account].consumers++
	return true
}

func (h *holdings) dropConsumer(id topics.TopicID, name string) {
	t := h.topics[id]
	if t == nil {
		return
	}
	if t.consumers.remove(name) {
		h.accounts[t.account].consumers--
	}
}

// tooManyConsumers tells whether one more consumer would be more than its
// account may have, 0 meaning no limit.
func (h *holdings) tooManyConsumers(id topics.TopicID, name string, most int) bool {
	t := h.topics[id]
	if most <= 0 || t == nil || h.accounts[t.account].consumers < most {
		return false
	}
	return !t.consumers.has(name)
}

// allowance is how many bytes an account may still store in a group while an
// entry is applied.
type allowance struct {
	account      string
	file, memory int64 // negative: no limit
}

const noLimit = int64(-1)

// allowances finds the storage limits an entry carries and what is left of them.
// It asks the store, so it runs before the entry is begun; what the entry itself
// stores is taken off as it goes, what it removes only counts in the next one.
func (m *dataMachine) allowances(entry []byte, records int) ([]*allowance, error) {
	var all []*allowance
	for off := topics.EntryHeader; records > 0; records-- {
		kind, raw, next, err := topics.NextRecord(entry, off)
		if err != nil {
			return nil, err
		}
		off = next
		if kind != topics.RecordStorageLimits {
			continue
		}
		b := body{rest: raw}
		for len(b.rest) > 0 {
			a := &allowance{account: b.text(), file: int64(b.u64()), memory: int64(b.u64())}
			if err := b.err(kind); err != nil {
				return nil, err
			}
			m.deduct(a)
			all = append(all, a)
		}
	}
	if all == nil {
		return nil, fmt.Errorf("%w: it says that it has storage limits, but has none", topics.ErrBadEntry)
	}
	return all, nil
}

// deduct takes what the account holds off its limits.
func (m *dataMachine) deduct(a *allowance) {
	var file, memory uint64
	if h := m.held.accounts[a.account]; h != nil {
		for id := range h.topics {
			t := m.data.Topic(id)
			if t == nil {
				continue
			}
			if m.held.topics[id].storage == topics.StoreMemory {
				memory += t.State().Bytes
			} else {
				file += t.State().Bytes
			}
		}
	}
	left := func(limit int64, used uint64) int64 {
		if limit <= 0 {
			return noLimit
		}
		return max(limit-int64(min(used, 1<<62)), 0)
	}
	a.file, a.memory = left(a.file, file), left(a.memory, memory)
}

// allowed tells whether the account of a publish's topic has room for it, and
// takes the room.
func (m *dataMachine) allowed(p *topics.Publish) bool {
	return m.room(p.Topic, int64(publishBytes(p)))
}

// publishBytes is what a publish counts for in an account's storage.
func publishBytes(p *topics.Publish) int { return len(p.Subject) + len(p.Header) + len(p.Payload) }

func (m *dataMachine) room(id topics.TopicID, size int64) bool {
	t := m.held.topics[id]
	if t == nil {
		return true // the store knows what to answer
	}
	for _, a := range m.limits {
		if a.account != t.account {
			continue
		}
		left := &a.file
		if t.storage == topics.StoreMemory {
			left = &a.memory
		}
		switch {
		case *left == noLimit:
			return true
		case size > *left:
			return false
		}
		*left -= size
		return true
	}
	return true
}
