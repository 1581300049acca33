// Package cli is the pubsub command: its commands, flags, exit codes and error
// texts. It asks package client for everything that touches a broker, package ui
// to print, and package profile for where the broker is.
//
// [Main] runs one command in the calling process and returns its exit code, so
// that tests run commands without starting processes.
package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/profile"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

// Env is what a command sees of the world.
type Env struct {
	Args   []string // without the program's name
	In     io.Reader
	Out    io.Writer
	Err    io.Writer
	Getenv func(string) string
	Now    func() time.Time
}

// app is one run of a command.
type app struct {
	env   Env
	ui    ui.Printer
	store profile.Store

	// Set by flags.
	output, template, contextName string
	noColour                      bool
	timeout                       time.Duration
	dryRun, yes                   bool

	client     *client.Client
	url        string
	courtesies []string // subjects that were asked for a courtesy, which may be forbidden
}

// Main runs one command and returns its exit code.
func Main(ctx context.Context, env Env) int {
	if env.Now == nil {
		env.Now = time.Now
	}
	a := &app{env: env, store: profile.Open(env.Getenv)}
	a.ui.Out, a.ui.Err = env.Out, env.Err
	root := a.root()
	root.SetArgs(placesAsArguments(root, env.Args))
	root.SetIn(env.In)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	err := root.ExecuteContext(ctx)
	if a.client != nil {
		if err == nil || errors.Is(err, client.ErrTimeout) {
			// The broker answers a forbidden publish with an error of its own,
			// apart from whoever waits for an answer.
			err = cmp.Or(a.refusal(), err)
		}
		// Its failure matters only where everything else went well: then
		// something that was sent may not have arrived.
		if closing := a.client.Close(); err == nil && ctx.Err() == nil {
			err = closing
		}
	}
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	return a.report(err)
}

// root builds the command tree.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "pubsub",
		Short:         "Publish, subscribe, advertise and discover on a Herald broker",
		Long:          rootHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetVersionTemplate("pubsub {{.Version}}\n")
	root.SetFlagErrorFunc(flagProblem)
	root.PersistentPreRunE = a.prepare
	f := root.PersistentFlags()
	f.StringP("server", "s", "", "URL of the broker (NATS_URL), several separated by commas")
	f.StringVar(&a.contextName, "context", "", "saved context to use (NATS_CONTEXT)")
	f.String("user", "", "user name (NATS_USER)")
	f.String("password", "", "password (NATS_PASSWORD)")
	f.String("token", "", "token (NATS_TOKEN)")
	f.String("creds", "", "credentials file (NATS_CREDS)")
	f.String("nkey", "", "file with an nkey seed (NATS_NKEY)")
	f.String("tlscert", "", "client certificate, PEM (NATS_CERT)")
	f.String("tlskey", "", "its key, PEM (NATS_KEY)")
	f.String("tlsca", "", "certificate authority, PEM (NATS_CA)")
	f.String("inbox-prefix", "", "prefix of reply subjects (NATS_INBOX_PREFIX)")
	f.String("domain", "", "domain of the topics (NATS_JS_DOMAIN)")
	f.DurationVar(&a.timeout, "timeout", 5*time.Second, "how long to wait for the broker")
	f.StringVarP(&a.output, "output", "o", "table", "output format: "+strings.Join(ui.Formats(), ", "))
	f.StringVar(&a.template, "template", "", "Go template for each item, by its JSON names")
	f.BoolVar(&a.noColour, "no-color", false, "no colour on a terminal (NO_COLOR)")
	f.BoolVarP(&a.ui.Quiet, "quiet", "q", false, "no notes on standard error")
	f.CountVarP(&a.ui.Verbose, "verbose", "v", "more notes on standard error")
	for _, name := range []string{"user", "password", "token", "nkey", "tlscert", "tlskey", "tlsca", "inbox-prefix", "domain"} {
		// Still usable; shown by "pubsub context add --help" only.
		_ = f.MarkHidden(name)
	}
	_ = root.RegisterFlagCompletionFunc("output", fixed(ui.Formats()...))
	_ = root.RegisterFlagCompletionFunc("context", a.completeContexts)

	root.AddCommand(a.pubCommand(), a.subCommand(), a.filterCommand(), a.requestCommand(), a.replyCommand(),
		a.advertiseCommand(), a.discoverCommand(), a.topicCommand(), a.consumerCommand(),
		a.dlqCommand(), a.replayCommand(), a.scheduleCommand(),
		a.backupCommand(), a.verifyCommand(), a.restoreCommand(), a.exportCommand(), a.importCommand(), a.definitionsCommand(), a.topCommand(), a.doctorCommand(), a.explainCommand(),
		a.clusterCommand(), a.operatorCommand(), a.benchCommand(), a.contextCommand(), a.completionCommand(root), a.demoCommand())
	root.SetHelpCommand(&cobra.Command{Use: "help [COMMAND]", Short: "Help about a command", RunE: func(cmd *cobra.Command, args []string) error {
		target, rest, err := root.Find(args)
		if err != nil || target == nil {
			return usage(cmd, "no command %q%s", strings.Join(args, " "), suggestion(strings.Join(args, " "), commandNames(root)))
		}
		if len(rest) > 0 {
			return usage(target, "no command %q%s", rest[0], suggestion(rest[0], commandNames(target)))
		}
		return target.Help()
	}})
	group(root)
	for _, sub := range root.Commands() {
		if sub.Name() == "operator" {
			a.completeNamedOperators(sub)
		}
	}
	return root
}

