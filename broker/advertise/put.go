package advertise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nuid"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/schema"
	"github.com/heraldmq/herald/topics/subject"
	"github.com/heraldmq/herald/topics/value"
)

// The refusals of what is put, and of messages.
var (
	faultRate         = &topics.Fault{Status: 429, ErrCode: 20018, Text: fmt.Sprintf("advertisements change too fast: %d a second are taken, %d at once; try again", putsPerSecond, putsBurst)}
	faultIncompatible = &topics.Fault{Status: 409, ErrCode: 20021, Text: "the new schema is not compatible with the one in use"}
	faultExclusive    = &topics.Fault{Status: 403, ErrCode: 20030, Text: "only holders of the advertisement may publish here"}
	faultViolation    = &topics.Fault{Status: 400, ErrCode: 20031, Text: "the message is not as its advertisement says"}
)

func faultMayNot(verb, pattern string) *topics.Fault {
	return topics.NewFault(403, 20022, "permissions do not let you %s %s", verb, pattern)
}

func faultNotOwner(a *catalogue.Advertisement) *topics.Fault {
	return topics.NewFault(403, 20019, "%s belongs to user %q", a.Name, a.By)
}

// user is the name that the client goes by, "" without one.
func (r *request) user() string {
	if r.who == nil {
		return ""
	}
	return r.who.User
}

// owns tells whether the client is the user that put an advertisement.
func (r *request) owns(a *catalogue.Advertisement) bool { return a.By == r.user() }

func (r *request) mayAdvertise(a *catalogue.Advertisement) error {
	if !r.who.MayAdvertise(a.Pattern, a.Role == catalogue.Publishes || a.Role == catalogue.Operates) {
		return faultMayNot("advertise", a.Pattern)
	}
	return nil
}

// rate bounds how fast an account's advertisements are put.
type rate struct {
	left float64
	at   time.Time
}

