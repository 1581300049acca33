package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/heraldmq/herald/topics"
)

// producer is how far a producer of guarded records has come. It is there from its first
// epoch until it is removed: nothing of it ever expires, so that what it sends again is
// known for what it is however late it comes.
type producer struct {
	epoch uint64
	seqs  map[uint32]uint64 // by partition, in this epoch; none: nothing yet
}

func (p *producer) at(partition uint32) topics.Place {
	if p == nil {
		return topics.Place{}
	}
	return topics.Place{Epoch: p.epoch, Seq: p.seqs[partition]}
}

// Place returns how far a producer's partition has come.
func (s *Store) Place(id uint64, partition uint32) topics.Place {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.producers[id].at(partition)
}

// Places returns a producer's epoch and how far its partitions have come in it. It is the
// apply side's.
func (s *Store) Places(id uint64) (epoch uint64, seqs map[uint32]uint64) {
	if p := s.producers[id]; p != nil {
		return p.epoch, maps.Clone(p.seqs)
	}
	return 0, nil
}

// Producers calls f with every producer and its epoch, by id, until it returns false.
func (s *Store) Producers(f func(id, epoch uint64) bool) {
	s.mu.RLock()
	epochs := make(map[uint64]uint64, len(s.producers))
	for id, p := range s.producers {
		epochs[id] = p.epoch
	}
	s.mu.RUnlock()
	for _, id := range slices.Sorted(maps.Keys(epochs)) {
		if !f(id, epochs[id]) {
			return
		}
	}
}

// Declare begins an epoch of a producer, in which its partitions count from 1; epoch 0
// removes the producer. An epoch that isn't higher than the present one changes nothing.
// It returns the epoch that is in force then.
func (s *Store) Declare(id, epoch uint64) uint64 {
	p := s.producers[id]
	switch {
	case epoch == 0:
		if p == nil {
			return 0
		}
		delete(s.producers, id)
		if id&topics.BurialProducer == 0 {
			s.forgetOutbox(id)
		}
	case p != nil && epoch <= p.epoch:
		return p.epoch
	default:
		s.producers[id] = &producer{epoch: epoch, seqs: map[uint32]uint64{}}
	}
	s.produced(id)
	return epoch
}

func (s *Store) produced(id uint64) {
	if s.produceds == nil {
		s.produceds = map[uint64]struct{}{}
	}
	s.produceds[id] = struct{}{}
}

// Judge tells what will become of guarded records, but for what the topics say. It is the
// apply side's.
func (s *Store) Judge(g *topics.Guard, batch []Batched) topics.GuardResult {
	if g.Outbox() {
		return s.judgeOutbox(g, batch)
	}
	at := s.producers[g.Producer].at(g.Partition)
	return topics.GuardResult{Verdict: at.Judge(g), At: at}
}

// PublishGuarded applies the publishes that stand behind a guard, which Judge has called
// the next: all of them, in whatever topics, with results in their order, or none and the
// fault that one of them has. What a guarded batch may not hold is what an atomic one may
// not. With all of them applied the producer has come as far as the guard says.
func (s *Store) PublishGuarded(g *topics.Guard, batch []Batched) ([]topics.PublishResult, topics.GuardResult) {
	refused := func(f *topics.Fault) ([]topics.PublishResult, topics.GuardResult) {
		r := s.Judge(g, batch)
		r.Verdict, r.Fault = topics.GuardRefused, f
		return nil, r
	}
	checks := map[topics.TopicID]*atomicCheck{}
	for i := range batch {
		id := batch[i].Publish.Topic
		c := checks[id]
		if c == nil {
			t := s.find(id)
			switch {
			case t == nil && s.damaged[id] != nil:
				return refused(faultOffline)
			case t == nil:
				return refused(faultNoTopic)
			case t.cfg.Sealed:
				return refused(faultSealed)
			}
			c = &atomicCheck{t: t, subjects: map[string]*atomicSubject{}, ids: map[string]bool{}}
			checks[id] = c
		}
		if f := c.check(&batch[i].Publish); f != nil {
			return refused(f)
		}
	}
	for _, c := range checks {
		c.t.checked = true
		defer func() { c.t.checked = false }()
	}
	results := make([]topics.PublishResult, len(batch))
	for i := range batch {
		results[i] = s.Publish(batch[i].Offset, batch[i].Publish)
		if f := results[i].Fault; f != nil { // as in PublishAtomic
			panic("store: a checked publish was refused: " + f.Error())
		}
	}
	if g.Outbox() {
		s.find(batch[0].Publish.Topic).noteOutbox(g)
	} else {
		s.producers[g.Producer].seqs[g.Partition] = g.Seq
		s.produced(g.Producer)
	}
	return results, topics.GuardResult{Verdict: topics.GuardNext, At: topics.Place{Epoch: g.Epoch, Seq: g.Seq}}
}