// prepare runs before every command: it checks the flags that all share.
func (a *app) prepare(cmd *cobra.Command, _ []string) error {
	format, err := ui.ParseFormat(a.output)
	if err != nil {
		return usage(cmd, "%v%s", err, suggestion(a.output, ui.Formats()))
	}
	a.ui.Format = format
	if a.template != "" {
		if a.ui.Template, err = ui.ParseTemplate(a.template); err != nil {
			return usage(cmd, "%v", err)
		}
	}
	a.ui.Detect(a.env.Getenv, a.noColour)
	return nil
}

// resolve says which broker to use, and why.
func (a *app) resolve(cmd *cobra.Command) (profile.Resolved, error) {
	given := map[string]string{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { // Visit leaves out what was given before a command that runs another
		if f.Changed {
			given[f.Name] = f.Value.String()
		}
	})
	r, err := a.store.Resolve(given, a.contextName, a.env.Getenv)
	if errors.Is(err, profile.ErrNoContext) {
		names, _ := a.store.Names()
		return r, &problem{code: exitNotFound, what: err.Error() + suggestion(r.Context, names), next: "pubsub context ls", err: err}
	}
	return r, err
}

// connect gives the command its connection; Main closes it.
func (a *app) connect(cmd *cobra.Command, extra ...client.Option) (*client.Client, error) {
	if a.client != nil {
		return a.client, nil
	}
	r, err := a.resolve(cmd)
	if err != nil {
		return nil, err
	}
	options := []client.Option{
		client.Name("pubsub " + cmd.Name()),
		client.Timeout(a.timeout),
		client.PublishTimeout(a.timeout),
		client.NATS(nats.Timeout(a.timeout)),
		client.OnError(func(err error) { a.ui.Debug("%v", err) }),
		client.OnDisconnect(func(err error) {
			if err != nil {
				a.ui.Note("connection lost: %v; reconnecting", err)
			}
		}),
		client.OnReconnect(func(url string) { a.ui.Note("connected again to %s", url) }),
	}
	auth, err := identity(r.Settings)
	if err != nil {
		return nil, err
	}
	a.url = r.URL
	c, err := client.Connect(r.URL, append(append(options, auth...), extra...)...)
	if err != nil {
		return nil, connectProblem(err, r)
	}
	a.client = c
	return c, nil
}

// identity turns settings into options.
func identity(s profile.Settings) ([]client.Option, error) {
	var options []client.Option
	if s.User != "" {
		options = append(options, client.UserPassword(s.User, s.Password))
	}
	if s.Token != "" {
		options = append(options, client.Token(s.Token))
	}
	if s.Creds != "" {
		options = append(options, client.Credentials(s.Creds))
	}
	if s.NKey != "" {
		option, err := nats.NkeyOptionFromSeed(s.NKey)
		if err != nil {
			return nil, fmt.Errorf("read nkey seed %s: %w", s.NKey, err)
		}
		options = append(options, client.NATS(option))
	}
	if s.InboxPrefix != "" {
		options = append(options, client.InboxPrefix(s.InboxPrefix))
	}
	if s.Domain != "" {
		options = append(options, client.Domain(s.Domain))
	}
	if s.Cert == "" && s.CA == "" {
		return options, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.Cert != "" {
		pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		if err != nil {
			return nil, fmt.Errorf("read certificate %s with key %s: %w", s.Cert, s.Key, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	if s.CA != "" {
		pem, err := os.ReadFile(s.CA)
		if err != nil {
			return nil, fmt.Errorf("read certificate authority: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read certificate authority %s: no certificate in it", s.CA)
		}
	}
	return append(options, client.TLS(cfg)), nil
}

// refusal is the permission that the connection lacked, if it did.
func (a *app) refusal() error {
	err := a.client.Conn().LastError()
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	for _, subject := range a.courtesies {
		if strings.Contains(err.Error(), strconv.Quote(subject)) {
			return nil
		}
	}
	return &problem{code: exitRefused, what: "the broker refused: " + strings.TrimPrefix(err.Error(), "nats: "), next: "pubsub context show --explain", err: err}
}

// changes adds --dry-run to a command that changes something.
func (a *app) changes(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.dryRun, "dry-run", false, "say what would be done, and do nothing")
	return cmd
}

// destroys adds --dry-run and --yes.
func (a *app) destroys(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVarP(&a.yes, "yes", "y", false, "don't ask")
	return a.changes(cmd)
}

// confirm asks before something is lost. Off a terminal nobody can answer, so
// --yes is required there.
func (a *app) confirm(cmd *cobra.Command, question string) error {
	if a.yes {
		return nil
	}
	in, ok := a.env.In.(*os.File)
	if !ok || !ui.IsTerminal(in) || !a.ui.ErrTTY() {
		return usage(cmd, "%s needs --yes when there is no terminal to ask at", cmd.CommandPath())
	}
	fmt.Fprintf(a.env.Err, "%s [y/N] ", question)
	var answer string
	if _, err := fmt.Fscanln(in, &answer); err != nil || !strings.EqualFold(answer, "y") && !strings.EqualFold(answer, "yes") {
		return &problem{code: exitError, what: "nothing done: not confirmed", err: errors.New("not confirmed")}
	}
	return nil
}
