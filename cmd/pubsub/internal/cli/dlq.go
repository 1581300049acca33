package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

func (a *app) dlqCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dlq",
		Aliases: []string{"deadletters"},
		Short:   "Look at dead letters, send them again, drop them",
		Long: `Dead letters are messages that a consumer has given up: delivered as often as it
allows, or terminated by a client. A consumer with --dead-letters (see pubsub
consumer create) stores them under a subject of its own. What an advertisement with
"enforce: quarantine" has put aside is listed and sent again the same way.`,
	}
	cmd.AddCommand(a.dlqList(), a.dlqShow(), a.dlqRedrive(), a.dlqDrop())
	return group(cmd)
}

// The headers of dead letters; see docs/consumers.md.
const (
	deadPrefix = "Herald-Dead-"
	deadWas    = deadPrefix + "Was-"
)

// letter is a dead letter as it is listed.
type letter struct {
	Sequence uint64    `json:"sequence"`
	Subject  string    `json:"subject"`
	At       time.Time `json:"at"`
	Reason   string    `json:"reason"`
	Detail   string    `json:"detail,omitempty"`
	Attempts int       `json:"attempts"`

	Advertisement string `json:"advertisement,omitempty"` // that sent it to quarantine

	Origin struct {
		Topic    string    `json:"topic"`
		Sequence uint64    `json:"sequence"`
		Subject  string    `json:"subject"`
		Consumer string    `json:"consumer"`
		Time     time.Time `json:"time"`
	} `json:"origin"`
	Size int `json:"size"`
}

// letterOf reads a dead letter; false when the message is none.
func letterOf(m *client.Message) (l letter, ok bool) {
	get := func(name string) string { return m.Header.Get(deadPrefix + name) }
	if get("Subject") == "" || get("Reason") == "" {
		return l, false
	}
	l.Sequence, l.Subject, l.Reason, l.Detail, l.Size = m.Stored.Sequence, m.Subject, get("Reason"), get("Detail"), len(m.Payload)
	l.At, _ = time.Parse(time.RFC3339Nano, get("At"))
	l.Attempts, _ = strconv.Atoi(get("Attempts"))
	l.Advertisement = get("Advertisement")
	o := &l.Origin
	o.Topic, o.Subject, o.Consumer = get("Stream"), get("Subject"), get("Consumer")
	o.Sequence, _ = strconv.ParseUint(get("Sequence"), 10, 64)
	o.Time, _ = time.Parse(time.RFC3339Nano, get("Time"))
	return l, true
}

// chosen says which dead letters a command is about.
type chosen struct {
	consumer, reason, where string
	all                     bool
}

func (c *chosen) add(cmd *cobra.Command, all string) *cobra.Command {
	fl := cmd.Flags()
	fl.StringVar(&c.consumer, "consumer", "", "only those that this consumer gave up")
	fl.StringVar(&c.reason, "reason", "", "only these: max_deliver, terminated, or schema (in quarantine)")
	fl.StringVar(&c.where, "where", "", "only those that this condition holds for")
	if all != "" {
		fl.BoolVar(&c.all, "all", false, all)
	}
	_ = cmd.RegisterFlagCompletionFunc("reason", fixed("max_deliver", "terminated", "schema"))
	return cmd
}

// letters calls f with the dead letters of a subject: those with the sequences, or all
// that the flags choose.
func (a *app) letters(ctx context.Context, subject string, sequences []uint64, c *chosen, f func(*client.Message, letter) error) error {
	topic, err := a.client.TopicOf(ctx, subject)
	if errors.Is(err, client.ErrNotFound) { // it may be the name of a topic
		if _, named := a.client.Topic(ctx, subject); named == nil {
			topic, subject, err = subject, ">", nil
		}
	}
	if err != nil {
		return a.noTopicFor(ctx, err, subject)
	}
	for _, seq := range sequences {
		m, err := a.client.Message(ctx, topic, seq)
		if err != nil {
			return fmt.Errorf("dead letter %d of %s: %w", seq, subject, err)
		}
		l, ok := letterOf(m)
		if !ok {
			return &problem{code: exitUsage, what: fmt.Sprintf("message %d of topic %s is no dead letter", seq, topic), next: "pubsub dlq ls " + subject}
		}
		if err := f(m, l); err != nil {
			return err
		}
	}
	if len(sequences) > 0 {
		return nil
	}
	return a.client.Scan(ctx, client.Scan{Topic: topic, Subject: subject, From: client.First(), Where: c.where}, func(m *client.Message) error {
		l, ok := letterOf(m)
		if !ok || c.consumer != "" && l.Origin.Consumer != c.consumer || c.reason != "" && l.Reason != c.reason {
			return nil
		}
		return f(m, l)
	})
}

