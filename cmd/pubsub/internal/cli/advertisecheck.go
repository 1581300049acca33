package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/record"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

// sampleFlags say which messages to look at.
type sampleFlags struct {
	last   string
	count  int
	live   bool
	wait   time.Duration
	schema string
	owner  client.Owner
}

func (f *sampleFlags) add(cmd *cobra.Command, what string) {
	fl := cmd.Flags()
	fl.StringVar(&f.last, "last", "", "only messages of this time (1h)")
	fl.IntVarP(&f.count, "count", "c", 0, what)
	fl.BoolVar(&f.live, "live", false, "those to come, even if they are kept")
	fl.DurationVarP(&f.wait, "wait", "w", 0, "how long to listen where nothing is kept (1s, at most 30s)")
	fl.StringVar(&f.owner.Team, "team", "", "owner: team, when several advertise the name")
	fl.StringVar(&f.owner.Service, "service", "", "owner: service, when several advertise the name")
}

// query makes the question. An argument that has a dot, a wildcard or a brace is a
// subject unless something of that name is advertised.
func (a *app) sampleQuery(cmd *cobra.Command, f *sampleFlags, arg string) (client.SampleQuery, error) {
	q := client.SampleQuery{Count: f.count, Live: f.live, Wait: f.wait, Owner: f.owner}
	if f.last != "" {
		d, err := parseDuration(f.last)
		if err != nil {
			return q, usage(cmd, "--last: %v", err)
		}
		q.Last = d
	}
	if f.schema != "" {
		s, err := readSchema(f.schema)
		if err != nil {
			return q, usage(cmd, "--schema: %v", err)
		}
		q.Schema = s
	}
	q.Name = arg
	_, err := a.client.Advertisement(cmd.Context(), arg, f.owner)
	switch {
	case err == nil:
	case errors.Is(err, client.ErrConflict):
		return q, err // several owners have the name
	default:
		q.Name, q.Owner, q.Subject = "", client.Owner{}, arg
	}
	return q, nil
}

func (a *app) advertiseCheck() *cobra.Command {
	var f sampleFlags
	cmd := &cobra.Command{
		Use: "check NAME|SUBJECT", Short: "Hold recent messages against the schema", Args: args(1, 1, "NAME|SUBJECT"), ValidArgsFunction: a.completeAdvertisements,
		Long: `Say how many of the recent messages are not as the schema says: what enforcing it
would refuse, before it does. Nothing is changed. --schema tries another schema than
the advertised one. Exit code 6 when some fail.`,
		Example: "  pubsub advertise check orders --last 1h\n  pubsub advertise check 'orders.>' --schema order.json",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		q, err := a.sampleQuery(cmd, &f, args[0])
		if err != nil {
			return err
		}
		if q.Name == "" && q.Schema == nil {
			return a.advertisementProblem(cmd, &client.Error{Op: "check", Target: args[0], Kind: client.ErrNotFound, Err: errors.New("nobody advertises it")}, args[0])
		}
		got, err := c.CheckMessages(cmd.Context(), q)
		if err != nil {
			return err
		}
		if err := a.showChecked(got); err != nil {
			return err
		}
		if got.Failed > 0 {
			return &problem{code: exitRefused, what: fmt.Sprintf("%d of %s would be refused", got.Failed, plural(got.Checked, "message")), err: client.ErrRefused}
		}
		return nil
	}
	f.add(cmd, "at most so many messages (10000)")
	cmd.Flags().StringVar(&f.schema, "schema", "", "file with the schema to check by, instead of the advertised one")
	return cmd
}

