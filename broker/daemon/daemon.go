// Package daemon runs a broker as a process: the command line, the log, signals,
// the pid and ports files, exit codes. Main is the whole of cmd/brokerd.
//
// Signals: INT and TERM stop the broker (exit 0), USR1 reopens the log file,
// USR2 is lame duck mode, which TERM doesn't cut short, HUP reads the configuration
// again, QUIT is Go's stack dump. A log that can't go on ends the process at once with a line [FTL] and
// exit code 1; a mistake in flags or configuration is exit code 2 under the name
// brokerd and 1 under nats-server.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/broker/logline"
	"github.com/heraldmq/herald/operators/steps"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// Main runs the program named args[0] with its arguments and returns the exit
// code.
func Main(args []string, stdout, stderr io.Writer) int {
	return MainWith(nil, args, stdout, stderr)
}

// MainWith is Main of a broker with process functions: what operators may name under
// `process`. All nodes of a cluster must have the same ones. A program of one's own is
//
//	func main() {
//		daemon.CoarseTimers()
//		os.Exit(daemon.MainWith(functions, os.Args, os.Stdout, os.Stderr))
//	}
//
// of which tests/operators/brokerd is a whole example.
func MainWith(functions map[string]steps.Factory, args []string, stdout, stderr io.Writer) int {
	program := filepath.Base(args[0])
	c, err := config.Load(program, args[1:])
	if err != nil {
		var faults config.Faults
		if errors.As(err, &faults) {
			for _, f := range faults {
				fmt.Fprintf(stderr, "%s: %v\n", program, f)
			}
		} else {
			fmt.Fprintf(stderr, "%s: %v\n", program, err)
		}
		if filepath.Base(program) == "nats-server" {
			return exitError
		}
		return exitUsage
	}
	switch c.Action {
	case config.Help:
		fmt.Fprint(stdout, config.Usage(program))
	case config.HelpTLS:
		fmt.Fprint(stdout, config.TLSUsage)
	case config.Version:
		fmt.Fprintf(stdout, "nats-server: v%s\nherald: v%s\n", broker.NATSVersion, broker.Version)
	case config.Init:
		fmt.Fprint(stdout, config.Starter)
	case config.ExplainKey:
		text, err := config.Explain(c.Key)
		if err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", program, err)
			return exitUsage
		}
		fmt.Fprint(stdout, text)
	case config.ShowAll:
		for _, w := range c.Options.Warnings {
			fmt.Fprintf(stderr, "%s: warning: %s\n", program, w)
		}
		if _, err := stdout.Write(config.Show(c.Options)); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", program, err)
			return exitError
		}
	case config.SendSign:
		if err := sendSignal(c.Signal, program); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", program, err)
			return exitError
		}
	case config.Check:
		for _, w := range c.Options.Warnings {
			fmt.Fprintf(stderr, "%s: warning: %s\n", program, w)
		}
		fmt.Fprintf(stderr, "%s: configuration file %s is valid (%s)\n", program, c.Options.ConfigFile, c.Options.Digest)
	case config.Run:
		return run(c, functions, stderr)
	}
	return exitOK
}

// process is one run of the daemon.
type process struct {
	command *config.Command
	log     *slog.Logger
	level   *slog.LevelVar
	file    *logline.File // nil: stderr
	broker  *broker.Broker

	functions map[string]steps.Factory
	lame      sync.Once
	leaving   atomic.Bool // lame duck mode has begun
	wg        sync.WaitGroup
}

func run(c *config.Command, functions map[string]steps.Factory, stderr io.Writer) int {
	boundHeadroom()
	o := c.Options
	p := &process{command: c, functions: functions, level: new(slog.LevelVar)}
	p.level.Set(o.Log.Level())
	out := stderr
	if o.Log.File != "" {
		f, err := logline.OpenFile(o.Log.File, o.Log.SizeLimit, o.Log.MaxFiles)
		if err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", o.Log.File, err)
			return exitError
		}
		p.file, out = f, f
		defer f.Close() // nothing can be logged after it
	}
	p.log = slog.New(logline.New(out, logline.Options{Format: o.Log.Format, Time: o.Log.Time, UTC: o.Log.UTC, Level: p.level}))
	code := p.serve(o)
	p.wg.Wait()
	return code
}

