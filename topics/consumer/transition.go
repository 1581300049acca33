package consumer

import (
	"slices"
	"time"

	"github.com/heraldmq/herald/topics"
)

// The transitions: all that ever changes the replicated part of a Consumer. The
// live copy takes them as things happen, the replicated copies when the records
// of that are applied.

// wait returns the time a delivery has before it is repeated.
func (r *rules) wait(attempt uint32) time.Duration {
	if n := len(r.backOff); n > 0 {
		return r.backOff[min(int(max(attempt, 1))-1, n-1)]
	}
	return r.ackWait
}

// deliver notes a delivery. fresh tells that the message wasn't pending before.
func (c *Consumer) deliver(seq topics.Sequence, now topics.Nanos) (e *entry, fresh bool) {
	c.delivered.Consumer++
	c.delivered.Time = now
	if e = c.pending.find(seq); e != nil {
		e.attempts++
		if e.attempts == 2 {
			c.pending.redelivered++
		}
		e.at = now
		e.due = now.After(c.rules.wait(e.attempts))
		if e.attempts == 1 { // it was parked
			e.number = c.delivered.Consumer
			c.raiseFloor()
		}
		return e, false
	}
	if seq <= c.delivered.Stream {
		c.raiseFloor()
		return nil, false // purged or acknowledged meanwhile: only the count moves
	}
	c.delivered.Stream = seq
	c.passInitial()
	if c.rules.ack == ackNone {
		c.floor.Consumer, c.floor.Stream = c.delivered.Consumer, c.delivered.Stream
		return nil, true
	}
	due := noDue
	if c.rules.ack != ackFlow {
		due = now.After(c.rules.wait(1))
	}
	if c.pending == nil {
		c.pending = new(window)
	}
	c.pending.add(entry{seq: seq, number: c.delivered.Consumer, at: now, due: due, attempts: 1})
	if c.pending.count == 1 {
		c.raiseFloor() // what lies between the last delivery and this one isn't for us
	}
	return &c.pending.entries[len(c.pending.entries)-1], true
}

// park makes a message pending that can't be delivered yet: see keys. Its number is the
// lowest it can get. It reports false when it came late.
func (c *Consumer) park(seq topics.Sequence, now topics.Nanos) bool {
	if seq <= c.delivered.Stream {
		return false
	}
	c.delivered.Stream = seq
	c.passInitial()
	if c.pending == nil {
		c.pending = new(window)
	}
	c.pending.add(entry{seq: seq, number: c.delivered.Consumer + 1, at: now, due: noDue})
	if c.pending.count == 1 {
		c.raiseFloor()
	}
	return true
}

// passInitial forgets the messages of last_per_subject that lie behind.
func (c *Consumer) passInitial() {
	if c.initial == nil {
		return
	}
	i, _ := slices.BinarySearch(c.initial.seqs, c.delivered.Stream+1)
	c.initial.seqs = c.initial.seqs[i:]
	if len(c.initial.seqs) == 0 {
		// What was between the last of them and resume is not for this consumer.
		c.delivered.Stream = max(c.delivered.Stream, c.initial.resume-1)
		c.initial = nil
	}
}

// settle takes a message out of what is pending.
func (c *Consumer) settle(seq topics.Sequence) bool {
	e := c.pending.find(seq)
	if e == nil {
		return false
	}
	c.pending.remove(e)
	if c.live != nil {
		c.forget(seq)
	}
	c.raiseFloor()
	return true
}

// settleThrough takes out everything up to seq, telling each.
func (c *Consumer) settleThrough(seq topics.Sequence, each func(topics.Sequence)) int {
	n := 0
	for e := c.pending.first(); e != nil && e.seq <= seq; e = c.pending.first() {
		s := e.seq
		c.pending.remove(e)
		if c.live != nil {
			c.forget(s)
		}
		n++
		if each != nil {
			each(s)
		}
	}
	if n > 0 {
		c.raiseFloor()
	}
	return n
}

// raiseFloor sets the ack floor from what is pending. It depends on nothing else,
// which lets records of deliveries and of acknowledgements change places.
func (c *Consumer) raiseFloor() {
	e := c.pending.first()
	if e == nil {
		c.floor.Consumer, c.floor.Stream = c.delivered.Consumer, c.delivered.Stream
		return
	}
	c.floor.Consumer, c.floor.Stream = e.number-1, e.seq-1
}

// postpone changes when a pending message is delivered again.
func (c *Consumer) postpone(seq topics.Sequence, due topics.Nanos) *entry {
	e := c.pending.find(seq)
	if e != nil {
		e.due = due
	}
	return e
}

// Update gives the consumer another config. What can't be changed must be equal;
// pause_until stays as it is, only Pause changes it.
func (c *Consumer) Update(cfg topics.ConsumerConfig) {
	until := c.rules.pausedUntil
	cfg.PauseUntil = pauseTime(until)
	c.setConfig(cfg)
	c.rules.pausedUntil = until
	c.replan()
}

func pauseTime(until topics.Nanos) *time.Time {
	if until <= 0 {
		return nil
	}
	t := time.Unix(0, int64(until)).UTC()
	return &t
}

// Pause sets until when nothing is delivered; 0 goes on at once.
func (c *Consumer) Pause(until topics.Nanos) {
	c.rules.pausedUntil = max(until, 0)
	cfg := c.Config()
	cfg.PauseUntil = pauseTime(until)
	c.config = string(appendConfig(nil, &cfg))
}

// Reset makes seq the next message, forwards or backwards, and forgets what is
// pending; 0 goes back to the ack floor. It returns the next message's sequence.
// Records that a live copy made before the reset have no effect after it, and
// live copies must be made anew.
func (c *Consumer) Reset(seq topics.Sequence) topics.Sequence {
	c.epoch++
	c.pending = nil
	c.resetLetters()
	if seq == 0 {
		seq = c.floor.Stream + 1
	}
	c.initial = nil
	c.delivered.Stream, c.floor.Stream = seq-1, seq-1
	c.floor.Consumer = c.delivered.Consumer
	return seq
}

// Trim tells that everything before first was purged.
func (c *Consumer) Trim(first topics.Sequence) {
	if first == 0 {
		return
	}
	n := c.settleThrough(first-1, nil)
	if first-1 > c.delivered.Stream {
		c.delivered.Stream = first - 1
		c.passInitial()
		n++
	}
	if n > 0 {
		c.raiseFloor()
	}
	if c.live != nil {
		c.live.cursor = max(c.live.cursor, c.delivered.Stream+1)
		c.live.tally.valid = false
	}
}
