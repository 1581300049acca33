package consumer

import (
	"slices"
	"time"

	"github.com/heraldmq/herald/topics"
)

// live is what only the leader's copy has. Everything in it can be made from the
// replicated state and the topic.
type live struct {
	log      Log
	cursor   topics.Sequence // where to look for the next new message; > delivered.Stream
	schedule schedule
	tally    tally
	journal  journal
	exceeded []Exceeded
	dying    map[topics.Sequence]Dying // pending still; see Dying
	keys     *keys                     // nil: not by key
}

// Exceeded is a message that was delivered max_deliver times and never
// acknowledged. It is no longer pending, and stays in the topic; or it is Dying.
type Exceeded struct {
	Sequence topics.Sequence
	Attempts uint32
}

// Lead makes this copy (a Clone) the live one, reading log.
func (c *Consumer) Lead(log Log) {
	c.live = &live{log: log, cursor: c.delivered.Stream + 1}
	if c.pending != nil {
		c.live.schedule.rebuild(c.pending)
	}
	c.unpark() // until LeadByKey knows better
	if p, under := c.Under(); under && c.rules.buries {
		c.Adopt(p.Messages)
	}
}

// replan makes the live copy follow a change of config.
func (c *Consumer) replan() {
	if c.live != nil {
		c.live.cursor = c.delivered.Stream + 1
		c.live.tally.valid = false
	}
}

// Paused tells whether nothing may be delivered at now.
func (c *Consumer) Paused(now topics.Nanos) bool { return c.rules.pausedUntil > now }

// Due moves to the queue of redeliveries what is due at now, and gives up what
// was delivered as often as allowed; TakeExceeded tells of that.
func (c *Consumer) Due(now topics.Nanos) {
	if c.pending == nil || c.pending.count == 0 {
		return
	}
	l := c.live
	l.schedule.take(c.pending, now, func(e *entry) bool {
		if c.Dies(e.seq) {
			return true
		}
		if c.rules.maxDeliver <= 0 || e.attempts < uint32(c.rules.maxDeliver) {
			return false
		}
		l.exceeded = append(l.exceeded, Exceeded{e.seq, e.attempts})
		if c.rules.buries {
			l.die(Dying{Sequence: e.seq, Attempts: e.attempts})
			return true
		}
		c.journalAck(opAbandon, e.seq, now, 0)
		c.settle(e.seq)
		return true
	})
}

// TakeExceeded returns what Due gave up since the last call.
func (c *Consumer) TakeExceeded() []Exceeded {
	x := c.live.exceeded
	c.live.exceeded = nil
	return x
}

// NextDeadline returns when Due has something to do next.
func (c *Consumer) NextDeadline() (topics.Nanos, bool) {
	if c.pending == nil || c.pending.count == 0 {
		return 0, false
	}
	return c.live.schedule.next(c.pending)
}

// Redeliveries appends up to n sequences of the queue of redeliveries, in order.
// They stay in it until they are delivered or dealt with.
func (c *Consumer) Redeliveries(dst []topics.Sequence, n int) []topics.Sequence {
	s := &c.live.schedule
	if _, ok := s.peek(c.pending); !ok {
		return dst
	}
	for _, seq := range s.ready[s.head:] {
		if n <= 0 {
			break
		}
		if e := c.pending.find(seq); e != nil && e.ready && c.turnOf(seq) {
			dst = append(dst, seq)
			n--
		}
	}
	return dst
}

// HasRedelivery tells whether a message waits to be delivered again.
func (c *Consumer) HasRedelivery() bool {
	_, ok := c.nextAgain()
	return ok
}

func (c *Consumer) nextAgain() (topics.Sequence, bool) {
	s := &c.live.schedule
	seq, ok := s.peek(c.pending)
	if !ok || c.turnOf(seq) {
		return seq, ok
	}
	for _, seq := range s.ready[s.head:] {
		if c.Redelivers(seq) {
			return seq, true
		}
	}
	return 0, false
}

// Redelivers tells whether a message still waits to be delivered again.
func (c *Consumer) Redelivers(seq topics.Sequence) bool {
	e := c.pending.find(seq)
	return e != nil && e.ready && c.turnOf(seq)
}

// Room returns how many new messages max_ack_pending leaves room for.
func (c *Consumer) Room() int {
	if c.rules.ack == ackNone || c.rules.maxAckPending <= 0 {
		return int(^uint(0) >> 1)
	}
	return max(int(c.rules.maxAckPending)-c.NumAckPending(), 0)
}

// Cursor returns where the next new message is to be looked for. only says that
// it is that message or none: ask again after Skip when it is gone.
func (c *Consumer) Cursor() (from topics.Sequence, only bool) {
	l := c.live
	if c.initial != nil {
		if i, _ := slices.BinarySearch(c.initial.seqs, l.cursor); i < len(c.initial.seqs) {
			return c.initial.seqs[i], true
		}
		l.cursor = max(l.cursor, c.initial.resume)
	}
	return l.cursor, false
}

// Initial appends up to n of the messages that a last_per_subject consumer gets
// before it follows the topic; none are left when nothing is appended. Some may
// be gone: Skip them.
func (c *Consumer) Initial(dst []topics.Sequence, n int) []topics.Sequence {
	from, only := c.Cursor()
	if !only {
		return dst
	}
	i, _ := slices.BinarySearch(c.initial.seqs, from)
	return append(dst, c.initial.seqs[i:min(i+n, len(c.initial.seqs))]...)
}

