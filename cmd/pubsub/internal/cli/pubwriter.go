package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/record"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

// writer publishes and, for durable messages, checks every receipt.
type writer struct {
	a       *app
	c       *client.Client
	flags   pubFlags
	options []client.PublishOption

	known   map[string]bool // subjects known to have a topic
	pending []*client.Future
	stored  int
	last    client.Receipt
	doubled int
	bytes   int64

	conditions int // Nats-Expected-… headers dropped

	live map[string]int // nil: not wanted; messages that are not stored, of the first few subjects
}

// liveMax is for how many subjects it is looked whether anybody listens.
const liveMax = 3

// pendingMax bounds the futures kept; their receipts are checked in order.
const pendingMax = 4096

func (w *writer) write(ctx context.Context, m record.Message) error {
	options := append([]client.PublishOption{client.WithHeaders(m.Headers)}, w.options...)
	w.bytes += int64(len(m.Payload))
	if !w.flags.durable {
		if _, known := w.live[m.Subject]; w.live != nil && (known || len(w.live) < liveMax) {
			w.live[m.Subject]++
		}
		if m.Reply != "" {
			options = append(options, client.ReplyTo(m.Reply))
		}
		return w.c.Publish(m.Subject, m.Payload, options...)
	}
	if err := w.ensure(ctx, m.Subject); err != nil {
		return err
	}
	if w.flags.input == "ndjson" || w.flags.input == "json" {
		m = w.unconditional(m)
		options[0] = client.WithHeaders(m.Headers)
	}
	f, err := w.c.PublishAsync(ctx, m.Subject, m.Payload, options...)
	if err != nil {
		return err
	}
	w.pending = append(w.pending, f)
	if len(w.pending) >= pendingMax {
		return w.settle(ctx, pendingMax/2)
	}
	return nil
}

// unconditional drops the conditions of a message that was stored before: they
// were about the place it was stored in, and would refuse it anywhere else.
func (w *writer) unconditional(m record.Message) record.Message {
	kept := m.Headers
	for name := range m.Headers {
		if !strings.HasPrefix(name, "Nats-Expected-") {
			continue
		}
		if len(kept) == len(m.Headers) {
			kept = maps.Clone(m.Headers)
		}
		delete(kept, name)
		w.conditions++
	}
	m.Headers = kept
	return m
}

// settle waits for all but the newest keep receipts.
func (w *writer) settle(ctx context.Context, keep int) error {
	for len(w.pending) > keep {
		f := w.pending[0]
		w.pending = w.pending[1:]
		r, err := f.Wait(ctx)
		if err != nil {
			return w.a.storeProblem(ctx, err, f.Subject())
		}
		w.last = r
		w.stored++
		if r.Duplicate {
			w.doubled++
		}
	}
	return nil
}

func (w *writer) finish(ctx context.Context) error {
	if w.flags.durable {
		return w.settle(ctx, 0)
	}
	return w.c.Flush(ctx)
}

func (w *writer) summary(sent int) error {
	a := w.a
	if !w.flags.durable {
		a.ui.Note("published %s, %s", plural(sent, "message"), ui.Bytes(w.bytes))
		return nil
	}
	text := fmt.Sprintf("stored %s, %s", plural(w.stored, "message"), ui.Bytes(w.bytes))
	if w.doubled > 0 {
		text += fmt.Sprintf(" (%s already there)", ui.Count(w.doubled))
	}
	if w.stored > 0 {
		text += fmt.Sprintf(", the last in topic %s at %d", w.last.Topic, w.last.Sequence)
	}
	a.ui.Note("%s", text)
	if w.conditions > 0 {
		a.ui.Note("left out %s of the input: they were conditions for storing it the first time", plural(w.conditions, "Nats-Expected-… header"))
	}
	return nil
}

// ensure creates the topic of a subject unless there is one.
func (w *writer) ensure(ctx context.Context, subject string) error {
	if w.flags.noCreate || w.known[subject] {
		return nil
	}
	if len(w.known) > 10_000 {
		clear(w.known) // bounded: subjects may be unique to each message
	}
	_, err := w.c.TopicOf(ctx, subject)
	if err == nil {
		w.known[subject] = true
		return nil
	}
	if !errors.Is(err, client.ErrNotFound) {
		return err
	}
	name, pattern := topicFor(subject)
	if w.flags.topic != "" {
		name = w.flags.topic
	}
	info, err := createTopic(ctx, w.c, client.TopicConfig{Name: name, Subjects: []string{pattern}})
	if err != nil {
		return fmt.Errorf("create the topic of %q (or use --no-create): %w", subject, err)
	}
	w.a.ui.Note("created topic %s: %s", name, describe(info.Config))
	w.known[subject] = true
	return nil
}

// copies is how many replicas a topic gets in a cluster that is large enough, when nobody
// says otherwise: what is stored outlives a node.
const copies = 3

// createTopic creates a topic, with the default number of replicas if none is given.
func createTopic(ctx context.Context, c *client.Client, cfg client.TopicConfig) (*client.TopicInfo, error) {
	if cfg.Replicas != 0 || cfg.Mirror != nil {
		return c.CreateTopic(ctx, cfg)
	}
	cfg.Replicas = copies
	info, err := c.CreateTopic(ctx, cfg)
	var api *jetstream.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode {
		case 10074, 10005, 10023, 10058: // no cluster, too few nodes, or it is there with others
			cfg.Replicas = 1
			return c.CreateTopic(ctx, cfg)
		}
	}
	return info, err
}

// topicFor is the topic that a durable publish creates: named after the first
// token, capturing everything below it.
func topicFor(subject string) (name, pattern string) {
	first, _, more := strings.Cut(subject, ".")
	if !more {
		return first, first
	}
	return first, first + ".>"
}
