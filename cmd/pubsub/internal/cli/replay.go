package cli

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
	"github.com/heraldmq/herald/topics/subject"
	"github.com/heraldmq/herald/topics/transform"
)

type replayFlags struct {
	from, to, between    string
	subject, where       string
	rate, toSubject, id  string
	same, preview, plain bool
	count                int
}

func (a *app) replayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay TOPIC",
		Short: "Publish what a topic has stored once more, under other subjects",
		Long: `Publish stored messages again, from a place to a place, under the subjects that
--to-subject makes of theirs. What a topic captures is stored and acknowledged, the
rest is live.

A place is: ` + placeHelp + `. --range FROM..TO is both. What is stored when it
begins is all it sends.

--to-subject is a pattern: "test.>" puts "test." in front, {{wildcard(1)}} is the
first token that the * of --subject matched, a subject without wildcards takes all.
Sending them under their own subjects, which stores them in the topic once more,
needs --same.

--rate is max (the default), original (the pace at which they were stored), 2x, or
100/s.

Headers stay, but for conditions and ids of storing; Herald-Replay-Topic, -Sequence
and -Time say where a message comes from (not with --plain). With --id NAME stored
messages get ids, so that repeating the command stores nothing twice.`,
		Example: `  pubsub replay orders --from @1h --to-subject 'test.>' --preview
  pubsub replay orders --range 100..200 --to-subject 'test.>' --rate original
  pubsub replay orders --from -1000 --where 'amount > 100' --to-subject audit.big --rate 50/s`,
		Args: args(1, 1, "TOPIC"), ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error { return a.replay(cmd, args[0], f) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.from, "from", "start", "where to start")
	fl.StringVar(&f.to, "to", "end", "where to stop")
	fl.StringVar(&f.between, "range", "", "FROM..TO")
	fl.StringVar(&f.subject, "subject", ">", "only messages of these subjects")
	fl.StringVar(&f.where, "where", "", "only messages that this condition holds for")
	fl.StringVar(&f.rate, "rate", "max", "max, original, 2x or 100/s")
	fl.StringVar(&f.toSubject, "to-subject", "", "the subjects to publish under")
	fl.BoolVar(&f.same, "same", false, "publish under their own subjects")
	fl.BoolVar(&f.preview, "preview", false, "say what would be sent, and send nothing")
	fl.BoolVar(&f.plain, "plain", false, "add no headers")
	fl.StringVar(&f.id, "id", "", "name of this replay, for the ids of stored messages")
	fl.IntVarP(&f.count, "count", "c", 0, "stop after this many")
	_ = cmd.RegisterFlagCompletionFunc("rate", fixed("max", "original"))
	return a.changes(cmd)
}

// pace says when a message may go.
type pace struct {
	speed  float64       // of the original pace; 0: not paced by it
	every  time.Duration // between two
	begun  time.Time
	first  time.Time // when the first was stored
	number int
}

func parsePace(s string) (p pace, err error) {
	bad := fmt.Errorf("%q is not a rate: max, original, 2x, 100/s", s)
	switch {
	case s == "max":
		return p, nil
	case s == "original":
		return pace{speed: 1}, nil
	case strings.HasSuffix(s, "x"):
		p.speed, err = strconv.ParseFloat(strings.TrimSuffix(s, "x"), 64)
		if err != nil || p.speed <= 0 || p.speed > 1e6 {
			return p, bad
		}
		return p, nil
	case strings.HasSuffix(s, "/s"):
		n, err := strconv.ParseFloat(strings.TrimSuffix(s, "/s"), 64)
		if err != nil || n < 0.001 || n > 1e9 {
			return p, bad
		}
		return pace{every: time.Duration(float64(time.Second) / n)}, nil
	}
	return p, bad
}

// wait returns how long the next message, which was stored at a time, has to wait.
func (p *pace) wait(stored, now time.Time) time.Duration {
	if p.number == 0 {
		p.begun, p.first = now, stored
	}
	p.number++
	due := p.begun
	switch {
	case p.speed > 0:
		due = due.Add(time.Duration(float64(stored.Sub(p.first)) / p.speed))
	case p.every > 0:
		due = due.Add(time.Duration(p.number-1) * p.every)
	}
	return due.Sub(now)
}

