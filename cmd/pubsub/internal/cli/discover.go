package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/asyncapi"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

func (a *app) discoverCommand() *cobra.Command {
	cmd := a.discoverList("discover")
	cmd.Long = `List what is advertised, show one advertisement in full with what is really
published, or watch: --watch prints what there is, then (as a note) that this was
all, then each change.

--observed shows the figures of all. --undeclared lists traffic that nobody
advertises, --silent, --unused and --violating what is advertised and quiet, read
by nobody, or not as its schema says. NATS's micro services are listed with the
role responds (--no-services leaves them out).

--asyncapi prints an AsyncAPI document, which "pubsub advertise -f" reads. With a
NAME --jsonschema, --go and --ts print the schema, or types of it for programs.`
	cmd.Example = `  pubsub discover
  pubsub discover quakes -o json
  pubsub discover --subject 'orders.>' --watch -o ndjson
  pubsub discover --undeclared
  pubsub discover --asyncapi > api.yaml
  pubsub discover orders --go > orders.go`
	return cmd
}

type discoverFlags struct {
	q                                             client.Query
	watch, observed, undeclared, asyncapi, noMore bool
	jsonschema, golang, ts                        bool
}

// discoverList is "discover" and "advertise ls".
func (a *app) discoverList(use string) *cobra.Command {
	var f discoverFlags
	cmd := &cobra.Command{
		Use: use + " [NAME]", Short: "List what is advertised", Args: args(0, 1, "[NAME]"), ValidArgsFunction: a.completeAdvertisements,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			f.q.Name = args[0]
		}
		types := f.jsonschema || f.golang || f.ts
		if types && f.q.Name == "" {
			return usage(cmd, "--jsonschema, --go and --ts are of one advertisement: give its NAME")
		}
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		switch {
		case f.watch:
			return a.watch(cmd, c, f.q)
		case f.undeclared:
			return a.undeclared(cmd, c, f.q.Subject)
		case f.asyncapi:
			return a.exportAsyncAPI(cmd, c, f.q)
		case types:
			return a.printTypes(cmd, c, &f)
		}
		return a.discover(cmd, c, &f)
	}
	fl := cmd.Flags()
	fl.StringVar(&f.q.Subject, "subject", "", "only what overlaps this subject or pattern")
	fl.StringVar(&f.q.Team, "team", "", "only of this team")
	fl.StringVar(&f.q.Tag, "tag", "", "only with this tag")
	fl.StringVar(&f.q.Role, "role", "", "only of this role: publishes, consumes, responds, operator")
	fl.StringVar(&f.q.Kind, "kind", "", "only of this kind: event, state, command, reply")
	fl.BoolVar(&f.q.Silent, "silent", false, "only what has been quiet for longer than it says")
	fl.BoolVar(&f.q.Unused, "unused", false, "only what nobody reads")
	fl.BoolVar(&f.q.Violating, "violating", false, "only what has messages that are not as the schema says")
	fl.BoolVar(&f.undeclared, "undeclared", false, "what is published and not advertised")
	fl.BoolVarP(&f.observed, "observed", "l", false, "with what is really published")
	fl.BoolVar(&f.watch, "watch", false, "go on with changes")
	fl.BoolVar(&f.noMore, "no-services", false, "without NATS's micro services")
	fl.BoolVar(&f.asyncapi, "asyncapi", false, "print an AsyncAPI document")
	fl.BoolVar(&f.jsonschema, "jsonschema", false, "print the schema of NAME as JSON Schema")
	fl.BoolVar(&f.golang, "go", false, "print Go types for the schema of NAME")
	fl.BoolVar(&f.ts, "ts", false, "print TypeScript types for the schema of NAME")
	_ = cmd.RegisterFlagCompletionFunc("role", fixed("publishes", "consumes", "responds", "operator"))
	_ = cmd.RegisterFlagCompletionFunc("kind", fixed("event", "state", "command", "reply"))
	cmd.MarkFlagsMutuallyExclusive("watch", "undeclared", "asyncapi", "jsonschema", "go", "ts")
	return cmd
}

func (a *app) discover(cmd *cobra.Command, c *client.Client, f *discoverFlags) error {
	q := f.q
	seen := f.observed || q.Name != "" || q.Silent || q.Unused || q.Violating
	find := c.DiscoverObserved
	if !seen {
		find = func(ctx context.Context, q client.Query) (found []client.Discovered, err error) {
			ads, err := c.Discover(ctx, q)
			for i := range ads {
				found = append(found, client.Discovered{Advertisement: ads[i]})
			}
			return found, err
		}
	}
	found, err := find(cmd.Context(), q)
	if err != nil {
		return err
	}
	if !f.noMore && (q.Role == "" || q.Role == "responds") && !q.Silent && !q.Unused && !q.Violating && q.Team+q.Tag+q.Kind == "" {
		a.courtesies = append(a.courtesies, servicesSubject)
		services, err := c.Services(cmd.Context(), 0)
		if err != nil {
			a.ui.Debug("micro services: %v", err)
		}
		for _, ad := range services {
			if q.Matches(&ad) {
				found = append(found, client.Discovered{Advertisement: ad})
			}
		}
	}
	if q.Name != "" && len(found) == 0 {
		return a.advertisementProblem(cmd, &client.Error{Op: "discover", Target: q.Name, Kind: client.ErrNotFound, Err: errors.New("nobody advertises it")}, q.Name)
	}
	if q.Name != "" && len(found) == 1 {
		return a.ui.Item(found[0], append(advertisementPairs(&found[0].Advertisement), a.observedPairs(found[0].Observed)...))
	}
	empty := "nothing is advertised"
	switch {
	case q.Silent:
		empty = "nothing that is advertised has been quiet for longer than it says"
	case q.Unused:
		empty = "everything that is advertised is read by somebody"
	case q.Violating:
		empty = "no message within an hour was not as its schema says"
	case q != client.Query{}:
		empty = "nothing like that is advertised"
	}
	return a.listAdvertisements(found, seen, empty)
}

