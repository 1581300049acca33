package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Handler is called with each message, one at a time per subscription. For a
// durable subscription returning nil acknowledges the message and an error asks
// for it again (unless [ManualAck]); errors go to [OnError] as well.
type Handler func(*Message) error

// SubscribeOption changes one property of a subscription from its default.
type SubscribeOption func(*subscription)

type subscription struct {
	queue       string
	where       string
	codec       string
	dead        string
	key         string
	topic       string
	name        string
	from        *Position
	manual      bool
	headersOnly bool
	ackWait     time.Duration
	inFlight    int
	maxDeliver  int
	retryDelay  time.Duration
}

// Queue shares a live subscription's messages among all members of the group,
// instead of each getting all.
func Queue(group string) SubscribeOption { return func(s *subscription) { s.queue = group } }

// Durable names a reader whose place is kept by the broker, instead of reading
// live. All subscriptions of one name share its messages. A reader that exists
// goes on where it was; a new one starts at [From].
func Durable(name string) SubscribeOption { return func(s *subscription) { s.name = name } }

// From starts at a position of the topic, instead of live (or, for a new
// [Durable] reader, at the first message). Without [Durable] the reader is
// private, ordered, without gaps, and needs no acknowledgement.
func From(p Position) SubscribeOption { return func(s *subscription) { s.from = &p } }

// InTopic reads this topic, instead of the one that captures the subject.
func InTopic(name string) SubscribeOption { return func(s *subscription) { s.topic = name } }

// ManualAck leaves acknowledging to the handler, instead of acknowledging when
// it returns.
func ManualAck() SubscribeOption { return func(s *subscription) { s.manual = true } }

// AckWait is how long a new durable reader may keep a message before it is
// delivered again, instead of 30 s.
func AckWait(d time.Duration) SubscribeOption { return func(s *subscription) { s.ackWait = d } }

// MaxInFlight bounds a new durable reader's unacknowledged messages, instead of
// 1,000.
func MaxInFlight(messages int) SubscribeOption {
	return func(s *subscription) { s.inFlight = messages }
}

// MaxDeliver bounds how often a new durable reader gets one message, instead of
// until it is acknowledged.
func MaxDeliver(times int) SubscribeOption { return func(s *subscription) { s.maxDeliver = times } }

// RetryDelay is how long a message rests after its handler failed, instead of
// being delivered again at once.
func RetryDelay(d time.Duration) SubscribeOption { return func(s *subscription) { s.retryDelay = d } }

// HeadersOnly leaves payloads out of a durable subscription, instead of sending
// whole messages.
func HeadersOnly() SubscribeOption { return func(s *subscription) { s.headersOnly = true } }

// Subscription is a running subscription.
type Subscription struct {
	client  *Client
	subject string
	topic   string // "" for a live one
	halt    func() error
	done    chan struct{}
	live    *nats.Subscription

	stopping atomic.Bool        // durable: hand back what still comes
	handled  atomic.Uint64      // durable: the delivery number of the last message that the handler returned from
	reader   jetstream.Consumer // durable; nil for a live one
	private  bool               // of reader: it is nobody else's

	stop sync.Once
	err  error
}

// Subject is the pattern subscribed to.
func (s *Subscription) Subject() string { return s.subject }

// Topic is the topic read from; "" for a live subscription.
func (s *Subscription) Topic() string { return s.topic }

// Dropped counts live messages lost because the handler was slower than they
// came. Durable subscriptions lose none.
func (s *Subscription) Dropped() int {
	if s.live == nil {
		return 0
	}
	n, err := s.live.Dropped()
	if err != nil {
		return 0
	}
	return n
}

// CaughtUp asks the broker whether everything that was stored when it was asked is
// through: it has been handled here, or does not match; of a named reader also acknowledged
// by all who share it. Without this a reader can't tell that nothing more of what is stored
// will come, because what a [Where] leaves out isn't sent. Live subscriptions never are.
func (s *Subscription) CaughtUp(ctx context.Context) (bool, error) {
	if s.reader == nil {
		return false, nil
	}
	ctx, cancel := s.client.bounded(ctx)
	defer cancel()
	info, err := s.reader.Info(ctx)
	if err != nil {
		return false, failed("ask for the place in", s.topic, err)
	}
	if info.NumPending > 0 {
		return false, nil
	}
	if s.private { // one that was made anew and has delivered nothing began behind what was handled
		return info.Delivered.Consumer == 0 || info.Delivered.Consumer == s.handled.Load(), nil
	}
	return info.NumAckPending == 0, nil
}

// Buffer bounds what waits for the handler of a live subscription, instead of
// 524,288 messages and 64 MiB; more is dropped. -1 is no bound. Durable
// subscriptions fetch no more than they can hold, and ignore it.
func (s *Subscription) Buffer(messages, bytes int) error {
	if s.live == nil {
		return nil
	}
	return failed("set the buffer of", s.subject, s.live.SetPendingLimits(messages, bytes))
}