func (a *app) showChecked(got *client.Checked) error {
	pairs := [][2]string{
		{"subjects", got.Pattern}, {"messages", got.Source}, {"checked", ui.Count(got.Checked)}, {"failed", ui.Count(got.Failed)},
	}
	for _, k := range slices.Sorted(maps.Keys(got.ByKeyword)) {
		pairs = append(pairs, [2]string{"by " + k, ui.Count(got.ByKeyword[k])})
	}
	for i := range got.Failures {
		x := &got.Failures[i]
		at := x.Subject
		if x.Topic != "" {
			at = fmt.Sprintf("%s (%s/%d)", at, x.Topic, x.Sequence)
		}
		pairs = append(pairs, [2]string{at, fmt.Sprintf("%s: %s: %s", or(x.Pointer, "the payload"), x.Keyword, x.Message)})
	}
	return a.ui.Item(got, pairs)
}

func (a *app) advertiseSample() *cobra.Command {
	var f sampleFlags
	cmd := &cobra.Command{
		Use: "sample NAME|SUBJECT", Short: "Show recent messages", Args: args(1, 1, "NAME|SUBJECT"), ValidArgsFunction: a.completeAdvertisements,
		Long: "Show the last messages: of the topics that keep them, else those that come within --wait.",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		q, err := a.sampleQuery(cmd, &f, args[0])
		if err != nil {
			return err
		}
		got, err := c.Sample(cmd.Context(), q)
		if err != nil {
			return err
		}
		if len(got.Messages) == 0 {
			a.ui.Note("no message on %s (%s)", got.Pattern, got.Source)
		}
		out := a.ui.Messages(a.env.Out)
		for i := range got.Messages {
			if err := out.Print(sampledRecord(&got.Messages[i])); err != nil {
				return err
			}
		}
		return out.Close()
	}
	f.add(cmd, "so many messages (5)")
	return cmd
}

func sampledRecord(m *client.SampledMessage) record.Message {
	r := record.Message{Subject: m.Subject, Payload: m.Payload(), Topic: m.Topic, Sequence: m.Sequence, Time: m.Time}
	if len(m.Headers) > 0 {
		r.Headers = client.Header{}
		for k, v := range m.Headers {
			r.Headers[k] = []string{v}
		}
	}
	return r
}

// inferMax bounds what infer looks at: one answer's worth.
const inferMax = 1000

func (a *app) advertiseInfer() *cobra.Command {
	var f sampleFlags
	cmd := &cobra.Command{
		Use: "infer NAME|SUBJECT", Short: "Propose a schema from messages", Args: args(1, 1, "NAME|SUBJECT"),
		Long: `Print a JSON Schema that the messages looked at conform to. It is a proposal: a
schema that is guessed says what was, not what may be. Nothing is advertised by it.`,
		Example: "  pubsub advertise infer 'orders.>' --samples 500 > order.json",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		if f.count > inferMax || f.count < 1 {
			return usage(cmd, "--samples must be 1 to %d", inferMax)
		}
		q, err := a.sampleQuery(cmd, &f, args[0])
		if err != nil {
			return err
		}
		got, err := c.Sample(cmd.Context(), q)
		if err != nil {
			return err
		}
		if len(got.Messages) == 0 {
			return &problem{code: exitNotFound, what: fmt.Sprintf("no message on %s (%s)", got.Pattern, got.Source), err: client.ErrNotFound}
		}
		payloads := make([][]byte, len(got.Messages))
		for i := range got.Messages {
			payloads[i] = got.Messages[i].Payload()
		}
		text, skipped, err := infer(payloads)
		if err != nil {
			return &problem{code: exitError, what: err.Error(), err: err}
		}
		if skipped > 0 {
			a.ui.Warn("%s not JSON and left out", strings.Replace(plural(skipped, "message")+" were", "1 message were", "1 message was", 1))
		}
		a.ui.Note("proposed from %s on %s", plural(len(payloads)-skipped, "message"), got.Pattern)
		_, err = fmt.Fprintf(a.env.Out, "%s\n", text)
		return err
	}
	f.add(cmd, "")
	cmd.Flags().IntVar(&f.count, "samples", 500, "so many messages")
	_ = cmd.Flags().MarkHidden("count")
	return cmd
}