func (b *rate) take(now time.Time) bool {
	if b.at.IsZero() {
		b.left = putsBurst
	} else {
		b.left = min(putsBurst, b.left+now.Sub(b.at).Seconds()*putsPerSecond)
	}
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// putRetries is how often a put is planned anew because the advertisement changed
// meanwhile.
const putRetries = 5

func (s *Service) put(ctx context.Context, r request) (reply, error) {
	a, fault := catalogue.ParseAdvertisement(r.payload)
	if fault == nil {
		fault = a.Check()
	}
	if fault != nil {
		return reply{}, fault
	}
	var how struct {
		Force bool `json:"force"`
	}
	if err := decode(r.payload, &how, false); err != nil {
		return reply{}, badRequest(err)
	}
	if err := r.mayAdvertise(a); err != nil {
		return reply{}, err
	}
	if (a.Enforced() || a.Exclusive) && !r.who.MayEnforce(a.Pattern) {
		return reply{}, faultMayNot("enforce or claim", a.Pattern)
	}
	warnings, err := s.checkContents(a)
	if err != nil {
		return reply{}, err
	}
	if old := s.find(leaseKey{r.account, a.Key()}); a.Implicit() && (old == nil || string(old.Body()) != string(a.Body())) {
		if a, fault = a.ByHand(); fault != nil {
			return reply{}, fault
		}
	}
	for range putRetries {
		var out reply
		if out, err = s.putOnce(ctx, r, a, how.Force); !errors.Is(err, catalogue.FaultAdvertChanged) {
			out.Warnings = warnings
			return out, err
		}
	}
	return reply{}, err
}

// putOnce puts an advertisement in the place of the one there is now.
func (s *Service) putOnce(ctx context.Context, r request, a *catalogue.Advertisement, force bool) (reply, error) {
	k := leaseKey{r.account, a.Key()}
	p := state.Put{Account: r.account, ID: nuid.Next(), By: r.user(), Body: a.Body()}
	old := s.find(k)
	if old != nil {
		if err := s.mayReplace(&r, old, a, force); err != nil {
			return reply{}, err
		}
		p.Revision = old.Revision
	}
	if (old == nil || string(old.Body()) != string(a.Body())) && !s.mayChange(r.account) {
		return reply{}, faultRate
	}
	if err := s.makeRoom(ctx, r, a); err != nil {
		return reply{}, err
	}
	if err := s.giveWay(ctx, r.account, a); err != nil {
		return reply{}, err
	}
	// The lease comes first: the sweeper must not find the advertisement without.
	s.hold(k, a.Lease, r)
	put, _, err := s.o.Catalogue.Advertise(ctx, p)
	if err != nil {
		s.notPut(r, a, old, err)
		return reply{}, err
	}
	return reply{Advertisement: put, Lease: s.leaseOf(k), Revision: put.Revision}, nil
}

// giveWay withdraws what operators advertise without having been asked to, where somebody
// wants to have the subjects for himself.
func (s *Service) giveWay(ctx context.Context, account string, a *catalogue.Advertisement) error {
	if !a.Exclusive {
		return nil
	}
	all, _ := s.o.Catalogue.Advertisements(account)
	for _, o := range all {
		if !o.Implicit() || o.Key() == a.Key() || !subject.Overlap(o.Pattern, a.Pattern) {
			continue
		}
		if err := s.o.Catalogue.Withdraw(ctx, o, false); err != nil && !errors.Is(err, catalogue.FaultNoAdvertised) {
			return err
		}
	}
	return nil
}

// mayChange tells whether an account's advertisements don't change too fast.
func (s *Service) mayChange(account string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.accounts[account]
	return v == nil || v.rate.take(s.o.Now())
}

// makeRoom sees to it that there is what the advertisement asks for besides.
func (s *Service) makeRoom(ctx context.Context, r request, a *catalogue.Advertisement) error {
	if a.Durable != nil {
		if err := s.makeTopic(ctx, r, a); err != nil {
			return err
		}
	}
	if a.Enforce == catalogue.EnforceQuarantine {
		return s.makeQuarantine(ctx, r, a)
	}
	return nil
}

// notPut takes back what putOnce did before the advertisement was refused.
func (s *Service) notPut(r request, a, old *catalogue.Advertisement, err error) {
	k := leaseKey{r.account, a.Key()}
	switch now := s.find(k); {
	case errors.Is(err, state.ErrUnknown):
	case now == nil:
		s.mu.Lock()
		s.leases.drop(k)
		s.mu.Unlock()
	case old != nil:
		s.hold(k, now.Lease, r)
	}
	if errors.Is(err, catalogue.FaultConflict) {
		var f *topics.Fault
		errors.As(err, &f)
		s.note(note{
			account: r.account, Event: "conflict", Name: a.Name, Owner: a.Owner.Key(), Subject: a.Pattern, Time: time.Now().UTC(),
			User: r.user(), Reason: f.Text,
		})
	}
}

// mayReplace tells whether an advertisement may take the place of the one there is.
func (s *Service) mayReplace(r *request, old, a *catalogue.Advertisement, force bool) error {
	if string(old.Body()) == string(a.Body()) {
		if a.Exclusive && !r.owns(old) {
			return faultNotOwner(old) // it would be a holder by it
		}
		return nil
	}
	if !r.owns(old) && (force || old.Exclusive || r.who.Restricted() && old.By != "") {
		return faultNotOwner(old)
	}
	if force || !old.Decides() || old.Schema.Compat == "" || old.Schema.Compat == "none" {
		return nil
	}
	if a.Schema == nil || a.Schema.SHA256 == "" {
		return topics.NewFault(faultIncompatible.Status, faultIncompatible.ErrCode, "%s: it would have none; force is for its owner", faultIncompatible.Text)
	}
	if a.Schema.SHA256 == old.Schema.SHA256 {
		return nil
	}
	was, broken := s.compiled(sourceOf(old.Schema))
	if broken != "" {
		return nil // nothing can depend on it
	}
	now, broken := s.compiled(sourceOf(a.Schema))
	if broken != "" {
		return badSchema("schema.inline", broken)
	}
	problems := schema.Compatible(was, now, schema.Mode(old.Schema.Compat))
	if len(problems) == 0 {
		return nil
	}
	texts := make([]string, 0, 4)
	for i, p := range problems {
		if i == 3 {
			texts = append(texts, fmt.Sprintf("and %d more", len(problems)-i))
			break
		}
		texts = append(texts, p.String())
	}
	return topics.NewFault(faultIncompatible.Status, faultIncompatible.ErrCode, "%s (compat %s): %s; force is for its owner",
		faultIncompatible.Text, old.Schema.Compat, strings.Join(texts, "; "))
}

func badSchema(field, why string) *topics.Fault {
	return topics.NewFault(400, 20001, "advertisement is not valid: %s: %s", field, why)
}

// checkContents compiles the schemas of an advertisement and holds its examples against
// them. Warnings are told and change nothing.
func (s *Service) checkContents(a *catalogue.Advertisement) (warnings []string, err error) {
	var payload *schema.Schema
	if a.Schema != nil && len(a.Schema.Inline) > 0 && a.Schema.Format != "none" {
		var broken string
		if payload, broken = s.compiled(sourceOf(a.Schema)); broken != "" {
			return nil, badSchema("schema.inline", broken)
		}
	}
	if len(a.HeadersSchema) > 0 {
		if _, broken := s.compiled(schema.Source{Format: schema.JSONSchema, Text: string(a.HeadersSchema)}); broken != "" {
			return nil, badSchema("headers_schema", broken)
		}
	}
	for i, e := range a.Examples {
		if payload != nil {
			if err := checkExample(payload, e); err != nil {
				return nil, badSchema(fmt.Sprintf("examples[%d]", i), err.Error())
			}
		}
		if what := secretIn(e); what != "" {
			warnings = append(warnings, fmt.Sprintf("examples[%d] has what looks like %s: everybody who may discover it can read it", i, what))
		}
	}
	return warnings, nil
}

// checkExample holds an example against a schema. One of a binary format is written as
// the JSON of its value.
func checkExample(c *schema.Schema, example []byte) error {
	if c.Format() == schema.JSONSchema {
		return c.Validate(example)
	}
	v, err := value.Parse(example, value.Options{})
	if err != nil {
		return err
	}
	_, err = c.Append(nil, v)
	return err
}

// secrets are what keys and passwords look like.
var secrets = []struct {
	what string
	re   *regexp.Regexp
}{
	{"a private key", regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY`)},
	{"an AWS access key", regexp.MustCompile(`\b(AKIA|ASIA)[0-9A-Z]{16}\b`)},
	{"a GitHub token", regexp.MustCompile(`\bgh[pousr]_[A-Za-z0-9]{30,}`)},
	{"a Slack token", regexp.MustCompile(`\bxox[abprs]-[A-Za-z0-9-]{10,}`)},
	{"a JSON web token", regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.`)},
	{"an nkey seed", regexp.MustCompile(`\bS[UAONCX][A-Z2-7]{56}\b`)},
	{"a password or token", regexp.MustCompile(`(?i)"(pass(word|wd)?|secret|api[_-]?key|(access|auth|refresh)?[_-]?token|private[_-]?key|client[_-]?secret)"\s*:\s*"[^"]{4,}"`)},
}

