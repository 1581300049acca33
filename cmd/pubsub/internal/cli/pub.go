package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

type pubFlags struct {
	headers  []string
	input    string
	durable  bool
	topic    string
	noCreate bool
	reply    string
	id       string
	count    int
	rate     time.Duration
	expand   bool
	file     string
	ttl      string
	later    later
	holding  string
}

func (a *app) pubCommand() *cobra.Command {
	var f pubFlags
	cmd := &cobra.Command{
		Use:   "pub SUBJECT [BODY]",
		Short: "Publish messages, live or durably",
		Long: `Publish a message. Without BODY the body is standard input; with -i lines each
line is a message, with -i ndjson each line is a message with its subject and
headers, as "pubsub sub -o ndjson" prints them (SUBJECT, when given, wins).

With --durable it returns after the broker has stored every message on a majority
of its disks, and the topic that captures the subject is created when there is
none (--no-create refuses instead). Repeating a publish under the same --id stores
it once.

With --delay, --at or --every the broker stores the message as a schedule and
publishes it later; pubsub schedule lists and removes schedules.`,
		Example: `  pubsub pub orders.1 '{"n":1}' -H 'Trace: abc'
  pubsub pub --durable orders.new --expand '{{.Count}}' --count 1000
  pubsub sub 'orders.>' -o ndjson --count 10 | pubsub pub -i ndjson
  pubsub pub reminders.1 'call back' --delay 15m`,
		Args:              args(0, 2, "SUBJECT [BODY]"),
		ValidArgsFunction: a.completeSubjects,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.pub(cmd, args, f) },
	}
	fl := cmd.Flags()
	fl.StringArrayVarP(&f.headers, "header", "H", nil, `header "Name: value", repeatable`)
	fl.StringVarP(&f.input, "input", "i", "body", "what standard input is: body, lines, ndjson, json (either: objects, in an array or not)")
	fl.BoolVarP(&f.durable, "durable", "d", false, "store the messages and wait until they are")
	fl.StringVar(&f.topic, "topic", "", "refuse unless this topic captures the subject; created under this name")
	fl.BoolVar(&f.noCreate, "no-create", false, "don't create a topic")
	fl.StringVar(&f.reply, "reply", "", "subject to answer to")
	fl.StringVar(&f.id, "id", "", "message id: stored once within the topic's duplicate window")
	fl.IntVar(&f.count, "count", 1, "publish this many")
	fl.DurationVar(&f.rate, "sleep", 0, "pause between messages")
	fl.BoolVarP(&f.expand, "expand", "e", false, expandHelp)
	fl.StringVarP(&f.file, "file", "f", "", "file to read instead of standard input")
	fl.StringVar(&f.ttl, "ttl", "", "let stored messages expire after this long (topics that allow it)")
	fl.StringVar(&f.holding, "advertisement", "", "hold this advertisement meanwhile, as exclusive subjects want")
	f.later.add(cmd)
	_ = cmd.RegisterFlagCompletionFunc("advertisement", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return a.completeAdvertisements(cmd, nil, typed)
	})
	_ = cmd.RegisterFlagCompletionFunc("input", fixed("body", "lines", "ndjson", "json"))
	_ = cmd.RegisterFlagCompletionFunc("topic", a.completeTopics)
	return a.changes(cmd)
}

func (a *app) pub(cmd *cobra.Command, args []string, f pubFlags) error {
	next, closeInput, err := a.pubSource(cmd, args, f)
	if err != nil {
		return err
	}
	defer closeInput()
	if f.later.set() {
		return a.postpone(cmd, next, f)
	}
	options, err := pubOptions(f)
	if err != nil {
		return usage(cmd, "%v", err)
	}
	if a.dryRun {
		return a.pubDry(next)
	}
	c, err := a.connect(cmd, client.OnError(func(err error) {
		if !errors.Is(err, client.ErrRefused) { // that is the outcome, told at the end
			a.ui.Warn("%s", plain(err))
		}
	}))
	if err != nil {
		return err
	}
	if f.holding != "" {
		if err := c.HoldAdvertisement(cmd.Context(), f.holding, client.Owner{}); err != nil {
			return a.advertisementProblem(cmd, err, f.holding)
		}
	}
	w := &writer{a: a, c: c, flags: f, options: options, known: map[string]bool{}, live: map[string]int{}}
	progress := a.ui.Progress("published", f.count)
	sent := 0
	for {
		m, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = w.write(cmd.Context(), m)
		}
		if err != nil {
			progress.Done()
			return errors.Join(err, w.finish(cmd.Context()))
		}
		sent++
		progress.Set(sent)
		if f.rate > 0 {
			if err := pause(cmd.Context(), f.rate); err != nil {
				return err
			}
		}
		if err := cmd.Context().Err(); err != nil {
			return err
		}
	}
	err = w.finish(cmd.Context())
	progress.Done()
	if err != nil {
		return err
	}
	if err := a.refusal(); err != nil {
		return err
	}
	if err := w.summary(sent); err != nil {
		return err
	}
	a.hintPublished(cmd.Context(), w.live)
	return nil
}

func pubOptions(f pubFlags) ([]client.PublishOption, error) {
	var options []client.PublishOption
	if f.topic != "" {
		options = append(options, client.ExpectTopic(f.topic))
	}
	if f.ttl != "" {
		d, err := parseDuration(f.ttl)
		if err != nil {
			return nil, fmt.Errorf("--ttl: %w", err)
		}
		options = append(options, client.TTL(d))
	}
	if !f.durable && (f.id != "" || f.topic != "" || f.ttl != "") {
		return nil, errors.New("--id, --topic and --ttl need --durable")
	}
	return options, nil
}

func (a *app) pubDry(next source) error {
	out := a.ui.Messages(a.env.Out)
	for {
		m, err := next()
		if errors.Is(err, io.EOF) {
			a.ui.Note("dry run: %s would be published", plural(out.Count(), "message"))
			return out.Close()
		}
		if err != nil {
			return err
		}
		if err := out.Print(m); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return ui.Count(n) + " " + what + "s"
}
