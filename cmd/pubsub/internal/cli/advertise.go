package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

func (a *app) advertiseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "advertise",
		Aliases: []string{"adv"},
		Short:   "Declare what is published",
		Long: `An advertisement says who publishes what, on which subjects, how it looks and how
long it is kept. Others find it with "pubsub discover" and are told when it
appears or goes. With -f it is "advertise put -f".`,
		Example: `  pubsub advertise -f api.yaml
  pubsub advertise put quakes --subject 'quakes.{net}.{type}' --durable --max-age 7d
  pubsub advertise check quakes --last 1h`,
	}
	put := a.advertisePut()
	cmd.AddCommand(put, a.discoverList("ls"), a.advertiseWithdraw(), a.advertiseCheck(), a.advertiseInfer(), a.advertiseSample())
	group(cmd)
	help := cmd.RunE
	var file string
	cmd.Flags().StringVarP(&file, "file", "f", "", `advertisements, or an AsyncAPI document; "-" is standard input`)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if file == "" || len(args) > 0 {
			return help(cmd, args)
		}
		// Parsing gives it the flags that were given in front of "advertise", too.
		if err := put.ParseFlags([]string{"--file", file}); err != nil {
			return err
		}
		put.SetContext(cmd.Context())
		return put.RunE(put, nil)
	}
	return a.changes(cmd)
}

type advertiseFlags struct {
	file, subject, summary, kind, role, contentType, schema string
	team, service, contact, lease                           string
	tags                                                    []string
	durable, hold                                           bool
	topic, maxAge, maxBytes                                 string
	enforce, compat, key, expected, silenceAfter            string
	exclusive, force                                        bool
}