func (a *app) dlqList() *cobra.Command {
	var c chosen
	cmd := &cobra.Command{
		Use: "ls [SUBJECT]", Aliases: []string{"list"}, Short: "List dead letters, or where there are some", Args: args(0, 1, "[SUBJECT]"), ValidArgsFunction: a.completeDead,
		Long:    "List the dead letters under SUBJECT, or in the topic of that name; without it, the\nconsumers that name a subject for dead letters, with what they moved since their\nleader leads, and the advertisements that have put something in quarantine.",
		Example: "  pubsub dlq ls\n  pubsub dlq ls dead.orders --reason terminated",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := a.connect(cmd); err != nil {
			return err
		}
		if len(args) == 0 {
			return a.dlqConsumers(cmd.Context())
		}
		rows := ui.Rows{Columns: []string{"sequence", "at", "reason", "attempts", "from", "subject", "consumer", "detail"}, Right: []bool{true, false, false, true}, Empty: "no dead letters"}
		var items []any
		err := a.letters(cmd.Context(), args[0], nil, &c, func(_ *client.Message, l letter) error {
			items = append(items, l)
			from, attempts := fmt.Sprintf("%s/%d", l.Origin.Topic, l.Origin.Sequence), fmt.Sprint(l.Attempts)
			if l.Origin.Topic == "" { // it was in none
				from, attempts = "advertisement "+l.Advertisement, "–"
			}
			rows.Cells = append(rows.Cells, []string{
				fmt.Sprint(l.Sequence), ui.Since(l.At, a.env.Now()), l.Reason, attempts, from, l.Origin.Subject, l.Origin.Consumer, l.Detail,
			})
			return nil
		})
		if err != nil {
			return err
		}
		return a.ui.List(items, rows)
	}
	return c.add(cmd, "")
}

// dlqConsumers lists who names a subject for dead letters.
func (a *app) dlqConsumers(ctx context.Context) error {
	names, err := a.client.TopicNames(ctx)
	if err != nil {
		return err
	}
	rows := ui.Rows{Columns: []string{"topic", "consumer", "dead letters go to", "stored there", "since the leader leads"}, Right: []bool{false, false, false, true}, Empty: "no consumer names a subject for dead letters, and nothing is in quarantine"}
	var items []any
	for _, topic := range names {
		all, err := a.client.Consumers(ctx, topic)
		if err != nil {
			return a.topicProblem(ctx, err, topic)
		}
		for _, i := range all {
			to := i.Config.Metadata["herald.dlq.subject"]
			if to == "" {
				continue
			}
			stored := "–"
			if keeper, err := a.client.TopicOf(ctx, to); err == nil {
				if n, err := a.client.TopicSubjects(ctx, keeper, to); err == nil {
					stored = ui.Count(n[to])
				}
			}
			var state any
			if text := i.Config.Metadata["_herald.dlq"]; json.Valid([]byte(text)) {
				state = json.RawMessage(text)
			}
			items = append(items, map[string]any{"topic": topic, "consumer": i.Name, "subject": to, "state": state})
			rows.Cells = append(rows.Cells, []string{topic, i.Name, to, stored, or(deadCounts(i.Config.Metadata["_herald.dlq"]), "–")})
		}
	}
	quarantined, err := a.quarantines(ctx)
	if err != nil {
		return err
	}
	for _, q := range quarantined {
		items = append(items, map[string]any{"advertisement": q.advertisement, "topic": q.topic, "subject": q.subject})
		rows.Cells = append(rows.Cells, []string{q.topic, "advertisement " + q.advertisement, q.subject, ui.Count(q.messages), "–"})
	}
	return a.ui.List(items, rows)
}

