package store

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"slices"
)

// Digest returns a figure that is equal on all stores that have applied the same
// entries, whatever they have flushed, compacted or restarted. It covers what is
// replicated of every topic except the messages' bytes.
func (s *Store) Digest() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.digest()
}

func (s *Store) digest() (uint64, error) {
	h := digester{h: sha256.New()}
	for _, id := range slices.Sorted(maps.Keys(s.topics)) {
		if err := s.topics[id].digest(&h); err != nil {
			return 0, err
		}
	}
	s.digestProducers(&h)
	return h.sum(), nil
}

// Digest is the topic's part of the store's digest.
func (t *Topic) Digest() (uint64, error) {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	h := digester{h: sha256.New()}
	err := t.digest(&h)
	return h.sum(), err
}

type digester struct {
	h hash.Hash
	b []byte
}

func (d *digester) numbers(ns ...uint64) {
	d.b = d.b[:0]
	for _, n := range ns {
		d.b = binary.LittleEndian.AppendUint64(d.b, n)
	}
	d.h.Write(d.b)
}

func (d *digester) text(s string) {
	d.numbers(uint64(len(s)))
	d.h.Write([]byte(s))
}

func (d *digester) sum() uint64 { return binary.LittleEndian.Uint64(d.h.Sum(nil)) }

func (t *Topic) digest(h *digester) error {
	cfg, err := json.Marshal(t.cfg)
	if err != nil {
		return fmt.Errorf("digest topic %d: %w", t.id, err)
	}
	h.numbers(uint64(t.id), uint64(t.created), t.messages, t.bytes, uint64(t.first), uint64(t.last),
		uint64(t.firstTime), uint64(t.lastTime), t.dead.total)
	h.text(t.account)
	h.text(string(cfg))
	h.text(t.lastMsgID)
	for i := range t.dead.blocks {
		b := &t.dead.blocks[i]
		if b.n == 0 {
			continue
		}
		h.numbers(t.dead.base+uint64(i), uint64(b.n))
		if b.bits != nil {
			h.numbers(b.bits[:]...)
		}
	}
	counts := make(map[string]uint64, t.subjects.live)
	t.subjects.each(func(_ uint32, e *subjectEntry) bool {
		counts[e.name] = e.count
		return true
	})
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		h.text(name)
		h.numbers(counts[name])
	}
	if t.expiries != nil {
		for _, seq := range slices.Sorted(maps.Keys(t.expiries.at)) {
			h.numbers(uint64(seq), uint64(t.expiries.at[seq]))
		}
	}
	if d := t.dedupe; d != nil {
		h.numbers(d.gone)
		for _, e := range d.queue[d.head:] {
			h.text(e.id)
			h.numbers(uint64(e.seq), uint64(e.time))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.sources)) {
		h.text(key)
		h.numbers(uint64(t.sources[key].seq), uint64(t.sources[key].at))
	}
	return t.digestConsumers(h)
}

func (t *Topic) digestConsumers(h *digester) error {
	if t.members == nil {
		return nil
	}
	h.numbers(uint64(t.members.lastID))
	for _, id := range slices.Sorted(maps.Keys(t.members.byID)) {
		b, err := t.members.byID[id].c.AppendBinary(nil)
		if err != nil {
			return fmt.Errorf("digest consumer %d of topic %d: %w", id, t.id, err)
		}
		h.numbers(uint64(id))
		h.text(string(b))
	}
	return nil
}
