package store

import (
	"fmt"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// restore stores a message of a backup as it is and returns its sequence.
func (t *Topic) restore(off int, p *topics.Publish) topics.Sequence {
	h := parseHeaders(p.Header)
	size := t.size(len(p.Subject), len(p.Header), len(p.Payload))
	t.append(t.s.record(off, p), alias(p.Subject), size, p.Time)
	if ttl, _ := parseTTL(h.ttl); ttl > 0 {
		t.expire(t.last, ttl, p.Time)
	}
	t.lastMsgID = string([]byte(h.msgID))
	if h.msgID != "" {
		t.remember(t.lastMsgID, t.last, p.Time)
	}
	return t.last
}

// RestoreConsumer adds a consumer that has come as far as state says, which is
// what consumer.AppendBinary wrote; its name is the caller's. Faults are
// CreateConsumer's; the error means that state can't be read.
func (s *Store) RestoreConsumer(id topics.TopicID, name string, state []byte) (*topics.Fault, error) {
	c, err := consumer.Unmarshal(state)
	if err != nil {
		return nil, fmt.Errorf("restore consumer %s: %w", name, err)
	}
	if c.Name() != name {
		return nil, fmt.Errorf("restore consumer %s: %w: it is that of %s", name, consumer.ErrBadRecord, c.Name())
	}
	cid, f := s.CreateConsumer(id, name, c.Config())
	if f != nil {
		return f, nil
	}
	t := s.find(id)
	m := t.members.byID[cid]
	m.c = c.WithID(cid, s.now)
	m.touch()
	return nil, nil
}
