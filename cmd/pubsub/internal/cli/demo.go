package cli

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/cmd/pubsub/demo"
)

func (a *app) demoCommand() *cobra.Command {
	var o demo.Options
	var single bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show everything on real earthquakes and flights, with kills on the way",
		Long: `Start three nodes on this machine, deploy three operators (events per network and
hour, the strongest event of each day, flights joined with the names of their
airports), and publish 1,707 real earthquakes and 6,000 real flights. Meanwhile the
primary of each operator is killed (kill -9). In the end what is stored and what the
operators gave is compared with what was published, with a run of the operators in
which nothing fails, and with a plain computation. The exit code is 1 when anything
differs.

--single does it with one broker, which is killed and started again on its files.
--keep leaves what was started running, with its URLs printed.

The earthquakes are those of the US Geological Survey of 31 January to 7 February
2018, the flights the Bureau of Transportation Statistics' of January 2001 (both in
the public domain).`,
		Args: args(0, 0, ""),
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.Note = a.ui.Note
		if single {
			return a.demonstrate(cmd, o, func() (demonstration, error) { return some(demo.Run(cmd.Context(), o)) })
		}
		return a.demonstrate(cmd, o, func() (demonstration, error) { return some(demo.RunCluster(cmd.Context(), o)) })
	}
	cmd.Flags().BoolVar(&single, "single", false, "one broker instead of three nodes")
	cmd.Flags().BoolVar(&o.Keep, "keep", false, "leave it running until interrupted")
	cmd.Flags().StringVar(&o.Directory, "dir", "", "keep its data here (a temporary directory, removed afterwards)")
	cmd.AddCommand(a.demoBroker())
	return cmd
}

// demonstration is what a demo found.
type demonstration interface {
	Pairs() [][2]string
	Faults() string
	Close() error
}

// some is a result as the interface, whose nil is no interface's.
func some[D demonstration](d D, err error) (demonstration, error) { return d, err }

func (a *app) demonstrate(cmd *cobra.Command, o demo.Options, run func() (demonstration, error)) (err error) {
	report, err := run()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, report.Close()) }()
	if err := a.ui.Item(report, report.Pairs()); err != nil {
		return err
	}
	if faults := report.Faults(); faults != "" {
		return &problem{code: exitError, what: "not everything is as it should be: " + faults}
	}
	if o.Keep {
		a.ui.Note("it runs on until you interrupt this")
		<-cmd.Context().Done()
	}
	return nil
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
