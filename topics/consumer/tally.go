package consumer

import "github.com/heraldmq/herald/topics"

// tally remembers the number of messages that are still to be delivered.
//
// The simple way, telling every consumer of every publish and removal, makes a
// publish cost as much as there are consumers. Asking the topic to count at each
// delivery makes a delivery cost as much as there are subjects. This way: a
// consumer that is at work counts once, then adds what came behind its count and
// subtracts what it delivers. Only a removal ahead of the cursor makes the count
// void; removals behind it, which is where limits, acknowledgements and newer
// values of a key strike, leave it alone. A consumer nobody reads costs nothing.
type tally struct {
	n     uint64
	to    topics.Sequence // messages up to here have been counted
	mark  uint64          // removals known
	valid bool
}

// scanMost is how many new messages are looked at one by one before the topic is
// asked to count.
const scanMost = 512

// passed notes that the message with a sequence was delivered.
func (t *tally) passed(seq topics.Sequence) {
	if seq <= t.to && t.n > 0 {
		t.n--
	}
}

// count brings the tally up to date.
func (c *Consumer) count() uint64 {
	l := c.live
	t := &l.tally
	removals, knows := l.log.(RemovalLog)
	if !t.valid || !knows {
		return c.recount(removals)
	}
	now, highest := removals.RemovedSince(t.mark)
	from, _ := c.Cursor()
	if now != t.mark && highest >= from {
		return c.recount(removals)
	}
	_, last := l.log.Bounds()
	switch {
	case last <= t.to:
	case c.filter == nil || last-t.to > scanMost:
		return c.recount(removals)
	default:
		t.n += c.scan(max(t.to+1, from), last)
		t.to = last
	}
	t.mark = now
	return t.n
}

// scan counts the messages from one sequence to another by looking at them.
func (c *Consumer) scan(from, to topics.Sequence) (n uint64) {
	for seq, ok := c.live.log.Next(c.filter, from); ok && seq <= to; seq, ok = c.live.log.Next(c.filter, seq+1) {
		n++
	}
	return n
}

// recount asks the topic. The topic may grow meanwhile: a count is only used when
// it didn't, or when what came is known to be in it.
func (c *Consumer) recount(removals RemovalLog) uint64 {
	l := c.live
	t := &l.tally
	for try := 0; ; try++ {
		if removals != nil {
			t.mark, _ = removals.RemovedSince(t.mark)
		}
		_, before := l.log.Bounds()
		from, only := c.Cursor()
		t.n = 0
		if only {
			for _, seq := range c.initial.seqs {
				if seq < from {
					continue
				}
				if at, ok := l.log.Next(nil, seq); ok && at == seq {
					t.n++
				}
			}
			from = c.initial.resume
		}
		if from <= before {
			if c.filter != nil && before-from < scanMost {
				t.n += c.scan(from, before)
				t.to, t.valid = before, true
				return t.n
			}
			t.n += l.log.Count(c.filter, from)
		}
		_, t.to = l.log.Bounds()
		t.valid = t.to == before
		if t.valid || try == 8 {
			return t.n
		}
	}
}
