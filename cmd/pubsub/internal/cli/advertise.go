package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

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
appears or goes.`,
	}
	cmd.AddCommand(a.advertisePut(), a.discoverList("ls"), a.advertiseWithdraw())
	return group(cmd)
}

type advertiseFlags struct {
	file, subject, summary, kind, role, contentType, schema string
	team, service, contact, lease                           string
	tags                                                    []string
	durable, hold                                           bool
	topic, maxAge, maxBytes                                 string
}

func (a *app) advertisePut() *cobra.Command {
	var f advertiseFlags
	cmd := &cobra.Command{
		Use:     "put [NAME]",
		Aliases: []string{"add"},
		Short:   "Declare or change an advertisement",
		Long: `Declare an advertisement from a YAML or JSON file, from flags, or both (flags win).
The lease is permanent unless the file says otherwise; --hold keeps running,
renews the lease and withdraws at the end. With --durable the broker creates the
topic that keeps the messages.`,
		Example: `  pubsub advertise put quakes --subject 'quakes.{net}.{type}' --durable --max-age 7d
  pubsub advertise put -f orders.yaml`,
		Args: args(0, 1, "[NAME]"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ad, err := f.advertisement(cmd, args)
		if err != nil {
			return err
		}
		if a.dryRun {
			a.ui.Note("dry run: would advertise %s on %s", ad.Name, ad.Subject)
			return a.ui.Item(ad, advertisementPairs(&ad))
		}
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		if f.hold {
			return a.hold(cmd, c, ad)
		}
		if ad.Lease.Mode == "" {
			ad.Lease.Mode = client.LeasePermanent
		}
		got, err := c.PutAdvertisement(cmd.Context(), ad)
		if err != nil {
			return err
		}
		a.ui.Note("advertised %s on %s, revision %d", got.Name, got.Subject, got.Revision)
		if a.ui.Format == ui.Table && a.ui.Template == nil {
			return nil
		}
		return a.ui.Item(got, advertisementPairs(got))
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.file, "file", "f", "", `YAML or JSON file, "-" is standard input`)
	fl.StringVar(&f.subject, "subject", "", "subject; tokens may be named: orders.{region}.created")
	fl.StringVar(&f.summary, "summary", "", "one line about it")
	fl.StringVar(&f.kind, "kind", "", "event, state, command or reply")
	fl.StringVar(&f.role, "role", "", "publishes, consumes, responds or operator (publishes)")
	fl.StringVar(&f.contentType, "content-type", "", "media type of the payload")
	fl.StringVar(&f.schema, "schema", "", "file with the JSON Schema of the payload")
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
	return a.changes(cmd)
}

// advertisement merges the file and the flags.
func (f *advertiseFlags) advertisement(cmd *cobra.Command, args []string) (client.Advertisement, error) {
	var ad client.Advertisement
	if f.file != "" {
		if err := readAdvertisement(cmd.InOrStdin(), f.file, &ad); err != nil {
			return ad, usage(cmd, "%v", err)
		}
	}
	if len(args) > 0 {
		ad.Name = args[0]
	}
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
	} {
		if row.from != "" {
			*row.to = row.from
		}
	}
	if len(f.tags) > 0 {
		ad.Tags = f.tags
	}
	if f.schema != "" {
		b, err := os.ReadFile(f.schema)
		if err != nil {
			return ad, err
		}
		if !json.Valid(b) {
			return ad, usage(cmd, "--schema: %s is not JSON", f.schema)
		}
		ad.Schema = &client.Schema{Format: "json-schema", Inline: b}
	}
	if f.durable || f.topic != "" || f.maxAge != "" || f.maxBytes != "" {
		if err := f.keep(&ad); err != nil {
			return ad, usage(cmd, "%v", err)
		}
	}
	if ad.Name == "" || ad.Subject == "" {
		return ad, usage(cmd, "an advertisement needs a name and --subject (or --file with both)")
	}
	return ad, nil
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

func readAdvertisement(in io.Reader, path string, ad *client.Advertisement) error {
	var b []byte
	var err error
	if path == "-" {
		b, err = io.ReadAll(in)
	} else {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return fmt.Errorf("read the advertisement: %w", err)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")) {
		if b, err = yamlToJSON(b); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := json.Unmarshal(b, ad); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// yamlToJSON converts one YAML document, so that files in both formats go through
// the same decoding; errors name the line.
func yamlToJSON(doc []byte) ([]byte, error) {
	dec := yaml.NewDecoder(bytes.NewReader(doc))
	var v map[string]any
	if err := dec.Decode(&v); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if dec.Decode(new(yaml.Node)) == nil {
		return nil, errors.New("yaml: more than one document; put each advertisement in a file of its own")
	}
	return json.Marshal(v)
}

// hold advertises until the context ends.
func (a *app) hold(cmd *cobra.Command, c *client.Client, ad client.Advertisement) error {
	p, err := c.Advertise(cmd.Context(), ad)
	if err != nil {
		return err
	}
	a.ui.Note("advertising %s on %s until interrupted", ad.Name, ad.Subject)
	<-cmd.Context().Done()
	return errors.Join(p.Close(), cmd.Context().Err())
}

func (a *app) advertiseWithdraw() *cobra.Command {
	var owner client.Owner
	var ifExists bool
	cmd := &cobra.Command{
		Use: "withdraw NAME", Aliases: []string{"rm"}, Short: "End an advertisement; its topic stays", Args: args(1, 1, "NAME"), ValidArgsFunction: a.completeAdvertisements,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect(cmd)
		if err != nil {
			return err
		}
		if a.dryRun {
			if _, err := c.Advertisement(cmd.Context(), args[0], owner); err != nil {
				return a.advertisementProblem(cmd, err, args[0])
			}
			a.ui.Note("dry run: would withdraw %s", args[0])
			return nil
		}
		err = c.WithdrawAdvertisement(cmd.Context(), args[0], owner)
		if ifExists && errors.Is(err, client.ErrNotFound) {
			a.ui.Note("nobody advertises %s", args[0])
			return nil
		}
		if err != nil {
			return a.advertisementProblem(cmd, err, args[0])
		}
		a.ui.Note("withdrawn %s", args[0])
		return nil
	}
	cmd.Flags().StringVar(&owner.Team, "team", "", "owner: team, when several advertise the name")
	cmd.Flags().StringVar(&owner.Service, "service", "", "owner: service, when several advertise the name")
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "succeed when there is none")
	return a.changes(cmd)
}

// advertisementProblem explains an error about an advertisement.
func (a *app) advertisementProblem(cmd *cobra.Command, err error, name string) error {
	if !errors.Is(err, client.ErrNotFound) {
		return err
	}
	var names []string
	if ads, err := a.client.Discover(cmd.Context(), client.Query{}); err == nil {
		for _, ad := range ads {
			names = append(names, ad.Name)
		}
	}
	return &problem{code: exitNotFound, what: fmt.Sprintf("nobody advertises %q%s", name, suggestion(name, names)), next: "pubsub discover", err: err}
}

func advertisementPairs(ad *client.Advertisement) [][2]string {
	pairs := [][2]string{{"name", ad.Name}, {"subject", ad.Subject}, {"pattern", ad.Pattern()}}
	add := func(name, value string) {
		if value != "" {
			pairs = append(pairs, [2]string{name, value})
		}
	}
	add("role", ad.Role)
	add("kind", ad.Kind)
	add("summary", ad.Summary)
	add("description", ad.Description)
	add("tags", strings.Join(ad.Tags, ", "))
	add("team", ad.Owner.Team)
	add("service", strings.TrimSpace(ad.Owner.Service+" "+ad.Owner.Version))
	add("contact", ad.Owner.Contact)
	add("content type", ad.ContentType)
	if s := ad.Schema; s != nil {
		text := s.Format
		if s.Version != "" {
			text += " version " + s.Version
		}
		if s.SHA256 != "" {
			text += ", sha256 " + s.SHA256[:min(12, len(s.SHA256))] + "…"
		}
		add("schema", text)
	}
	if k := ad.Keep; k != nil {
		text := "topic " + or(k.Topic, strings.ReplaceAll(ad.Name, ".", "_"))
		if k.MaxAge > 0 {
			text += ", at most " + ui.Duration(time.Duration(k.MaxAge))
		}
		if k.MaxBytes > 0 {
			text += ", at most " + ui.Bytes(k.MaxBytes)
		}
		add("kept in", text)
	}
	if r := ad.Rate; r != nil {
		add("expected rate", r.Expected)
	}
	add("lease", ad.Lease.Mode)
	if ad.Revision > 0 {
		add("revision", fmt.Sprint(ad.Revision))
	}
	if !ad.Changed.IsZero() {
		add("changed", ad.Changed.UTC().Format(time.RFC3339))
	}
	return pairs
}