// Done is closed when the last call of the handler has returned.
func (s *Subscription) Done() <-chan struct{} { return s.done }

// Stop ends the subscription without waiting for the handler; it is what a
// handler calls. Messages not yet handled are dropped (live) or go back to the
// broker (durable).
func (s *Subscription) Stop() error {
	s.stop.Do(func() {
		s.client.release(s)
		s.err = failed("unsubscribe from", s.subject, s.halt())
	})
	return s.err
}

// Close is Stop, and waits until the handler has returned for the last time.
func (s *Subscription) Close() error {
	err := s.Stop()
	<-s.done
	return err
}

// Subscribe calls handle with the messages of a subject pattern: live ones
// without options, stored ones with [From] or [Durable]. The subscription is
// known to the broker on return: what is published after it arrives.
func (c *Client) Subscribe(subject string, handle Handler, options ...SubscribeOption) (*Subscription, error) {
	var set subscription
	for _, option := range options {
		option(&set)
	}
	s := &Subscription{client: c, subject: subject, done: make(chan struct{})}
	if !c.adopt(s) {
		return nil, &Error{Op: "subscribe to", Target: subject, Kind: ErrClosed, Err: errors.New("the client is closed")}
	}
	var err error
	switch {
	case set.name == "" && (set.dead != "" || set.key != ""):
		err = invalid("subscribe to", subject, "DeadLetters and ByKey are for a reader that acknowledges: give it a Durable name")
	case set.name == "" && set.from == nil && set.topic == "":
		err = c.subscribeLive(s, handle, set)
	case set.queue != "":
		err = invalid("subscribe to", subject, "a durable subscription has no queue group: readers of one Durable name share its messages")
	default:
		err = c.subscribeDurable(s, handle, set)
	}
	if err != nil {
		c.release(s)
		return nil, failed("subscribe to", subject, err)
	}
	return s, nil
}

func (c *Client) subscribeLive(s *Subscription, handle Handler, set subscription) error {
	deliver := func(msg *nats.Msg) {
		if err := handle(fromLive(msg)); err != nil {
			c.set.onError(failed("handle a message of", msg.Subject, err))
		}
	}
	var sub *nats.Subscription
	var err error
	from, id := s.subject, ""
	ctx, cancel := c.bounded(context.Background())
	defer cancel()
	if set.where != "" {
		f, err := c.filter(ctx, s.subject, set, "")
		if err != nil {
			return err
		}
		from, id = f.Subject, f.ID
	}
	if set.queue != "" {
		sub, err = c.nc.QueueSubscribe(from, set.queue, deliver)
	} else {
		sub, err = c.nc.Subscribe(from, deliver)
	}
	if err != nil {
		return err
	}
	sub.SetClosedHandler(func(string) { close(s.done) })
	if id != "" {
		go c.keepFiltered(s, set, id, s.done) // ends with the subscription
	}
	s.live = sub
	s.halt = func() error {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
			return err
		}
		return nil
	}
	if err := c.nc.FlushWithContext(ctx); err != nil {
		return errors.Join(err, s.halt())
	}
	return nil
}

func (c *Client) subscribeDurable(s *Subscription, handle Handler, set subscription) error {
	ctx, cancel := c.bounded(context.Background())
	defer cancel()
	if set.topic == "" {
		topic, err := c.js.StreamNameBySubject(ctx, s.subject)
		if err != nil {
			return err
		}
		set.topic = topic
	}
	s.topic = set.topic
	reader, err := c.reader(ctx, s.subject, set)
	if err != nil {
		return err
	}
	acks := set.name != ""
	consume := []jetstream.PullConsumeOpt{jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		c.set.onError(failed("read topic", set.topic, err))
	}), jetstream.PullHeartbeat(pullBeat)}
	if set.inFlight > 0 {
		consume = append(consume, jetstream.PullMaxMessages(set.inFlight))
	}
	running, err := reader.Consume(func(msg jetstream.Msg) {
		if s.stopping.Load() {
			_ = msg.Nak() // when this is lost, it comes again after the ack wait
			return
		}
		c.deliver(msg, handle, acks, set)
		if md, err := msg.Metadata(); err == nil {
			s.handled.Store(md.Sequence.Consumer)
		}
	}, consume...)
	if err != nil {
		return err
	}
	s.reader, s.private = reader, !acks
	s.halt = func() error {
		if !acks {
			running.Stop()
			return nil
		}
		// What was fetched ahead goes back now, for other readers of the name.
		s.stopping.Store(true)
		running.Drain()
		return nil
	}
	go func() { // ends with the subscription, which Close waits for
		<-running.Closed()
		if !acks {
			c.forget(set.topic, reader)
		}
		close(s.done)
	}()
	return nil
}

