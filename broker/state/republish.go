package state

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/wire"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/transform"
)

// republish is what a topic tells of each stored message on another subject.
type republish struct {
	to          *transform.Transform
	headersOnly bool
}

// republishOf returns nil when the config asks for none, or for what nobody
// could have let pass.
func republishOf(cfg *topics.Config) *republish {
	r := cfg.Republish
	if r == nil {
		return nil
	}
	to, err := transform.New(r.Source, r.Destination)
	if err != nil {
		return nil
	}
	return &republish{to: to, headersOnly: r.HeadersOnly}
}

func mapperOf(cfg *topics.Config) *transform.Transform {
	t := cfg.SubjectTransform
	if t == nil {
		return nil
	}
	m, err := transform.New(t.Source, t.Destination)
	if err != nil {
		return nil
	}
	return m
}

// mapped returns the subject under which the topic stores a message. It is
// decided before the message is proposed, so that replicas needn't agree on it.
func (t *Topic) mapped(subject []byte) []byte {
	m := t.mapper.Load()
	if m == nil {
		return subject
	}
	if to, ok := m.Apply(string(subject), rand.IntN); ok {
		return []byte(to)
	}
	return subject
}

// echo is a publish of a batch that is republished once it is stored.
type echo struct {
	topic   *Topic
	account *front.Account
	publish uint32 // which publish of the entry
	record  int    // where it starts in the batch's buffer
}

// echoAll republishes. What topics capture goes by way of the queue's republisher:
// the goroutine that makes room in a group can't wait for room.
func (a *acker) echoAll(b *batch, res *results) {
	if a.replier == nil {
		return
	}
	for i := range b.echoes {
		e := &b.echoes[i]
		r, how := &res.publishes[e.publish], e.topic.echo.Load()
		if how == nil || e.account == nil || r.Fault != nil || r.Duplicate {
			continue
		}
		_, body, _, err := topics.NextRecord(b.buf, e.record)
		if err != nil {
			continue // it was written a moment ago
		}
		p, err := topics.ParsePublish(body)
		if err != nil {
			continue
		}
		subject := string(p.Subject)
		to, ok := how.to.Apply(subject, rand.IntN)
		if !ok {
			continue
		}
		data := e.topic.Data()
		if data == nil {
			continue // the replica is on its way out
		}
		prior, _ := data.Prev(topics.NewFilter([]string{subject}), r.Sequence-1)
		at := b.time
		if p.Flags&topics.PublishTimed != 0 {
			at = p.Time
		}
		stored := time.Unix(0, int64(at)).UTC()
		header := echoHeader(e.topic, &p, place{r.Sequence, prior, stored}, how.headersOnly)
		payload := p.Payload
		if how.headersOnly {
			payload = nil
		}
		if a.republish != nil && e.account.Captures(to) {
			a.republish(republished{e.account, to, header, bytes.Clone(payload)})
			continue
		}
		a.of(e.account).Deliver(to, to, "", header, payload)
	}
}

// place is where a message was stored: after prior, the last of its subject.
type place struct {
	seq, prior topics.Sequence
	time       time.Time
}

func echoHeader(t *Topic, p *topics.Publish, at place, headersOnly bool) []byte {
	b := wire.HeaderOpen(make([]byte, 0, len(p.Header)+192), p.Header, wire.OriginKey)
	b = append(append(b, "Nats-Stream: "...), t.name...)
	b = append(append(b, "\r\nNats-Subject: "...), p.Subject...)
	b = strconv.AppendUint(append(b, "\r\nNats-Sequence: "...), uint64(at.seq), 10)
	b = at.time.AppendFormat(append(b, "\r\nNats-Time-Stamp: "...), time.RFC3339Nano)
	b = strconv.AppendUint(append(b, "\r\nNats-Last-Sequence: "...), uint64(at.prior), 10)
	if headersOnly {
		b = strconv.AppendInt(append(b, "\r\nNats-Msg-Size: "...), int64(len(p.Payload)), 10)
	}
	return append(b, "\r\n\r\n"...)
}

// republished is a message that is published again and that topics capture.
type republished struct {
	account *front.Account
	subject string
	header  []byte
	payload []byte
}

// againBytesMax is how much may wait to be published again before clients that
// publish have to wait.
const againBytesMax = 16 << 20

func (r *republished) size() int { return len(r.subject) + len(r.header) + len(r.payload) }

// again are the messages that wait to be republished. Guarded by the queue's mu.
type again struct {
	list  []republished
	bytes int
	wake  chan struct{} // holds one
}

// full tells whether publishers have to wait. Not the republisher, which publishes
// for the broker itself: it empties the list.
func (a *again) full(messages []front.Captured) bool {
	return a.bytes >= againBytesMax && len(messages) > 0 && messages[0].Client != nil
}

// republish takes a message for the republisher. It never waits.
func (q *queue) republish(r republished) {
	q.mu.Lock()
	q.again.list = append(q.again.list, r)
	q.again.bytes += r.size()
	q.mu.Unlock()
	select {
	case q.again.wake <- struct{}{}:
	default:
	}
}

// runAgain publishes what was taken, in order, until ctx ends.
func (q *queue) runAgain(ctx context.Context) {
	publishers := map[*front.Account]*front.Publisher{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.again.wake:
		}
		q.mu.Lock()
		list := q.again.list
		q.again.list = nil
		q.mu.Unlock()
		done := 0
		for i := range list {
			if ctx.Err() != nil {
				return
			}
			r := &list[i]
			p := publishers[r.account]
			if p == nil {
				p = r.account.NewPublisher()
				publishers[r.account] = p
			}
			p.Publish(r.subject, "", r.header, r.payload)
			done += r.size()
			if i == len(list)-1 || list[i+1].account != r.account || done >= againBytesMax/8 {
				p.Flush()
				q.mu.Lock()
				q.again.bytes -= done
				q.room.Broadcast()
				q.mu.Unlock()
				done = 0
			}
		}
	}
}
