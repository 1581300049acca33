package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/record"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

// lineMax bounds one line of ndjson input: a 64 MiB payload in base64 and some.
const lineMax = 96 << 20

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
it once.`,
		Example: `  pubsub pub orders.1 '{"n":1}' -H 'Trace: abc'
  pubsub pub --durable orders.new --expand '{{.Count}}' --count 1000
  pubsub sub 'orders.>' -o ndjson --count 10 | pubsub pub -i ndjson`,
		Args:              args(0, 2, "SUBJECT [BODY]"),
		ValidArgsFunction: a.completeSubjects,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.pub(cmd, args, f) },
	}
	fl := cmd.Flags()
	fl.StringArrayVarP(&f.headers, "header", "H", nil, `header "Name: value", repeatable`)
	fl.StringVarP(&f.input, "input", "i", "body", "what standard input is: body, lines, ndjson")
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
	_ = cmd.RegisterFlagCompletionFunc("input", fixed("body", "lines", "ndjson"))
	_ = cmd.RegisterFlagCompletionFunc("topic", a.completeTopics)
	return a.changes(cmd)
}

// source yields the messages to publish; it returns io.EOF after the last.
type source func() (record.Message, error)

func (a *app) pub(cmd *cobra.Command, args []string, f pubFlags) error {
	next, closeInput, err := a.pubSource(cmd, args, f)
	if err != nil {
		return err
	}
	defer closeInput()
	options, err := pubOptions(f)
	if err != nil {
		return usage(cmd, "%v", err)
	}
	if a.dryRun {
		return a.pubDry(next)
	}
	c, err := a.connect(cmd, client.OnError(func(err error) { a.ui.Warn("%s", plain(err)) }))
	if err != nil {
		return err
	}
	w := &writer{a: a, c: c, flags: f, options: options, known: map[string]bool{}}
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
	return w.summary(sent)
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

// pubSource builds the source that the arguments describe.
func (a *app) pubSource(cmd *cobra.Command, args []string, f pubFlags) (source, func(), error) {
	done := func() {}
	headers, err := parseHeaders(f.headers)
	if err != nil {
		return nil, done, usage(cmd, "%v", err)
	}
	in := a.env.In
	if f.file != "" {
		file, err := os.Open(f.file)
		if err != nil {
			return nil, done, err
		}
		in, done = file, func() { _ = file.Close() }
	}
	if len(args) == 0 && f.input != "ndjson" {
		return nil, done, usage(cmd, "%s needs SUBJECT", cmd.CommandPath())
	}
	base := record.Message{Reply: f.reply, Headers: headers}
	if len(args) > 0 {
		base.Subject = args[0]
	}
	switch {
	case f.input != "body" && f.input != "lines" && f.input != "ndjson":
		return nil, done, usage(cmd, "-i %s: input is body, lines or ndjson%s", f.input, suggestion(f.input, []string{"body", "lines", "ndjson"}))
	case f.input != "body" && (len(args) > 1 || cmd.Flags().Changed("count")):
		return nil, done, usage(cmd, "-i %s reads the messages from the input; BODY and --count don't go with it", f.input)
	case f.input == "ndjson":
		return a.expanded(ndjsonSource(in, base), f), done, nil
	case f.input == "lines":
		return a.expanded(lineSource(in, base), f), done, nil
	}
	if f.id != "" && f.count != 1 && !f.expand {
		return nil, done, usage(cmd, "--id with --count %d stores one message only; use --expand --id '…{{.Count}}'", f.count)
	}
	if len(args) > 1 {
		base.Payload = []byte(args[1])
	} else {
		if base.Payload, err = io.ReadAll(in); err != nil {
			return nil, done, fmt.Errorf("read the body: %w", err)
		}
	}
	left := f.count
	return a.expanded(func() (record.Message, error) {
		if left--; left < 0 {
			return record.Message{}, io.EOF
		}
		return base, nil
	}, f), done, nil
}

// expanded fills in templates when asked to, and the message id.
func (a *app) expanded(next source, f pubFlags) source {
	e, count := newExpander(a.env.Now, a.env.Getenv), 0
	return func() (record.Message, error) {
		m, err := next()
		if err != nil {
			return m, err
		}
		count++
		fill := func(s string) string {
			if err != nil || !f.expand {
				return s
			}
			var out string
			if out, err = e.expand(s, count); err != nil {
				return s
			}
			return out
		}
		if f.expand || f.id != "" {
			h := client.Header{}
			for name, values := range m.Headers {
				for _, value := range values {
					h[name] = append(h[name], fill(value))
				}
			}
			if f.id != "" {
				h[client.MessageIDHeader] = []string{fill(f.id)}
			}
			m.Subject, m.Payload, m.Headers = fill(m.Subject), []byte(fill(string(m.Payload))), h
		}
		return m, err
	}
}

// ndjsonSource reads messages of package record; what base has wins or is added.
func ndjsonSource(in io.Reader, base record.Message) source {
	lines := scanner(in)
	number := 0
	return func() (record.Message, error) {
		for lines.Scan() {
			number++
			line := bytes.TrimSpace(lines.Bytes())
			if len(line) == 0 || string(line) == "[" || string(line) == "]" || string(line) == "[]" {
				continue // so that the output of -o json is understood as well
			}
			m, err := record.Parse(bytes.TrimSuffix(line, []byte(",")))
			if err != nil {
				return m, &problem{code: exitUsage, what: fmt.Sprintf("input line %d: %v", number, err), err: err}
			}
			if base.Subject != "" {
				m.Subject = base.Subject
			}
			if base.Reply != "" {
				m.Reply = base.Reply
			}
			for name, values := range base.Headers {
				if m.Headers == nil {
					m.Headers = map[string][]string{}
				}
				m.Headers[name] = append(m.Headers[name], values...)
			}
			if m.Subject == "" {
				return m, &problem{code: exitUsage, what: fmt.Sprintf("input line %d: no subject", number), err: errors.New("no subject")}
			}
			return m, nil
		}
		return record.Message{}, ended(lines)
	}
}

func lineSource(in io.Reader, base record.Message) source {
	lines := scanner(in)
	return func() (record.Message, error) {
		if !lines.Scan() {
			return record.Message{}, ended(lines)
		}
		m := base
		m.Payload = bytes.Clone(lines.Bytes())
		return m, nil
	}
}

func scanner(in io.Reader) *bufio.Scanner {
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 64<<10), lineMax)
	return s
}

func ended(s *bufio.Scanner) error {
	if err := s.Err(); err != nil {
		return fmt.Errorf("read the input: %w", err)
	}
	return io.EOF
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

// writer publishes and, for durable messages, checks every receipt.
type writer struct {
	a       *app
	c       *client.Client
	flags   pubFlags
	options []client.PublishOption

	known   map[string]bool // subjects known to have a topic
	pending []*client.Future
	stored  int
	last    client.Receipt
	doubled int
	bytes   int64

	conditions int // Nats-Expected-… headers dropped
}

// pendingMax bounds the futures kept; their receipts are checked in order.
const pendingMax = 4096

func (w *writer) write(ctx context.Context, m record.Message) error {
	options := append([]client.PublishOption{client.WithHeaders(m.Headers)}, w.options...)
	w.bytes += int64(len(m.Payload))
	if !w.flags.durable {
		if m.Reply != "" {
			options = append(options, client.ReplyTo(m.Reply))
		}
		return w.c.Publish(m.Subject, m.Payload, options...)
	}
	if err := w.ensure(ctx, m.Subject); err != nil {
		return err
	}
	if w.flags.input == "ndjson" {
		m = w.unconditional(m)
		options[0] = client.WithHeaders(m.Headers)
	}
	f, err := w.c.PublishAsync(ctx, m.Subject, m.Payload, options...)
	if err != nil {
		return err
	}
	w.pending = append(w.pending, f)
	if len(w.pending) >= pendingMax {
		return w.settle(ctx, pendingMax/2)
	}
	return nil
}

// unconditional drops the conditions of a message that was stored before: they
// were about the place it was stored in, and would refuse it anywhere else.
func (w *writer) unconditional(m record.Message) record.Message {
	kept := m.Headers
	for name := range m.Headers {
		if !strings.HasPrefix(name, "Nats-Expected-") {
			continue
		}
		if len(kept) == len(m.Headers) {
			kept = maps.Clone(m.Headers)
		}
		delete(kept, name)
		w.conditions++
	}
	m.Headers = kept
	return m
}

// settle waits for all but the newest keep receipts.
func (w *writer) settle(ctx context.Context, keep int) error {
	for len(w.pending) > keep {
		f := w.pending[0]
		w.pending = w.pending[1:]
		r, err := f.Wait(ctx)
		if err != nil {
			return w.a.storeProblem(ctx, err, f.Subject())
		}
		w.last = r
		w.stored++
		if r.Duplicate {
			w.doubled++
		}
	}
	return nil
}

func (w *writer) finish(ctx context.Context) error {
	if w.flags.durable {
		return w.settle(ctx, 0)
	}
	return w.c.Flush(ctx)
}

func (w *writer) summary(sent int) error {
	a := w.a
	if !w.flags.durable {
		a.ui.Note("published %s, %s", plural(sent, "message"), ui.Bytes(w.bytes))
		return nil
	}
	text := fmt.Sprintf("stored %s, %s", plural(w.stored, "message"), ui.Bytes(w.bytes))
	if w.doubled > 0 {
		text += fmt.Sprintf(" (%s already there)", ui.Count(w.doubled))
	}
	if w.stored > 0 {
		text += fmt.Sprintf(", the last in topic %s at %d", w.last.Topic, w.last.Sequence)
	}
	a.ui.Note("%s", text)
	if w.conditions > 0 {
		a.ui.Note("left out %s of the input: they were conditions for storing it the first time", plural(w.conditions, "Nats-Expected-… header"))
	}
	return nil
}

// ensure creates the topic of a subject unless there is one.
func (w *writer) ensure(ctx context.Context, subject string) error {
	if w.flags.noCreate || w.known[subject] {
		return nil
	}
	if len(w.known) > 10_000 {
		clear(w.known) // bounded: subjects may be unique to each message
	}
	_, err := w.c.TopicOf(ctx, subject)
	if err == nil {
		w.known[subject] = true
		return nil
	}
	if !errors.Is(err, client.ErrNotFound) {
		return err
	}
	name, pattern := topicFor(subject)
	if w.flags.topic != "" {
		name = w.flags.topic
	}
	info, err := w.c.CreateTopic(ctx, client.TopicConfig{Name: name, Subjects: []string{pattern}})
	if err != nil {
		return fmt.Errorf("create the topic of %q (or use --no-create): %w", subject, err)
	}
	w.a.ui.Note("created topic %s: %s", name, describe(info.Config))
	w.known[subject] = true
	return nil
}

// topicFor is the topic that a durable publish creates: named after the first
// token, capturing everything below it.
func topicFor(subject string) (name, pattern string) {
	first, _, more := strings.Cut(subject, ".")
	if !more {
		return first, first
	}
	return first, first + ".>"
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
