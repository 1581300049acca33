package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

func (a *app) consumerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "consumer",
		Aliases: []string{"consumers"},
		Short:   "List, create and read with named readers of topics",
		Long:    "A consumer is a named reader: the broker keeps its place in a topic and what it\nhas yet to acknowledge.",
	}
	cmd.AddCommand(a.consumerList(), a.consumerInfo(), a.consumerCreate(), a.consumerRemove(), a.consumerNext(), a.consumerSeek())
	return group(cmd)
}

func (a *app) consumerList() *cobra.Command {
	return &cobra.Command{
		Use: "ls TOPIC", Aliases: []string{"list"}, Short: "List the consumers of a topic", Args: args(1, 1, "TOPIC"), ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd)
			if err != nil {
				return err
			}
			all, err := c.Consumers(cmd.Context(), args[0])
			if err != nil {
				return a.topicProblem(cmd.Context(), err, args[0])
			}
			slices.SortFunc(all, func(x, y *client.ConsumerInfo) int { return strings.Compare(x.Name, y.Name) })
			rows := ui.Rows{Columns: []string{"name", "pending", "unacked", "redelivered", "waiting", "filter"}, Right: []bool{false, true, true, true, true}, Empty: "no consumers"}
			var items []any
			for _, i := range all {
				items = append(items, i)
				rows.Cells = append(rows.Cells, []string{i.Name, ui.Count(i.NumPending), ui.Count(i.NumAckPending), ui.Count(i.NumRedelivered), ui.Count(i.NumWaiting), filters(i.Config)})
			}
			return a.ui.List(items, rows)
		},
	}
}

func filters(c client.ConsumerConfig) string {
	if c.FilterSubject != "" {
		return c.FilterSubject
	}
	if len(c.FilterSubjects) > 0 {
		return strings.Join(c.FilterSubjects, ", ")
	}
	return ">"
}

func (a *app) consumerInfo() *cobra.Command {
	return &cobra.Command{
		Use: "info TOPIC CONSUMER", Aliases: []string{"show"}, Short: "Show a consumer", Args: args(2, 2, "TOPIC CONSUMER"), ValidArgsFunction: a.completeConsumers,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect(cmd)
			if err != nil {
				return err
			}
			i, err := c.Consumer(cmd.Context(), args[0], args[1])
			if err != nil {
				return a.consumerProblem(cmd.Context(), err, args[0], args[1])
			}
			return a.ui.Item(i, consumerPairs(i))
		},
	}
}

// acking is the acknowledgement policy by its name on the wire.
func acking(c client.ConsumerConfig) string {
	b, err := c.AckPolicy.MarshalJSON()
	if err != nil {
		return c.AckPolicy.String()
	}
	return strings.Trim(string(b), `"`)
}

func consumerPairs(i *client.ConsumerInfo) [][2]string {
	kind := "pull"
	if i.Config.DeliverSubject != "" {
		kind = "push to " + i.Config.DeliverSubject
	}
	pairs := [][2]string{
		{"name", i.Name},
		{"topic", i.Stream},
		{"kind", kind},
		{"filter", filters(i.Config)},
		{"pending", ui.Count(i.NumPending)},
		{"unacknowledged", ui.Count(i.NumAckPending)},
		{"redelivered", ui.Count(i.NumRedelivered)},
		{"waiting requests", ui.Count(i.NumWaiting)},
		{"delivered up to", fmt.Sprint(i.Delivered.Stream)},
		{"acknowledged up to", fmt.Sprint(i.AckFloor.Stream)},
		{"acknowledging", acking(i.Config)},
		{"ack wait", ui.Duration(i.Config.AckWait)},
		{"created", i.Created.UTC().Format(time.RFC3339)},
	}
	if i.Config.Description != "" {
		pairs = append(pairs, [2]string{"description", i.Config.Description})
	}
	return append(pairs, extras(i.Config.Metadata)...)
}

