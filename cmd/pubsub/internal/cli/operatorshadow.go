package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
)

// operatorShadow shows how a shadow compares, nothing where there is none.
func (a *app) operatorShadow(s *client.OperatorShadow) {
	if s == nil {
		return
	}
	fmt.Fprintf(a.env.Out, "\nshadow, version %q, for %d steps: %d rows are the same, %d only the operator gave, %d only the shadow\n", s.Version, s.Steps, s.Same, s.OnlyOld, s.OnlyNew)
	for _, row := range s.Old {
		fmt.Fprintf(a.env.Out, "  - %s\n", row)
	}
	for _, row := range s.New {
		fmt.Fprintf(a.env.Out, "  + %s\n", row)
	}
	if s.Partial {
		fmt.Fprintln(a.env.Out, "  there were more differences than are kept: the figures are at least these")
	}
	if s.Error != "" {
		fmt.Fprintf(a.env.Out, "  it has stopped: %s\n", s.Error)
	}
}

func (a *app) operatorPromote() *cobra.Command {
	var r client.OperatorRequest
	cmd := &cobra.Command{Use: "promote NAME", Short: "Put an operator's shadow in its place", Args: args(1, 1, "the operator's name")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.Name = args[0]
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		return a.operatorChange(cmd, c, "PROMOTE", r)
	}
	cmd.Flags().BoolVar(&r.Dry, "dry-run", false, "only say what would be done")
	cmd.Flags().BoolVarP(&a.yes, "yes", "y", false, "don't ask before state is dropped")
	return cmd
}

func (a *app) operatorDiscard() *cobra.Command {
	return a.operatorState("discard", "DISCARD", "End an operator's shadow")
}
