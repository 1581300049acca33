package client

import (
	"cmp"
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A topic is what JetStream calls a stream, so its settings and state are those
// types: programs written against either speak about the same thing.
type (
	// TopicConfig is what a topic is asked to be. Only Name and Subjects are
	// needed; the zero value of the rest is the broker's default.
	TopicConfig = jetstream.StreamConfig
	// TopicInfo is a topic's settings, age and counters at one moment.
	TopicInfo = jetstream.StreamInfo
	// ConsumerConfig is what a named reader of a topic is asked to be.
	ConsumerConfig = jetstream.ConsumerConfig
	// ConsumerInfo is a reader's settings and progress at one moment.
	ConsumerInfo = jetstream.ConsumerInfo
)

// CreateTopic creates a topic and returns when a majority holds it. A topic of
// the same name and settings is left as it is; one of other settings is
// ErrConflict.
func (c *Client) CreateTopic(ctx context.Context, cfg TopicConfig) (*TopicInfo, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	s, err := c.js.CreateStream(ctx, cfg)
	if err != nil {
		return nil, failed("create topic", cfg.Name, err)
	}
	return s.CachedInfo(), nil
}

// UpdateTopic changes the settings of a topic that exists.
func (c *Client) UpdateTopic(ctx context.Context, cfg TopicConfig) (*TopicInfo, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	s, err := c.js.UpdateStream(ctx, cfg)
	if err != nil {
		return nil, failed("update topic", cfg.Name, err)
	}
	return s.CachedInfo(), nil
}

// Topic returns a topic's settings and counters.
func (c *Client) Topic(ctx context.Context, name string) (*TopicInfo, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	s, err := c.js.Stream(ctx, name)
	if err != nil {
		return nil, failed("read topic", name, err)
	}
	return s.CachedInfo(), nil
}

// TopicSubjects returns the subjects of a topic that match pattern ("" or ">"
// is all) with the number of messages each has.
func (c *Client) TopicSubjects(ctx context.Context, name, pattern string) (map[string]uint64, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	if pattern == "" {
		pattern = ">"
	}
	s, err := c.js.Stream(ctx, name)
	if err != nil {
		return nil, failed("read topic", name, err)
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(pattern))
	if err != nil {
		return nil, failed("read topic", name, err)
	}
	return info.State.Subjects, nil
}

// TopicOf returns the name of the topic that captures a subject, or the first
// that overlaps a pattern.
func (c *Client) TopicOf(ctx context.Context, subject string) (string, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	name, err := c.js.StreamNameBySubject(ctx, subject)
	return name, failed("find the topic of", subject, err)
}

// Topics returns all topics of the account, sorted by name.
func (c *Client) Topics(ctx context.Context) ([]*TopicInfo, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	lister := c.js.ListStreams(ctx)
	all := []*TopicInfo{}
	for info := range lister.Info() {
		all = append(all, info)
	}
	return all, failed("list topics", "", lister.Err())
}

// TopicNames returns the names of all topics of the account.
func (c *Client) TopicNames(ctx context.Context) ([]string, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	lister := c.js.StreamNames(ctx)
	names := []string{}
	for name := range lister.Name() {
		names = append(names, name)
	}
	return names, failed("list topics", "", lister.Err())
}

// DeleteTopic deletes a topic with its messages and consumers.
func (c *Client) DeleteTopic(ctx context.Context, name string) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return failed("delete topic", name, c.js.DeleteStream(ctx, name))
}

// Purge says which messages [Client.PurgeTopic] removes; the zero value is all.
type Purge struct {
	Subject string // only messages that match
	Before  uint64 // only those with a lower sequence
	Keep    uint64 // all but the newest of them; not together with Before
}

// PurgeTopic removes messages of a topic.
func (c *Client) PurgeTopic(ctx context.Context, name string, p Purge) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	s, err := c.js.Stream(ctx, name)
	if err != nil {
		return failed("purge topic", name, err)
	}
	var options []jetstream.StreamPurgeOpt
	if p.Subject != "" {
		options = append(options, jetstream.WithPurgeSubject(p.Subject))
	}
	if p.Before != 0 {
		options = append(options, jetstream.WithPurgeSequence(p.Before))
	}
	if p.Keep != 0 {
		options = append(options, jetstream.WithPurgeKeep(p.Keep))
	}
	return failed("purge topic", name, s.Purge(ctx, options...))
}

