package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The metadata by which a consumer asks for more than JetStream has.
const (
	keyWhere = "herald.where"
	keyDead  = "herald.dlq.subject"
	keyOrder = "herald.key"
)

// DeadLetters names the subject to which a new durable reader's messages go that were
// delivered [MaxDeliver] times or terminated ([Message.Term]), with headers that say why
// (Herald-Dead-…), instead of just being given up. A topic must keep the subject.
func DeadLetters(subject string) SubscribeOption {
	return func(s *subscription) { s.dead = subject }
}

// ByKey gives a new durable reader, however many share it, at most one message of each
// key at a time, in the topic's order, instead of any messages. key is "header:NAME",
// "json:/pointer/into/the/payload" or "token:N" (of the subject, from 1). The others of a
// key wait, and count against [MaxInFlight].
func ByKey(key string) SubscribeOption { return func(s *subscription) { s.key = key } }

// metadata is that of a consumer, nil when it asks for nothing.
func (s *subscription) metadata() map[string]string {
	var m map[string]string
	for key, value := range map[string]string{keyWhere: s.where, keyCodec: s.codecKey(), keyDead: s.dead, keyOrder: s.key} {
		if value == "" {
			continue
		}
		if m == nil {
			m = map[string]string{}
		}
		m[key] = value
	}
	return m
}

// codecKey is the codec as metadata has it: "" for JSON, and without a condition.
func (s *subscription) codecKey() string {
	if s.where == "" || s.codec == "json" {
		return ""
	}
	return s.codec
}

// differs says in what an existing reader differs from what is asked for, "" if in
// nothing.
func (s *subscription) differs(metadata map[string]string) string {
	for _, row := range []struct{ key, want, what string }{
		{keyWhere, s.where, "condition"},
		{keyCodec, s.codecKey(), "codec"},
		{keyDead, s.dead, "subject for dead letters"},
		{keyOrder, s.key, "key"},
	} {
		if has := metadata[row.key]; has != row.want {
			if has == "" {
				return "no " + row.what
			}
			return "the " + row.what + " " + strconv.Quote(has)
		}
	}
	return ""
}

// Seek moves a reader to a sequence of its topic: that message, or the first behind it,
// is the next that it gets. What was delivered and not acknowledged is forgotten. The
// reader keeps its name and settings.
func (c *Client) Seek(ctx context.Context, topic, reader string, sequence uint64) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	target := topic + "/" + reader
	m := nats.NewMsg(c.api() + ".CONSUMER.RESET." + topic + "." + reader)
	m.Header.Set("Herald-Seek", "any") // wherever its deliver policy let it start
	m.Data = []byte(`{"seq":` + strconv.FormatUint(max(sequence, 1), 10) + `}`)
	answer, err := c.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return failed("seek in", target, err)
	}
	var reply struct {
		Error *jetstream.APIError `json:"error"`
		Seq   uint64              `json:"reset_seq"`
	}
	if err := json.Unmarshal(answer.Data, &reply); err != nil {
		return failed("seek in", target, err)
	}
	switch {
	case reply.Error != nil:
		return failed("seek in", target, reply.Error)
	case reply.Seq == 0:
		return failed("seek in", target, errors.New("the server can't move consumers"))
	}
	return nil
}

func (c *Client) api() string {
	if c.set.domain != "" {
		return "$JS." + c.set.domain + ".API"
	}
	return "$JS.API"
}

// SequenceAt returns the sequence of the first message that a topic stored at t or
// later; that of the next one to come when there is none.
func (c *Client) SequenceAt(ctx context.Context, topic string, t time.Time) (uint64, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	cfg := Since(t).Apply(ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: readerIdle})
	reader, err := c.js.CreateConsumer(ctx, topic, cfg) // it says where it starts
	if err != nil {
		return 0, failed("find a time in", topic, err)
	}
	c.forget(topic, reader)
	return reader.CachedInfo().Delivered.Stream + 1, nil
}

// DeleteMessage removes one message of a topic. One that isn't there is ErrNotFound.
func (c *Client) DeleteMessage(ctx context.Context, topic string, sequence uint64) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	target := fmt.Sprintf("%d of %s", sequence, topic)
	s, err := c.js.Stream(ctx, topic)
	if err != nil {
		return failed("delete message", target, err)
	}
	if _, err = s.GetMsg(ctx, sequence); err == nil {
		err = s.DeleteMsg(ctx, sequence)
	}
	return failed("delete message", target, err)
}

// Scan is what a topic has stored, to be read once.
type Scan struct {
	Topic   string
	Subject string   // pattern; "" is all
	From    Position // where to begin
	Until   uint64   // the last sequence to read; 0: what is stored when it begins
	Where   string   // condition, as with [Where]
}

// Scan calls handle with stored messages, in order and without gaps, until the last of
// them or an error of handle, which it returns. It does not wait for messages to come.
func (c *Client) Scan(ctx context.Context, what Scan, handle func(*Message) error) error {
	if what.Until == 0 {
		info, err := c.Topic(ctx, what.Topic)
		if err != nil {
			return err
		}
		if what.Until = info.State.LastSeq; what.Until == 0 {
			return nil
		}
	}
	for {
		again, err := c.scanOnce(ctx, &what, handle)
		if err != nil || !again {
			return err
		}
	}
}

// scanOnce reads with one consumer; again tells that a message was lost on the way,
// behind which what.From is left.
func (c *Client) scanOnce(ctx context.Context, what *Scan, handle func(*Message) error) (again bool, err error) {
	set := subscription{where: what.Where}
	cfg := what.From.Apply(ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: readerIdle, MemoryStorage: true, Metadata: set.metadata(),
	})
	if cfg.FilterSubject = what.Subject; what.Subject == "" && what.From == LastPerSubject() {
		cfg.FilterSubject = ">"
	}
	making, cancel := c.bounded(ctx)
	reader, err := c.js.CreateConsumer(making, what.Topic, cfg)
	cancel()
	if err != nil {
		return false, failed("read topic", what.Topic, err)
	}
	defer c.forget(what.Topic, reader)
	for number := uint64(1); ; {
		batch, err := reader.FetchNoWait(scanBatch)
		if err != nil {
			return false, failed("read topic", what.Topic, err)
		}
		got := false
		for msg := range batch.Messages() {
			m, merr := fromDurable(msg, false)
			md, _ := msg.Metadata()
			switch {
			case err != nil || again: // what was fetched ahead
				continue
			case merr != nil:
				err = merr
			case md.Sequence.Consumer != number:
				again = true
			case m.Stored.Sequence > what.Until:
				err = errScanned
			default:
				got = true
				number++
				what.From = At(m.Stored.Sequence + 1)
				if err = handle(m); err == nil && m.Stored.Sequence == what.Until {
					err = errScanned
				}
			}
		}
		switch {
		case errors.Is(err, errScanned):
			return false, nil
		case err != nil || again:
			return again, err
		case batch.Error() != nil && !errors.Is(batch.Error(), jetstream.ErrNoMessages):
			return false, failed("read topic", what.Topic, batch.Error())
		case !got:
			return false, ctx.Err()
		}
	}
}

const scanBatch = 500

var errScanned = errors.New("all has been read")
