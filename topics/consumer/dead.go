package consumer

import (
	"encoding/binary"

	"github.com/heraldmq/herald/topics"
)

// Metadata of a consumer's config that changes how it delivers. NATS clients carry it
// without knowing it.
const (
	KeyDeadSubject = "herald.dlq.subject" // where messages go that are given up
	KeyOrder       = "herald.key"         // see ParseKey
)

// Dying is a message that is given up, and stays pending until it lies where its consumer
// wants such messages (Buried). If the leader changes before, the new one finds it pending:
// what was delivered too often is given up again at once, what a client terminated is
// delivered once more.
type Dying struct {
	Sequence   topics.Sequence
	Attempts   uint32
	Terminated bool   // by a client; else delivered max_deliver times
	Reason     string // the client's
}

// Buries tells whether messages that are given up go to another subject first.
func (c *Consumer) Buries() bool { return c.rules.buries }

// EachPending calls f with the sequence of each pending message, in order, until it returns
// false.
func (c *Consumer) EachPending(f func(seq topics.Sequence) bool) {
	c.pending.each(func(e *entry) bool { return f(e.seq) })
}

// Terminate is Term for a consumer that buries. It returns whether the message was
// pending and not yet dying.
func (c *Consumer) Terminate(seq topics.Sequence, reason string) bool {
	e := c.pending.find(seq)
	if e == nil || c.Dies(seq) {
		return false
	}
	e.ready = false
	c.live.die(Dying{Sequence: seq, Attempts: e.attempts, Terminated: true, Reason: reason})
	return true
}

// Dies tells whether a message waits to be buried.
func (c *Consumer) Dies(seq topics.Sequence) bool {
	_, dies := c.live.dying[seq]
	return dies
}

func (l *live) die(d Dying) {
	if l.dying == nil {
		l.dying = map[topics.Sequence]Dying{}
	}
	l.dying[d.Sequence] = d
}

// NumDying returns how many messages wait to be buried.
func (c *Consumer) NumDying() int { return len(c.live.dying) }

// DyingAmong appends up to n of the messages that wait to be buried, in no order.
func (c *Consumer) DyingAmong(dst []Dying, n int) []Dying {
	for _, d := range c.live.dying {
		if n--; n < 0 {
			break
		}
		dst = append(dst, d)
	}
	return dst
}

// Buried tells that a message lies where it was to go, and that the log has the record
// (BurialRecord) by which every copy has given it up.
func (c *Consumer) Buried(seq topics.Sequence, now topics.Nanos) {
	if c.settle(seq) {
		c.floor.Time = now
	}
}

// DropDying gives up, in the plain way, what was dying when the consumer stopped burying.
func (c *Consumer) DropDying(now topics.Nanos) {
	for seq, d := range c.live.dying {
		if d.Terminated {
			c.Term(seq, now)
		} else {
			c.Drop(seq, now)
		}
	}
}

// BurialRecord returns the body of an acked record that gives up one message in the
// consumer's present epoch, as terminated.
func (c *Consumer) BurialRecord(seq topics.Sequence, now topics.Nanos) []byte {
	b := appendHeader(make([]byte, 0, 40), c.epoch)
	b = binary.AppendVarint(b, int64(now))
	b = binary.AppendVarint(b, 0)
	b = append(b, byte(opTerm))
	b = binary.AppendVarint(b, int64(seq))
	return binary.AppendUvarint(b, 1)
}