// Message returns the message a topic stores at a sequence.
func (c *Client) Message(ctx context.Context, topic string, sequence uint64) (*Message, error) {
	return c.message(ctx, topic, func(ctx context.Context, s jetstream.Stream) (*jetstream.RawStreamMsg, error) {
		return s.GetMsg(ctx, sequence)
	})
}

// LastMessage returns the newest message a topic stores of a subject.
func (c *Client) LastMessage(ctx context.Context, topic, subject string) (*Message, error) {
	return c.message(ctx, topic, func(ctx context.Context, s jetstream.Stream) (*jetstream.RawStreamMsg, error) {
		return s.GetLastMsgForSubject(ctx, subject)
	})
}

// NextMessage returns the first message at or after a sequence that matches a
// subject pattern.
func (c *Client) NextMessage(ctx context.Context, topic, subject string, from uint64) (*Message, error) {
	return c.message(ctx, topic, func(ctx context.Context, s jetstream.Stream) (*jetstream.RawStreamMsg, error) {
		return s.GetMsg(ctx, from, jetstream.WithGetMsgSubject(subject))
	})
}

func (c *Client) message(ctx context.Context, topic string, get func(context.Context, jetstream.Stream) (*jetstream.RawStreamMsg, error)) (*Message, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	s, err := c.js.Stream(ctx, topic)
	if err != nil {
		return nil, failed("read topic", topic, err)
	}
	raw, err := get(ctx, s)
	if err != nil {
		return nil, failed("read a message of", topic, err)
	}
	if s.CachedInfo().Config.AllowDirect {
		withoutPlace(raw.Header)
	}
	return fromRaw(topic, raw), nil
}

// withoutPlace takes out what a direct get has put behind a message's own headers: where
// it is stored, which is told elsewhere.
func withoutPlace(h nats.Header) {
	for _, name := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"} {
		if values := h[name]; len(values) > 1 {
			h[name] = values[:len(values)-1]
		} else {
			delete(h, name)
		}
	}
}

// CreateConsumer creates a named reader of a topic. One of the same name and
// settings is left as it is; one of other settings is ErrConflict.
func (c *Client) CreateConsumer(ctx context.Context, topic string, cfg ConsumerConfig) (*ConsumerInfo, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	consumer, err := c.js.CreateConsumer(ctx, topic, cfg)
	if err != nil {
		return nil, failed("create consumer", topic+"/"+cmp.Or(cfg.Name, cfg.Durable), err)
	}
	return consumer.CachedInfo(), nil
}

// Consumer returns a reader's settings and progress, be it pull or push.
func (c *Client) Consumer(ctx context.Context, topic, name string) (*ConsumerInfo, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	consumer, err := c.js.Consumer(ctx, topic, name)
	if err == nil {
		return consumer.CachedInfo(), nil
	}
	if !errors.Is(err, jetstream.ErrNotPullConsumer) {
		return nil, failed("read consumer", topic+"/"+name, err)
	}
	push, err := c.js.PushConsumer(ctx, topic, name)
	if err != nil {
		return nil, failed("read consumer", topic+"/"+name, err)
	}
	return push.CachedInfo(), nil
}

// Consumers returns all readers of a topic.
func (c *Client) Consumers(ctx context.Context, topic string) ([]*ConsumerInfo, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	s, err := c.js.Stream(ctx, topic)
	if err != nil {
		return nil, failed("read topic", topic, err)
	}
	lister := s.ListConsumers(ctx)
	all := []*ConsumerInfo{}
	for info := range lister.Info() {
		all = append(all, info)
	}
	return all, failed("list consumers of", topic, lister.Err())
}

// DeleteConsumer deletes a reader and its progress.
func (c *Client) DeleteConsumer(ctx context.Context, topic, name string) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return failed("delete consumer", topic+"/"+name, c.js.DeleteConsumer(ctx, topic, name))
}