// mapping is how a replay names what it sends.
func (f *replayFlags) mapping(cmd *cobra.Command) (func(string) (string, bool), error) {
	switch {
	case f.toSubject == "" && !f.same && !f.preview:
		return nil, usage(cmd, "--to-subject says where to, or --same to store the messages in the topic once more")
	case f.toSubject != "" && f.same:
		return nil, usage(cmd, "either --to-subject or --same")
	case f.toSubject == "":
		return func(s string) (string, bool) { return s, true }, nil
	case subject.ValidLiteral(f.toSubject) && !strings.Contains(f.toSubject, "{{"):
		return func(string) (string, bool) { return f.toSubject, true }, nil
	}
	t, err := transform.New(f.subject, f.toSubject)
	if err != nil {
		return nil, usage(cmd, "--to-subject: %v", err)
	}
	return func(s string) (string, bool) { return t.Apply(s, rand.IntN) }, nil
}

func (a *app) replay(cmd *cobra.Command, topic string, f replayFlags) error {
	name, err := f.mapping(cmd)
	if err != nil {
		return err
	}
	rate, err := parsePace(f.rate)
	if err != nil {
		return usage(cmd, "--rate: %v", err)
	}
	if f.between != "" {
		from, to, ok := strings.Cut(f.between, "..")
		if !ok || cmd.Flags().Changed("from") || cmd.Flags().Changed("to") {
			return usage(cmd, "--range is FROM..TO, and instead of --from and --to")
		}
		f.from, f.to = or(from, "start"), or(to, "end")
	}
	c, err := a.connect(cmd)
	if err != nil {
		return err
	}
	scan, until, err := a.replayScan(cmd, topic, f)
	if err != nil {
		return err
	}
	r := &replaying{a: a, c: c, f: f, name: name, rate: rate, w: &writer{a: a, c: c, known: map[string]bool{}}, dry: f.preview || a.dryRun}
	err = c.Scan(cmd.Context(), scan, func(m *client.Message) error {
		if !until.IsZero() && m.Stored.Time.After(until) {
			return errEnough
		}
		return r.one(cmd.Context(), m)
	})
	if err == errEnough {
		err = nil
	}
	if r.dry {
		return r.show(err)
	}
	if settled := r.w.settle(cmd.Context(), 0); err == nil {
		err = settled
	}
	if flushed := c.Flush(cmd.Context()); err == nil {
		err = flushed
	}
	text := fmt.Sprintf("sent %s, %s of them stored", plural(r.sent, "message"), ui.Count(r.w.stored-r.w.doubled))
	if r.w.doubled > 0 {
		text += fmt.Sprintf(", %s stored already", ui.Count(r.w.doubled))
	}
	a.ui.Note("%s", text)
	return err
}

// replayScan finds the places in the topic.
func (a *app) replayScan(cmd *cobra.Command, topic string, f replayFlags) (s client.Scan, until time.Time, err error) {
	ctx := cmd.Context()
	s = client.Scan{Topic: topic, Subject: f.subject, Where: f.where}
	from, err := parsePlace(f.from, a.env.Now())
	if err != nil {
		return s, until, usage(cmd, "--from: %v", err)
	}
	to, err := parsePlace(f.to, a.env.Now())
	if err != nil {
		return s, until, usage(cmd, "--to: %v", err)
	}
	first, err := a.sequenceOf(ctx, topic, from)
	if err != nil {
		return s, until, err
	}
	info, err := a.client.Topic(ctx, topic)
	if err != nil {
		return s, until, a.topicProblem(ctx, err, topic)
	}
	s.From, s.Until = client.At(first), info.State.LastSeq
	switch {
	case !to.time.IsZero():
		until = to.time
	case !to.end:
		last, err := a.sequenceOf(ctx, topic, to)
		if err != nil {
			return s, until, err
		}
		if last < first && first <= info.State.LastSeq {
			return s, until, usage(cmd, "it ends, at %d, before it begins, at %d", last, first)
		}
		s.Until = min(s.Until, last)
	}
	return s, until, nil
}

