package state

import (
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

// echoAll republishes. What is republished is told to those who listen at the
// moment; topics don't capture it, since the goroutine that makes room in the
// groups can't wait for room.
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
		prior, _ := e.topic.data.Prev(topics.NewFilter([]string{subject}), r.Sequence-1)
		stored := time.Unix(0, int64(b.time)).UTC()
		header := echoHeader(e.topic, &p, place{r.Sequence, prior, stored}, how.headersOnly)
		payload := p.Payload
		if how.headersOnly {
			payload = nil
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
