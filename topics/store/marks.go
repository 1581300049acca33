package store

import (
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/datafile"
)

// marks is what the store's quick digest is made of: a sum over all that was ever stored
// and removed, and a sum over what the topics are. Both are sums,
// so that the order in which a replica comes to things doesn't matter. It is the
// apply side's.
type marks struct {
	chain uint64 // of what was stored and removed
	known bool   // chain misses nothing
	sum   uint64 // of the summaries of the topics
	// all: sum is not up to date with any topic, and touched is not kept. So it is
	// from the start to the first marker: a store without replicas never has one.
	all     bool
	touched []*Topic // since the last marker
}

// touchedMost bounds the touched topics, as a multiple of the topics there are: those
// that were deleted are among them.
const touchedMost = 2

// mix adds a number to a hash.
func mix(h, v uint64) uint64 {
	h = (h ^ v) * 0xff51afd7ed558ccd
	return h ^ h>>32
}

// stored counts a message in. record is its record in the tail, and what follows it.
func (m *marks) stored(id topics.TopicID, seq topics.Sequence, at topics.Nanos, record []byte) {
	n := binary.LittleEndian.Uint32(record[recordLength:])
	last := binary.LittleEndian.Uint64(record[topics.RecordHeader+n-8:])
	// One after the other, as mix does it, the products would wait for each other.
	h := uint64(seq)*0x9e3779b97f4a7c15 ^ uint64(id)*0xbf58476d1ce4e5b9 ^ uint64(at)*0x94d049bb133111eb ^
		uint64(n)*0xff51afd7ed558ccd ^ last*0xc4ceb9fe1a85ec53
	m.chain += h ^ h>>32
}

// removed counts a message out.
func (m *marks) removed(id topics.TopicID, seq topics.Sequence) {
	m.chain += mix(mix(^uint64(id)<<40, uint64(seq)), 1)
}

func (m *marks) touch(t *Topic) {
	if len(m.touched) > touchedMost*len(t.s.topics)+1024 {
		m.all = true
		for _, other := range m.touched {
			other.marking = false
		}
		m.touched = nil
		return
	}
	t.marking = true
	m.touched = append(m.touched, t)
}

func (m *marks) drop(t *Topic) {
	m.sum -= t.summary
	t.summary = 0
}

// Mark returns a digest of what the store holds, for a marker in the log: replicas
// that have stored and removed the same, and have the same topics with the same
// counters, subjects, ids and consumers, get the same. It looks only at the topics that
// changed since the marker before. known is false where a replica can't tell: its files
// are of a version that kept no digest; from a marker on that begins it anew, it can. A
// full one looks at all that Digest looks at, which takes a while and holds up readers.
// It is called between Begin and End.
func (s *Store) Mark(full, anew bool) (digest uint64, known bool, err error) {
	m := &s.marks
	if full {
		if digest, err = s.digest(); err != nil {
			return 0, false, err
		}
	}
	if m.all {
		m.sum = 0
		for _, t := range s.topics {
			t.summary = 0
			if err := m.renew(t); err != nil {
				return 0, false, err
			}
		}
	}
	for _, t := range m.touched {
		t.marking = false
		if !t.gone {
			if err := m.renew(t); err != nil {
				return 0, false, err
			}
		}
	}
	clear(m.touched)
	m.touched, m.all = m.touched[:0], false
	digest, known = mix(mix(m.sum+s.sumProducers(), m.chain), uint64(len(s.topics))^digest), m.known
	if anew {
		m.chain, m.known = 0, true
	}
	return digest, known, nil
}

func (m *marks) renew(t *Topic) error {
	now, err := t.sumUp()
	m.sum += now - t.summary
	t.summary = now
	return err
}

// sumUp hashes what is known of a topic without looking at each message.
func (t *Topic) sumUp() (uint64, error) {
	h := uint64(t.id)
	for _, v := range []uint64{
		uint64(t.created), t.messages, t.bytes, uint64(t.first), uint64(t.last), uint64(t.firstTime), uint64(t.lastTime),
		t.dead.total, uint64(t.subjects.live), hashText(t.lastMsgID), uint64(t.cfg.MaxMsgs), uint64(t.cfg.MaxBytes),
	} {
		h = mix(h, v)
	}
	if d := t.dedupe; d != nil {
		h = mix(mix(h, d.gone), uint64(len(d.queue)-d.head))
	}
	var sum uint64
	for key, s := range t.sources {
		sum += mix(mix(hashText(key), uint64(s.seq)), uint64(s.at))
	}
	if t.members == nil {
		return mix(h, sum), nil
	}
	for id, member := range t.members.byID {
		if !member.summed {
			b, err := member.c.AppendBinary(nil)
			if err != nil {
				return 0, fmt.Errorf("sum up consumer %d of topic %d: %w", id, t.id, err)
			}
			member.summary, member.summed = mix(uint64(len(b)), uint64(datafile.Checksum(0, b))), true
		}
		sum += mix(uint64(id), member.summary)
	}
	return mix(mix(h, sum), uint64(t.members.lastID)), nil
}

func hashText(s string) uint64 {
	return mix(uint64(len(s)), uint64(datafile.Checksum(0, []byte(s))))
}

// chainMark is the sum over what was stored and removed, as state.db has it: a replica
// that is opened goes on from it.
type chainMark struct {
	chain   uint64
	known   bool
	applied topics.Index
}

var keyChain = []byte("chain")

func (m *marks) mark(applied topics.Index) chainMark {
	return chainMark{chain: m.chain, known: m.known, applied: applied}
}

func (c *chainMark) save(tx *bolt.Tx) error {
	v := append(make([]byte, 0, 21), 0)
	if c.known {
		v[0] = 1
	}
	v = binary.LittleEndian.AppendUint64(v, c.chain)
	v = binary.LittleEndian.AppendUint64(v, uint64(c.applied))
	return tx.Bucket(bucketMeta).Put(keyChain, sealed(keyChain, v))
}

// load reads what save wrote. What a version that knows no marks has gone past is of
// no use.
func (m *marks) load(tx *bolt.Tx, applied topics.Index) {
	v, ok := unseal(keyChain, tx.Bucket(bucketMeta).Get(keyChain))
	if !ok || len(v) != 17 || topics.Index(binary.LittleEndian.Uint64(v[9:])) != applied {
		return
	}
	m.known, m.chain = v[0] == 1, binary.LittleEndian.Uint64(v[1:])
}
