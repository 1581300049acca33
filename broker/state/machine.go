package state

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/store"
)

// results is what applying one entry gave: one result for each publish, and one
// for each other record, in their order. The proposer gives it back for reuse.
type results struct {
	publishes []topics.PublishResult
	others    []any
}

// stored appends the results of n publishes that were stored under sequences from first on.
func (r *results) stored(first topics.Sequence, n int) {
	at := len(r.publishes)
	r.publishes = slices.Grow(r.publishes, n)[:at+n] // what is beyond the length is zero: see put
	for i := range r.publishes[at:] {
		r.publishes[at+i].Sequence = first + topics.Sequence(i)
	}
}

// resultPool keeps a few results; those of entries that others proposed are
// left to the collector.
type resultPool struct {
	mu   sync.Mutex
	free []*results
}

func (p *resultPool) get() *results {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free)
	if n == 0 {
		return &results{}
	}
	r := p.free[n-1]
	p.free = p.free[:n-1]
	return r
}

func (p *resultPool) put(r *results) {
	clear(r.publishes) // they point to faults and texts
	clear(r.others)
	r.publishes, r.others = r.publishes[:0], r.others[:0]
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < 8 {
		p.free = append(p.free, r)
	}
}

// dataMachine applies the entries of a data group to its store. It implements
// replication.StateMachine.
//
// Everything it decides follows from the store and the entry alone. What the
// rest of the node has to know of a change is collected while the store is
// locked and told afterwards, still before the proposer hears of it.
type dataMachine struct {
	id    topics.GroupID
	data  *store.Store
	pool  resultPool
	fatal func(error)
	told  telling      // who hears of changes
	last  atomic.Int64 // time of the last entry applied

	refill refills
	marked atomic.Pointer[func(replication.Mark)] // told of markers
	// unmarked: at the last marker this replica could not say what it holds. Where it
	// leads, the next one begins the digest anew.
	unmarked atomic.Bool

	index   topics.Index // of the entry being applied
	held    holdings
	changes []change     // of the entry being applied
	limits  []*allowance // of the entry being applied
	steps   []func()     // what it means for operators, to be told
}

// telling hears of what a data group's entries changed. It is called on the
// goroutine that applies, without any lock.
type telling interface {
	topicChanged(group topics.GroupID, id topics.TopicID, c Change)
	consumerChanged(id topics.TopicID, name string, c Change)
	grown(group topics.GroupID, ids []topics.TopicID)
	stepped(group topics.GroupID, s Step)
	declared(group topics.GroupID, e Epoch)
	adopted(group topics.GroupID)
}

// change is one thing to tell once the store is unlocked.
type change struct {
	topic    topics.TopicID
	consumer string // "" when it is about the topic
	what     Change
}

func newDataMachine(id topics.GroupID, data *store.Store, fatal func(error), told telling) *dataMachine {
	m := &dataMachine{id: id, data: data, fatal: fatal, told: told, held: holdingsOf(data)}
	m.resume()
	m.dropExports()
	return m
}

// resume finds out how late it is: entries that the store's files hold are not
// applied again, and what is there says when they were.
func (m *dataMachine) resume() {
	last := topics.Nanos(m.last.Load())
	m.data.Topics(func(t *store.Topic) bool {
		last = max(last, t.Created(), t.State().LastTime)
		return true
	})
	m.last.Store(int64(last))
}

// Applied returns the index up to which the store's files hold everything.
func (m *dataMachine) Applied() topics.Index { return m.data.Applied() }

// Apply applies committed entries in order.
func (m *dataMachine) Apply(entries []replication.Entry) []any {
	out := make([]any, len(entries))
	for i := range entries {
		r, err := m.applyEntry(&entries[i])
		if err != nil {
			m.fatal(fmt.Errorf("apply entry %d of group %d: %w", entries[i].Index, m.id, err))
			return out
		}
		out[i] = r
	}
	return out
}

func (m *dataMachine) applyEntry(e *replication.Entry) (*results, error) {
	now, records, err := topics.ParseEntryHeader(e.Data)
	if err != nil {
		return nil, err
	}
	m.changes = m.changes[:0]
	m.limits = nil
	if topics.Flags(e.Data)&topics.EntryLimited != 0 {
		if m.limits, err = m.allowances(e.Data, int(records)); err != nil {
			return nil, err
		}
	}
	r := m.pool.get()
	m.data.Begin(e.Index, now, e.Data)
	m.index = e.Index
	err = m.applyRecords(e.Data, int(records), r)
	grown := m.data.End()
	m.last.Store(max(m.last.Load(), int64(now)))
	if err != nil {
		return nil, err
	}
	for _, c := range m.changes {
		if c.consumer == "" {
			m.told.topicChanged(m.id, c.topic, c.what)
		} else {
			m.told.consumerChanged(c.topic, c.consumer, c.what)
		}
	}
	m.tellSteps()
	if len(grown) > 0 {
		m.told.grown(m.id, grown)
	}
	return r, nil
}