var errEnough = fmt.Errorf("enough")

// replaying is a replay under way.
type replaying struct {
	a    *app
	c    *client.Client
	f    replayFlags
	name func(string) (string, bool)
	rate pace
	w    *writer
	dry  bool

	sent, bytes int
	first, last *client.Stored
	targets     map[string]bool // with the topic that captures them, as far as asked
	sample      []string
}

func (r *replaying) one(ctx context.Context, m *client.Message) error {
	to, ok := r.name(m.Subject)
	if !ok {
		return nil // not of --subject: the topic was changed meanwhile
	}
	if r.f.count > 0 && r.sent >= r.f.count {
		return errEnough
	}
	if r.first == nil {
		r.first = m.Stored
	}
	r.last = m.Stored
	if r.dry {
		r.note(to, m)
		return nil
	}
	if err := pause(ctx, r.rate.wait(m.Stored.Time, r.a.env.Now())); err != nil {
		return err
	}
	options := []client.PublishOption{client.WithHeaders(r.header(m))}
	stored, err := r.kept(ctx, to)
	if err != nil {
		return err
	}
	r.sent++
	if !stored {
		return r.c.Publish(to, m.Payload, options...)
	}
	if r.f.id != "" {
		options = append(options, client.MessageID(fmt.Sprintf("replay:%s:%s:%d", r.f.id, m.Stored.Topic, m.Stored.Sequence)))
	}
	future, err := r.c.PublishAsync(ctx, to, m.Payload, options...)
	if err != nil {
		return err
	}
	r.w.pending = append(r.w.pending, future)
	if len(r.w.pending) >= pendingMax {
		return r.w.settle(ctx, pendingMax/2)
	}
	return nil
}

// kept tells whether a topic captures a subject.
func (r *replaying) kept(ctx context.Context, subject string) (bool, error) {
	if stored, known := r.targets[subject]; known {
		return stored, nil
	}
	_, err := r.c.TopicOf(ctx, subject)
	if err != nil && explain(err).code != exitNotFound {
		return false, err
	}
	if len(r.targets) > 10_000 || r.targets == nil {
		r.targets = map[string]bool{} // bounded: subjects may be unique to each message
	}
	r.targets[subject] = err == nil
	return err == nil, nil
}

// header is that of a copy: without what was about storing the original.
func (r *replaying) header(m *client.Message) client.Header {
	h := client.Header{}
	for name, values := range m.Header {
		switch {
		case strings.HasPrefix(name, "Nats-Expected-"), strings.HasPrefix(name, "Nats-Schedule"), strings.HasPrefix(name, "Nats-Batch-"),
			name == "Nats-Msg-Id", name == "Nats-Rollup":
		default:
			h[name] = values
		}
	}
	if !r.f.plain {
		h["Herald-Replay-Topic"] = []string{m.Stored.Topic}
		h["Herald-Replay-Sequence"] = []string{strconv.FormatUint(m.Stored.Sequence, 10)}
		h["Herald-Replay-Time"] = []string{m.Stored.Time.UTC().Format(time.RFC3339Nano)}
	}
	return h
}

func (r *replaying) note(to string, m *client.Message) {
	r.sent++
	r.bytes += len(m.Payload)
	if len(r.sample) < 3 && (len(r.sample) == 0 || r.sample[len(r.sample)-1] != to) {
		r.sample = append(r.sample, to)
	}
}

// preview is what --preview says.
type preview struct {
	Messages int      `json:"messages"`
	Bytes    int      `json:"bytes"`
	First    *placed  `json:"first,omitempty"`
	Last     *placed  `json:"last,omitempty"`
	Subjects []string `json:"subjects,omitempty"`
}

