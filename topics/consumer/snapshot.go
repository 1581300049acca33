package consumer

import (
	"fmt"

	"github.com/heraldmq/herald/topics"
)

// Snapshot is how far a consumer has come, as a backup says it.
type Snapshot struct {
	Delivered Position // the times are not part of a backup
	Floor     Position
	Pending   []PendingMessage // by sequence
}

// PendingMessage was delivered and not yet acknowledged.
type PendingMessage struct {
	Sequence topics.Sequence
	Consumer uint64 // number of its first delivery
	At       topics.Nanos
	Attempts uint32
}

// Snapshot returns how far the consumer has come in a topic whose last message is
// last.
func (c *Consumer) Snapshot(last topics.Sequence) Snapshot {
	s := Snapshot{Delivered: c.delivered, Floor: c.floor}
	s.Delivered.Stream, s.Floor.Stream = min(s.Delivered.Stream, last), min(s.Floor.Stream, last)
	c.pending.each(func(e *entry) bool {
		if e.seq <= last {
			s.Pending = append(s.Pending, PendingMessage{e.seq, e.number, e.at, e.attempts})
		}
		return true
	})
	return s
}

// Restored returns a consumer that has come as far as a backup says. Messages that
// are pending are delivered again when their time is over, as if nothing had
// happened. The error is for what no consumer can have come to.
func Restored(id topics.ConsumerID, name string, cfg topics.ConsumerConfig, created topics.Nanos, s Snapshot) (*Consumer, error) {
	c := &Consumer{id: id, name: name, created: created, delivered: s.Delivered, floor: s.Floor}
	c.setConfig(cfg)
	if s.Floor.Stream > s.Delivered.Stream || s.Floor.Consumer > s.Delivered.Consumer {
		return nil, fmt.Errorf("%w: the acknowledgements are ahead of the deliveries", ErrBadRecord)
	}
	for i, p := range s.Pending {
		if i > 0 && s.Pending[i-1].Sequence >= p.Sequence {
			return nil, fmt.Errorf("%w: pending messages are out of order", ErrBadRecord)
		}
		if p.Sequence <= s.Floor.Stream || p.Sequence > s.Delivered.Stream {
			return nil, fmt.Errorf("%w: message %d is pending, but not between %d and %d", ErrBadRecord, p.Sequence, s.Floor.Stream, s.Delivered.Stream)
		}
		if c.pending == nil {
			c.pending = new(window)
		}
		e := entry{seq: p.Sequence, number: p.Consumer, at: p.At, due: noDue, attempts: max(p.Attempts, 1)}
		if c.rules.ack != ackFlow {
			e.due = p.At.After(c.rules.wait(e.attempts))
		}
		c.pending.add(e)
		if e.attempts > 1 {
			c.pending.redelivered++
		}
	}
	return c, nil
}

// WithID makes the consumer that of an id, created at a time, and returns it. Parcels of
// dead letters are those of the one it was.
func (c *Consumer) WithID(id topics.ConsumerID, created topics.Nanos) *Consumer {
	c.id, c.created, c.letters = id, created, nil
	return c
}