func (m *dataMachine) applyRecords(entry []byte, records int, r *results) error {
	off := topics.EntryHeader
	chain := uint32(0) // of the next publish; 0: none
	var broken map[uint32]bool
	for ; records > 0; records-- {
		if chain == 0 && m.limits == nil {
			if first, n, next := m.data.PublishRun(off, records); n > 0 {
				r.stored(first, n)
				records -= n - 1
				off = next
				continue
			}
		}
		kind, body, next, err := topics.NextRecord(entry, off)
		if err != nil {
			return err
		}
		switch kind {
		case topics.RecordPublish:
			p, err := topics.ParsePublish(body)
			if err != nil {
				return err
			}
			switch {
			case chain != 0 && broken[chain]:
				r.publishes = append(r.publishes, topics.PublishResult{Fault: faultChain})
			case m.limits == nil || m.allowed(&p):
				r.publishes = append(r.publishes, m.data.Publish(off, p))
			default:
				r.publishes = append(r.publishes, topics.PublishResult{Fault: faultAccountStorage})
			}
			if chain != 0 && r.publishes[len(r.publishes)-1].Fault != nil {
				if broken == nil {
					broken = map[uint32]bool{}
				}
				broken[chain] = true
			}
			chain = 0
		case topics.RecordLink:
			b := bodyOf(body)
			if chain = b.u32(); b.bad {
				return b.err(kind)
			}
			r.others = append(r.others, nil)
		case topics.RecordAtomic:
			b := bodyOf(body)
			n := b.u32()
			if err := b.err(kind); err != nil {
				return err
			}
			if uint64(n) > uint64(records-1) {
				return fmt.Errorf("%w: an atomic batch of %d messages in %d records", topics.ErrBadEntry, n, records)
			}
			r.others = append(r.others, nil)
			if next, err = m.applyAtomic(entry, next, int(n), r); err != nil {
				return err
			}
			records -= int(n)
		case topics.RecordGuard:
			n := 0
			if n, next, err = m.applyGuarded(entry, body, next, records-1, r); err != nil {
				return err
			}
			records -= n
		case topics.RecordMarker:
			if err := m.applyMarker(body); err != nil {
				return err
			}
			r.others = append(r.others, nil)
		case topics.RecordTopicSkip:
			if chain != 0 && broken[chain] { // it leads to a message that is not stored
				r.others = append(r.others, nil)
				break
			}
			fallthrough
		default:
			result, err := m.applyRecord(kind, body)
			if err != nil {
				return err
			}
			r.others = append(r.others, result)
		}
		off = next
	}
	if off != len(entry) {
		return fmt.Errorf("%w: %d bytes behind the last record", topics.ErrBadEntry, len(entry)-off)
	}
	return nil
}

// applyAtomic applies the n publishes from off on, all or none, and returns where
// the next record is.
func (m *dataMachine) applyAtomic(entry []byte, off, n int, r *results) (next int, err error) {
	batch := make([]store.Batched, n)
	size := 0
	for i := range batch {
		kind, body, next, err := topics.NextRecord(entry, off)
		if err != nil {
			return 0, err
		}
		if kind != topics.RecordPublish {
			return 0, fmt.Errorf("%w: record of kind %d in an atomic batch", topics.ErrBadEntry, kind)
		}
		p, err := topics.ParsePublish(body)
		if err != nil {
			return 0, err
		}
		if i > 0 && p.Topic != batch[0].Publish.Topic {
			return 0, fmt.Errorf("%w: an atomic batch for two topics", topics.ErrBadEntry)
		}
		batch[i] = store.Batched{Offset: off, Publish: p}
		size += publishBytes(&p)
		off = next
	}
	var stored []topics.PublishResult
	fault := faultAccountStorage
	if n == 0 || m.limits == nil || m.room(batch[0].Publish.Topic, int64(size)) {
		stored, fault = m.data.PublishAtomic(batch)
	}
	for i := range batch {
		result := topics.PublishResult{Fault: fault}
		if fault == nil {
			result = stored[i]
		}
		r.publishes = append(r.publishes, result)
	}
	return off, nil
}
