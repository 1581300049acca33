package client

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// DefaultURL is where a broker listens when nobody said otherwise.
const DefaultURL = "nats://127.0.0.1:4222"

// Client is one connection to a broker or cluster. It reconnects by itself.
type Client struct {
	// Set at construction.
	nc    *nats.Conn
	js    jetstream.JetStream
	set   settings
	owned bool // Close closes nc
	slots chan struct{}

	mu     sync.Mutex
	closed bool
	open   map[closer]struct{} // subscriptions, watches and publishers to end on Close
}

// closer is what Close of the client ends first.
type closer interface{ Close() error }

// Connect connects to one of the comma-separated URLs. An empty url is
// [DefaultURL]. The error matches ErrUnavailable when nothing answers and
// ErrRefused when the identity is not accepted.
func Connect(url string, options ...Option) (*Client, error) {
	if url == "" {
		url = DefaultURL
	}
	set := collect(options)
	opts := []nats.Option{
		nats.Name("herald-client"),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			target := ""
			if sub != nil {
				target = sub.Subject
			}
			set.onError(failed("connection", target, err))
		}),
	}
	nc, err := nats.Connect(url, append(opts, set.nats...)...)
	if err != nil {
		return nil, failed("connect to", url, err)
	}
	c, err := newClient(nc, set)
	if err != nil {
		nc.Close()
		return nil, err
	}
	c.owned = true
	return c, nil
}

// New puts a client on a connection the caller made and keeps: Close ends what
// the client started and leaves the connection open. Options about the
// connection itself are ignored.
func New(nc *nats.Conn, options ...Option) (*Client, error) { return newClient(nc, collect(options)) }

func collect(options []Option) settings {
	set := defaults()
	for _, option := range options {
		option(&set)
	}
	return set
}

func newClient(nc *nats.Conn, set settings) (*Client, error) {
	if set.window < 1 {
		return nil, invalid("connect", "", "a publish window of %d messages: it must be at least 1", set.window)
	}
	c := &Client{nc: nc, set: set, slots: make(chan struct{}, set.window), open: map[closer]struct{}{}}
	opts := []jetstream.JetStreamOpt{
		jetstream.WithDefaultTimeout(set.timeout),
		jetstream.WithPublishAsyncTimeout(set.publishTimeout),
		// The window is ours (c.slots), because it blocks with a context where
		// nats.go's gives up after a fixed wait; theirs only has to be wider.
		jetstream.WithPublishAsyncMaxPending(2*set.window + 16),
		jetstream.WithPublishAsyncAckHandler(func(jetstream.JetStream, *nats.Msg, *jetstream.PubAck) { c.freeSlot() }),
		jetstream.WithPublishAsyncErrHandler(func(jetstream.JetStream, *nats.Msg, error) { c.freeSlot() }),
	}
	var err error
	if set.domain != "" {
		c.js, err = jetstream.NewWithDomain(nc, set.domain, opts...)
	} else {
		c.js, err = jetstream.New(nc, opts...)
	}
	if err != nil {
		return nil, failed("connect", "", err)
	}
	return c, nil
}

// Conn is the connection underneath, for what this package does not wrap.
func (c *Client) Conn() *nats.Conn { return c.nc }

// JetStream is the view of topics as streams, for what this package does not
// wrap.
func (c *Client) JetStream() jetstream.JetStream { return c.js }

// Flush returns when the broker has seen everything sent before.
func (c *Client) Flush(ctx context.Context) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return failed("flush", "", c.nc.FlushWithContext(ctx))
}

// Close ends subscriptions, watches and advertisements' renewals, sends what is
// buffered and closes the connection. Asynchronous publishes still without
// receipt fail with ErrClosed; wait for their futures first.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	parts := make([]closer, 0, len(c.open))
	for part := range c.open {
		parts = append(parts, part)
	}
	c.mu.Unlock()

	for _, part := range parts {
		// The parts report to their own callers; here only the end matters.
		_ = part.Close()
	}
	c.js.CleanupPublisher()
	if !c.owned {
		return nil
	}
	var err error
	if c.nc.IsConnected() {
		err = c.nc.FlushTimeout(c.set.timeout)
	}
	c.nc.Close()
	return failed("close", "", err)
}

// adopt makes Close of the client end part; it tells whether the client is
// still open.
func (c *Client) adopt(part closer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.open[part] = struct{}{}
	return true
}

func (c *Client) release(part closer) {
	c.mu.Lock()
	delete(c.open, part)
	c.mu.Unlock()
}

// freeSlot ends one asynchronous publish. It never blocks: nats.go may report a
// publish as failed that PublishAsync has given up on already.
func (c *Client) freeSlot() {
	select {
	case <-c.slots:
	default:
	}
}

// bounded gives ctx the client's time-out unless it has a deadline.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.set.timeout)
}