// placed is where a message is stored.
type placed struct {
	Sequence uint64    `json:"sequence"`
	Time     time.Time `json:"time"`
}

func placedAt(s *client.Stored) *placed {
	if s == nil {
		return nil
	}
	return &placed{s.Sequence, s.Time.UTC()}
}

func (r *replaying) show(err error) error {
	if err != nil {
		return err
	}
	p := preview{r.sent, r.bytes, placedAt(r.first), placedAt(r.last), r.sample}
	pairs := [][2]string{{"messages", ui.Count(p.Messages)}, {"size", ui.Bytes(int64(p.Bytes))}}
	for _, end := range []struct {
		name string
		at   *placed
	}{{"first", p.First}, {"last", p.Last}} {
		if end.at != nil {
			pairs = append(pairs, [2]string{end.name, fmt.Sprintf("%d at %s", end.at.Sequence, end.at.Time.UTC().Format(time.RFC3339))})
		}
	}
	if len(p.Subjects) > 0 {
		pairs = append(pairs, [2]string{"sent as, for example", strings.Join(p.Subjects, ", ")})
	}
	return r.a.ui.Item(p, pairs)
}

// sequenceOf finds the sequence of a place.
func (a *app) sequenceOf(ctx context.Context, topic string, p place) (uint64, error) {
	if p.sequence > 0 {
		return p.sequence, nil
	}
	if !p.time.IsZero() {
		seq, err := a.client.SequenceAt(ctx, topic, p.time)
		if err != nil {
			return 0, a.topicProblem(ctx, err, topic)
		}
		return seq, nil
	}
	info, err := a.client.Topic(ctx, topic)
	if err != nil {
		return 0, a.topicProblem(ctx, err, topic)
	}
	first, last := max(info.State.FirstSeq, 1), info.State.LastSeq
	switch p.position {
	case client.First():
		if p.back == 0 {
			return first, nil
		}
	case client.Last():
		return max(last, 1), nil
	case client.Next():
		return last + 1, nil
	}
	if p.back > last {
		return first, nil
	}
	return max(last-p.back+1, first), nil
}

func (a *app) consumerSeek() *cobra.Command {
	cmd := &cobra.Command{
		Use: "seek TOPIC CONSUMER PLACE", Short: "Move a consumer to a place of its topic", Args: args(3, 3, "TOPIC CONSUMER PLACE"), ValidArgsFunction: a.completeConsumers,
		Long: `Move a consumer: the first message at or behind PLACE is the next it delivers, for
all who read it. It keeps its name and settings; what was delivered and not yet
acknowledged is forgotten, and comes again if it lies behind PLACE.

A place is: ` + placeHelp + `.`,
		Example:     "  pubsub consumer seek orders billing @1h\n  pubsub consumer seek orders billing -100",
		Annotations: map[string]string{takesPlace: "true"},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := parsePlace(args[2], a.env.Now())
		if err != nil {
			return usage(cmd, "%v", err)
		}
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		before, err := c.Consumer(cmd.Context(), args[0], args[1])
		if err != nil {
			return a.consumerProblem(cmd.Context(), err, args[0], args[1])
		}
		seq, err := a.sequenceOf(cmd.Context(), args[0], p)
		if err != nil {
			return err
		}
		if a.dryRun {
			a.ui.Note("dry run: would move consumer %s of topic %s from %d to %d", args[1], args[0], before.Delivered.Stream+1, seq)
			return nil
		}
		if err := c.Seek(cmd.Context(), args[0], args[1], seq); err != nil {
			return a.consumerProblem(cmd.Context(), err, args[0], args[1])
		}
		after, err := c.Consumer(cmd.Context(), args[0], args[1])
		if err != nil {
			return a.consumerProblem(cmd.Context(), err, args[0], args[1])
		}
		a.ui.Note("consumer %s of topic %s goes on at %d; %s pending, %s no longer waited for",
			args[1], args[0], seq, ui.Count(after.NumPending), plural(before.NumAckPending, "acknowledgement"))
		return nil
	}
	return a.changes(cmd)
}