// serve runs the broker until a signal or a failure ends it.
func (p *process) serve(o *config.Options) int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	fail := func(err error) int {
		p.log.Log(context.Background(), logline.LevelFatal, err.Error())
		return exitError
	}
	if o.PidFile != "" {
		if err := writePid(o.PidFile); err != nil {
			return fail(err)
		}
		defer os.Remove(o.PidFile) // a stale pid is worse than none; it may be gone already
	}
	off, err := clockOffset()
	if err != nil {
		return fail(err)
	}
	b, err := broker.New(broker.Config{
		Options: o, Log: p.log, Level: p.level, Reload: p.command.Reload, ClockOffset: off, Functions: p.functions,
		Fatal: func(err error) {
			// The state on disk is what counts now: go before anything else is done.
			fail(err)
			os.Exit(exitError)
		},
	})
	if err != nil {
		return fail(err)
	}
	p.broker = b
	for _, w := range o.Warnings {
		p.log.Warn(w)
	}
	if o.ConfigFile != "" {
		p.log.Info("Using configuration file: " + o.ConfigFile + " (" + o.Digest + ")")
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.wg.Go(func() { ended <- b.Run(ctx) })
	ready := b.Ready()
	for {
		select {
		case <-ready:
			ready = nil
			if o.PortsDir != "" {
				name, err := p.writePorts(o.PortsDir)
				if err != nil {
					p.log.Error("Ports file could not be written", "error", err)
				}
				defer os.Remove(name) // it may be gone already
			}
		case s := <-signals:
			p.handle(ctx, cancel, s)
		case err := <-ended:
			if err != nil {
				return fail(err)
			}
			return exitOK
		}
	}
}

// clockOffset is by how much a test wants the clock of durable topics to be off.
func clockOffset() (time.Duration, error) {
	v := os.Getenv("HERALD_TEST_CLOCK_OFFSET")
	if v == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		return 0, fmt.Errorf("HERALD_TEST_CLOCK_OFFSET wants a duration such as 1h or -90s: %w", err)
	}
	return d, nil
}

// handle does what a signal asks for. It doesn't block.
func (p *process) handle(ctx context.Context, stop context.CancelFunc, s os.Signal) {
	switch s {
	case syscall.SIGUSR1:
		if p.file == nil {
			return
		}
		if err := p.file.Reopen(); err != nil {
			p.log.Error("Log file could not be reopened", "error", err)
			return
		}
		p.log.Info("File log re-opened")
	case syscall.SIGUSR2:
		p.lame.Do(func() {
			p.leaving.Store(true)
			p.wg.Go(func() {
				p.broker.LameDuck(ctx)
				stop()
			})
		})
	case syscall.SIGHUP:
		p.reload()
	default:
		if s == syscall.SIGTERM && p.leaving.Load() {
			// Kubernetes and service managers send it behind a request to leave; cutting that
			// short would make it worthless. INT still does.
			p.log.Info("Already leaving in lame duck mode, which ends by itself; interrupt to stop at once")
			return
		}
		p.log.Info("Initiating Shutdown...", "signal", s.String())
		stop()
	}
}

func (p *process) reload() {
	err := p.broker.Reload()
	if err != nil {
		var faults config.Faults
		if errors.As(err, &faults) {
			for _, f := range faults {
				p.log.Error("Configuration: " + f.Error())
			}
			err = fmt.Errorf("%d faults in the configuration, nothing was changed", len(faults))
		}
		p.log.Error("Failed to reload server configuration: " + err.Error())
		return
	}
	if p.file != nil {
		l := p.broker.Options().Log
		p.file.SetLimits(l.SizeLimit, l.MaxFiles)
	}
	p.log.Info("Reloaded server configuration")
}
