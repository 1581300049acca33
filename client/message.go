package client

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Header holds the headers of a message. Names keep their case; a name can have
// several values.
type Header = nats.Header

// Message is a message that was received. Its bytes belong to the receiver.
type Message struct {
	Subject string
	Reply   string // where an answer is expected; empty for durable messages
	Header  Header // nil when there is none
	Payload []byte

	Stored *Stored // where it is kept; nil for a live message

	live    *nats.Msg
	durable jetstream.Msg
}

// Stored is a durable message's place.
type Stored struct {
	Topic     string
	Sequence  uint64    // from 1, dense, never reused
	Time      time.Time // when the broker took it
	Consumer  string    // the reader it was delivered to
	Delivered uint64    // how often it was delivered to that reader, from 1
	Pending   uint64    // messages of that reader behind this one
}

// ID is the message id it was published under ([MessageID]), or "".
func (m *Message) ID() string { return m.Header.Get(nats.MsgIdHdr) }

// Respond answers a live message at its Reply subject.
func (m *Message) Respond(payload []byte) error {
	return m.RespondWith(nil, payload)
}

// RespondWith answers with headers.
func (m *Message) RespondWith(header Header, payload []byte) error {
	if m.live == nil || m.Reply == "" {
		return invalid("respond to", m.Subject, "the message asks for no answer")
	}
	return failed("respond to", m.Subject, m.live.RespondMsg(&nats.Msg{Header: header, Data: payload}))
}

// Ack tells the broker that the message is dealt with. It returns before the
// broker has it; a lost ack costs a redelivery. A message that needs no ack is
// left alone.
func (m *Message) Ack() error {
	if m.durable == nil {
		return nil
	}
	return failed("ack", m.Subject, m.durable.Ack())
}

// AckSync is Ack that returns after the broker has committed it.
func (m *Message) AckSync(ctx context.Context) error {
	if m.durable == nil {
		return nil
	}
	return failed("ack", m.Subject, m.durable.DoubleAck(ctx))
}

// Nak asks for the message again after the given delay; 0 is at once.
func (m *Message) Nak(delay time.Duration) error {
	if m.durable == nil {
		return nil
	}
	if delay > 0 {
		return failed("nak", m.Subject, m.durable.NakWithDelay(delay))
	}
	return failed("nak", m.Subject, m.durable.Nak())
}

// InProgress asks for more time before the message counts as unacknowledged.
func (m *Message) InProgress() error {
	if m.durable == nil {
		return nil
	}
	return failed("extend", m.Subject, m.durable.InProgress())
}

// Term ends the deliveries of a message that can never be handled; the reason
// goes into the broker's advisory.
func (m *Message) Term(reason string) error {
	if m.durable == nil {
		return nil
	}
	return failed("terminate", m.Subject, m.durable.TermWithReason(reason))
}

func fromLive(msg *nats.Msg) *Message {
	return &Message{Subject: msg.Subject, Reply: msg.Reply, Header: msg.Header, Payload: msg.Data, live: msg}
}

func fromDurable(msg jetstream.Msg, needsAck bool) (*Message, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, failed("read the place of", msg.Subject(), err)
	}
	m := &Message{Subject: msg.Subject(), Header: msg.Headers(), Payload: msg.Data(), Stored: &Stored{
		Topic: meta.Stream, Sequence: meta.Sequence.Stream, Time: meta.Timestamp.UTC(),
		Consumer: meta.Consumer, Delivered: meta.NumDelivered, Pending: meta.NumPending,
	}}
	if needsAck {
		m.durable = msg
	}
	return m, nil
}

func fromRaw(topic string, raw *jetstream.RawStreamMsg) *Message {
	return &Message{
		Subject: raw.Subject, Header: raw.Header, Payload: raw.Data,
		Stored: &Stored{Topic: topic, Sequence: raw.Sequence, Time: raw.Time.UTC()},
	}
}
