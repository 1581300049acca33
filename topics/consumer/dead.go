package consumer

import "github.com/heraldmq/herald/topics"

// Metadata of a consumer's config that changes how it delivers. NATS clients carry it
// without knowing it.
const (
	KeyDeadSubject = "herald.dlq.subject" // where messages go that are given up
	KeyOrder       = "herald.key"         // see ParseKey
)

// Dying is a message that is given up, and stays pending until it lies where its consumer
// wants such messages (Buried). If the leader changes before, the new one finds it in the
// parcel under way; or, if it was in none yet, pending: what was delivered too often is given
// up again at once, what a client terminated is delivered once more.
type Dying struct {
	Sequence   topics.Sequence
	Attempts   uint32
	Terminated bool   // by a client; else delivered max_deliver times
	Reason     string // the client's
}

// Buries tells whether messages that are given up go to another subject first.
func (c *Consumer) Buries() bool { return c.rules.buries }

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

// Adopt has the messages of the parcel under way die here, too, which another leader began.
func (c *Consumer) Adopt(list []Letter) {
	for _, l := range list {
		e := c.pending.find(l.Sequence)
		if e == nil || c.Dies(l.Sequence) {
			continue
		}
		e.ready = false
		c.live.die(Dying{Sequence: l.Sequence, Attempts: e.attempts, Terminated: l.Terminated, Reason: l.Reason})
	}
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

// EachDying calls f with the messages that wait to be buried, in no order, until it returns
// false.
func (c *Consumer) EachDying(f func(Dying) bool) {
	for _, d := range c.live.dying {
		if !f(d) {
			return
		}
	}
}

// Buried tells that every copy has given a message up, by a letters record.
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