// sumProducers is the producers' part of the quick digest; 0 where there are none.
func (s *Store) sumProducers() (sum uint64) {
	for id, p := range s.producers {
		h := mix(mix(^id, p.epoch), uint64(len(p.seqs)))
		for partition, seq := range p.seqs {
			h += mix(mix(uint64(partition)+1, id), seq)
		}
		sum += mix(h, id)
	}
	return sum
}

func (s *Store) digestProducers(h *digester) {
	for _, id := range slices.Sorted(maps.Keys(s.producers)) {
		h.numbers(id)
		h.text(string(s.producers[id].append(nil)))
	}
}

// producerCut is what a flush writes of a producer: nil data means that it is gone.
type producerCut struct {
	id   uint64
	data []byte
}

func (s *Store) takeProducers() (cuts []producerCut) {
	for id := range s.produceds {
		cut := producerCut{id: id}
		if p := s.producers[id]; p != nil {
			cut.data = p.append(nil)
		}
		cuts = append(cuts, cut)
	}
	s.produceds = nil
	return cuts
}

const producerVersion = 1

// append appends: version u8, epoch u64, then for each partition, in order: partition
// u32, seq u64.
func (p *producer) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(append(dst, producerVersion), p.epoch)
	for _, partition := range slices.Sorted(maps.Keys(p.seqs)) {
		dst = binary.LittleEndian.AppendUint32(dst, partition)
		dst = binary.LittleEndian.AppendUint64(dst, p.seqs[partition])
	}
	return dst
}

func decodeProducer(b []byte) (*producer, bool) {
	if len(b) < 9 || b[0] != producerVersion || (len(b)-9)%12 != 0 {
		return nil, false
	}
	p := &producer{epoch: binary.LittleEndian.Uint64(b[1:]), seqs: map[uint32]uint64{}}
	for b = b[9:]; len(b) > 0; b = b[12:] {
		p.seqs[binary.LittleEndian.Uint32(b)] = binary.LittleEndian.Uint64(b[4:])
	}
	return p, true
}

// keyProducers holds how many producers there are and the sum of their ids: one that is
// missing would let what was done be done again.
var keyProducers = []byte("producers")

func (c *cut) saveProducers(tx *bolt.Tx) error {
	if len(c.producers) == 0 {
		return nil
	}
	b := tx.Bucket(bucketProducers)
	for _, p := range c.producers {
		k := key64(p.id)
		err := error(nil)
		if p.data == nil {
			err = b.Delete(k)
		} else {
			err = b.Put(k, sealed(k, p.data))
		}
		if err != nil {
			return err
		}
	}
	var n, sum uint64
	err := b.ForEach(func(k, _ []byte) error {
		n, sum = n+1, sum+binary.BigEndian.Uint64(k)
		return nil
	})
	v := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, n), sum)
	return errors.Join(err, tx.Bucket(bucketMeta).Put(keyProducers, sealed(keyProducers, v)))
}

// loadProducers reads them all. Without all of them nothing can be told from a
// repetition, so damage here is that of the store.
func (s *Store) loadProducers(db *stateDB, tx *bolt.Tx) error {
	b := tx.Bucket(bucketProducers)
	v := tx.Bucket(bucketMeta).Get(keyProducers)
	if b == nil || v == nil {
		return nil // of a version that knows none, or there never was one
	}
	body, ok := unseal(keyProducers, v)
	if !ok || len(body) != 16 {
		return db.corrupt(bucketMeta, keyProducers, "checksum or length")
	}
	var n, sum uint64
	err := b.ForEach(func(k, v []byte) error {
		body, ok := unseal(k, v)
		if !ok || len(k) != 8 {
			return db.corrupt(bucketProducers, k, "checksum")
		}
		p, ok := decodeProducer(body)
		if !ok {
			return db.corrupt(bucketProducers, k, "content")
		}
		id := binary.BigEndian.Uint64(k)
		s.producers[id] = p
		n, sum = n+1, sum+id
		return nil
	})
	if err != nil {
		return err
	}
	if n != binary.LittleEndian.Uint64(body) || sum != binary.LittleEndian.Uint64(body[8:]) {
		return &CorruptError{File: db.path, Reason: fmt.Sprintf("the producers are not those that were written: there are %d", n)}
	}
	return nil
}
