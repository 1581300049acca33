package consumer

import (
	"slices"

	"github.com/heraldmq/herald/topics"
)

// A consumer with a key has at most one message in flight for each key. The others of
// that key, which the cursor has to pass to get at other keys, are parked: pending, with
// no attempt and no due time, and part of the replicated state like everything that is
// pending. They count against max_ack_pending, which thereby bounds what is remembered.
//
// The rule needs no state beyond that: of the pending messages of a key only the one with
// the lowest sequence may be delivered, or delivered again. So the order of a key is kept
// whatever is repeated, and a new leader, which learns the keys from the messages, goes on
// by the same rule.

// keys knows the keys of what is pending, on the leader.
type keys struct {
	of      map[topics.Sequence]string
	line    map[string][]topics.Sequence // of each key, in order
	unknown []topics.Sequence            // pending since before this copy led
}

// LeadByKey makes the live copy deliver by key, or no longer. The keys of what is
// pending must be told (Unlearned, Learn) before anything is delivered.
func (c *Consumer) LeadByKey(on bool) {
	l := c.live
	if !on {
		l.keys = nil
		c.unpark()
		return
	}
	l.keys = &keys{of: map[topics.Sequence]string{}, line: map[string][]topics.Sequence{}}
	c.pending.each(func(e *entry) bool {
		l.keys.unknown = append(l.keys.unknown, e.seq)
		return true
	})
}

// Unlearned appends up to n of the pending messages whose key has to be learned, in
// their order.
func (c *Consumer) Unlearned(dst []topics.Sequence, n int) []topics.Sequence {
	k := c.live.keys
	if k == nil {
		return dst
	}
	return append(dst, k.unknown[:min(n, len(k.unknown))]...)
}

// Learn tells the key of a delivered message, or that it has none. What Unlearned gave
// is told in the same order.
func (c *Consumer) Learn(seq topics.Sequence, key string, has bool) {
	k := c.live.keys
	if k == nil {
		return
	}
	last := false
	if len(k.unknown) > 0 && k.unknown[0] == seq {
		k.unknown = k.unknown[1:]
		last = len(k.unknown) == 0
	}
	if has && c.pending.find(seq) != nil {
		k.add(seq, key)
	}
	if last {
		k.unknown = nil
		c.unpark()
	}
}

// Free tells whether nothing of a key is pending.
func (c *Consumer) Free(key string) bool {
	k := c.live.keys
	return k == nil || len(k.line[key]) == 0
}

// Park passes over a new message, at or after Cursor, whose key isn't free: it is
// pending from now on, and comes when those before it have been dealt with.
func (c *Consumer) Park(seq topics.Sequence, key string, now topics.Nanos) {
	l := c.live
	if !c.park(seq, now) {
		return
	}
	c.journalDelivery(seq, now, false, true)
	l.tally.passed(seq)
	if seq >= l.cursor {
		l.cursor = seq + 1
	}
	if l.keys != nil {
		l.keys.add(seq, key)
	}
}

// Parked returns how many pending messages have not been delivered yet, and how many
// keys have something pending.
func (c *Consumer) Parked() (messages, keys int) {
	c.pending.each(func(e *entry) bool {
		if e.attempts == 0 {
			messages++
		}
		return true
	})
	if k := c.live.keys; k != nil {
		keys = len(k.line)
	}
	return messages, keys
}

// unpark queues what is parked and need not be.
func (c *Consumer) unpark() {
	l := c.live
	c.pending.each(func(e *entry) bool {
		if e.attempts == 0 && !e.ready && c.turnOf(e.seq) {
			l.schedule.queue(e)
		}
		return true
	})
}

// turnOf tells whether a pending message is the first of its key.
func (c *Consumer) turnOf(seq topics.Sequence) bool {
	k := c.live.keys
	if k == nil {
		return true
	}
	key, has := k.of[seq]
	return !has || k.line[key][0] == seq
}

// forget takes what is no longer pending out of what only the leader knows, and lets
// the next of its key go.
func (c *Consumer) forget(seq topics.Sequence) {
	l := c.live
	delete(l.dying, seq)
	k := l.keys
	if k == nil {
		return
	}
	key, has := k.of[seq]
	if !has {
		return
	}
	if next, ok := k.remove(seq, key); ok {
		if e := c.pending.find(next); e != nil && e.attempts == 0 && !e.ready && len(k.unknown) == 0 {
			l.schedule.queue(e)
		}
	}
}

func (k *keys) add(seq topics.Sequence, key string) {
	if _, has := k.of[seq]; has {
		return
	}
	k.of[seq] = key
	line := k.line[key]
	if n := len(line); n == 0 || line[n-1] < seq {
		k.line[key] = append(line, seq)
		return
	}
	i, _ := slices.BinarySearch(line, seq)
	k.line[key] = slices.Insert(line, i, seq)
}

// remove returns who is the first of the key now, if that has changed.
func (k *keys) remove(seq topics.Sequence, key string) (next topics.Sequence, changed bool) {
	delete(k.of, seq)
	line := k.line[key]
	i, found := slices.BinarySearch(line, seq)
	switch {
	case !found:
		return 0, false
	case len(line) == 1:
		delete(k.line, key)
		return 0, false
	case i == 0:
		k.line[key] = line[1:]
		return line[1], true
	}
	k.line[key] = slices.Delete(line, i, i+1)
	return 0, false
}