func secretIn(example []byte) string {
	for _, s := range secrets {
		if s.re.Match(example) {
			return s.what
		}
	}
	return ""
}

// mustMay refuses what the client may not do by the JetStream API: an
// advertisement is no way around its permissions.
func (r *request) mustMay(subject string) error {
	if r.who.MayPublish(subject) {
		return nil
	}
	return topics.NewFault(403, 20015, "durable wants the permission to publish to %s", subject)
}

// metadataKey marks the topics the service has made.
const metadataKey = "herald.advertisement"

// makeTopic sees to it that the topic an advertisement asks for is there. One
// that somebody else made serves as well, if it takes in the advertised subject.
func (s *Service) makeTopic(ctx context.Context, r request, a *catalogue.Advertisement) error {
	d := a.Durable
	cfg := topicConfig(d.Topic, a.Pattern)
	cfg.Description, cfg.Retention, cfg.Replicas, cfg.MaxAge = a.Summary, d.Retention, cmp.Or(d.Replicas, s.copies()), time.Duration(d.MaxAge)
	cfg.Metadata = map[string]string{metadataKey: a.Name}
	if d.MaxBytes > 0 {
		cfg.MaxBytes = d.MaxBytes
	}
	if d.MaxMsgs > 0 {
		cfg.MaxMsgs = d.MaxMsgs
	}
	if cfg.MaxAge > 0 {
		cfg.Duplicates = min(cfg.Duplicates, cfg.MaxAge)
	}
	if first := subject.Token(a.Pattern, 0); strings.HasPrefix(first, "$") || first == ">" || first == "*" {
		return topics.NewFault(400, 20001, "advertisement is not valid: subject: what is kept must not begin with $, * or >")
	}
	return s.ensureTopic(ctx, r, a, cfg)
}

