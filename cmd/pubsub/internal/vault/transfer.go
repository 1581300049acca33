package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Broker is how a broker is asked.
type Broker struct {
	Conn    *nats.Conn
	Prefix  string        // of the API: "$JS.API"
	Timeout time.Duration // for one answer
}

// Call asks the API and decodes the answer, which is the broker's error when it is one.
func (b *Broker) Call(ctx context.Context, subject string, body, to any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the request %s: %w", subject, err)
	}
	return b.request(ctx, b.Prefix+"."+subject, data, to)
}

func (b *Broker) request(ctx context.Context, subject string, data []byte, to any) error {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	m, err := b.Conn.RequestWithContext(ctx, subject, data)
	if err != nil {
		return err
	}
	return decode(m.Data, to)
}

// decode reads an answer of the API.
func decode(data []byte, to any) error {
	var head struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("read the broker's answer: %w", err)
	}
	if head.Error != nil {
		return head.Error
	}
	return json.Unmarshal(data, to)
}

// State is what a topic holds. All is what the broker said, with more than the fields.
type State struct {
	Messages   uint64   `json:"messages"`
	Bytes      uint64   `json:"bytes"`
	FirstSeq   uint64   `json:"first_seq"`
	LastSeq    uint64   `json:"last_seq"`
	NumDeleted int      `json:"num_deleted"`
	Deleted    []uint64 `json:"deleted"`
}

// content is the answer to STREAM.INFO and STREAM.SNAPSHOT.
type content struct {
	Config  json.RawMessage `json:"config"`
	State   json.RawMessage `json:"state"`
	Created time.Time       `json:"created"`
}

func (c *content) state() (s State, err error) {
	err = json.Unmarshal(c.State, &s)
	return s, err
}

// badJSON is how a server refuses a request with a field it does not know.
const badJSON = 10025

// snapshot asks for a topic's content from sequence first on, to be read from the
// returned reader, which Close ends.
func (b *Broker) snapshot(ctx context.Context, topic string, first uint64) (*content, *receiver, error) {
	r := &receiver{ctx: ctx, patience: max(b.Timeout, 5*time.Second)}
	inbox := b.Conn.NewInbox()
	var err error
	if r.sub, err = b.Conn.SubscribeSync(inbox); err != nil {
		return nil, nil, err
	}
	request := map[string]any{"deliver_subject": inbox}
	if first > 1 {
		request["herald_first_seq"] = first
	}
	var c content
	err = b.Call(ctx, "STREAM.SNAPSHOT."+topic, request, &c)
	if api := (*jetstream.APIError)(nil); first > 1 && errors.As(err, &api) && api.ErrorCode == badJSON {
		delete(request, "herald_first_seq") // another server: it sends all, and what is there already is passed over
		err = b.Call(ctx, "STREAM.SNAPSHOT."+topic, request, &c)
	}
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	return &c, r, nil
}

// receiver is an io.Reader over the chunks of a snapshot.
type receiver struct {
	ctx      context.Context
	sub      *nats.Subscription
	patience time.Duration
	current  *nats.Msg
	rest     []byte
	ended    bool
}

// Read implements io.Reader. A chunk is answered when it has been read.
func (r *receiver) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.ended {
			return 0, io.EOF
		}
		if r.current != nil {
			if err := r.current.Respond(nil); err != nil {
				return 0, err
			}
			r.current = nil
		}
		ctx, cancel := context.WithTimeout(r.ctx, r.patience)
		m, err := r.sub.NextMsgWithContext(ctx)
		cancel()
		if err != nil {
			if r.ctx.Err() != nil {
				return 0, r.ctx.Err()
			}
			return 0, fmt.Errorf("the broker's backup does not go on: %w", err)
		}
		if len(m.Data) > 0 {
			r.current, r.rest = m, m.Data
			continue
		}
		if status := m.Header.Get("Status"); status != "204" {
			return 0, fmt.Errorf("the broker ended the backup: %s %s", status, m.Header.Get("Description"))
		}
		r.ended = true
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close stops listening.
func (r *receiver) Close() { _ = r.sub.Unsubscribe() }

// chunkSize is what is sent at a time.
const chunkSize = 128 << 10

// restore makes a topic and fills it with what write writes, an archive. When write
// fails the broker deletes again what it has made.
func (b *Broker) restore(ctx context.Context, name string, config, state json.RawMessage, write func(io.Writer) error) error {
	var to struct {
		DeliverSubject string `json:"deliver_subject"`
	}
	if err := b.Call(ctx, "STREAM.RESTORE."+name, map[string]any{"config": config, "state": state}, &to); err != nil {
		return err
	}
	s := &sender{b: b, ctx: ctx, to: to.DeliverSubject}
	err := write(s)
	if err == nil && s.buf.Len() > 0 {
		err = s.chunk()
	}
	if err != nil && s.over {
		return err
	}
	// The end. Behind an archive that was cut short it makes the broker give up.
	if end := s.end(context.WithoutCancel(ctx)); err == nil {
		err = end
	}
	return err
}

// sender is an io.Writer whose chunks the broker answers.
type sender struct {
	b    *Broker
	ctx  context.Context
	to   string
	buf  bytes.Buffer
	over bool // the broker has ended it
}

// Write implements io.Writer.
func (s *sender) Write(p []byte) (int, error) {
	s.buf.Write(p)
	for s.buf.Len() >= chunkSize {
		if err := s.chunk(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (s *sender) chunk() error {
	ctx, cancel := context.WithTimeout(s.ctx, max(s.b.Timeout, 30*time.Second))
	defer cancel()
	m, err := s.b.Conn.RequestWithContext(ctx, s.to, s.buf.Next(chunkSize))
	if err != nil {
		return err
	}
	if len(m.Data) > 0 {
		s.over = true
		if err := decode(m.Data, &struct{}{}); err != nil {
			return err
		}
		return errors.New("the broker ended the restore before all was sent")
	}
	return nil
}

func (s *sender) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(s.b.Timeout, time.Minute))
	defer cancel()
	m, err := s.b.Conn.RequestWithContext(ctx, s.to, nil)
	if err != nil {
		return err
	}
	return decode(m.Data, &struct{}{})
}