// extras is what a consumer's metadata asks of a Herald broker, and what that has counted
// since its leader leads; docs/filters.md and docs/consumers.md say what the fields are.
func extras(metadata map[string]string) (pairs [][2]string) {
	for _, row := range [][2]string{
		{"condition", "herald.where"}, {"codec", "herald.codec"}, {"one in flight of each", "herald.key"}, {"dead letters go to", "herald.dlq.subject"},
	} {
		if v := metadata[row[1]]; v != "" {
			pairs = append(pairs, [2]string{row[0], v})
		}
	}
	var f struct {
		Scanned uint64            `json:"scanned"`
		Matched uint64            `json:"matched"`
		Errors  uint64            `json:"errors"`
		Reasons map[string]uint64 `json:"errors_by_reason"`
		First   *struct {
			Error    string `json:"error"`
			Subject  string `json:"subject"`
			Sequence uint64 `json:"seq"`
			Payload  string `json:"payload"`
		} `json:"first_error"`
	}
	if json.Unmarshal([]byte(metadata["_herald.filter"]), &f) == nil {
		text := fmt.Sprintf("%s scanned, %s matched, %s", ui.Count(f.Scanned), ui.Count(f.Matched), plural(int(f.Errors), "error"))
		for _, reason := range slices.Sorted(maps.Keys(f.Reasons)) {
			text += fmt.Sprintf(", %s %s", reason, ui.Count(f.Reasons[reason]))
		}
		pairs = append(pairs, [2]string{"counted", text})
		if f.First != nil {
			pairs = append(pairs, [2]string{"first error", fmt.Sprintf("%s; of %s at %d: %s", f.First.Error, f.First.Subject, f.First.Sequence, f.First.Payload)})
		}
	}
	if text := deadCounts(metadata["_herald.dlq"]); text != "" {
		pairs = append(pairs, [2]string{"dead letters", text})
	}
	return pairs
}

func (a *app) consumerCreate() *cobra.Command {
	var filter []string
	var from, ack, ackWait, description, where, dead, key string
	var inFlight, maxDeliver int
	var ifNot bool
	cmd := &cobra.Command{
		Use: "create TOPIC CONSUMER", Aliases: []string{"add"}, Short: "Create a consumer", Args: args(2, 2, "TOPIC CONSUMER"), ValidArgsFunction: a.completeTopics,
		Long: "Create a pull consumer that outlives its readers. --from is " + placeHelp + ".",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := parsePlace(from, a.env.Now())
		if err != nil || p.back > 0 {
			return usage(cmd, "--from: %q is not a place a consumer can start at", from)
		}
		cfg := p.position.Apply(client.ConsumerConfig{Durable: args[1], Name: args[1], Description: description, MaxAckPending: inFlight, MaxDeliver: maxDeliver, FilterSubjects: filter})
		if len(filter) == 1 {
			cfg.FilterSubject, cfg.FilterSubjects = filter[0], nil
		}
		for name, value := range map[string]string{"herald.where": where, "herald.dlq.subject": dead, "herald.key": key} {
			if value != "" {
				if cfg.Metadata == nil {
					cfg.Metadata = map[string]string{}
				}
				cfg.Metadata[name] = value
			}
		}
		if err := choose(ack, &cfg.AckPolicy); err != nil {
			return usage(cmd, "--ack: %v", err)
		}
		if ackWait != "" {
			if cfg.AckWait, err = parseDuration(ackWait); err != nil {
				return usage(cmd, "--ack-wait: %v", err)
			}
		}
		if a.dryRun {
			a.ui.Note("dry run: would create consumer %s of topic %s from %s", args[1], args[0], p.position)
			return nil
		}
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		info, err := c.CreateConsumer(cmd.Context(), args[0], cfg)
		if errors.Is(err, client.ErrConflict) {
			if !ifNot {
				return &problem{code: exitConflict, what: fmt.Sprintf("consumer %q of topic %s exists with other settings", args[1], args[0]), next: "--if-not-exists, or pubsub consumer rm " + strings.Join(args, " "), err: err}
			}
			info, err = c.Consumer(cmd.Context(), args[0], args[1])
		}
		if err != nil {
			return a.consumerProblem(cmd.Context(), err, args[0], args[1])
		}
		a.ui.Note("consumer %s of topic %s: %s pending", info.Name, info.Stream, ui.Count(info.NumPending))
		if a.ui.Format == ui.Table && a.ui.Template == nil {
			return nil
		}
		return a.ui.Item(info, consumerPairs(info))
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&filter, "filter", nil, "subjects to read (all)")
	fl.StringVar(&from, "from", "start", "where to start")
	fl.StringVar(&ack, "ack", "explicit", "acknowledging: explicit, all, none")
	fl.StringVar(&ackWait, "ack-wait", "", "time to acknowledge before a redelivery (30s)")
	fl.IntVar(&inFlight, "max-in-flight", 0, "unacknowledged messages at once (1000)")
	fl.IntVar(&maxDeliver, "max-deliver", 0, "deliveries of one message (no limit)")
	fl.StringVar(&where, "where", "", "only messages that this condition holds for")
	fl.StringVar(&dead, "dead-letters", "", "subject for messages that are given up (see pubsub dlq)")
	fl.StringVar(&key, "key", "", "at most one message of each key at a time: header:NAME, json:/pointer, token:N")
	fl.StringVar(&description, "description", "", "what it is for")
	fl.BoolVar(&ifNot, "if-not-exists", false, "leave a consumer of that name as it is")
	_ = cmd.RegisterFlagCompletionFunc("ack", fixed("explicit", "all", "none"))
	return a.changes(cmd)
}

