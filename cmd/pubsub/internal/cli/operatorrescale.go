package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
)

// rescalePoll is how often it is looked whether the instances have been replaced.
const rescalePoll = 100 * time.Millisecond

func (a *app) operatorRescale() *cobra.Command {
	var dry, cancel bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "rescale NAME [N]", Short: "Give an operator another number of instances, while it runs",
		Long: "Give an operator another number of instances. All of those it has read up to the same place and hand their keys over; nothing is lost or worked on twice. With --cancel a replacement that is under way (by rescale, an update, a promotion, or a move to another group) is called off.",
		Args: args(1, 2, "the operator's name and a number of instances"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cancel {
			return a.operatorCancel(cmd, args)
		}
		if len(args) < 2 {
			return usage(cmd, "needs the operator's name and a number of instances")
		}
		n, err := strconv.Atoi(args[1])
		if err != nil || n < 1 || n > 120 {
			return usage(cmd, "a number of instances is 1 to 120, not %q", args[1])
		}
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		var d client.OperatorChange
		if err := c.Operators(cmd.Context(), "RESCALE", client.OperatorRequest{Name: args[0], Partitions: n, Dry: dry}, &d); err != nil {
			return err
		}
		o := &d.Operator
		if dry {
			a.ui.Note("nothing was changed")
			return a.operatorItem(o)
		}
		for end := time.Now().Add(wait); o.Next != nil && time.Now().Before(end); {
			select {
			case <-cmd.Context().Done():
				return cmd.Context().Err()
			case <-time.After(rescalePoll):
			}
			var i client.OperatorInfo
			if err := c.Operators(cmd.Context(), "INFO", client.OperatorRequest{Name: args[0]}, &i); err != nil {
				return err
			}
			if *o = i.Operator; o.State == "failed" {
				break
			}
		}
		if err := a.operatorItem(o); err != nil {
			return err
		}
		if o.Next != nil && wait > 0 {
			return fmt.Errorf("operator %s has not been rescaled after %s; it goes on: see pubsub operator info %s", o.Name, wait, o.Name)
		}
		return nil
	}
	cmd.Flags().BoolVar(&cancel, "cancel", false, "call off that the operator's instances are being replaced; those there go on")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only check it, and say what would be done")
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "wait for as long until it is done; 0s: don't")
	return cmd
}

// operatorCancel calls off that an operator's instances are being replaced.
func (a *app) operatorCancel(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usage(cmd, "--cancel takes no number of instances")
	}
	c, err := a.connect(cmd)
	if err != nil {
		return err
	}
	var d client.OperatorChange
	if err := c.Operators(cmd.Context(), "CANCEL", client.OperatorRequest{Name: args[0]}, &d); err != nil {
		return err
	}
	a.ui.Note("called off; its instances go on where they stand")
	return a.operatorItem(&d.Operator)
}
