package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/cmd/pubsub/internal/ui"
)

// hold advertises until the context ends, and says when readers come and go.
func (a *app) hold(cmd *cobra.Command, c *client.Client, ads []client.Advertisement) error {
	var all []*client.Publisher
	ended := func(err error) error {
		errs := []error{err}
		for _, p := range all {
			errs = append(errs, p.Close())
		}
		return errors.Join(errs...)
	}
	for i := range ads {
		name := ads[i].Name
		p, err := c.Advertise(cmd.Context(), ads[i], client.OnSubscribers(func(n int) { a.ui.Note("%s is read by %d", name, n) }))
		if err != nil {
			return ended(err)
		}
		all = append(all, p)
		a.ui.Note("advertising %s on %s until interrupted", name, ads[i].Subject)
	}
	<-cmd.Context().Done()
	return ended(cmd.Context().Err())
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
		a.warnOfReaders(cmd.Context(), c, args[0], owner)
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

// warnOfReaders says who reads what is about to be no longer advertised, and whether it stays so.
func (a *app) warnOfReaders(ctx context.Context, c *client.Client, name string, owner client.Owner) {
	found, err := c.DiscoverObserved(ctx, client.Query{Name: name})
	if err != nil {
		return
	}
	for i := range found {
		o := found[i].Observed
		if owner.Key() != "" && owner.Key() != found[i].Owner.Key() {
			continue
		}
		if by := found[i].Operator(); by != "" {
			a.ui.Warn("operator %s advertises %s again for as long as it is there: say advertise: false at its output", by, name)
		}
		if o == nil || o.Readers() == 0 {
			continue
		}
		var who []string
		if o.Operators > 0 {
			who = append(who, fmt.Sprintf("%s (%s)", plural(o.Operators, "operator"), strings.Join(o.ReadBy, ", ")))
		}
		if o.Consumers > 0 {
			who = append(who, plural(o.Consumers, "consumer"))
		}
		if o.Subscribers > 0 {
			who = append(who, plural(o.Subscribers, "subscription"))
		}
		verb := " read %s"
		if o.Readers() == 1 {
			verb = " reads %s"
		}
		a.ui.Warn("%s"+verb, strings.Join(who, ", "), name)
	}
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
	} else if d := ad.Derived(); d != nil {
		add("schema", d.Format+", derived from the operator; messages aren't held against it")
	}
	if o := ad.Operator(); o != "" {
		add("made by", "operator "+o)
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
	if k := ad.KeyBy; k != nil {
		add("key", strings.TrimSpace(strings.Join([]string{or2("header ", k.Header), or2("at ", k.Pointer), or2("token ", k.Token)}, "")))
	}
	if r := ad.Rate; r != nil {
		add("expected rate", r.Expected)
		if r.SilenceAfter > 0 {
			add("silent after", ui.Duration(time.Duration(r.SilenceAfter)))
		}
	}
	if ad.Enforce != "off" {
		add("enforce", ad.Enforce)
	}
	if ad.Exclusive {
		add("exclusive", "only its holders may publish")
	}
	if l := ad.Lifecycle; l != nil {
		add("stage", strings.TrimSpace(l.Stage+" "+or2("until ", l.Sunset)+" "+or2("replaced by ", l.ReplacedBy)))
	}
	add("made from", strings.Join(ad.Lineage, ", "))
	add("lease", ad.Lease.Mode)
	add("by", ad.By)
	if ad.Revision > 0 {
		add("revision", fmt.Sprint(ad.Revision))
	}
	if !ad.Changed.IsZero() {
		add("changed", ad.Changed.UTC().Format(time.RFC3339))
	}
	return pairs
}

// or2 is a text behind its name, "" when there is none.
func or2(name, s string) string {
	if s == "" {
		return ""
	}
	return name + s
}

// observedPairs is what is really published, for a person.
func (a *app) observedPairs(o *client.Observed) [][2]string {
	if o == nil {
		return nil
	}
	last := "never, as far as is known"
	if o.Last != nil {
		last = ui.Since(*o.Last, a.env.Now())
	}
	pairs := [][2]string{
		{"last message", last},
		{"rate", fmt.Sprintf("%s in the last minute (%s), %s in the last hour (%s)",
			plural(int(o.Msgs1m), "message"), ui.Bytes(o.Bytes1m), plural(int(o.Msgs1h), "message"), ui.Bytes(o.Bytes1h))},
		{"published by", plural(o.Publishers, "client")},
		{"read by", fmt.Sprintf("%s, %s, %s", plural(o.Subscribers, "subscription"), plural(o.Consumers, "consumer"), plural(o.Operators, "operator"))},
	}
	switch {
	case o.Keys != nil:
		pairs = append(pairs, [2]string{"keys", "about " + ui.Count(int(*o.Keys))})
	case o.Subjects != nil:
		pairs = append(pairs, [2]string{"subjects", "about " + ui.Count(int(*o.Subjects))})
	}
	if o.Conformance != nil {
		pairs = append(pairs, [2]string{"as the schema says", fmt.Sprintf("%g %% of %s in the last hour", *o.Conformance, plural(int(o.Checked1h), "message"))})
	}
	if len(o.Incomplete) > 0 {
		pairs = append(pairs, [2]string{"without", strings.Join(o.Incomplete, ", ") + " (no answer)"})
	}
	return pairs
}
