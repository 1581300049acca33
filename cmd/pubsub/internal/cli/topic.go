package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

func (a *app) topicCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "topic",
		Aliases: []string{"topics", "stream"},
		Short:   "List, create, change and read topics",
		Long:    "A topic is a named, replicated, durable log of the messages of some subjects.",
	}
	cmd.AddCommand(a.topicList(), a.topicInfo(), a.topicCreate(), a.topicEdit(), a.topicRemove(), a.topicPurge(), a.topicGet())
	return group(cmd)
}

func (a *app) topicList() *cobra.Command {
	var names bool
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List topics", Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect(cmd)
			if err != nil {
				return err
			}
			topics, err := c.Topics(cmd.Context())
			if err != nil {
				return err
			}
			slices.SortFunc(topics, func(x, y *client.TopicInfo) int { return strings.Compare(x.Config.Name, y.Config.Name) })
			rows := ui.Rows{Columns: []string{"name", "messages", "size", "consumers", "last", "subjects"}, Right: []bool{false, true, true, true}, Empty: "no topics"}
			var items []any
			for _, t := range topics {
				if names {
					items = append(items, t.Config.Name)
				} else {
					items = append(items, t)
				}
				rows.Cells = append(rows.Cells, []string{t.Config.Name, ui.Count(t.State.Msgs), ui.Bytes(t.State.Bytes), ui.Count(t.State.Consumers), ui.Since(t.State.LastTime, a.env.Now()), strings.Join(t.Config.Subjects, ", ")})
			}
			return a.ui.List(items, rows)
		},
	}
	cmd.Flags().BoolVar(&names, "names", false, "in JSON, names only")
	return cmd
}

func (a *app) topicInfo() *cobra.Command {
	var subjects bool
	cmd := &cobra.Command{
		Use: "info TOPIC", Aliases: []string{"show"}, Short: "Show a topic", Args: args(1, 1, "TOPIC"), ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd)
			if err != nil {
				return err
			}
			if subjects {
				return a.topicSubjects(cmd.Context(), c, args[0])
			}
			t, err := c.Topic(cmd.Context(), args[0])
			if err != nil {
				return a.topicProblem(cmd.Context(), err, args[0])
			}
			return a.ui.Item(t, topicPairs(t, a.env.Now()))
		},
	}
	cmd.Flags().BoolVar(&subjects, "subjects", false, "list its subjects with their messages")
	return cmd
}

func (a *app) topicSubjects(ctx context.Context, c *client.Client, name string) error {
	counts, err := c.TopicSubjects(ctx, name, ">")
	if err != nil {
		return a.topicProblem(ctx, err, name)
	}
	rows := ui.Rows{Columns: []string{"subject", "messages"}, Right: []bool{false, true}, Empty: "no messages"}
	var items []any
	for _, subject := range slices.Sorted(maps.Keys(counts)) {
		items = append(items, map[string]any{"subject": subject, "messages": counts[subject]})
		rows.Cells = append(rows.Cells, []string{subject, ui.Count(counts[subject])})
	}
	return a.ui.List(items, rows)
}

func topicPairs(t *client.TopicInfo, now time.Time) [][2]string {
	c, s := t.Config, t.State
	pairs := [][2]string{
		{"name", c.Name},
		{"subjects", strings.Join(c.Subjects, ", ")},
		{"messages", ui.Count(s.Msgs)},
		{"size", ui.Bytes(s.Bytes)},
		{"sequences", fmt.Sprintf("%d to %d", s.FirstSeq, s.LastSeq)},
		{"last message", ui.Since(s.LastTime, now)},
		{"distinct subjects", ui.Count(s.NumSubjects)},
		{"consumers", ui.Count(s.Consumers)},
		{"retention", retention(c)},
		{"replicas", strconv.Itoa(c.Replicas)},
		{"storage", strings.ToLower(c.Storage.String())},
		{"duplicate window", ui.Duration(c.Duplicates)},
		{"created", t.Created.UTC().Format(time.RFC3339)},
	}
	if c.Description != "" {
		pairs = append(pairs, [2]string{"description", c.Description})
	}
	if t.Cluster != nil && t.Cluster.Leader != "" {
		pairs = append(pairs, [2]string{"leader", t.Cluster.Leader})
	}
	for _, key := range slices.Sorted(maps.Keys(c.Metadata)) {
		if !brokersNote(key) {
			pairs = append(pairs, [2]string{key, c.Metadata[key]})
		}
	}
	return pairs
}

