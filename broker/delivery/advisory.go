package delivery

import (
	"encoding/json"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// event is the head of every advisory and metric.
type event struct {
	Type string    `json:"type"`
	ID   string    `json:"id"`
	Time time.Time `json:"timestamp"`
}

type maxDeliver struct {
	event
	Stream     string `json:"stream"`
	Consumer   string `json:"consumer"`
	StreamSeq  uint64 `json:"stream_seq"`
	Deliveries uint64 `json:"deliveries"`
	Domain     string `json:"domain,omitempty"`
}

type refused struct {
	event
	Stream      string `json:"stream"`
	Consumer    string `json:"consumer"`
	ConsumerSeq uint64 `json:"consumer_seq"`
	StreamSeq   uint64 `json:"stream_seq"`
	Deliveries  uint64 `json:"deliveries"`
	Reason      string `json:"reason,omitempty"`
	Domain      string `json:"domain,omitempty"`
}

type ackMetric struct {
	event
	Stream      string `json:"stream"`
	Consumer    string `json:"consumer"`
	ConsumerSeq uint64 `json:"consumer_seq"`
	StreamSeq   uint64 `json:"stream_seq"`
	Delay       int64  `json:"ack_time"` // ns
	Deliveries  uint64 `json:"deliveries"`
	Domain      string `json:"domain,omitempty"`
}

type groupPinned struct {
	event
	Account  string `json:"account,omitempty"`
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	Domain   string `json:"domain,omitempty"`
	Group    string `json:"group"`
	PinnedID string `json:"pinned_id"`
}

type groupUnpinned struct {
	event
	Account  string `json:"account,omitempty"`
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	Domain   string `json:"domain,omitempty"`
	Group    string `json:"group"`
	Reason   string `json:"reason"`
}

func (r *reader) event(family, kind string, now topics.Nanos) event {
	return event{
		Type: "io.nats.jetstream." + family + ".v1." + kind,
		ID:   r.e.o.NewID(),
		Time: time.Unix(0, int64(now)).UTC(),
	}
}

// advise puts an advisory into the outbox; the caller holds r.mu.
func (r *reader) advise(what string, v any) {
	r.publish("$JS.EVENT.ADVISORY."+what+"."+r.topic.name+"."+r.name, v)
}

func (r *reader) publish(subject string, v any) {
	body, err := json.Marshal(v)
	if err != nil || len(r.outbox) >= outboxMost {
		return // the types here always marshal
	}
	r.outbox = append(r.outbox, notice{to: subject, body: body, open: true})
}

func (r *reader) adviseExceeded(x consumer.Exceeded, now topics.Nanos) {
	r.advise("CONSUMER.MAX_DELIVERIES", &maxDeliver{
		event: r.event("advisory", "max_deliver", now), Stream: r.topic.name, Consumer: r.name,
		StreamSeq: uint64(x.Sequence), Deliveries: uint64(x.Attempts), Domain: r.e.o.Domain,
	})
}

func (r *reader) adviseRefused(what, kind string, a *ackSubject, reason string, now topics.Nanos) {
	r.advise(what, &refused{
		event: r.event("advisory", kind, now), Stream: r.topic.name, Consumer: r.name, ConsumerSeq: a.number,
		StreamSeq: uint64(a.seq), Deliveries: a.attempt, Reason: reason, Domain: r.e.o.Domain,
	})
}

func (r *reader) measureAck(a *ackSubject, delivered, now topics.Nanos) {
	r.publish("$JS.EVENT.METRIC.CONSUMER.ACK."+r.topic.name+"."+r.name, &ackMetric{
		event: r.event("metric", "consumer_ack", now), Stream: r.topic.name, Consumer: r.name, ConsumerSeq: a.number,
		StreamSeq: uint64(a.seq), Delay: int64(now - delivered), Deliveries: a.attempt, Domain: r.e.o.Domain,
	})
}
