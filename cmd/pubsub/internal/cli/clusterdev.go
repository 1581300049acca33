package cli

import (
	"errors"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/cmd/pubsub/internal/dev"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

func (a *app) clusterDev() *cobra.Command {
	o := dev.Options{Note: a.ui.Note}
	cmd := &cobra.Command{
		Use: "dev", Short: "Run a cluster on this machine, to try things", Args: args(0, 0, ""),
		Long: `Run a cluster on this machine, each node a process of its own, until it is
interrupted. Kill a node (kill -9 PID) to see clients fail over; it is started again
after three seconds. Configurations, logs and data stay in --dir.`,
		Example: "  pubsub cluster dev\n  pubsub cluster dev --nodes 5 --dir /tmp/five --port 5222",
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Nodes < 1 || o.Nodes > 9 {
			return usage(cmd, "--nodes takes 1 to 9")
		}
		if o.Directory == "" {
			var err error
			if o.Directory, err = os.MkdirTemp("", "herald-cluster-"); err != nil {
				return err
			}
			defer func() { _ = os.RemoveAll(o.Directory) }() // it is in the temporary folder
		}
		o.Note = a.ui.Note
		return dev.Run(cmd.Context(), o, func(all []dev.Member) error {
			rows := ui.Rows{Columns: []string{"node", "url", "monitoring", "pid", "log"}, Right: []bool{false, false, false, true}}
			var items []any
			for _, m := range all {
				items = append(items, m)
				rows.Cells = append(rows.Cells, []string{m.Name, m.URL, m.Monitor, strconv.Itoa(m.PID), m.Log})
			}
			if err := a.ui.List(items, rows); err != nil {
				return err
			}
			a.ui.Note("\npubsub -s %s cluster status\nruns until you interrupt it", all[0].URL)
			return nil
		})
	}
	cmd.Flags().IntVar(&o.Nodes, "nodes", 3, "how many")
	cmd.Flags().StringVar(&o.Directory, "dir", "", "where its files are kept (a temporary directory, removed afterwards)")
	cmd.Flags().IntVar(&o.Port, "port", 4222, "port for clients of the first node, the next ones for the others; 0: any free ones")
	return cmd
}

// clusterNode is the process of one node of "cluster dev": brokerd with its flags.
func (a *app) clusterNode() *cobra.Command {
	return &cobra.Command{
		Use: "node", Short: "Run one node of cluster dev", Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if code := dev.Node(args, a.env.Out, a.env.Err); code != 0 {
				return &problem{code: code, what: "the node ended with an error; see above", err: errors.New("exit")}
			}
			return nil
		},
	}
}
