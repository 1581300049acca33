package state

import (
	"errors"
	"fmt"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/store"
)

// created is the result of a consumer's creation.
type created struct {
	id    topics.ConsumerID
	fault *topics.Fault
}

// reset is the result of moving a consumer: the sequence it moved to.
type reset struct {
	to    topics.Sequence
	fault *topics.Fault
}

// purged is the result of a purge.
type purged struct {
	removed uint64
	fault   *topics.Fault
}

// removed is the result of deleting one thing: whether it was there.
type removed struct {
	found bool
	fault *topics.Fault
}

// applyRecord applies one record other than a publish. The error is for entries
// that can't be read; a record about a topic that is gone is answered with a
// fault, since it raced with the deletion.
func (m *dataMachine) applyRecord(kind topics.RecordKind, raw []byte) (any, error) {
	b := body{rest: raw}
	switch kind {
	case topics.RecordStorageLimits: // looked at before the entry: allowances
		return nil, nil
	case topics.RecordTopicCreate, topics.RecordTopicUpdate, topics.RecordTopicDelete, topics.RecordExpire:
		return m.applyTopic(kind, &b)
	case topics.RecordTopicMove:
		return m.applyMove(&b)
	case topics.RecordPurge:
		id, p := b.topic(), store.Purge{Sequence: topics.Sequence(b.u64()), Keep: b.u64()}
		p.Subject = b.text()
		if err := b.err(kind); err != nil {
			return nil, err
		}
		n, f := m.data.Purge(id, p)
		return purged{n, f}, nil
	case topics.RecordMessageDelete:
		id, seq := b.topic(), topics.Sequence(b.u64())
		if err := b.err(kind); err != nil {
			return nil, err
		}
		ok, f := m.data.DeleteMessage(id, seq)
		return removed{ok, f}, nil
	case topics.RecordTopicSkip:
		id, last := b.topic(), topics.Sequence(b.u64())
		if err := b.err(kind); err != nil {
			return nil, err
		}
		m.data.SkipTo(id, last)
		return nil, nil
	case topics.RecordDelivered, topics.RecordAcked:
		id, c, rest, err := topics.ParseConsumerRecord(raw)
		if err != nil {
			return nil, err
		}
		apply := m.data.Delivered
		if kind == topics.RecordAcked {
			apply = m.data.Acked
		}
		if err := apply(id, c, rest); err != nil {
			if errors.Is(err, store.ErrUnknownTopic) || errors.Is(err, store.ErrUnknownConsumer) {
				return faultConsumerNotFound, nil
			}
			return nil, err
		}
		return nil, nil
	case topics.RecordLetters:
		return m.applyLetters(raw)
	case topics.RecordLetterbox:
		return m.applyLetterbox(&b)
	case topics.RecordProducer:
		return m.applyProducer(raw)
	case topics.RecordConsumerRestore:
		id, name := b.topic(), b.text()
		if err := b.err(kind); err != nil {
			return nil, err
		}
		f, err := m.data.RestoreConsumer(id, name, b.rest)
		if f == nil && err == nil && m.held.addConsumer(id, name) {
			m.changes = append(m.changes, change{topic: id, consumer: name, what: Created})
		}
		return f, err
	case topics.RecordConsumerCreate, topics.RecordConsumerUpdate, topics.RecordConsumerDelete,
		topics.RecordConsumerReset, topics.RecordConsumerPause:
		return m.applyConsumer(kind, &b)
	}
	return nil, fmt.Errorf("%w: record kind %d is not known to this version", topics.ErrBadEntry, kind)
}

func (m *dataMachine) applyTopic(kind topics.RecordKind, b *body) (any, error) {
	id := b.topic()
	switch kind {
	case topics.RecordTopicCreate:
		at, account := topics.Nanos(b.u64()), b.text()
		var cfg topics.Config
		b.config(&cfg)
		if err := b.err(kind); err != nil {
			return nil, err
		}
		if m.held.topics[id] != nil { // created before, but group 0 never noted it; the config may be newer
			return m.updateTopic(id, cfg)
		}
		cfg.Metadata = m.held.shared(cfg.Metadata)
		if err := m.data.CreateTopic(id, account, cfg, at); err != nil {
			return nil, fmt.Errorf("create topic %d: %w", id, err)
		}
		m.held.add(id, account, cfg.Storage)
		m.changes = append(m.changes, change{topic: id, what: Created})
	case topics.RecordTopicUpdate:
		var cfg topics.Config
		b.config(&cfg)
		if err := b.err(kind); err != nil {
			return nil, err
		}
		return m.updateTopic(id, cfg)
	case topics.RecordTopicDelete:
		if err := b.err(kind); err != nil {
			return nil, err
		}
		if m.data.DeleteTopic(id) {
			m.held.drop(id)
			m.changes = append(m.changes, change{topic: id, what: Deleted})
		}
	case topics.RecordExpire:
		if err := b.err(kind); err != nil {
			return nil, err
		}
		m.data.Expire(id)
	}
	return nil, nil
}

func (m *dataMachine) updateTopic(id topics.TopicID, cfg topics.Config) (any, error) {
	if err := m.data.UpdateTopic(id, cfg); err != nil {
		if errors.Is(err, store.ErrUnknownTopic) {
			return faultTopicNotFound, nil
		}
		return nil, fmt.Errorf("update topic %d: %w", id, err)
	}
	m.changes = append(m.changes, change{topic: id, what: Updated})
	return nil, nil
}

func (m *dataMachine) applyConsumer(kind topics.RecordKind, b *body) (any, error) {
	id := b.topic()
	var number uint64
	var most uint32
	switch kind {
	case topics.RecordConsumerCreate:
		most = b.u32()
	case topics.RecordConsumerReset, topics.RecordConsumerPause:
		number = b.u64()
	}
	name := b.text()
	var cfg topics.ConsumerConfig
	if kind == topics.RecordConsumerCreate || kind == topics.RecordConsumerUpdate {
		b.consumerConfig(&cfg)
	}
	if err := b.err(kind); err != nil {
		return nil, err
	}
	tell := func(c Change) { m.changes = append(m.changes, change{topic: id, consumer: name, what: c}) }
	switch kind {
	case topics.RecordConsumerCreate:
		if m.held.tooManyConsumers(id, name, int(most)) {
			return created{0, faultMaxConsumers}, nil
		}
		c, f := m.data.CreateConsumer(id, name, cfg)
		if f == nil && m.held.addConsumer(id, name) {
			tell(Created)
		}
		return created{c, f}, nil
	case topics.RecordConsumerUpdate:
		f := m.data.UpdateConsumer(id, name, cfg)
		if f == nil {
			tell(Updated)
		}
		return f, nil
	case topics.RecordConsumerDelete:
		ok := m.data.DeleteConsumer(id, name)
		if ok {
			m.held.dropConsumer(id, name)
			tell(Deleted)
		}
		return removed{ok, nil}, nil
	case topics.RecordConsumerReset:
		at, f := m.data.ResetConsumer(id, name, topics.Sequence(number))
		if f == nil {
			tell(Reset)
		}
		return reset{at, f}, nil
	case topics.RecordConsumerPause:
		f := m.data.PauseConsumer(id, name, topics.Nanos(number))
		if f == nil {
			tell(Updated)
		}
		return f, nil
	}
	return nil, nil
}
