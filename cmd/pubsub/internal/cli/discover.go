package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

func (a *app) discoverCommand() *cobra.Command {
	cmd := a.discoverList("discover")
	cmd.Long = `List what is advertised, show one advertisement in full, or watch: --watch prints
what there is, then (as a note) that this was all, then each change.`
	cmd.Example = "  pubsub discover\n  pubsub discover quakes -o json\n  pubsub discover --subject 'orders.>' --watch -o ndjson"
	return cmd
}

// discoverList is "discover" and "advertise ls".
func (a *app) discoverList(use string) *cobra.Command {
	var q client.Query
	var watch bool
	cmd := &cobra.Command{
		Use: use + " [NAME]", Short: "List what is advertised", Args: args(0, 1, "[NAME]"), ValidArgsFunction: a.completeAdvertisements,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		if len(args) > 0 {
			q.Name = args[0]
		}
		if watch {
			return a.watch(cmd, c, q)
		}
		ads, err := c.Discover(cmd.Context(), q)
		if err != nil {
			return err
		}
		if q.Name != "" && len(ads) == 0 {
			return a.advertisementProblem(cmd, &client.Error{Op: "discover", Target: q.Name, Kind: client.ErrNotFound, Err: errors.New("nobody advertises it")}, q.Name)
		}
		if q.Name != "" && len(ads) == 1 {
			return a.ui.Item(ads[0], advertisementPairs(&ads[0]))
		}
		rows := ui.Rows{Columns: []string{"name", "subject", "role", "team", "kept in", "summary"}, Empty: "nothing is advertised"}
		var items []any
		for i := range ads {
			ad := &ads[i]
			items = append(items, ad)
			topic := ""
			if ad.Keep != nil {
				topic = ad.Keep.Topic
			}
			rows.Cells = append(rows.Cells, []string{ad.Name, ad.Subject, ad.Role, ad.Owner.Team, topic, ad.Summary})
		}
		return a.ui.List(items, rows)
	}
	fl := cmd.Flags()
	fl.StringVar(&q.Subject, "subject", "", "only what overlaps this subject or pattern")
	fl.StringVar(&q.Team, "team", "", "only of this team")
	fl.StringVar(&q.Tag, "tag", "", "only with this tag")
	fl.BoolVar(&watch, "watch", false, "go on with changes")
	return cmd
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
	return a.ask(cmd, a.advertisedNames)
}
