package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/record"
)

type subFlags struct {
	queue          string
	where          string
	codec          string
	dead, key      string
	durable        bool
	name           string
	topic          string
	all, last      bool
	lastPerSubject bool
	from, to       string
	since          string
	count          int
	wait           time.Duration
	ackWait        time.Duration
	inFlight       int
	headersOnly    bool
	noAck          bool
}

func (a *app) subCommand() *cobra.Command {
	var f subFlags
	cmd := &cobra.Command{
		Use:   "sub SUBJECT...",
		Short: "Subscribe, live or from anywhere in a topic",
		Long: `Print messages as they come. --durable reads them from the topic that captures
the subject; --all, --from, --since, --last say where to start and imply it.

A place for --from and --to is: ` + placeHelp + `.

--name reads as a named reader: the broker remembers its place, each message is
acknowledged after it is printed, and readers of one name share the messages.

It goes on until --count messages came, --to is reached, or it is interrupted.
With --wait it gives up when no message came for that long: exit code 5.`,
		Example: `  pubsub sub 'orders.>'
  pubsub sub --durable 'orders.>' --all
  pubsub sub 'orders.>' --from @1h --to end -o ndjson
  pubsub sub 'orders.>' --where 'amount > 100 && header["Region"] == "eu"'
  pubsub sub 'orders.>' --where 'amount > 100' --codec @order.proto#shop.Order
  pubsub sub 'orders.>' --name billing -o json --count 100 --wait 5s`,
		Args:              args(1, -1, "SUBJECT"),
		ValidArgsFunction: a.completeSubjects,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.sub(cmd, args, f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.where, "where", "", "only messages that this condition holds for (see pubsub filter test)")
	fl.StringVar(&f.codec, "codec", "json", "for --where: "+codecHelp+", or advertised")
	fl.StringVar(&f.queue, "queue", "", "share live messages with the members of this group")
	fl.BoolVarP(&f.durable, "durable", "d", false, "read from the topic")
	fl.StringVar(&f.name, "name", "", "read as this named reader and acknowledge")
	fl.StringVar(&f.dead, "dead-letters", "", "a new named reader's subject for messages that are given up (see pubsub dlq)")
	fl.StringVar(&f.key, "key", "", "a new named reader's key: at most one message of each at a time")
	fl.StringVar(&f.topic, "topic", "", "read from this topic")
	fl.BoolVar(&f.all, "all", false, "from the first stored message (--from start)")
	fl.BoolVar(&f.last, "last", false, "from the last stored message (--from last)")
	fl.BoolVar(&f.lastPerSubject, "last-per-subject", false, "from the last stored message of each subject")
	fl.StringVar(&f.from, "from", "", "where to start")
	fl.StringVar(&f.to, "to", "", "where to stop")
	fl.StringVar(&f.since, "since", "", "from this time or duration ago (--from @…)")
	fl.IntVarP(&f.count, "count", "c", 0, "stop after this many")
	fl.DurationVarP(&f.wait, "wait", "w", 0, "give up (exit code 5) when no message came for this long")
	fl.DurationVar(&f.ackWait, "ack-wait", 0, "a new named reader's time to acknowledge")
	fl.IntVar(&f.inFlight, "max-in-flight", 0, "a new named reader's unacknowledged messages")
	fl.BoolVar(&f.headersOnly, "headers-only", false, "leave payloads out (stored messages)")
	fl.BoolVar(&f.noAck, "no-ack", false, "don't acknowledge: a named reader gets the messages again")
	_ = cmd.RegisterFlagCompletionFunc("topic", a.completeTopics)
	_ = cmd.RegisterFlagCompletionFunc("from", fixed("start", "end", "new", "last"))
	_ = cmd.RegisterFlagCompletionFunc("to", fixed("end"))
	return cmd
}

// stop tells when a subscription has got what it came for.
type stop struct {
	count    int
	empty    bool // nothing to read at all
	sequence uint64
	time     time.Time
	bounded  bool // sequence or time say where the end is
}

// reading is what the flags of sub ask for.
type reading struct {
	stored bool
	from   place
	to     *place
	set    bool // a place was given
}

// start is the place the flags say to start at; set is false when none does.
func (f subFlags) start(cmd *cobra.Command, now time.Time) (from place, set bool, err error) {
	places := 0
	give := func(given bool, p place) {
		if given {
			from, places = p, places+1
		}
	}
	give(f.all, place{position: client.First()})
	give(f.last, place{position: client.Last()})
	give(f.lastPerSubject, place{position: client.LastPerSubject()})
	if f.since != "" {
		t, err := parseTime(f.since, now)
		if err != nil {
			return from, false, usage(cmd, "--since: %v", err)
		}
		give(true, place{position: client.Since(t), time: t})
	}
	if f.from != "" {
		p, err := parsePlace(f.from, now)
		if err != nil {
			return from, false, usage(cmd, "--from: %v", err)
		}
		give(true, p)
	}
	if places > 1 {
		return from, false, usage(cmd, "only one of --all, --last, --last-per-subject, --since and --from says where to start")
	}
	return from, places == 1, nil
}

func (f subFlags) reading(cmd *cobra.Command, now time.Time) (reading, error) {
	var r reading
	var err error
	if r.from, r.set, err = f.start(cmd, now); err != nil {
		return r, err
	}
	if f.to != "" {
		p, err := parsePlace(f.to, now)
		if err != nil {
			return r, usage(cmd, "--to: %v", err)
		}
		if !p.end && p.sequence == 0 && p.time.IsZero() {
			return r, usage(cmd, "--to is end, a sequence or a time (@…), not %q", f.to)
		}
		r.to = &p
	}
	r.stored = r.set || r.to != nil || f.durable || f.name != "" || f.topic != ""
	if r.stored && !r.set {
		r.from.position = client.Next()
		if r.to != nil || f.name != "" {
			r.from.position = client.First()
		}
	}
	if f.name == "" && (f.dead != "" || f.key != "") {
		return r, usage(cmd, "--dead-letters and --key are for a named reader: give it a --name")
	}
	if r.stored && f.queue != "" {
		return r, usage(cmd, "--queue is for live messages; stored ones are shared by the readers of one --name")
	}
	return r, nil
}

func (a *app) sub(cmd *cobra.Command, subjects []string, f subFlags) error {
	r, err := f.reading(cmd, a.env.Now())
	if err != nil {
		return err
	}
	if r.stored && len(subjects) > 1 {
		return usage(cmd, "one SUBJECT at a time can be read from a topic; use a wildcard")
	}
	c, err := a.connect(cmd)
	if err != nil {
		return err
	}
	if f.codec, err = a.codec(cmd, c, f.codec, subjects[0]); err != nil {
		return err
	}
	ctx := cmd.Context()
	until := stop{count: f.count}
	options := []client.SubscribeOption{client.Queue(f.queue), client.Where(f.where), client.Codec(f.codec)}
	if r.stored {
		if options, err = a.storedOptions(ctx, subjects[0], f, &r, &until); err != nil {
			return err
		}
	}
	if until.empty {
		a.ui.Note("nothing is stored there")
		return a.ui.Messages(a.env.Out).Close()
	}
	incoming := make(chan *client.Message, 256)
	ended := make(chan struct{})
	var subs []*client.Subscription
	defer func() {
		close(ended) // frees a handler that waits to hand over
		for _, s := range subs {
			_ = s.Close()
		}
		for { // what a named reader took and did not print goes back
			select {
			case m := <-incoming:
				_ = m.Nak(0)
			default:
				return
			}
		}
	}()
	for _, subject := range subjects {
		s, err := c.Subscribe(subject, func(m *client.Message) error {
			select {
			case incoming <- m:
			case <-ended:
			}
			return nil
		}, options...)
		if err != nil {
			return a.noTopicFor(ctx, err, subject)
		}
		subs = append(subs, s)
	}
	if err := a.refusal(); err != nil {
		return err
	}
	if r.stored {
		a.ui.Note("reading %s of topic %s from %s", subjects[0], subs[0].Topic(), r.from.position)
	} else {
		a.ui.Note("listening on %s", strings.Join(subjects, ", "))
		for _, subject := range subjects {
			a.hintSubscribed(ctx, subject)
		}
	}
	return a.print(ctx, incoming, subs, until, f)
}

// storedOptions turns places into options, asking the topic where it must.
func (a *app) storedOptions(ctx context.Context, subject string, f subFlags, r *reading, until *stop) ([]client.SubscribeOption, error) {
	topic := f.topic
	if topic == "" {
		var err error
		if topic, err = a.client.TopicOf(ctx, subject); err != nil {
			return nil, a.noTopicFor(ctx, err, subject)
		}
	}
	if r.from.back > 0 || r.to != nil {
		info, err := a.client.Topic(ctx, topic)
		if err != nil {
			return nil, a.topicProblem(ctx, err, topic)
		}
		last := info.State.LastSeq
		if r.from.back > 0 {
			first := uint64(1)
			if last > r.from.back {
				first = last - r.from.back + 1
			}
			r.from.position = client.At(first)
		}
		if r.to != nil {
			until.sequence, until.time, until.bounded = r.to.sequence, r.to.time, true
			if r.to.end || until.sequence > last {
				until.sequence = last
			}
			if until.sequence == 0 && until.time.IsZero() {
				until.empty = true
			}
			if !until.time.IsZero() && until.time.Before(a.env.Now()) {
				until.sequence = last
			}
		}
		if err := a.nothingLeft(ctx, topic, subject, r, until); err != nil {
			return nil, err
		}
	}
	options := []client.SubscribeOption{client.InTopic(topic), client.From(r.from.position), client.Where(f.where), client.Codec(f.codec)}
	if f.name != "" {
		options = append(options, client.Durable(f.name), client.ManualAck(), client.AckWait(f.ackWait), client.MaxInFlight(f.inFlight), client.DeadLetters(f.dead), client.ByKey(f.key))
	}
	if f.headersOnly {
		options = append(options, client.HeadersOnly())
	}
	return options, nil
}

// nothingLeft finds the last message that matches before the end, so that a
// bounded reading ends although the messages after it are of other subjects.
func (a *app) nothingLeft(ctx context.Context, topic, subject string, r *reading, until *stop) error {
	if r.to == nil || !r.to.end || until.empty {
		return nil
	}
	m, err := a.client.LastMessage(ctx, topic, subject)
	if errors.Is(err, client.ErrNotFound) {
		until.empty = true
		return nil
	}
	if err != nil {
		return err
	}
	until.sequence = m.Stored.Sequence
	until.empty = r.from.position.After(m.Stored.Sequence, m.Stored.Time)
	return nil
}

// print prints until it is enough.
func (a *app) print(ctx context.Context, incoming <-chan *client.Message, subs []*client.Subscription, until stop, f subFlags) error {
	buffered := bufio.NewWriterSize(a.env.Out, 64<<10)
	out := a.ui.Messages(buffered)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	rest := func() { // restarts the patience of --wait
		if f.wait > 0 {
			timer.Reset(f.wait)
		} else {
			timer.Stop()
		}
	}
	rest()
	quiet := time.NewTicker(lookEvery)
	defer quiet.Stop()
	next := func() (*client.Message, error) {
		select {
		case m := <-incoming:
			return m, nil
		default: // nothing at hand: show what there is before waiting
		}
		if err := buffered.Flush(); err != nil {
			return nil, err
		}
		for {
			select {
			case m := <-incoming:
				return m, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-timer.C:
				return nil, a.waitProblem(ctx, subs[0].Subject(), out.Count(), f)
			case <-quiet.C:
				if until.over(ctx, a.env.Now(), subs[0]) && len(incoming) == 0 {
					return nil, nil
				}
			case <-subs[0].Done():
				return nil, &problem{code: exitUnhealthy, what: "the subscription ended: the connection or the reader is gone", err: client.ErrClosed}
			}
		}
	}
	var err error
	for {
		var m *client.Message
		if m, err = next(); err != nil || m == nil || until.past(m) {
			break
		}
		rest()
		if err = out.Print(toRecord(m)); err != nil {
			break
		}
		if f.name != "" && !f.noAck {
			// Printed first: a message is acknowledged once it is out.
			if err = errors.Join(buffered.Flush(), m.Ack()); err != nil {
				break
			}
		}
		if until.reached(m, out.Count()) {
			break
		}
	}
	a.dropped(subs)
	return errors.Join(err, out.Close(), buffered.Flush())
}

// lookEvery is how often a bounded reading to which nothing comes asks whether all is read.
const lookEvery = 250 * time.Millisecond

// over tells whether nothing will come any more of what was asked for: the message that the
// end was found by may not match a condition, be another reader's, or be gone meanwhile.
// What can't be asked is asked again.
func (u *stop) over(ctx context.Context, now time.Time, s *client.Subscription) bool {
	if !u.bounded || now.Before(u.time) {
		return false
	}
	all, err := s.CaughtUp(ctx)
	return all && err == nil
}

// past tells whether m lies behind what was asked for.
func (u *stop) past(m *client.Message) bool {
	s := m.Stored
	return s != nil && (!u.time.IsZero() && s.Time.After(u.time) || u.sequence != 0 && s.Sequence > u.sequence)
}

// reached tells whether m, the n-th message, was the last that was asked for.
func (u *stop) reached(m *client.Message, n int) bool {
	return u.count > 0 && n >= u.count || u.sequence != 0 && m.Stored != nil && m.Stored.Sequence >= u.sequence
}

func (a *app) dropped(subs []*client.Subscription) {
	lost := 0
	for _, s := range subs {
		lost += s.Dropped()
	}
	if lost > 0 {
		a.ui.Warn("%s came faster than they could be printed and were lost; read them with --durable", plural(lost, "message"))
	}
}

// waitProblem says that nothing came, and what is there that was perhaps meant.
func (a *app) waitProblem(ctx context.Context, subject string, got int, f subFlags) error {
	what := fmt.Sprintf("no message in %s", f.wait)
	if got == 0 {
		what += suggestion(subject, a.liveSubjects(ctx))
	}
	if got > 0 {
		what = fmt.Sprintf("no further message in %s, after %s", f.wait, plural(got, "message"))
		if f.count > 0 {
			what += fmt.Sprintf(" of %d", f.count)
		}
	}
	return &problem{code: exitTimeout, what: what, err: client.ErrTimeout}
}

func toRecord(m *client.Message) record.Message {
	r := record.Message{Subject: m.Subject, Reply: m.Reply, Headers: m.Header, Payload: m.Payload}
	if s := m.Stored; s != nil {
		r.Topic, r.Sequence, r.Time, r.Delivered = s.Topic, s.Sequence, s.Time, s.Delivered
	}
	return r
}
