package state

import (
	"encoding/binary"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics"
)

// Addition is a message the node itself writes into a topic.
type Addition struct {
	topics.Publish
	// Account is whose subscribers hear of it where the topic republishes.
	Account *front.Account
	// After, when ahead of the topic, uses up the sequences up to it first.
	After topics.Sequence
	// Done is called once, on the goroutine that answers the group's publishers,
	// with the result or with why there is none; it must not block.
	Done func(topics.PublishResult, error)
}

// Append proposes one message for a topic of the group, whatever its subject:
// how sources, mirrors and schedules write. It waits for room as Capture does.
func (g *Group) Append(t *Topic, a Addition) {
	a.Topic = t.id
	if !g.queue.append(t, &a) {
		a.Done(topics.PublishResult{}, ErrClosed)
	}
}

func (q *queue) append(t *Topic, a *Addition) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for (len(q.open.buf) >= 2*q.cap || q.full && !q.stalled()) && !q.closed {
		q.room.Wait()
	}
	if q.closed {
		return false
	}
	b := q.open
	q.stateLimits(b, t.account)
	if a.After > 0 {
		body := binary.LittleEndian.AppendUint64(appendTopic(nil, t.id), uint64(a.After))
		b.buf = topics.AppendRecord(b.buf, topics.RecordTopicSkip, body)
		b.submits = append(b.submits, nil)
		b.records++
	}
	if t.echo.Load() != nil {
		b.echoes = append(b.echoes, echo{topic: t, account: a.Account, publish: b.publishes, record: len(b.buf)})
	}
	b.buf = topics.AppendPublish(b.buf, &a.Publish)
	b.waits = append(b.waits, wait{topic: t, publish: b.publishes, done: a.Done})
	b.publishes++
	b.records++
	q.proposeMaybeLocked()
	return true
}