// copies is how many replicas a topic gets when nobody says otherwise: as many as let what
// is kept outlive a node, where there are that many nodes.
func (s *Service) copies() int {
	const most = 3
	if s.o.Peers == nil || len(s.o.Peers.Nodes()) < most {
		return 1
	}
	return most
}

func topicConfig(name, pattern string) topics.Config {
	return topics.Config{
		Name: name, Subjects: []string{pattern}, Retention: topics.RetainLimits,
		MaxConsumers: -1, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPer: -1, MaxMsgSize: -1,
		Discard: topics.DiscardOld, Storage: topics.StoreFile, Replicas: 1, Duplicates: 2 * time.Minute, AllowDirect: true, Compression: "none",
	}
}

// The bounds of what is kept in quarantine for one advertisement.
const (
	quarantineAge   = 30 * 24 * time.Hour
	quarantineBytes = 256 << 20
)

// makeQuarantine sees to it that there is a topic for what doesn't conform.
func (s *Service) makeQuarantine(ctx context.Context, r request, a *catalogue.Advertisement) error {
	cfg := topicConfig(a.QuarantineTopic(), a.QuarantinePattern())
	cfg.Description = "What was not as advertisement " + a.Name + " says"
	cfg.MaxAge, cfg.MaxBytes, cfg.Replicas = quarantineAge, quarantineBytes, s.copies()
	cfg.Metadata = map[string]string{metadataKey: a.Name}
	if a.Durable != nil {
		cfg.Replicas = cmp.Or(a.Durable.Replicas, cfg.Replicas)
	}
	return s.ensureTopic(ctx, r, a, cfg)
}

// ensureTopic creates a topic, or brings one that the service made for the advertisement
// up to date.
func (s *Service) ensureTopic(ctx context.Context, r request, a *catalogue.Advertisement, cfg topics.Config) error {
	if s.o.MayKeep != nil && !s.o.MayKeep(r.account) {
		return jsapi.ErrNotEnabledForAccount
	}
	t, ok := s.o.Catalogue.Topic(r.account, cfg.Name)
	var err error
	switch {
	case !ok && cfg.Replicas < 0:
		err = jsapi.ErrReplicasNegative
	case !ok && cfg.Replicas > 1 && s.o.Peers == nil:
		err = jsapi.ErrStreamReplicas
	case !ok:
		if err = r.mustMay("$JS.API.STREAM.CREATE." + cfg.Name); err == nil {
			t, _, err = s.o.Catalogue.CreateTopic(ctx, r.account, cfg)
		}
	case t.Config().Metadata[metadataKey] == a.Name:
		if err = r.mustMay("$JS.API.STREAM.UPDATE." + cfg.Name); err != nil {
			return err
		}
		cfg.Storage, cfg.Replicas = t.Config().Storage, t.Config().Replicas
		t, err = s.o.Catalogue.UpdateTopic(ctx, r.account, cfg)
	case !slices.ContainsFunc(t.Config().Subjects, func(p string) bool { return subject.Covers(p, cfg.Subjects[0]) }):
		err = topics.NewFault(409, 20006, "topic %s exists and does not take in %s: give another durable.topic", cfg.Name, cfg.Subjects[0])
	}
	if err == nil && t != nil && s.o.Seen != nil {
		s.o.Seen(t, r.node)
	}
	return err
}

// sourceOf is an advertised schema as it is compiled.
func sourceOf(s *catalogue.Schema) schema.Source {
	return schema.Source{
		Format: schema.Format(s.Format), Text: s.Text(), Message: s.Message, Framing: schema.Framing(s.Framing), ID: s.ID, Writers: string(s.Writers),
	}
}
