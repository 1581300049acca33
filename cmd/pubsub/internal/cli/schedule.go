package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
	"github.com/heraldmq/herald/topics/schedule"
	"github.com/heraldmq/herald/topics/subject"
)

// scheduleRoot is where the schedules of a topic are kept: "schedule.", the subject they
// publish to, and their name.
const scheduleRoot = "schedule."

// later says when a message is to be published, "" at once.
type later struct {
	delay, at, every, name, zone string
}

func (l *later) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&l.delay, "delay", "", "let the broker publish it after this long (15m)")
	fl.StringVar(&l.at, "at", "", "let the broker publish it at this time (2026-12-01T08:00:00Z)")
	fl.StringVar(&l.every, "every", "", `let the broker publish it again and again: a duration (1h), "@daily", or six cron fields ("0 30 8 * * *")`)
	fl.StringVar(&l.zone, "zone", "", "time zone of the cron fields (Europe/Berlin)")
	fl.StringVar(&l.name, "schedule", "", "name of the schedule, to replace or remove it by; made up if none")
}

func (l *later) set() bool { return l.delay != "" || l.at != "" || l.every != "" }

// pattern is the schedule in the broker's words.
func (l *later) pattern(now time.Time) (string, error) {
	given := 0
	for _, s := range []string{l.delay, l.at, l.every} {
		if s != "" {
			given++
		}
	}
	if given > 1 {
		return "", errors.New("only one of --delay, --at and --every")
	}
	text := l.every
	switch {
	case l.delay != "":
		d, err := parseDuration(l.delay)
		if err != nil {
			return "", fmt.Errorf("--delay: %w", err)
		}
		text = "@at " + now.Add(d).UTC().Format(time.RFC3339Nano)
	case l.at != "":
		t, err := parseTime(l.at, now)
		if err != nil {
			return "", fmt.Errorf("--at: %w", err)
		}
		text = "@at " + t.UTC().Format(time.RFC3339Nano)
	default:
		if d, err := parseDuration(l.every); err == nil {
			text = "@every " + d.String()
		}
	}
	if _, err := schedule.Parse(text, l.zone); err != nil {
		return "", fmt.Errorf("%q is not a schedule: %w", text, err)
	}
	return text, nil
}

// postpone stores schedules for messages, instead of the messages.
func (a *app) postpone(cmd *cobra.Command, next source, f pubFlags) error {
	pattern, err := f.later.pattern(a.env.Now())
	if err != nil {
		return usage(cmd, "%v", err)
	}
	if f.later.name != "" && (!subject.ValidLiteral(f.later.name) || f.input != "body" || f.count > 1) {
		return usage(cmd, "--schedule is a name of the characters of a subject, for one message")
	}
	if a.dryRun {
		return a.pubDry(next)
	}
	c, err := a.connect(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	for m, err := next(); ; m, err = next() {
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := a.schedulable(ctx, m.Subject, f); err != nil {
			return err
		}
		name := or(f.later.name, strings.ToLower(rand.Text()[:8]))
		header := client.Header{}
		for k, v := range m.Headers {
			header[k] = v
		}
		header["Nats-Schedule"], header["Nats-Schedule-Target"] = []string{pattern}, []string{m.Subject}
		header["Nats-Rollup"] = []string{"sub"} // one of a name
		if f.later.zone != "" {
			header["Nats-Schedule-Time-Zone"] = []string{f.later.zone}
		}
		if f.ttl != "" {
			header["Nats-Schedule-TTL"] = []string{f.ttl}
		}
		at := scheduleRoot + m.Subject + "." + name
		if _, err := c.PublishDurable(ctx, at, m.Payload, client.WithHeaders(header)); err != nil {
			return a.storeProblem(ctx, err, at)
		}
		a.ui.Note("scheduled %s for %s, as %s", pattern, m.Subject, at)
		if a.ui.Format == ui.Table && a.ui.Template == nil {
			fmt.Fprintln(a.env.Out, at)
		} else if err := a.ui.Item(map[string]string{"name": at, "schedule": pattern, "target": m.Subject}, [][2]string{{"name", at}}); err != nil {
			return err
		}
	}
}

// schedulable sees to a topic that captures a subject and its schedules.
func (a *app) schedulable(ctx context.Context, to string, f pubFlags) error {
	topic, err := a.client.TopicOf(ctx, to)
	switch {
	case errors.Is(err, client.ErrNotFound) && !f.noCreate:
		name, pattern := topicFor(to)
		cfg := client.TopicConfig{Name: or(f.topic, name), Subjects: []string{pattern}}
		withSchedules(&cfg)
		info, err := createTopic(ctx, a.client, cfg)
		if err != nil {
			return fmt.Errorf("create the topic of %q (or use --no-create): %w", to, err)
		}
		a.ui.Note("created topic %s: %s", cfg.Name, describe(info.Config))
		return nil
	case err != nil:
		return a.noTopicFor(ctx, err, to)
	}
	info, err := a.client.Topic(ctx, topic)
	if err != nil {
		return a.topicProblem(ctx, err, topic)
	}
	if !info.Config.AllowMsgSchedules || !subject.MatchAny(info.Config.Subjects, scheduleRoot+to+".x") {
		return &problem{
			code: exitRefused, what: fmt.Sprintf("topic %s takes no schedules for %s", topic, to),
			next: "pubsub topic edit " + topic + " --schedules (for good: it can't be taken back)", err: client.ErrRefused,
		}
	}
	return nil
}

// withSchedules lets a topic take schedules for all its subjects.
func withSchedules(cfg *client.TopicConfig) {
	cfg.AllowMsgSchedules, cfg.AllowRollup = true, true
	for _, s := range slices.Clone(cfg.Subjects) {
		if strings.HasPrefix(s, scheduleRoot) {
			continue
		}
		s = scheduleRoot + strings.TrimSuffix(s, ".>")
		if s == scheduleRoot+">" {
			continue // it captures all there is
		}
		if s += ".>"; !slices.Contains(cfg.Subjects, s) {
			cfg.Subjects = append(cfg.Subjects, s)
		}
	}
}

func (a *app) scheduleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "schedule",
		Aliases: []string{"schedules"},
		Short:   "List and remove messages that are to be published later",
		Long:    "Schedules are messages that the broker publishes later, once or again and again:\npubsub pub --delay, --at and --every make them.",
	}
	cmd.AddCommand(a.scheduleList(), a.scheduleRemove())
	return group(cmd)
}