func (a *app) advertisePut() *cobra.Command {
	var f advertiseFlags
	cmd := &cobra.Command{
		Use:     "put [NAME]",
		Aliases: []string{"add"},
		Short:   "Declare or change advertisements",
		Long: `Declare an advertisement from a YAML or JSON file, from flags, or both (flags win).
A file may have several, as YAML documents or as a list, or be an AsyncAPI 3
document. The lease is permanent unless the file says otherwise; --hold keeps
running, renews the lease and withdraws at the end. With --durable the broker
creates the topic that keeps the messages.

A schema is checked against the one it replaces (--compat of the latter); --force
is for the user who advertised. --enforce says what happens to messages that are
not as the schema says: try it before with "pubsub advertise check".`,
		Example: `  pubsub advertise put quakes --subject 'quakes.{net}.{type}' --durable --max-age 7d
  pubsub advertise put orders --subject 'orders.{region}' --schema order.json --enforce reject
  pubsub advertise put -f orders.yaml`,
		Args: args(0, 1, "[NAME]"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ads, err := f.advertisements(cmd, args)
		if err != nil {
			return err
		}
		if a.dryRun {
			for i := range ads {
				a.ui.Note("dry run: would advertise %s on %s", ads[i].Name, ads[i].Subject)
			}
			return a.showAdvertised(ads)
		}
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		if f.hold {
			return a.hold(cmd, c, ads)
		}
		return a.putAll(cmd, c, ads, f.force)
	}
	f.add(cmd)
	return a.changes(cmd)
}

func (f *advertiseFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVarP(&f.file, "file", "f", "", `YAML or JSON file, "-" is standard input`)
	fl.StringVar(&f.subject, "subject", "", "subject; tokens may be named: orders.{region}.created")
	fl.StringVar(&f.summary, "summary", "", "one line about it")
	fl.StringVar(&f.kind, "kind", "", "event, state, command or reply")
	fl.StringVar(&f.role, "role", "", "publishes, consumes, responds or operator (publishes)")
	fl.StringVar(&f.contentType, "content-type", "", "media type of the payload")
	fl.StringVar(&f.schema, "schema", "", "file with the schema of the payload: JSON Schema, Avro (.avsc) or Protobuf (.proto, .proto#MESSAGE)")
	fl.StringVar(&f.compat, "compat", "", "what the next schema must be to this one: none, backward, forward or full")
	fl.StringVar(&f.enforce, "enforce", "", "what is not as the schema says: off, warn, reject or quarantine")
	fl.BoolVar(&f.exclusive, "exclusive", false, "only those who hold the advertisement may publish")
	fl.BoolVar(&f.force, "force", false, "put a schema that is not compatible with the one in use")
	fl.StringVar(&f.key, "key", "", "the key of a message: header:NAME, token:NAME or a JSON pointer (/order/id)")
	fl.StringVar(&f.expected, "expected", "", "expected rate (50/s)")
	fl.StringVar(&f.silenceAfter, "silence-after", "", "say so when nothing came for this long (5m)")
	fl.StringVar(&f.team, "team", "", "owner: team")
	fl.StringVar(&f.service, "service", "", "owner: service")
	fl.StringVar(&f.contact, "contact", "", "owner: how to reach them")
	fl.StringSliceVar(&f.tags, "tag", nil, "tag, repeatable")
	fl.StringVar(&f.lease, "lease", "", "connection, ttl or permanent")
	fl.BoolVarP(&f.durable, "durable", "d", false, "keep the messages in a topic")
	fl.StringVar(&f.topic, "topic", "", "name of the topic (the advertisement's)")
	fl.StringVar(&f.maxAge, "max-age", "", "keep messages so long (7d)")
	fl.StringVar(&f.maxBytes, "max-bytes", "", "keep so many bytes (10GiB)")
	fl.BoolVar(&f.hold, "hold", false, "keep it alive until interrupted, then withdraw")
	_ = cmd.RegisterFlagCompletionFunc("kind", fixed("event", "state", "command", "reply"))
	_ = cmd.RegisterFlagCompletionFunc("role", fixed("publishes", "consumes", "responds", "operator"))
	_ = cmd.RegisterFlagCompletionFunc("lease", fixed(client.LeaseConnection, client.LeaseTTL, client.LeasePermanent))
	_ = cmd.RegisterFlagCompletionFunc("enforce", fixed("off", "warn", "reject", "quarantine"))
	_ = cmd.RegisterFlagCompletionFunc("compat", fixed("none", "backward", "forward", "full"))
}

// putAll puts advertisements one after the other.
func (a *app) putAll(cmd *cobra.Command, c *client.Client, ads []client.Advertisement, force bool) error {
	options := []client.PutOption{client.OnWarning(func(w string) { a.ui.Warn("%s", w) })}
	if force {
		options = append(options, client.Force())
	}
	var done []client.Advertisement
	for i := range ads {
		ad := ads[i]
		if ad.Implicit() {
			a.ui.Note("left out %s: operator %s advertises it by itself", ad.Name, ad.Operator())
			continue
		}
		switch ad.Lease.Mode {
		case "":
			ad.Lease.Mode = client.LeasePermanent
		case client.LeaseConnection:
			a.ui.Warn("the lease of %s is that of a connection, and this one ends now: use --hold or --lease permanent", ad.Name)
		}
		got, err := c.PutAdvertisement(cmd.Context(), ad, options...)
		if err != nil {
			return a.overlapProblem(cmd.Context(), err, []string{ad.Pattern()}, "--topic with the name of the one that keeps the messages (durable.topic in a file)")
		}
		a.ui.Note("advertised %s on %s, revision %d", got.Name, got.Subject, got.Revision)
		done = append(done, *got)
	}
	if a.ui.Format == ui.Table && a.ui.Template == nil {
		return nil
	}
	return a.showAdvertised(done)
}

// showAdvertised prints one in full, several as a list.
func (a *app) showAdvertised(ads []client.Advertisement) error {
	if len(ads) == 1 {
		return a.ui.Item(ads[0], advertisementPairs(&ads[0]))
	}
	found := make([]client.Discovered, len(ads))
	for i := range ads {
		found[i].Advertisement = ads[i]
	}
	return a.listAdvertisements(found, false, "nothing is advertised")
}

// advertisements merges the file and the flags.
func (f *advertiseFlags) advertisements(cmd *cobra.Command, args []string) ([]client.Advertisement, error) {
	ads := []client.Advertisement{{}}
	if f.file != "" {
		var err error
		if ads, err = readAdvertisements(cmd.InOrStdin(), f.file); err != nil {
			return nil, usage(cmd, "%v", err)
		}
	}
	if len(args) > 0 && len(ads) > 1 {
		return nil, usage(cmd, "%s has %d advertisements: leave out NAME", f.file, len(ads))
	}
	for i := range ads {
		ad := &ads[i]
		if len(args) > 0 {
			ad.Name = args[0]
		}
		if err := f.apply(cmd, ad); err != nil {
			return nil, err
		}
		if ad.Name == "" || ad.Subject == "" {
			return nil, usage(cmd, "an advertisement needs a name and --subject (or --file with both)")
		}
	}
	return ads, nil
}

// apply lets the flags win.
func (f *advertiseFlags) apply(cmd *cobra.Command, ad *client.Advertisement) error {
	for _, row := range []struct {
		from string
		to   *string
	}{
		{f.subject, &ad.Subject},
		{f.summary, &ad.Summary},
		{f.kind, &ad.Kind},
		{f.role, &ad.Role},
		{f.contentType, &ad.ContentType},
		{f.team, &ad.Owner.Team},
		{f.service, &ad.Owner.Service},
		{f.contact, &ad.Owner.Contact},
		{f.lease, &ad.Lease.Mode},
		{f.enforce, &ad.Enforce},
	} {
		if row.from != "" {
			*row.to = row.from
		}
	}
	if len(f.tags) > 0 {
		ad.Tags = f.tags
	}
	ad.Exclusive = ad.Exclusive || f.exclusive
	if err := f.describe(ad); err != nil {
		return usage(cmd, "%v", err)
	}
	if f.durable || f.topic != "" || f.maxAge != "" || f.maxBytes != "" {
		if err := f.keep(ad); err != nil {
			return usage(cmd, "%v", err)
		}
	}
	return nil
}

// describe lets the flags win that say how messages are.
func (f *advertiseFlags) describe(ad *client.Advertisement) error {
	if f.schema != "" {
		s, err := readSchema(f.schema)
		if err != nil {
			return fmt.Errorf("--schema: %w", err)
		}
		if ad.Schema != nil {
			s.Version, s.Compat, s.Message = ad.Schema.Version, ad.Schema.Compat, cmp.Or(s.Message, ad.Schema.Message)
			s.Framing, s.ID, s.Writers = ad.Schema.Framing, ad.Schema.ID, ad.Schema.Writers
		}
		ad.Schema = s
	}
	if f.compat != "" {
		if ad.Schema == nil {
			return errors.New("--compat is of a schema: there is none")
		}
		ad.Schema.Compat = f.compat
	}
	if kind, name, ok := strings.Cut(f.key, ":"); f.key != "" {
		switch {
		case strings.HasPrefix(f.key, "/"):
			ad.KeyBy = &client.KeyBy{Pointer: f.key}
		case ok && kind == "header":
			ad.KeyBy = &client.KeyBy{Header: name}
		case ok && kind == "token":
			ad.KeyBy = &client.KeyBy{Token: name}
		default:
			return fmt.Errorf("--key: %q is none of header:NAME, token:NAME and /pointer", f.key)
		}
	}
	if f.expected == "" && f.silenceAfter == "" {
		return nil
	}
	if ad.Rate == nil {
		ad.Rate = &client.Rate{}
	}
	if f.expected != "" {
		ad.Rate.Expected = f.expected
	}
	if f.silenceAfter != "" {
		d, err := parseDuration(f.silenceAfter)
		if err != nil {
			return fmt.Errorf("--silence-after: %w", err)
		}
		ad.Rate.SilenceAfter = client.Duration(d)
	}
	return nil
}

func (f *advertiseFlags) keep(ad *client.Advertisement) error {
	if ad.Keep == nil {
		ad.Keep = &client.Keep{}
	}
	if f.topic != "" {
		ad.Keep.Topic = f.topic
	}
	if f.maxAge != "" {
		d, err := parseDuration(f.maxAge)
		if err != nil {
			return fmt.Errorf("--max-age: %w", err)
		}
		ad.Keep.MaxAge = client.Duration(d)
	}
	if f.maxBytes != "" {
		n, err := parseSize(f.maxBytes)
		if err != nil {
			return fmt.Errorf("--max-bytes: %w", err)
		}
		ad.Keep.MaxBytes = n
	}
	return nil
}
