package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/cmd/pubsub/internal/profile"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

func (a *app) contextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "context",
		Aliases: []string{"ctx"},
		Short:   "Save and choose which broker to use, as whom",
		Long: `A context is a saved broker URL with an identity. Contexts of the nats CLI are
known too. What counts: a flag, else NATS_URL and its like, else the context, else
the default; "pubsub context show --explain" says where each value came from.`,
	}
	cmd.AddCommand(a.contextAdd(), a.contextList(), a.contextSelect(), a.contextShow(), a.contextRemove())
	return group(cmd)
}

func (a *app) contextAdd() *cobra.Command {
	var description string
	var choose bool
	cmd := &cobra.Command{
		Use: "add NAME", Aliases: []string{"save"}, Short: "Save a context from --server, --user, --creds, …", Args: args(1, 1, "NAME"),
		Long: `Save the connection flags as a context: --server, --user, --password, --token,
--creds, --nkey, --tlscert, --tlskey, --tlsca, --inbox-prefix, --domain. Saving one
that exists changes what is given. The file is readable by you only.`,
		Example: "  pubsub context add prod --server nats://broker:4222 --creds prod.creds --select",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		set, _, err := a.store.Load(args[0])
		if err != nil && !errors.Is(err, profile.ErrNoContext) {
			return usage(cmd, "%v", err)
		}
		for _, f := range profile.Fields() {
			if flag := cmd.Flag(f.Flag); flag != nil && flag.Changed {
				*f.Of(&set) = flag.Value.String()
			}
		}
		if set.URL == "" {
			set.URL = profile.DefaultURL
		}
		if cmd.Flags().Changed("description") {
			set.Description = description
		}
		if err := a.store.Save(args[0], set); err != nil {
			return err
		}
		a.ui.Note("saved %s", a.store.Path(args[0]))
		if choose {
			return a.store.Select(args[0])
		}
		return nil
	}
	cmd.Flags().StringVar(&description, "description", "", "what it is for")
	cmd.Flags().BoolVar(&choose, "select", false, "use it from now on")
	return cmd
}

func (a *app) contextList() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List contexts", Args: args(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			names, err := a.store.Names()
			if err != nil {
				return err
			}
			selected, _ := a.store.Selected()
			rows := ui.Rows{Columns: []string{"name", "selected", "url", "of", "description"}, Empty: "no contexts; pubsub context add NAME --server URL saves one"}
			var items []any
			for _, name := range names {
				set, tool, err := a.store.Load(name)
				if err != nil {
					a.ui.Warn("%v", err)
					continue
				}
				items = append(items, map[string]any{"name": name, "selected": name == selected, "url": set.URL, "of": tool, "description": set.Description})
				mark := ""
				if name == selected {
					mark = "yes"
				}
				rows.Cells = append(rows.Cells, []string{name, mark, set.URL, tool, set.Description})
			}
			return a.ui.List(items, rows)
		},
	}
}

func (a *app) contextSelect() *cobra.Command {
	var none bool
	cmd := &cobra.Command{
		Use: "select NAME", Aliases: []string{"use"}, Short: "Use a context from now on", Args: args(0, 1, "NAME"), ValidArgsFunction: a.completeContexts,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if none == (len(args) == 1) {
			return usage(cmd, "%s needs NAME, or --none", cmd.CommandPath())
		}
		if none {
			return a.store.Select("")
		}
		if err := a.store.Select(args[0]); err != nil {
			return a.contextProblem(err, args[0])
		}
		a.ui.Note("using context %s", args[0])
		return nil
	}
	cmd.Flags().BoolVar(&none, "none", false, "use none")
	return cmd
}

func (a *app) contextProblem(err error, name string) error {
	if !errors.Is(err, profile.ErrNoContext) {
		return err
	}
	names, _ := a.store.Names()
	return &problem{code: exitNotFound, what: fmt.Sprintf("no context %q%s", name, suggestion(name, names)), next: "pubsub context ls", err: err}
}

func (a *app) contextShow() *cobra.Command {
	var explain bool
	cmd := &cobra.Command{
		Use: "show [NAME]", Aliases: []string{"info"}, Short: "Show what would be used", Args: args(0, 1, "[NAME]"), ValidArgsFunction: a.completeContexts,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			a.contextName = args[0]
		}
		r, err := a.resolve(cmd)
		if err != nil {
			return err
		}
		if explain {
			rows := ui.Rows{Columns: []string{"setting", "value", "from"}}
			var items []any
			for _, s := range r.Sources {
				items = append(items, s)
				rows.Cells = append(rows.Cells, []string{s.Name, s.Value, s.From})
			}
			return a.ui.List(items, rows)
		}
		shown := map[string]string{}
		var pairs [][2]string
		for _, s := range r.Sources {
			shown[s.Name] = s.Value
			pairs = append(pairs, [2]string{s.Name, s.Value})
		}
		return a.ui.Item(shown, pairs)
	}
	cmd.Flags().BoolVar(&explain, "explain", false, "say where each value came from")
	return cmd
}

func (a *app) contextRemove() *cobra.Command {
	var ifExists bool
	cmd := &cobra.Command{
		Use: "rm NAME", Aliases: []string{"delete"}, Short: "Delete a context", Args: args(1, 1, "NAME"), ValidArgsFunction: a.completeContexts,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		_, _, err := a.store.Load(args[0])
		if ifExists && errors.Is(err, profile.ErrNoContext) {
			return nil
		}
		if err != nil {
			return a.contextProblem(err, args[0])
		}
		if a.dryRun {
			a.ui.Note("dry run: would delete context %s", args[0])
			return nil
		}
		if err := a.confirm(cmd, "Delete context "+args[0]+"?"); err != nil {
			return err
		}
		return a.store.Remove(args[0])
	}
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "succeed when there is none")
	return a.destroys(cmd)
}