// forget deletes a private reader at once; should that fail, the broker does it
// when the reader has been idle for readerIdle.
func (c *Client) forget(topic string, reader jetstream.Consumer) {
	info := reader.CachedInfo()
	if info == nil || !c.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.js.DeleteConsumer(ctx, topic, info.Name)
}

const readerIdle = 30 * time.Second

// pullBeat is how often the broker shows that it still knows of us. When two are missing
// the reader asks again: a leader that was killed takes its waiting requests with it.
const pullBeat = 3 * time.Second

// reader finds or makes the consumer of a durable subscription.
func (c *Client) reader(ctx context.Context, subject string, set subscription) (jetstream.Consumer, error) {
	start := First()
	if set.from != nil {
		start = *set.from
	}
	var filters []string
	if subject != "" && subject != ">" {
		filters = []string{subject}
	}
	if set.name == "" {
		return c.js.OrderedConsumer(ctx, set.topic, jetstream.OrderedConsumerConfig{
			FilterSubjects: filters, DeliverPolicy: start.policy, OptStartSeq: start.sequence,
			OptStartTime: start.startTime(), HeadersOnly: set.headersOnly, InactiveThreshold: readerIdle,
			Metadata: set.metadata(),
		})
	}
	existing, err := c.js.Consumer(ctx, set.topic, set.name)
	if err == nil {
		info := existing.CachedInfo()
		have := info.Config.FilterSubjects
		if info.Config.FilterSubject != "" {
			have = []string{info.Config.FilterSubject}
		}
		if !slices.Equal(have, filters) && !(len(have) == 1 && have[0] == ">" && len(filters) == 0) {
			return nil, &Error{
				Op: "subscribe to", Target: subject, Kind: ErrConflict,
				Err: errors.New("reader " + set.name + " of topic " + set.topic + " exists and reads other subjects; use another name or delete it"),
			}
		}
		if what := set.differs(info.Config.Metadata); what != "" {
			return nil, &Error{
				Op: "subscribe to", Target: subject, Kind: ErrConflict,
				Err: errors.New("reader " + set.name + " of topic " + set.topic + " exists with " + what + "; use another name or delete it"),
			}
		}
		return existing, nil
	}
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, err
	}
	cfg := jetstream.ConsumerConfig{
		Durable: set.name, Name: set.name, DeliverPolicy: start.policy, OptStartSeq: start.sequence, OptStartTime: start.startTime(),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: set.ackWait, MaxAckPending: set.inFlight,
		MaxDeliver: set.maxDeliver, HeadersOnly: set.headersOnly, Metadata: set.metadata(),
	}
	if len(filters) == 1 {
		cfg.FilterSubject = filters[0]
	}
	return c.js.CreateConsumer(ctx, set.topic, cfg)
}

func (c *Client) deliver(msg jetstream.Msg, handle Handler, acks bool, set subscription) {
	m, err := fromDurable(msg, acks)
	if err != nil {
		c.set.onError(err)
		return
	}
	err = handle(m)
	if err != nil {
		c.set.onError(failed("handle a message of", m.Subject, err))
	}
	if set.manual || !acks {
		return
	}
	if err != nil {
		err = m.Nak(set.retryDelay)
	} else {
		err = m.Ack()
	}
	if err != nil {
		c.set.onError(err)
	}
}

// Fetch takes up to limit messages for a named reader, waiting until ctx ends (or
// the client's time-out) for the first of them. They must be acknowledged. None
// at all is ErrTimeout.
func (c *Client) Fetch(ctx context.Context, topic, reader string, limit int) ([]*Message, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	target := topic + "/" + reader
	consumer, err := c.js.Consumer(ctx, topic, reader)
	if err != nil {
		return nil, failed("fetch from", target, err)
	}
	var got []*Message
	take := func(batch jetstream.MessageBatch, err error) error {
		if err != nil {
			return err
		}
		for msg := range batch.Messages() {
			m, err := fromDurable(msg, true)
			if err != nil {
				return err
			}
			got = append(got, m)
		}
		return batch.Error()
	}
	if err := take(consumer.FetchNoWait(limit)); err != nil && !errors.Is(err, jetstream.ErrNoMessages) {
		return got, failed("fetch from", target, err)
	}
	if len(got) > 0 {
		return got, nil
	}
	deadline, _ := ctx.Deadline()
	wait := max(time.Until(deadline)-50*time.Millisecond, 50*time.Millisecond)
	if err := take(consumer.Fetch(1, jetstream.FetchMaxWait(wait))); err != nil && !errors.Is(err, nats.ErrTimeout) {
		return got, failed("fetch from", target, err)
	}
	if len(got) == 0 {
		return nil, &Error{Op: "fetch from", Target: target, Kind: ErrTimeout, Err: errors.New("no message came in time")}
	}
	return got, nil
}