func (a *app) listAdvertisements(found []client.Discovered, seen bool, empty string) error {
	rows := ui.Rows{Columns: []string{"name", "subject", "role", "team", "kept in", "summary"}, Empty: empty}
	if seen {
		rows.Columns = []string{"name", "subject", "role", "last message", "msgs/min", "msgs/hour", "publishers", "readers", "conform"}
		rows.Right = []bool{false, false, false, false, true, true, true, true, true}
	}
	var items []any
	for i := range found {
		ad := &found[i]
		items = append(items, ad)
		topic := ""
		if ad.Keep != nil {
			topic = ad.Keep.Topic
		}
		cells := []string{ad.Name, ad.Subject, ad.Role, ad.Owner.Team, topic, ad.Summary}
		if seen {
			cells = append(cells[:3], a.observedCells(ad.Observed)...)
		}
		rows.Cells = append(rows.Cells, cells)
	}
	return a.ui.List(items, rows)
}

// observedCells are the figures of one row: last, per minute, per hour, publishers,
// readers, conformance.
func (a *app) observedCells(o *client.Observed) []string {
	if o == nil {
		return []string{"–", "–", "–", "–", "–", "–"}
	}
	last, conform := "–", "–"
	if o.Last != nil {
		last = ui.Since(*o.Last, a.env.Now())
	}
	if o.Conformance != nil {
		conform = fmt.Sprintf("%g %%", *o.Conformance)
	}
	return []string{last, ui.Count(int(o.Msgs1m)), ui.Count(int(o.Msgs1h)), fmt.Sprint(o.Publishers), fmt.Sprint(o.Readers()), conform}
}

// undeclared lists what is published and not advertised.
func (a *app) undeclared(cmd *cobra.Command, c *client.Client, pattern string) error {
	all, err := c.Undeclared(cmd.Context(), pattern)
	if err != nil {
		return err
	}
	rows := ui.Rows{
		Columns: []string{"subject", "last message", "msgs/min", "msgs/hour", "publishers", "readers"},
		Right:   []bool{false, false, true, true, true, true}, Empty: "everything that was published within an hour is advertised",
	}
	var items []any
	for i := range all {
		items = append(items, &all[i])
		rows.Cells = append(rows.Cells, append([]string{all[i].Pattern}, a.observedCells(&all[i])[:5]...))
	}
	return a.ui.List(items, rows)
}

// exportAsyncAPI prints what is advertised as a document.
func (a *app) exportAsyncAPI(cmd *cobra.Command, c *client.Client, q client.Query) error {
	ads, err := c.Discover(cmd.Context(), q)
	if err != nil {
		return err
	}
	doc, err := asyncapi.Export("Herald", ads)
	if err != nil {
		return err
	}
	_, err = a.env.Out.Write(doc)
	return err
}

// watch prints events until the context ends.
func (a *app) watch(cmd *cobra.Command, c *client.Client, q client.Query) error {
	if a.ui.Format == ui.JSON {
		a.ui.Format = ui.NDJSON // a list without end is a line for each item
	}
	events := make(chan client.Event, 64)
	ended := make(chan struct{})
	w, err := c.Watch(cmd.Context(), q, func(e client.Event) {
		select {
		case events <- e:
		case <-ended:
		}
	})
	if err != nil {
		return err
	}
	defer func() { close(ended); _ = w.Close() }()
	for {
		select {
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		case <-w.Done():
			return &problem{code: exitUnhealthy, what: "the watch ended: the connection is closed", err: client.ErrClosed}
		case e := <-events:
			if e.Kind == client.Caught {
				a.ui.Note("that is all there is now; waiting for changes")
				if a.ui.Format == ui.Table && a.ui.Template == nil {
					continue
				}
			}
			if err := a.printEvent(e); err != nil {
				return err
			}
		}
	}
}

func (a *app) printEvent(e client.Event) error {
	if a.ui.Format != ui.Table || a.ui.Template != nil {
		return a.ui.Item(e, [][2]string{{"event", string(e.Kind)}, {"revision", fmt.Sprint(e.Revision)}})
	}
	_, err := fmt.Fprintf(a.env.Out, "%-10s %s  %s  %s\n", e.Kind, a.ui.Bold(e.Advertisement.Name), e.Advertisement.Subject, e.Advertisement.Summary)
	return err
}

func (a *app) completeAdvertisements(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.ask(cmd, "advertised", a.advertisedNames)
}