func (a *app) consumerRemove() *cobra.Command {
	var ifExists bool
	cmd := &cobra.Command{
		Use: "rm TOPIC CONSUMER", Aliases: []string{"delete"}, Short: "Delete a consumer and its place", Args: args(2, 2, "TOPIC CONSUMER"), ValidArgsFunction: a.completeConsumers,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		_, err = c.Consumer(cmd.Context(), args[0], args[1])
		if ifExists && errors.Is(err, client.ErrNotFound) {
			a.ui.Note("there is no consumer %s of topic %s", args[1], args[0])
			return nil
		}
		if err != nil {
			return a.consumerProblem(cmd.Context(), err, args[0], args[1])
		}
		if a.dryRun {
			a.ui.Note("dry run: would delete consumer %s of topic %s", args[1], args[0])
			return nil
		}
		if err := a.confirm(cmd, fmt.Sprintf("Delete consumer %s of topic %s with its place?", args[1], args[0])); err != nil {
			return err
		}
		if err := c.DeleteConsumer(cmd.Context(), args[0], args[1]); err != nil {
			return a.consumerProblem(cmd.Context(), err, args[0], args[1])
		}
		a.ui.Note("deleted consumer %s of topic %s", args[1], args[0])
		return nil
	}
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "succeed when there is none")
	return a.destroys(cmd)
}

func (a *app) consumerNext() *cobra.Command {
	var count int
	var noAck bool
	cmd := &cobra.Command{
		Use: "next TOPIC CONSUMER", Short: "Take messages of a consumer", Args: args(2, 2, "TOPIC CONSUMER"), ValidArgsFunction: a.completeConsumers,
		Long: "Take up to --count messages, print and acknowledge them. It waits --timeout for\nthe first; none is exit code 5.",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if count < 1 {
			return usage(cmd, "--count must be at least 1")
		}
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		out := a.ui.Messages(a.env.Out)
		for out.Count() < count {
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			got, err := c.Fetch(ctx, args[0], args[1], count-out.Count())
			cancel()
			if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
				return a.consumerProblem(cmd.Context(), err, args[0], args[1])
			}
			if errors.Is(err, client.ErrTimeout) {
				err = &problem{code: exitTimeout, what: fmt.Sprintf("consumer %s of topic %s had %s in %s", args[1], args[0], or(map[bool]string{true: "no message"}[out.Count() == 0], fmt.Sprintf("%d of %d messages", out.Count(), count)), a.timeout), err: err}
			}
			if err != nil {
				return errors.Join(err, out.Close())
			}
			for _, m := range got {
				if err := out.Print(toRecord(m)); err != nil {
					return err
				}
				if noAck {
					continue
				}
				if err := m.AckSync(cmd.Context()); err != nil {
					return err
				}
			}
		}
		return out.Close()
	}
	cmd.Flags().IntVarP(&count, "count", "c", 1, "how many")
	cmd.Flags().BoolVar(&noAck, "no-ack", false, "don't acknowledge: they come again")
	return cmd
}
