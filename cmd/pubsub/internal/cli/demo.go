package cli

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/cmd/pubsub/demo"
)

func (a *app) demoCommand() *cobra.Command {
	var o demo.Options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show everything on a week of real earthquakes",
		Long: `Start a broker of its own on a temporary directory, advertise a feed, publish 1,707
real seismic events durably, kill the broker (kill -9) in the middle and start it
again, and check that live and stored messages add up. The events are those of the
US Geological Survey (public domain) from 31 January to 7 February 2018.

--keep leaves the broker running afterwards, with its URLs printed.`,
		Args: args(0, 0, ""),
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.Note = a.ui.Note
		report, err := demo.Run(cmd.Context(), o)
		if err != nil {
			return err
		}
		if err := a.ui.Item(report, report.Pairs()); err != nil {
			return err
		}
		if faults := report.Faults(); faults != "" {
			return &problem{code: exitError, what: "the counts don't add up: " + faults}
		}
		if o.Keep {
			a.ui.Note("the broker runs on until you interrupt this (its data is in %s)", report.Directory)
			<-cmd.Context().Done()
		}
		return report.Close()
	}
	cmd.Flags().BoolVar(&o.Keep, "keep", false, "leave the broker running until interrupted")
	cmd.Flags().StringVar(&o.Directory, "dir", "", "keep its data here (a temporary directory, removed afterwards)")
	cmd.AddCommand(a.demoBroker())
	return cmd
}

// demoBroker is the child process of demo: a broker that can be killed.
func (a *app) demoBroker() *cobra.Command {
	var dir string
	var port int
	cmd := &cobra.Command{
		Use: "broker", Short: "Run the demo's broker", Hidden: true, Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Serve(cmd.Context(), dir, port, a.env.Out)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", filepath.Join(os.TempDir(), "herald-demo"), "data directory")
	cmd.Flags().IntVar(&port, "port", 0, "port to listen on")
	return cmd
}
