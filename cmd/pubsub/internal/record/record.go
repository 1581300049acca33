// Package record is the line format of pubsub: one message as one JSON object,
// without loss in either direction.
//
//	{"subject":"orders.1","reply":"_INBOX.x","headers":{"K":["a","b"]},"payload":"text"}
//
// The payload is in exactly one of three members:
//
//	payload         text, when the bytes are valid UTF-8
//	payload_json    the JSON itself, when it is an object or array without white
//	                space between tokens, so that tools can reach into it
//	payload_base64  anything else
//
// A subject, reply, header name or value that is not valid UTF-8 (or would be
// changed by JSON) moves to the member of the same name with _base64 after it.
// Stored messages carry topic, sequence, time and delivered; those are for the
// reader and are ignored when the line is published.
package record

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Message is one message, live or stored.
type Message struct {
	Subject string
	Reply   string
	Headers map[string][]string
	Payload []byte

	// Of a stored message; zero otherwise.
	Topic     string
	Sequence  uint64
	Time      time.Time
	Delivered uint64
}

// wire is the JSON object.
type wire struct {
	Subject       string              `json:"subject"`
	SubjectBase64 []byte              `json:"subject_base64,omitempty"`
	Reply         string              `json:"reply,omitempty"`
	ReplyBase64   []byte              `json:"reply_base64,omitempty"`
	Topic         string              `json:"topic,omitempty"`
	Sequence      uint64              `json:"sequence,omitempty"`
	Time          *time.Time          `json:"time,omitempty"`
	Delivered     uint64              `json:"delivered,omitempty"`
	Headers       map[string][]string `json:"headers,omitempty"`
	HeadersBase64 map[string][]string `json:"headers_base64,omitempty"`
	Payload       *string             `json:"payload,omitempty"`
	PayloadJSON   json.RawMessage     `json:"payload_json,omitempty"`
	PayloadBase64 []byte              `json:"payload_base64,omitempty"`
}

// Append appends m as one line, without the newline at its end.
func Append(dst []byte, m Message) ([]byte, error) {
	var w wire
	w.Subject, w.SubjectBase64 = text(m.Subject)
	w.Reply, w.ReplyBase64 = text(m.Reply)
	w.Topic, w.Sequence, w.Delivered = m.Topic, m.Sequence, m.Delivered
	if !m.Time.IsZero() {
		at := m.Time.UTC()
		w.Time = &at
	}
	for name, values := range m.Headers {
		if plain(name) && all(values, plain) {
			if w.Headers == nil {
				w.Headers = map[string][]string{}
			}
			w.Headers[name] = values
			continue
		}
		if w.HeadersBase64 == nil {
			w.HeadersBase64 = map[string][]string{}
		}
		coded := make([]string, len(values))
		for i, value := range values {
			coded[i] = base64.StdEncoding.EncodeToString([]byte(value))
		}
		w.HeadersBase64[base64.StdEncoding.EncodeToString([]byte(name))] = coded
	}
	switch {
	case IsCompactJSON(m.Payload):
		w.PayloadJSON = m.Payload
	case plain(string(m.Payload)):
		s := string(m.Payload)
		w.Payload = &s
	default:
		w.PayloadBase64 = m.Payload
	}
	buf := bytes.NewBuffer(dst)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(w); err != nil {
		return dst, fmt.Errorf("encode message of %q: %w", m.Subject, err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// Parse reads one line. Unknown members are refused, so that a typo in a
// hand-written line is not silently dropped.
func Parse(line []byte) (Message, error) {
	var w wire
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&w); err != nil {
		return Message{}, fmt.Errorf("not a message: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Message{}, errors.New("not a message: more than one JSON value on the line")
	}
	m := Message{Subject: w.Subject, Reply: w.Reply, Topic: w.Topic, Sequence: w.Sequence, Delivered: w.Delivered}
	if w.SubjectBase64 != nil {
		m.Subject = string(w.SubjectBase64)
	}
	if w.ReplyBase64 != nil {
		m.Reply = string(w.ReplyBase64)
	}
	if w.Time != nil {
		m.Time = w.Time.UTC()
	}
	if err := m.headers(w); err != nil {
		return Message{}, err
	}
	given := 0
	if w.Payload != nil {
		given, m.Payload = given+1, []byte(*w.Payload)
	}
	if w.PayloadJSON != nil {
		given, m.Payload = given+1, []byte(w.PayloadJSON)
	}
	if w.PayloadBase64 != nil {
		given, m.Payload = given+1, w.PayloadBase64
	}
	if given > 1 {
		return Message{}, errors.New("not a message: more than one of payload, payload_json and payload_base64")
	}
	return m, nil
}

func (m *Message) headers(w wire) error {
	if len(w.Headers)+len(w.HeadersBase64) == 0 {
		return nil
	}
	m.Headers = map[string][]string{}
	for name, values := range w.Headers {
		m.Headers[name] = values
	}
	for coded, values := range w.HeadersBase64 {
		name, err := base64.StdEncoding.DecodeString(coded)
		if err != nil {
			return fmt.Errorf("headers_base64: name %q: %w", coded, err)
		}
		for _, value := range values {
			raw, err := base64.StdEncoding.DecodeString(value)
			if err != nil {
				return fmt.Errorf("headers_base64: value of %q: %w", name, err)
			}
			m.Headers[string(name)] = append(m.Headers[string(name)], string(raw))
		}
	}
	return nil
}

// IsCompactJSON tells whether b is a JSON object or array that survives being
// embedded in another one byte for byte.
func IsCompactJSON(b []byte) bool {
	if len(b) < 2 || b[0] != '{' && b[0] != '[' || !utf8.Valid(b) || !json.Valid(b) {
		return false
	}
	var compact bytes.Buffer
	return json.Compact(&compact, b) == nil && bytes.Equal(compact.Bytes(), b)
}

// text returns s in the member that keeps it.
func text(s string) (string, []byte) {
	if plain(s) {
		return s, nil
	}
	return "", []byte(s)
}

// plain tells whether JSON keeps s as it is.
func plain(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, utf8.RuneError) }

func all(values []string, ok func(string) bool) bool {
	for _, value := range values {
		if !ok(value) {
			return false
		}
	}
	return true
}
