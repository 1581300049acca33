package filter

import (
	"github.com/heraldmq/herald/topics/schema"
	"github.com/heraldmq/herald/topics/value"
)

// Message is what filters look at. One goroutine at a time; its zero value must be
// Reset. It keeps nothing of the bytes beyond the next Reset but what filters
// decoded.
type Message struct {
	subject         string
	header, payload []byte
	time            int64
	seq             uint64

	decoding
	others []decoding // by other schemas
}

// decoding is what the payload says by a schema.
type decoding struct {
	schema  *schema.Schema // nil: it is JSON
	decoded bool
	value   value.Value
	err     error
}

// read has Payload read by a schema.
func (m *Message) read(s *schema.Schema) {
	if m.schema == s {
		return
	}
	old := m.decoding
	m.decoding = decoding{schema: s}
	for i := range m.others {
		if m.others[i].schema == s {
			m.decoding, m.others[i] = m.others[i], old
			return
		}
	}
	m.others = append(m.others, old)
}

// Reset makes it a message without a place. The bytes are borrowed until the next
// Reset. header is the block "NATS/1.0\r\n…\r\n\r\n", or empty.
func (m *Message) Reset(subject string, header, payload []byte) {
	*m = Message{subject: subject, header: header, payload: payload}
}

// Place says where the message is stored: its sequence, and when it was, in
// nanoseconds since 1970.
func (m *Message) Place(seq uint64, nanos int64) { m.seq, m.time = seq, nanos }

// Decoded tells whether a filter has asked for the payload.
func (m *Message) Decoded() bool { return m.decoded }

// Payload returns what the payload says, decoded once for each schema. It is for expr.
func (m *Message) Payload() (value.Value, error) {
	if !m.decoded {
		m.decoded = true
		if m.schema != nil {
			m.value, m.err = m.schema.Decode(m.payload)
		} else {
			m.value, m.err = value.Parse(m.payload, value.Options{})
		}
		if m.err != nil {
			m.err = &payloadError{m.schema, m.err}
		}
	}
	return m.value, m.err
}

// Subject returns the message's subject.
func (m *Message) Subject() string { return m.subject }

// Header returns the header block.
func (m *Message) Header() []byte { return m.header }

// Key returns null: filters see messages, which have no key of their own.
func (m *Message) Key() value.Value { return value.Value{} }

// Time returns when the message was stored, 0 when it isn't.
func (m *Message) Time() int64 { return m.time }

// Sequence returns the message's sequence in its topic, 0 when it isn't in one.
func (m *Message) Sequence() uint64 { return m.seq }

// Now returns 0: filters have no clock.
func (m *Message) Now() int64 { return 0 }

// payloadError: the payload isn't what the codec reads.
type payloadError struct {
	schema *schema.Schema
	err    error
}

func (e *payloadError) Error() string {
	if e.schema != nil {
		return "the payload can't be read by the " + string(e.schema.Format()) + " schema: " + e.err.Error()
	}
	return "the payload is not JSON: " + e.err.Error()
}
func (e *payloadError) Unwrap() error { return e.err }