// deadCounts shows what an info says of dead letters, "" when it says nothing.
func deadCounts(state string) string {
	var n struct{ Moved, Waiting, Failed uint64 }
	if json.Unmarshal([]byte(state), &n) != nil {
		return ""
	}
	return fmt.Sprintf("%s moved, %s waiting, %s failed", ui.Count(n.Moved), ui.Count(n.Waiting), ui.Count(n.Failed))
}

// A quarantine is where messages are that were not as an advertisement says.
type quarantine struct {
	advertisement, topic, subject string
	messages                      uint64
}

// quarantineRoot is what the subjects in quarantine begin with; docs/advertise.md.
const quarantineRoot = "$HERALD.QUARANTINE."

func (a *app) quarantines(ctx context.Context) (out []quarantine, err error) {
	all, err := a.client.Topics(ctx)
	for _, t := range all {
		if len(t.Config.Subjects) != 1 || !strings.HasPrefix(t.Config.Subjects[0], quarantineRoot) {
			continue
		}
		out = append(out, quarantine{t.Config.Metadata["herald.advertisement"], t.Config.Name, t.Config.Subjects[0], t.State.Msgs})
	}
	slices.SortFunc(out, func(x, y quarantine) int { return strings.Compare(x.subject, y.subject) })
	return out, err
}

func (a *app) dlqShow() *cobra.Command {
	return &cobra.Command{
		Use: "show SUBJECT SEQUENCE...", ValidArgsFunction: a.completeDead, Short: "Show dead letters whole", Args: args(2, -1, "SUBJECT SEQUENCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			sequences, err := sequencesOf(cmd, args[1:])
			if err != nil {
				return err
			}
			if _, err := a.connect(cmd); err != nil {
				return err
			}
			out := a.ui.Messages(a.env.Out)
			err = a.letters(cmd.Context(), args[0], sequences, nil, func(m *client.Message, _ letter) error { return out.Print(toRecord(m)) })
			return errors.Join(err, out.Close())
		},
	}
}

func sequencesOf(cmd *cobra.Command, args []string) (out []uint64, err error) {
	for _, arg := range args {
		n, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || n == 0 {
			return nil, usage(cmd, "%q is not a sequence", arg)
		}
		out = append(out, n)
	}
	return out, nil
}

// which checks that a command that changes something says what it is about.
func (c *chosen) which(cmd *cobra.Command, args []string) ([]uint64, error) {
	sequences, err := sequencesOf(cmd, args)
	some := c.all || c.consumer != "" || c.reason != "" || c.where != ""
	switch {
	case err != nil:
		return nil, err
	case len(sequences) == 0 && !some:
		return nil, usage(cmd, "say which: sequences, --consumer, --reason, --where or --all")
	case len(sequences) > 0 && some:
		return nil, usage(cmd, "sequences say which already; leave out --consumer, --reason, --where and --all")
	}
	return sequences, nil
}

func (a *app) dlqRedrive() *cobra.Command {
	var c chosen
	var to string
	cmd := &cobra.Command{
		Use: "redrive SUBJECT [SEQUENCE...]", ValidArgsFunction: a.completeDead, Short: "Publish dead letters again where they came from, and remove them", Args: args(1, -1, "SUBJECT [SEQUENCE]"),
		Long: `Store each dead letter again under the subject it had, in the topic it came from,
and then remove it. Every consumer of that topic gets it, not only the one that gave
it up. Its message id is made of the dead letter's place, so that what was stored
before an interruption is not stored twice (within the topic's duplicate window).`,
		Example: "  pubsub dlq redrive dead.orders 17 18\n  pubsub dlq redrive dead.orders --reason max_deliver --dry-run",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sequences, err := c.which(cmd, args[1:])
		if err != nil {
			return err
		}
		if _, err := a.connect(cmd); err != nil {
			return err
		}
		n, back := 0, 0
		err = a.letters(cmd.Context(), args[0], sequences, &c, func(m *client.Message, l letter) error {
			n++
			if a.dryRun {
				a.ui.Note("dry run: would store %d again as %s in topic %s", l.Sequence, or(to, l.Origin.Subject), l.Origin.Topic)
				return nil
			}
			again, err := a.redrive(cmd.Context(), m, l, to)
			if again {
				back++
			}
			return err
		})
		if err != nil {
			if n > 0 {
				a.ui.Note("%s went before", plural(n-1, "dead letter"))
			}
			return err
		}
		if !a.dryRun {
			a.ui.Note("sent %s again", plural(n, "dead letter"))
		}
		if back > 0 {
			return &problem{code: exitRefused, what: fmt.Sprintf("%s went back to quarantine: what was wrong is wrong still", ui.Count(back)+" of them"), next: "pubsub dlq ls " + args[0], err: client.ErrRefused}
		}
		return nil
	}
	cmd.Flags().StringVar(&to, "to", "", "store them under this subject instead")
	return a.changes(c.add(cmd, "all of them"))
}

