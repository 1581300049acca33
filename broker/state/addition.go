package state

import (
	"encoding/binary"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication"
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

// Append proposes messages for a topic of the group, whatever their subjects, in
// one entry: how sources, mirrors and schedules write. None is stored behind one
// that is refused, so that whoever copies can go on there without a gap. It waits
// for room as Capture does. It is refused where this node doesn't lead, and
// while the topic moves.
func (g *Group) Append(t *Topic, all ...Addition) {
	why := replication.ErrNotLeader
	if r := g.local.Load(); r != nil && !t.held.Load() && t.Group() == g {
		if r.queue.append(t, all) {
			return
		}
		why = ErrClosed
	}
	for i := range all {
		all[i].Done(topics.PublishResult{}, why)
	}
}

func (q *queue) append(t *Topic, all []Addition) bool {
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
	put := func(kind topics.RecordKind, body []byte) {
		b.buf = topics.AppendRecord(b.buf, kind, body)
		b.submits = append(b.submits, nil)
		b.records++
	}
	chained := len(all) > 1
	if chained {
		b.chains++
	}
	for i := range all {
		a := &all[i]
		a.Topic = t.id
		if chained {
			put(topics.RecordLink, binary.LittleEndian.AppendUint32(nil, b.chains))
		}
		if a.After > 0 {
			put(topics.RecordTopicSkip, binary.LittleEndian.AppendUint64(appendTopic(nil, t.id), uint64(a.After)))
		}
		if t.echo.Load() != nil {
			b.echoes = append(b.echoes, echo{topic: t, account: a.Account, publish: b.publishes, record: len(b.buf)})
		}
		b.buf = topics.AppendPublish(b.buf, &a.Publish)
		b.waits = append(b.waits, wait{topic: t, publish: b.publishes, done: a.Done})
		b.publishes++
		b.records++
	}
	q.proposeMaybeLocked()
	return true
}