// retention says in words when messages go.
func retention(c client.TopicConfig) string {
	var parts []string
	switch c.Retention {
	case jetstream.WorkQueuePolicy:
		parts = append(parts, "until acknowledged by one reader")
	case jetstream.InterestPolicy:
		parts = append(parts, "until acknowledged by all readers")
	}
	if c.MaxAge > 0 {
		parts = append(parts, "at most "+ui.Duration(c.MaxAge))
	}
	if c.MaxMsgs > 0 {
		parts = append(parts, "at most "+ui.Count(c.MaxMsgs)+" messages")
	}
	if c.MaxBytes > 0 {
		parts = append(parts, "at most "+ui.Bytes(c.MaxBytes))
	}
	if c.MaxMsgsPerSubject > 0 {
		parts = append(parts, "at most "+ui.Count(c.MaxMsgsPerSubject)+" per subject")
	}
	if len(parts) == 0 {
		return "kept for ever"
	}
	if c.Discard == jetstream.DiscardNew {
		parts = append(parts, "then refuses new ones")
	}
	return strings.Join(parts, ", ")
}

// describe is the one-line summary printed when a topic was created.
func describe(c client.TopicConfig) string {
	return fmt.Sprintf("subjects %s; %s; %s; %s storage; duplicates by id found within %s",
		strings.Join(c.Subjects, ", "), retention(c), plural(max(c.Replicas, 1), "replica"), strings.ToLower(c.Storage.String()), ui.Duration(c.Duplicates))
}

func (a *app) topicCreate() *cobra.Command {
	var f topicFlags
	var ifNot bool
	cmd := &cobra.Command{
		Use: "create TOPIC", Aliases: []string{"add"}, Short: "Create a topic", Args: args(1, 1, "TOPIC"),
		Long:    "Create a topic; everything not given has a default, which is printed. Creating\nit again with the same settings changes nothing.",
		Example: "  pubsub topic create orders --subjects 'orders.>' --max-age 7d --if-not-exists",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg := client.TopicConfig{Name: args[0]}
		if err := f.apply(cmd, &cfg); err != nil {
			return err
		}
		if len(cfg.Subjects) == 0 && cfg.Mirror == nil && len(cfg.Sources) == 0 {
			cfg.Subjects = []string{args[0] + ".>"}
		}
		if a.dryRun {
			a.ui.Note("dry run: would create topic %s: %s", cfg.Name, describe(cfg))
			return a.showConfig(cfg)
		}
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		if ifNot {
			info, err := c.Topic(cmd.Context(), cfg.Name)
			if err == nil {
				a.ui.Note("topic %s exists", cfg.Name)
				return a.showTopic(info)
			}
			if !errors.Is(err, client.ErrNotFound) {
				return err
			}
		}
		info, err := createTopic(cmd.Context(), c, cfg)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return &problem{code: exitConflict, what: fmt.Sprintf("topic %q exists with other settings", cfg.Name), next: "pubsub topic edit " + cfg.Name + ", or --if-not-exists", err: err}
		}
		if err != nil {
			return a.overlapProblem(cmd.Context(), err, cfg.Subjects, "--subjects, or pubsub topic edit to take them from there")
		}
		a.ui.Note("created topic %s: %s", cfg.Name, describe(info.Config))
		return a.showTopic(info)
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&ifNot, "if-not-exists", false, "leave a topic of that name as it is")
	return a.changes(cmd)
}

// showTopic prints a topic to programs; people were told in a note.
func (a *app) showTopic(info *client.TopicInfo) error {
	if a.ui.Format == ui.Table && a.ui.Template == nil {
		return nil
	}
	return a.ui.Item(info, topicPairs(info, a.env.Now()))
}

func (a *app) showConfig(cfg client.TopicConfig) error {
	if a.ui.Format == ui.Table && a.ui.Template == nil {
		return nil
	}
	return a.ui.Item(cfg, [][2]string{{"name", cfg.Name}, {"subjects", strings.Join(cfg.Subjects, ", ")}})
}

func (a *app) topicEdit() *cobra.Command {
	var f topicFlags
	cmd := &cobra.Command{
		Use: "edit TOPIC", Aliases: []string{"update"}, Short: "Change a topic's settings", Args: args(1, 1, "TOPIC"), ValidArgsFunction: a.completeTopics,
		Long: "Change the settings that are given; the others stay.",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		info, err := c.Topic(cmd.Context(), args[0])
		if err != nil {
			return a.topicProblem(cmd.Context(), err, args[0])
		}
		cfg := info.Config
		if err := f.apply(cmd, &cfg); err != nil {
			return err
		}
		if a.dryRun {
			a.ui.Note("dry run: topic %s would be: %s", cfg.Name, describe(cfg))
			return a.showConfig(cfg)
		}
		info, err = c.UpdateTopic(cmd.Context(), cfg)
		if err != nil {
			return a.topicProblem(cmd.Context(), err, args[0])
		}
		a.ui.Note("topic %s: %s", cfg.Name, describe(info.Config))
		return a.showTopic(info)
	}
	f.add(cmd)
	return a.changes(cmd)
}