// scheduled is a schedule as it is listed.
type scheduled struct {
	Name     string    `json:"name"`
	Topic    string    `json:"topic"`
	Schedule string    `json:"schedule"`
	Zone     string    `json:"zone,omitempty"`
	Target   string    `json:"target"`
	Next     time.Time `json:"next,omitzero"`
	Made     time.Time `json:"made"`
	Size     int       `json:"size"`
}

func (a *app) scheduleList() *cobra.Command {
	var under string
	cmd := &cobra.Command{
		Use: "ls [TOPIC]", Aliases: []string{"list"}, Short: "List schedules", Args: args(0, 1, "[TOPIC]"), ValidArgsFunction: a.completeTopics,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		all, err := c.Topics(cmd.Context())
		if err != nil {
			return err
		}
		rows := ui.Rows{Columns: []string{"name", "schedule", "target", "next", "size"}, Right: []bool{false, false, false, false, true}, Empty: "no schedules"}
		var items []any
		found := false
		for _, t := range all {
			if len(args) > 0 && t.Config.Name != args[0] {
				continue
			}
			found = true
			if !t.Config.AllowMsgSchedules {
				continue
			}
			list, err := a.schedules(cmd.Context(), t.Config.Name, under)
			if err != nil {
				return err
			}
			for _, s := range list {
				next := "–"
				if !s.Next.IsZero() {
					next = s.Next.UTC().Format(time.RFC3339)
				}
				items = append(items, s)
				rows.Cells = append(rows.Cells, []string{s.Name, s.Schedule, s.Target, next, ui.Bytes(int64(s.Size))})
			}
		}
		if !found && len(args) > 0 {
			return a.topicProblem(cmd.Context(), &client.Error{Op: "find", Target: args[0], Kind: client.ErrNotFound, Err: client.ErrNotFound}, args[0])
		}
		return a.ui.List(items, rows)
	}
	cmd.Flags().StringVar(&under, "subject", scheduleRoot+">", "where in the topics to look")
	return cmd
}

// schedules reads a topic's schedules: of each subject the last message counts.
func (a *app) schedules(ctx context.Context, topic, under string) (out []scheduled, err error) {
	err = a.client.Scan(ctx, client.Scan{Topic: topic, Subject: under, From: client.LastPerSubject()}, func(m *client.Message) error {
		get := func(name string) string { return m.Header.Get(name) }
		s := scheduled{
			Name: m.Subject, Topic: topic, Schedule: get("Nats-Schedule"), Zone: get("Nats-Schedule-Time-Zone"),
			Target: get("Nats-Schedule-Target"), Made: m.Stored.Time.UTC(), Size: len(m.Payload),
		}
		if s.Schedule == "" {
			return nil
		}
		if plan, err := schedule.Parse(s.Schedule, s.Zone); err == nil {
			after := a.env.Now()
			if plan.Once() || after.Before(m.Stored.Time) {
				after = m.Stored.Time
			}
			s.Next, _ = plan.Next(after)
		}
		out = append(out, s)
		return nil
	})
	return out, err
}

func (a *app) scheduleRemove() *cobra.Command {
	var ifExists bool
	cmd := &cobra.Command{
		Use: "rm NAME...", Aliases: []string{"cancel", "delete"}, Short: "Remove schedules", Args: args(1, -1, "NAME"),
		Long: "Remove schedules by the names that pubsub schedule ls shows.",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		for _, name := range args {
			if !subject.ValidLiteral(name) {
				return usage(cmd, "%q is not the name of a schedule", name)
			}
			missing := &problem{code: exitNotFound, what: fmt.Sprintf("there is no schedule %s", name), next: "pubsub schedule ls", err: client.ErrNotFound}
			topic, err := c.TopicOf(cmd.Context(), name)
			var m *client.Message
			if err == nil {
				m, err = c.LastMessage(cmd.Context(), topic, name)
			}
			if errors.Is(err, client.ErrNotFound) || err == nil && m.Header.Get("Nats-Schedule") == "" {
				if ifExists {
					a.ui.Note("there is no schedule %s", name)
					continue
				}
				return missing
			}
			if err != nil {
				return err
			}
			if a.dryRun {
				a.ui.Note("dry run: would remove schedule %s", name)
				continue
			}
			if err := c.PurgeTopic(cmd.Context(), topic, client.Purge{Subject: name}); err != nil {
				return err
			}
			a.ui.Note("removed schedule %s", name)
		}
		return nil
	}
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "succeed when there is none")
	return a.changes(cmd)
}
