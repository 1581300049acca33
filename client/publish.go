package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// PublishOption sets one property of a message about to be published.
type PublishOption func(*nats.Msg)

// WithHeader adds one header value; repeat it for several values of a name.
func WithHeader(name, value string) PublishOption {
	return func(m *nats.Msg) { header(m)[name] = append(header(m)[name], value) }
}

// WithHeaders adds all of h, names in the case they have.
func WithHeaders(h Header) PublishOption {
	return func(m *nats.Msg) {
		for name, values := range h {
			header(m)[name] = append(header(m)[name], values...)
		}
	}
}

// ReplyTo says where answers go. Durable publishes ignore it: their reply is the
// receipt.
func ReplyTo(subject string) PublishOption { return func(m *nats.Msg) { m.Reply = subject } }

// MessageID makes a durable publish idempotent: within the topic's duplicate
// window a second one under the same id is not stored again.
func MessageID(id string) PublishOption { return set(nats.MsgIdHdr, id) }

// ExpectTopic refuses the message unless this topic captures it.
func ExpectTopic(name string) PublishOption { return set(nats.ExpectedStreamHdr, name) }

// ExpectLast refuses the message (ErrConflict) unless the topic's last sequence
// is this one; 0 means an empty topic.
func ExpectLast(sequence uint64) PublishOption {
	return set(nats.ExpectedLastSeqHdr, strconv.FormatUint(sequence, 10))
}

// ExpectLastOfSubject refuses the message (ErrConflict) unless the last sequence
// of its subject is this one; 0 means none yet.
func ExpectLastOfSubject(sequence uint64) PublishOption {
	return set(nats.ExpectedLastSubjSeqHdr, strconv.FormatUint(sequence, 10))
}

// TTL lets the message expire by itself, on topics that allow it; at least 1 s.
func TTL(d time.Duration) PublishOption { return set(jetstream.MsgTTLHeader, d.String()) }

func set(name, value string) PublishOption {
	return func(m *nats.Msg) { header(m)[name] = []string{value} }
}

func header(m *nats.Msg) nats.Header {
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	return m.Header
}

func build(subject string, payload []byte, options []PublishOption) *nats.Msg {
	m := &nats.Msg{Subject: subject, Data: payload}
	for _, option := range options {
		option(m)
	}
	return m
}

// Receipt is the proof that a message is stored on a majority of replicas.
type Receipt struct {
	Topic     string `json:"topic"`
	Sequence  uint64 `json:"sequence"`
	Duplicate bool   `json:"duplicate,omitempty"` // Sequence is that of the first one
}

// Publish sends a live message. It returns when the message is in the
// connection's buffer; a broker's refusal arrives at [OnError]. The payload may
// be reused on return.
func (c *Client) Publish(subject string, payload []byte, options ...PublishOption) error {
	return failed("publish to", subject, c.nc.PublishMsg(build(subject, payload, options)))
}

// Request publishes and waits for the first answer. Nobody listening is
// ErrNoResponders, at once.
func (c *Client) Request(ctx context.Context, subject string, payload []byte, options ...PublishOption) (*Message, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	m, err := c.nc.RequestMsgWithContext(ctx, build(subject, payload, options))
	if err != nil {
		return nil, failed("request", subject, err)
	}
	return fromLive(m), nil
}

// PublishDurable stores a message in the topic that captures its subject and
// returns once it is on the disks of a majority. No such topic is
// ErrNoResponders.
func (c *Client) PublishDurable(ctx context.Context, subject string, payload []byte, options ...PublishOption) (Receipt, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	m := build(subject, payload, options)
	m.Reply = ""
	ack, err := c.js.PublishMsg(ctx, m)
	if err != nil {
		return Receipt{}, failed("store message of", subject, err)
	}
	return receipt(ack), nil
}

func receipt(ack *jetstream.PubAck) Receipt {
	return Receipt{Topic: ack.Stream, Sequence: ack.Sequence, Duplicate: ack.Duplicate}
}

// Future is a durable publish on its way.
type Future struct {
	subject string
	ack     jetstream.PubAckFuture
	done    chan struct{} // closed by whoever resolved it first

	once    chan struct{} // one token: the right to read ack's channels
	receipt Receipt
	err     error
}

// PublishAsync sends a durable message without waiting for its receipt. When
// [PublishWindow] messages are without receipt it blocks until one arrives or
// ctx ends. Messages of one goroutine are sent in order. The payload must not
// change until the future is done.
func (c *Client) PublishAsync(ctx context.Context, subject string, payload []byte, options ...PublishOption) (*Future, error) {
	select {
	case c.slots <- struct{}{}:
	default:
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, failed("store message of", subject, fmt.Errorf("the window of %d unacknowledged messages is full: %w", cap(c.slots), ctx.Err()))
		}
	}
	m := build(subject, payload, options)
	m.Reply = ""
	ack, err := c.js.PublishMsgAsync(m)
	if err != nil {
		c.freeSlot()
		return nil, failed("store message of", subject, err)
	}
	f := &Future{subject: subject, ack: ack, done: make(chan struct{}), once: make(chan struct{}, 1)}
	f.once <- struct{}{}
	return f, nil
}

// Wait returns the receipt, or the error that came instead of it. It may be
// called any number of times, by anybody. When ctx ends first the error matches
// ErrTimeout (or context.Canceled) and the publish stays on its way.
func (f *Future) Wait(ctx context.Context) (Receipt, error) {
	select {
	case <-f.done:
		return f.receipt, f.err
	case <-ctx.Done():
		return Receipt{}, failed("wait for the receipt of", f.subject, ctx.Err())
	case <-f.once:
	}
	// This caller alone reads the channels of nats.go, which carry one value.
	select {
	case ack := <-f.ack.Ok():
		f.receipt = receipt(ack)
	case err := <-f.ack.Err():
		f.err = failed("store message of", f.subject, err)
	case <-ctx.Done():
		f.once <- struct{}{}
		return Receipt{}, failed("wait for the receipt of", f.subject, ctx.Err())
	}
	close(f.done)
	return f.receipt, f.err
}

// Item is one message of a batch.
type Item struct {
	Subject string
	Payload []byte
	Options []PublishOption
}

// PublishBatch stores all items, pipelined within the publish window, and
// returns their receipts in order. It is not atomic: on error the receipts of
// the items that were stored have a Sequence, the others none, and the error
// joins what went wrong with each.
func (c *Client) PublishBatch(ctx context.Context, items []Item) ([]Receipt, error) {
	receipts := make([]Receipt, len(items))
	futures := make([]*Future, 0, len(items))
	var errs []error
	for _, item := range items {
		f, err := c.PublishAsync(ctx, item.Subject, item.Payload, item.Options...)
		if err != nil {
			errs = append(errs, err)
			break
		}
		futures = append(futures, f)
	}
	for i, f := range futures {
		r, err := f.Wait(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("item %d: %w", i, err))
			continue
		}
		receipts[i] = r
	}
	return receipts, errors.Join(errs...)
}

// Subject is what the future's message was published to.
func (f *Future) Subject() string { return f.subject }

// MessageIDHeader carries the id set by [MessageID].
const MessageIDHeader = nats.MsgIdHdr
