package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

// operatorSavepoint is what can be done with states that are kept under a name.
func (a *app) operatorSavepoint() *cobra.Command {
	cmd := &cobra.Command{
		Use: "savepoint", Aliases: []string{"sp"}, Short: "Keep the state of an operator under a name",
		Long: `Keep the state of an operator under a name, to go back to it (operator restore), or to
begin another version or another operator with it (--from-savepoint).`,
	}
	cmd.AddCommand(a.savepointCreate(), a.savepointList(), a.savepointShow(), a.savepointRemove())
	return cmd
}

// savepointAsk asks about one savepoint.
func (a *app) savepointAsk(cmd *cobra.Command, verb string, args []string, to any) error {
	c, err := a.connect(cmd)
	if err != nil {
		return err
	}
	return c.Operators(cmd.Context(), verb, client.OperatorRequest{Name: args[0], Savepoint: args[1]}, to)
}

func (a *app) savepointItem(p *client.OperatorSavepoint) error {
	keys, bytes := int64(0), int64(0)
	for _, i := range p.Instances {
		keys, bytes = keys+i.Keys, bytes+i.Bytes
	}
	return a.ui.Item(p, [][2]string{
		{"savepoint", p.Name},
		{"operator", p.Operator},
		{"version", p.Version},
		{"epoch", fmt.Sprint(p.Epoch)},
		{"instances", fmt.Sprint(len(p.Instances))},
		{"keys", fmt.Sprint(keys)},
		{"bytes", fmt.Sprint(bytes)},
		{"stored", fmt.Sprint(p.Bytes)},
		{"created", ui.Since(p.Created, a.env.Now())},
		{"digest", p.Digest},
	})
}

func (a *app) savepointCreate() *cobra.Command {
	cmd := &cobra.Command{Use: "create OPERATOR NAME", Short: "Keep what an operator remembers now", Args: args(2, 2, "OPERATOR NAME")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var p client.OperatorSavepoint
		if err := a.savepointAsk(cmd, "SAVEPOINT.CREATE", args, &p); err != nil {
			return err
		}
		if p.Making != "" {
			a.ui.Note("savepoint %s is being made; it is listed once it is there", p.Making)
			return nil
		}
		return a.savepointItem(&p)
	}
	return cmd
}

func (a *app) savepointList() *cobra.Command {
	cmd := &cobra.Command{Use: "ls [OPERATOR]", Aliases: []string{"list"}, Short: "List savepoints", Args: args(0, 1, "[OPERATOR]")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		var r client.OperatorRequest
		if len(args) > 0 {
			r.Name = args[0]
		}
		var all struct {
			Savepoints []client.OperatorSavepoint `json:"savepoints"`
		}
		if err := c.Operators(cmd.Context(), "SAVEPOINT.LIST", r, &all); err != nil {
			return err
		}
		rows := ui.Rows{Columns: []string{"operator", "savepoint", "version", "epoch", "bytes", "created"}, Right: []bool{false, false, false, true, true}, Empty: "no savepoints"}
		var items []any
		for i := range all.Savepoints {
			p := &all.Savepoints[i]
			items = append(items, p)
			rows.Cells = append(rows.Cells, []string{p.Operator, p.Name, p.Version, fmt.Sprint(p.Epoch), fmt.Sprint(p.Bytes), ui.Since(p.Created, a.env.Now())})
		}
		return a.ui.List(items, rows)
	}
	return cmd
}

func (a *app) savepointShow() *cobra.Command {
	cmd := &cobra.Command{Use: "show OPERATOR NAME", Aliases: []string{"info"}, Short: "Show a savepoint", Args: args(2, 2, "OPERATOR NAME")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var s struct {
			Savepoint client.OperatorSavepoint `json:"savepoint"`
			Spec      json.RawMessage          `json:"spec"`
		}
		if err := a.savepointAsk(cmd, "SAVEPOINT.INFO", args, &s); err != nil {
			return err
		}
		if a.ui.Format != ui.Table {
			return a.ui.Item(&s, nil)
		}
		return a.savepointItem(&s.Savepoint)
	}
	return cmd
}

func (a *app) savepointRemove() *cobra.Command {
	cmd := &cobra.Command{Use: "rm OPERATOR NAME", Short: "Remove a savepoint", Args: args(2, 2, "OPERATOR NAME")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.confirm(cmd, "Remove savepoint "+args[1]+" of operator "+args[0]+" for good?"); err != nil {
			return err
		}
		var gone map[string]string
		if err := a.savepointAsk(cmd, "SAVEPOINT.REMOVE", args, &gone); err != nil {
			return err
		}
		a.ui.Note("removed %s", gone["removed"])
		return nil
	}
	cmd.Flags().BoolVarP(&a.yes, "yes", "y", false, "don't ask")
	return cmd
}

func (a *app) operatorRestore() *cobra.Command {
	var r client.OperatorRequest
	cmd := &cobra.Command{
		Use: "restore OPERATOR SAVEPOINT", Short: "Have an operator go on from a savepoint",
		Long: `Have an operator go on from a savepoint: with the steps, the state and the place in its
inputs that it had then. What came out since comes again.`,
		Args: args(2, 2, "OPERATOR SAVEPOINT"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.Name, r.Savepoint = args[0], args[1]
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		return a.operatorChange(cmd, c, "RESTORE", r)
	}
	cmd.Flags().BoolVar(&r.Dry, "dry-run", false, "only say what would be done")
	cmd.Flags().BoolVarP(&a.yes, "yes", "y", false, "don't ask")
	return cmd
}
