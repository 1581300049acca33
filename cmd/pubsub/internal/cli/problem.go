package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/profile"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
	"github.com/heraldmq/herald/topics/subject"
)

// The exit codes, as documented in rootHelp and docs/cli.md.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitNoResponder = 4
	exitTimeout     = 5
	exitRefused     = 6
	exitUnhealthy   = 7
	exitConflict    = 8
	exitInterrupted = 130
)

// problem is an error as a person reads it: what happened and why in one line,
// and what to do next.
type problem struct {
	code int
	what string
	next string // a command to try; may be empty
	err  error
}

func (p *problem) Error() string { return p.what }
func (p *problem) Unwrap() error { return p.err }

// usage is a mistake in how a command was called.
func usage(cmd *cobra.Command, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	return &problem{code: exitUsage, what: what, next: cmd.CommandPath() + " --help", err: errors.New(what)}
}

// report writes the error to standard error and returns the exit code.
func (a *app) report(err error) int {
	p := explain(err)
	text := a.ui.Paint(a.ui.ErrTTY(), "31", "pubsub:") + " " + p.what
	if p.next != "" {
		text += "  try: " + p.next
	}
	fmt.Fprintln(a.env.Err, text)
	return p.code
}

// explain turns any error into a problem.
func explain(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	p = &problem{code: exitError, what: plain(err), err: err}
	for _, row := range []struct {
		kind error
		code int
	}{
		{ui.ErrHex, exitUsage},
		{client.ErrNoResponders, exitNoResponder},
		{client.ErrTimeout, exitTimeout},
		{context.DeadlineExceeded, exitTimeout},
		{client.ErrNotFound, exitNotFound},
		{client.ErrConflict, exitConflict},
		{client.ErrRefused, exitRefused},
		{client.ErrTooLarge, exitRefused},
		{client.ErrNoSpace, exitRefused},
		{client.ErrInvalid, exitUsage},
		{client.ErrUnavailable, exitUnhealthy},
		{context.Canceled, exitInterrupted},
	} {
		if errors.Is(err, row.kind) {
			p.code = row.code
			break
		}
	}
	return p
}

// plain is the text of an error without the prefixes of the library.
func plain(err error) string {
	var mine *client.Error
	if !errors.As(err, &mine) {
		return err.Error()
	}
	why := strings.TrimPrefix(mine.Err.Error(), "nats: ")
	var api *jetstream.APIError
	if errors.As(mine.Err, &api) {
		why = fmt.Sprintf("%s (error %d)", api.Description, api.ErrorCode)
	}
	text := mine.Op
	if mine.Target != "" {
		text += " " + mine.Target
	}
	return text + ": " + why
}

// connectProblem says why there is no connection.
func connectProblem(err error, r profile.Resolved) error {
	from := ""
	for _, s := range r.Sources {
		if s.Name == "url" && s.From != "default" {
			from = " (from " + s.From + ")"
		}
	}
	p := explain(err)
	switch {
	case errors.Is(err, client.ErrRefused):
		return &problem{code: exitRefused, what: fmt.Sprintf("the broker at %s%s refused the connection: %s", profile.Masked(r.URL), from, cause(err)), next: "pubsub context show --explain", err: err}
	case errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrTimeout) || p.code == exitError:
		return &problem{code: exitUnhealthy, what: fmt.Sprintf("no broker at %s%s: %s", profile.Masked(r.URL), from, cause(err)), next: "brokerd, or --server URL", err: err}
	}
	return p
}

func cause(err error) string {
	var mine *client.Error
	if errors.As(err, &mine) {
		err = mine.Err
	}
	return strings.TrimPrefix(err.Error(), "nats: ")
}

// flagProblem is called by cobra for a flag it can't use.
func flagProblem(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return usage(cmd, "%v", err)
	}
	name := unknown.GetSpecifiedName()
	if name == "" || unknown.GetSpecifiedShortnames() != "" {
		return usage(cmd, "%s has no flag -%s", cmd.CommandPath(), name)
	}
	var names []string
	add := func(f *pflag.Flag) { names = append(names, "--"+f.Name) }
	cmd.Flags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return usage(cmd, "%s has no flag --%s%s", cmd.CommandPath(), name, suggestion("--"+name, names))
}

// group makes a command that only holds others answer a typo in one line.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return usage(cmd, "%s has no command %q%s", cmd.CommandPath(), args[0], suggestion(args[0], commandNames(cmd)))
	}
	return cmd
}

func commandNames(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			names = append(append(names, sub.Name()), sub.Aliases...)
		}
	}
	return names
}