func (a *app) topicRemove() *cobra.Command {
	var ifExists bool
	cmd := &cobra.Command{
		Use: "rm TOPIC", Aliases: []string{"delete"}, Short: "Delete a topic with its messages", Args: args(1, 1, "TOPIC"), ValidArgsFunction: a.completeTopics,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		info, err := c.Topic(cmd.Context(), args[0])
		if ifExists && errors.Is(err, client.ErrNotFound) {
			a.ui.Note("there is no topic %s", args[0])
			return nil
		}
		if err != nil {
			return a.topicProblem(cmd.Context(), err, args[0])
		}
		what := fmt.Sprintf("topic %s with %s and %s", args[0], plural(int(info.State.Msgs), "message"), plural(info.State.Consumers, "consumer"))
		if a.dryRun {
			a.ui.Note("dry run: would delete %s", what)
			return nil
		}
		if err := a.confirm(cmd, "Delete "+what+"?"); err != nil {
			return err
		}
		if err := c.DeleteTopic(cmd.Context(), args[0]); err != nil {
			return a.topicProblem(cmd.Context(), err, args[0])
		}
		a.ui.Note("deleted %s", what)
		return nil
	}
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "succeed when there is none")
	return a.destroys(cmd)
}

func (a *app) topicPurge() *cobra.Command {
	var p client.Purge
	cmd := &cobra.Command{
		Use: "purge TOPIC", Short: "Delete messages of a topic", Args: args(1, 1, "TOPIC"), ValidArgsFunction: a.completeTopics,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if p.Before != 0 && p.Keep != 0 {
			return usage(cmd, "--before and --keep don't go together")
		}
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		info, err := c.Topic(cmd.Context(), args[0])
		if err != nil {
			return a.topicProblem(cmd.Context(), err, args[0])
		}
		what := "messages of topic " + args[0]
		if p.Subject != "" {
			what += " on " + p.Subject
		}
		if p.Before != 0 {
			what += fmt.Sprintf(" before %d", p.Before)
		}
		if p.Keep != 0 {
			what += fmt.Sprintf(" except the last %d", p.Keep)
		}
		if a.dryRun {
			a.ui.Note("dry run: would delete the %s (it has %s)", what, ui.Count(info.State.Msgs))
			return nil
		}
		if err := a.confirm(cmd, "Delete the "+what+"?"); err != nil {
			return err
		}
		if err := c.PurgeTopic(cmd.Context(), args[0], p); err != nil {
			return a.topicProblem(cmd.Context(), err, args[0])
		}
		after, err := c.Topic(cmd.Context(), args[0])
		if err != nil {
			return a.topicProblem(cmd.Context(), err, args[0])
		}
		a.ui.Note("deleted %s, %s left", plural(int(info.State.Msgs-min(after.State.Msgs, info.State.Msgs)), "message"), ui.Count(after.State.Msgs))
		return a.showTopic(after)
	}
	cmd.Flags().StringVar(&p.Subject, "subject", "", "only on this subject or pattern")
	cmd.Flags().Uint64Var(&p.Before, "before", 0, "only with a lower sequence")
	cmd.Flags().Uint64Var(&p.Keep, "keep", 0, "all but the newest so many")
	return a.destroys(cmd)
}

func (a *app) topicGet() *cobra.Command {
	var last string
	cmd := &cobra.Command{
		Use: "get TOPIC [SEQUENCE]", Short: "Print one stored message", Args: args(1, 2, "TOPIC [SEQUENCE]"), ValidArgsFunction: a.completeTopics,
		Example: "  pubsub topic get orders 17\n  pubsub topic get orders --last 'orders.eu.>'",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if (len(args) == 2) == (last != "") {
			return usage(cmd, "SEQUENCE or --last SUBJECT says which message")
		}
		var sequence uint64
		if len(args) == 2 {
			var err error
			if sequence, err = strconv.ParseUint(args[1], 10, 64); err != nil || sequence == 0 {
				return usage(cmd, "%q is not a sequence: they count from 1", args[1])
			}
		}
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		var m *client.Message
		which := fmt.Sprintf("message %d", sequence)
		if last != "" {
			which = "message on " + last
			m, err = c.LastMessage(cmd.Context(), args[0], last)
		} else {
			m, err = c.Message(cmd.Context(), args[0], sequence)
		}
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return &problem{code: exitNotFound, what: fmt.Sprintf("topic %s has no %s", args[0], which), next: "pubsub topic info " + args[0], err: err}
		}
		if err != nil {
			return a.topicProblem(cmd.Context(), err, args[0])
		}
		if a.ui.Format == ui.JSON {
			a.ui.Format = ui.NDJSON // one message is an object, not a list
		}
		return a.ui.Messages(a.env.Out).Print(toRecord(m))
	}
	cmd.Flags().StringVar(&last, "last", "", "the last message on this subject or pattern")
	return cmd
}