// Skip tells that there is nothing for the consumer before next.
func (c *Consumer) Skip(next topics.Sequence) {
	if next > c.live.cursor {
		c.live.cursor = next
	}
}

// HasNew tells whether the topic holds a new message for the consumer.
func (c *Consumer) HasNew() bool {
	_, ok := c.nextNew()
	return ok
}

func (c *Consumer) nextNew() (topics.Sequence, bool) {
	for {
		from, only := c.Cursor()
		seq, ok := c.live.log.Next(c.filter, from)
		if !only {
			if ok {
				c.Skip(seq)
			}
			return seq, ok
		}
		if ok && seq == from {
			return seq, true
		}
		c.Skip(from + 1)
	}
}

// Next picks the next message to deliver at now: one that is due again before a
// new one. It changes nothing; Deliver does.
func (c *Consumer) Next(now topics.Nanos) (topics.Sequence, bool) {
	if c.Paused(now) {
		return 0, false
	}
	c.Due(now)
	if seq, ok := c.nextAgain(); ok {
		return seq, true
	}
	if c.Room() == 0 {
		return 0, false
	}
	return c.nextNew()
}

// Deliver notes that a message is delivered: one of Redeliveries, or a new one
// at or after Cursor.
func (c *Consumer) Deliver(seq topics.Sequence, now topics.Nanos) Delivery {
	l := c.live
	e, fresh := c.deliver(seq, now)
	c.journalDelivery(seq, now, e != nil && !fresh, false)
	d := Delivery{Sequence: seq, Consumer: c.delivered.Consumer, Attempt: 1}
	if e != nil {
		d.Attempt = e.attempts
		l.schedule.set(c.pending, e)
	}
	if fresh {
		l.tally.passed(seq)
		if seq >= l.cursor {
			l.cursor = seq + 1
		}
	}
	d.Pending = l.tally.n
	return d
}

// Ack acknowledges a message; with ack policy "all" everything up to it. It
// returns whether anything was pending there.
func (c *Consumer) Ack(seq topics.Sequence, now topics.Nanos) bool {
	if c.rules.ack == ackExplicit {
		if c.pending.find(seq) == nil {
			return false
		}
		c.journalAck(opAck, seq, now, 0)
		return c.settle(seq)
	}
	if e := c.pending.first(); e == nil || e.seq > seq {
		return false
	}
	c.journalAck(opAckAll, seq, now, 0)
	return c.settleThrough(seq, nil) > 0
}

// Term acknowledges a message as never to be delivered again.
func (c *Consumer) Term(seq topics.Sequence, now topics.Nanos) bool {
	if c.pending.find(seq) == nil {
		return false
	}
	c.journalAck(opTerm, seq, now, 0)
	return c.settle(seq)
}

// Drop takes a message that the topic no longer has out of what is pending.
func (c *Consumer) Drop(seq topics.Sequence, now topics.Nanos) bool {
	if c.pending.find(seq) == nil {
		return false
	}
	c.journalAck(opAbandon, seq, now, 0)
	return c.settle(seq)
}

// Shed makes the live copy follow a topic that begins at first: nothing before it
// is pending or still to come. It tells whether anything was pending there, which
// is to be recorded; the rest every copy finds for itself.
func (c *Consumer) Shed(first topics.Sequence, now topics.Nanos) (dropped bool) {
	for seq, _, ok := c.OldestPending(); ok && seq < first; seq, _, ok = c.OldestPending() {
		c.Drop(seq, now)
		dropped = true
	}
	if first > c.Delivered().Stream+1 {
		c.Trim(first)
	}
	return dropped
}

// Nak asks for a message again, after a delay.
func (c *Consumer) Nak(seq topics.Sequence, delay time.Duration, now topics.Nanos) bool {
	return c.deferTo(seq, now.After(delay), now)
}

// InProgress gives a message its ack_wait again.
func (c *Consumer) InProgress(seq topics.Sequence, now topics.Nanos) bool {
	e := c.pending.find(seq)
	if e == nil {
		return false
	}
	return c.deferTo(seq, now.After(c.rules.wait(e.attempts)), now)
}

func (c *Consumer) deferTo(seq topics.Sequence, due, now topics.Nanos) bool {
	if c.rules.ack == ackFlow || c.Dies(seq) {
		return false
	}
	if e := c.pending.find(seq); e == nil || e.attempts == 0 {
		return false // parked: never delivered
	}
	e := c.postpone(seq, due)
	c.journalAck(opDefer, seq, now, due)
	c.live.schedule.set(c.pending, e)
	return true
}

// NumPending counts the messages still to be delivered: exact, and remembered
// until the topic changes ahead of the consumer. Deliver keeps the count.
func (c *Consumer) NumPending() uint64 { return c.count() }

// PendingAfter returns what Deliver will tell as still to be delivered after the
// message.
func (c *Consumer) PendingAfter(seq topics.Sequence) uint64 {
	t := c.live.tally
	if seq > c.delivered.Stream {
		t.passed(seq)
	}
	return t.n
}