// args checks the number of arguments; names are for the message.
func args(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least {
			return usage(cmd, "%s needs %s", cmd.CommandPath(), names)
		}
		if most >= 0 && len(args) > most {
			return usage(cmd, "%s takes %s; %q is too much", cmd.CommandPath(), or(names, "no arguments"), args[most])
		}
		return nil
	}
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// suggestion is ` (did you mean "x"?)` or nothing.
func suggestion(got string, known []string) string {
	best, least := "", 2 // edits, of one that would be too many
	switch letters := len([]rune(strings.TrimLeft(got, "-"))); {
	case letters > 7:
		least = 4
	case letters > 4:
		least = 3
	}
	for _, name := range known {
		d := distance(strings.ToLower(got), strings.ToLower(name))
		if strings.HasPrefix(name, got) && len(got) > 1 {
			d = min(d, 1)
		}
		if d < least {
			best, least = name, d
		}
	}
	if best == "" || best == got {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// distance counts the edits between two words; swapping neighbours is one.
func distance(a, b string) int {
	ra, rb := []rune(a), []rune(b)
	var before []int
	row := make([]int, len(rb)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(ra); i++ {
		next := make([]int, len(rb)+1)
		next[0] = i
		for j := 1; j <= len(rb); j++ {
			cost := 1
			if ra[i-1] == rb[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && ra[i-1] == rb[j-2] && ra[i-2] == rb[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(rb)]
}

// topicProblem explains an error about a topic, with the nearest name.
func (a *app) topicProblem(ctx context.Context, err error, name string) error {
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	return &problem{code: exitNotFound, what: fmt.Sprintf("topic %q not found%s", name, suggestion(name, a.liveTopics(ctx))), next: "pubsub topic ls", err: err}
}

// consumerProblem explains an error about a consumer, with the nearest name.
func (a *app) consumerProblem(ctx context.Context, err error, topic, name string) error {
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrConsumerDoesNotExist) {
		return &problem{code: exitNotFound, what: fmt.Sprintf("consumer %q of topic %q not found%s", name, topic, suggestion(name, a.liveConsumers(ctx, topic))), next: "pubsub consumer ls " + topic, err: err}
	}
	return a.topicProblem(ctx, err, topic)
}

// storeProblem explains why a durable publish failed.
func (a *app) storeProblem(ctx context.Context, err error, subject string) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == 20030 {
		p := explain(err)
		p.next = "pubsub pub --advertisement NAME, as the user who advertised it"
		return p
	}
	if errors.Is(err, client.ErrNoResponders) {
		return &problem{code: exitNoResponder, what: fmt.Sprintf("no topic captures %q, so nothing was stored", subject), next: "pubsub topic create NAME --subjects " + subject, err: err}
	}
	return err
}

// overlapProblem says which topics have the subjects that another one was to capture, and
// what to do then; other errors are given back.
func (a *app) overlapProblem(ctx context.Context, err error, subjects []string, next string) error {
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.ErrorCode != 10065 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	all, listErr := a.client.Topics(ctx)
	var taken []string
	for _, t := range all {
		for _, s := range t.Config.Subjects {
			if slices.ContainsFunc(subjects, func(o string) bool { return subject.Overlap(s, o) }) {
				taken = append(taken, fmt.Sprintf("topic %s has %s", t.Config.Name, s))
			}
		}
	}
	if listErr != nil || len(taken) == 0 {
		return err
	}
	slices.Sort(taken)
	p := explain(err)
	p.what += ": " + strings.Join(taken[:min(3, len(taken))], ", ")
	p.next = next
	return p
}

// noTopicFor explains that a subject has no topic to read from.
func (a *app) noTopicFor(ctx context.Context, err error, subject string) error {
	if !errors.Is(err, client.ErrNotFound) {
		return err
	}
	names := a.liveTopics(ctx)
	hint := "; there are no topics yet"
	if len(names) > 0 {
		slices.Sort(names)
		hint = "; topics: " + strings.Join(names[:min(5, len(names))], ", ")
	}
	return &problem{code: exitNotFound, what: fmt.Sprintf("no topic captures %q%s", subject, hint), next: "pubsub topic create NAME --subjects " + subject, err: err}
}

// requestProblem explains why a request got no answer.
func requestProblem(err error, subject string) error {
	if errors.Is(err, nats.ErrNoResponders) {
		return &problem{code: exitNoResponder, what: fmt.Sprintf("nobody answers on %q", subject), next: "pubsub reply " + subject + " …", err: err}
	}
	if errors.Is(err, client.ErrTimeout) {
		return &problem{code: exitTimeout, what: fmt.Sprintf("no answer on %q in time", subject), next: "--timeout with more time", err: err}
	}
	return err
}