// redrive stores a dead letter again and then removes it. back is true when it came where it
// was: its schema is still not met.
func (a *app) redrive(ctx context.Context, m *client.Message, l letter, to string) (back bool, err error) {
	header := client.Header{}
	for name, values := range m.Header {
		if was, ok := strings.CutPrefix(name, deadWas); ok && was == "Nats-TTL" {
			header[was] = values
		}
		if !strings.HasPrefix(name, deadPrefix) && !strings.HasPrefix(name, "Nats-") {
			header[name] = values
		}
	}
	id := fmt.Sprintf("redrive:%s:%d:%d", m.Stored.Topic, l.Sequence, m.Stored.Time.UnixNano())
	options := []client.PublishOption{client.WithHeaders(header), client.MessageID(id)}
	subject := l.Origin.Subject
	if to != "" {
		subject = to
	} else if l.Origin.Topic != "" { // what an advertisement sent to quarantine was in none
		options = append(options, client.ExpectTopic(l.Origin.Topic))
	}
	receipt, err := a.client.PublishDurable(ctx, subject, m.Payload, options...)
	if err != nil {
		return false, a.storeProblem(ctx, err, subject)
	}
	err = a.client.DeleteMessage(ctx, m.Stored.Topic, l.Sequence)
	if errors.Is(err, client.ErrNotFound) {
		err = nil // somebody else did the same
	}
	return receipt.Topic == m.Stored.Topic, err
}

func (a *app) dlqDrop() *cobra.Command {
	var c chosen
	cmd := &cobra.Command{
		Use: "drop SUBJECT [SEQUENCE...]", ValidArgsFunction: a.completeDead, Aliases: []string{"rm"}, Short: "Remove dead letters for good", Args: args(1, -1, "SUBJECT [SEQUENCE]"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sequences, err := c.which(cmd, args[1:])
		if err != nil {
			return err
		}
		if _, err := a.connect(cmd); err != nil {
			return err
		}
		type place struct {
			topic    string
			sequence uint64
		}
		var all []place
		if err := a.letters(cmd.Context(), args[0], sequences, &c, func(m *client.Message, l letter) error {
			all = append(all, place{m.Stored.Topic, l.Sequence})
			return nil
		}); err != nil {
			return err
		}
		if a.dryRun || len(all) == 0 {
			a.ui.Note("%s%s would be removed", map[bool]string{true: "dry run: "}[a.dryRun], plural(len(all), "dead letter"))
			return nil
		}
		if err := a.confirm(cmd, fmt.Sprintf("Remove %s of %s for good?", plural(len(all), "dead letter"), args[0])); err != nil {
			return err
		}
		for _, p := range all {
			if err := a.client.DeleteMessage(cmd.Context(), p.topic, p.sequence); err != nil && !errors.Is(err, client.ErrNotFound) {
				return err
			}
		}
		a.ui.Note("removed %s", plural(len(all), "dead letter"))
		return nil
	}
	return a.destroys(c.add(cmd, "all of them"))
}

// completeDead knows where dead letters are kept.
func (a *app) completeDead(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.ask(cmd, "dead letters", func(ctx context.Context, c *client.Client) ([]string, error) {
		topics, err := c.Topics(ctx)
		var out []string
		for _, t := range topics {
			if len(t.Config.Subjects) == 1 && strings.HasPrefix(t.Config.Subjects[0], quarantineRoot) {
				out = append(out, t.Config.Name)
			}
			consumers, err := c.Consumers(ctx, t.Config.Name)
			if err != nil {
				return nil, err
			}
			for _, i := range consumers {
				if to := i.Config.Metadata["herald.dlq.subject"]; to != "" {
					out = append(out, to)
				}
			}
		}
		slices.Sort(out)
		return slices.Compact(out), err
	})
}
