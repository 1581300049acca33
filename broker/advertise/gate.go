package advertise

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/observe"
	"github.com/heraldmq/herald/broker/wire"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/interest"
	"github.com/heraldmq/herald/topics/schema"
)

// What an advertisement says about its messages is checked on the publishing
// connection's goroutine, before anything is stored or delivered. An account has a gate
// only while something in it is enforced or exclusive; each connection keeps the rule of a
// subject with its cached match. A gate is replaced whenever an advertisement changes,
// which is how connections notice.

// schemaCacheBytes is how much text of schemas is kept compiled.
const schemaCacheBytes = 8 << 20

// rules is what an account's advertisements demand.
type rules struct {
	s *Service
	v *served

	index interest.Index[*rule] // those that say something about messages

	// Guarded by Service.mu.

	byKey   map[catalogue.Key]*rule
	byTally map[*observe.Tally]*rule
	active  int // of byKey: enforced or exclusive

	claimsMu sync.Mutex
	claims   map[catalogue.Key]*holders
}

// holders are the connections of this node that may publish what is exclusive.
type holders struct {
	set atomic.Pointer[map[uint64]struct{}] // replaced, never changed
}

func (h *holders) has(client uint64) bool {
	set := h.set.Load()
	if set == nil {
		return false
	}
	_, ok := (*set)[client]
	return ok
}

// rule is what one advertisement demands.
type rule struct {
	ad      *catalogue.Advertisement
	payload *schema.Schema
	headers *schema.Schema
	broken  string // why the schema can't be used
	holders *holders
	tally   *observe.Tally

	toldAt  atomic.Int64 // of the last violation event, unix ns
	untold  atomic.Int64 // violations since
	refused atomic.Int64
}

func (u *rules) init(s *Service, v *served) {
	u.s, u.v = s, v
	u.byKey = map[catalogue.Key]*rule{}
	u.byTally = map[*observe.Tally]*rule{}
	u.claims = map[catalogue.Key]*holders{}
}

func (r *rule) active() bool { return r.ad.Enforced() || r.ad.Exclusive }

// put takes an advertisement in. Service.mu is held.
func (u *rules) put(a *catalogue.Advertisement, t *observe.Tally) {
	u.remove(a.Key())
	r := &rule{ad: a, tally: t}
	if a.Decides() {
		r.payload, r.broken = u.s.compiled(sourceOf(a.Schema))
	}
	if len(a.HeadersSchema) > 0 {
		var broken string
		r.headers, broken = u.s.compiled(schema.Source{Format: schema.JSONSchema, Text: string(a.HeadersSchema)})
		r.broken = cmp.Or(r.broken, broken)
	}
	if a.Exclusive {
		r.holders = u.holdersOf(a.Key())
	}
	u.byKey[a.Key()], u.byTally[t] = r, r
	if r.active() {
		u.active++
	}
	if r.active() || a.Decides() {
		u.index.Add(a.Pattern, r)
	}
}

// remove takes an advertisement out. Service.mu is held.
func (u *rules) remove(k catalogue.Key) {
	r := u.byKey[k]
	if r == nil {
		return
	}
	delete(u.byKey, k)
	delete(u.byTally, r.tally)
	u.index.Remove(r.ad.Pattern, r)
	if r.active() {
		u.active--
	}
}

// compiled compiles a schema; broken says why it can't be.
func (s *Service) compiled(src schema.Source) (c *schema.Schema, broken string) {
	if src.Format == "none" {
		return nil, ""
	}
	c, err := s.schemas.Get(src)
	if err != nil {
		return nil, err.Error()
	}
	return c, ""
}

// set puts a gate with the present rules into force. Service.mu is held, or nobody knows
// of the account yet.
func (u *rules) set(b bus) {
	if u.active == 0 {
		b.setGate(nil)
		return
	}
	b.setGate(gate{u})
}

func (u *rules) holdersOf(k catalogue.Key) *holders {
	u.claimsMu.Lock()
	defer u.claimsMu.Unlock()
	h := u.claims[k]
	if h == nil {
		h = &holders{}
		u.claims[k] = h
	}
	return h
}

// holding makes a client of this node a holder, or no longer one.
func (u *rules) holding(h *held) {
	k := h.key().Key
	u.claimsMu.Lock()
	defer u.claimsMu.Unlock()
	is := u.claims[k]
	if is == nil {
		if !h.Claims {
			return
		}
		is = &holders{}
		u.claims[k] = is
	}
	if is.has(h.Client) != h.Claims {
		u.change(is, h.Client, h.Claims)
	}
}

// change makes a client a holder, or no longer one. claimsMu is held.
func (u *rules) change(h *holders, client uint64, holds bool) {
	next := map[uint64]struct{}{}
	if old := h.set.Load(); old != nil {
		maps.Copy(next, *old)
	}
	if holds {
		next[client] = struct{}{}
	} else {
		delete(next, client)
	}
	h.set.Store(&next)
}

// drop forgets a client that has gone.
func (u *rules) drop(client uint64) {
	u.claimsMu.Lock()
	defer u.claimsMu.Unlock()
	for _, h := range u.claims {
		if h.has(client) {
			u.change(h, client, false)
		}
	}
}

// unclaim forgets who held an advertisement that is gone, unless it is there again.
// Service.mu is held.
func (u *rules) unclaim(k catalogue.Key) {
	u.claimsMu.Lock()
	defer u.claimsMu.Unlock()
	delete(u.claims, k)
}

// gate implements front.Gate.
type gate struct{ *rules }

// Rule implements front.Gate.
func (g gate) Rule(subject string) front.Rule {
	var exclusive, deciding []*rule
	for _, r := range g.index.Match(subject, nil) {
		if r.ad.Exclusive {
			exclusive = append(exclusive, r)
		}
		if r.ad.Enforced() || r.ad.Decides() {
			deciding = append(deciding, r)
		}
	}
	set := &ruleSet{u: g.rules, exclusive: mostSpecific(exclusive)}
	for _, r := range mostSpecific(deciding) {
		if r.ad.Enforced() {
			set.parts = append(set.parts, r)
		}
	}
	if len(set.exclusive)+len(set.parts) == 0 {
		return nil
	}
	slices.SortFunc(set.parts, func(a, b *rule) int {
		return cmp.Or(cmp.Compare(strictness(b.ad.Enforce), strictness(a.ad.Enforce)), cmp.Compare(a.ad.Revision, b.ad.Revision))
	})
	return set
}

func strictness(e catalogue.Enforce) int {
	return slices.Index([]catalogue.Enforce{catalogue.EnforceWarn, catalogue.EnforceQuarantine, catalogue.EnforceReject}, e)
}

// mostSpecific leaves out the rules that a more specific one takes the place of.
func mostSpecific(all []*rule) []*rule {
	return slices.DeleteFunc(slices.Clone(all), func(r *rule) bool {
		return slices.ContainsFunc(all, func(o *rule) bool { return catalogue.MoreSpecific(o.ad.Pattern, r.ad.Pattern) })
	})
}

// ruleSet is what messages of one subject must pass. It implements front.Rule.
type ruleSet struct {
	u         *rules
	exclusive []*rule
	parts     []*rule // the strictest first
}

// keywordExclusive is that of a message by somebody who doesn't hold the advertisement.
const keywordExclusive = "exclusive"

// violation says what is wrong with a message.
type violation struct {
	Advertisement string `json:"advertisement"`
	Owner         string `json:"owner,omitempty"`
	Version       string `json:"schema_version,omitempty"`
	Pointer       string `json:"pointer"`
	Keyword       string `json:"keyword"`
	Message       string `json:"message"`
}

func (v *violation) text() string {
	if v.Keyword == keywordExclusive {
		return v.Advertisement + " is exclusive: " + v.Message
	}
	at := cmp.Or(v.Pointer, "the payload")
	of := v.Advertisement
	if v.Version != "" {
		of += " (schema version " + v.Version + ")"
	}
	return fmt.Sprintf("not as %s says: %s: %s: %s", of, at, v.Keyword, v.Message)
}

// measureEvery is how many checks go by for one whose time is taken.
const measureEvery = 64

// Check implements front.Rule.
func (set *ruleSet) Check(m *front.Message) front.Verdict {
	for _, r := range set.exclusive {
		if !r.holders.has(m.Client.ID) {
			r.refused.Add(1)
			return refusal(&violation{
				Advertisement: r.ad.Name, Owner: r.ad.Owner.Key(), Keyword: keywordExclusive,
				Message: "only connections that hold it, by PUT or RENEW, may publish here",
			}, faultExclusive.Status, faultExclusive.ErrCode)
		}
	}
	s := set.u.s
	if s.metrics.n.Add(1)%measureEvery == 0 {
		defer s.metrics.took(time.Now())
	}
	for i, r := range set.parts {
		v := r.check(m, i > 0 && r.payload == set.parts[0].payload)
		r.tally.Checked(v == nil)
		s.metrics.checked(r.ad, v == nil)
		if v == nil {
			continue
		}
		set.u.tellViolation(r, m, v)
		switch r.ad.Enforce {
		case catalogue.EnforceReject:
			return refusal(v, faultViolation.Status, faultViolation.ErrCode)
		case catalogue.EnforceQuarantine:
			out := refusal(v, faultViolation.Status, faultViolation.ErrCode)
			out.Divert = r.ad.Quarantine(string(m.Subject))
			out.Header = quarantined(m, v)
			return out
		}
	}
	return front.Verdict{}
}

// check holds a message against one advertisement; same tells that its payload has
// passed the same schema already.
func (r *rule) check(m *front.Message, same bool) *violation {
	if r.broken != "" {
		return r.violation(&schema.Invalid{Keyword: "schema", Message: "it can't be used by this broker: " + r.broken})
	}
	if r.payload != nil && !same && !deletes(m) {
		if v := r.violation(r.payload.Validate(m.Payload)); v != nil {
			return v
		}
	}
	if r.headers != nil {
		return r.violation(r.headers.Validate(headersJSON(m.Header)))
	}
	return nil
}

func (r *rule) violation(err error) *violation {
	if err == nil {
		return nil
	}
	v := &violation{Advertisement: r.ad.Name, Owner: r.ad.Owner.Key()}
	if r.ad.Schema != nil {
		v.Version = cmp.Or(r.ad.Schema.Version, r.ad.Schema.SHA256[:min(12, len(r.ad.Schema.SHA256))])
	}
	var i *schema.Invalid
	if errors.As(err, &i) {
		v.Pointer, v.Keyword, v.Message = i.Pointer, i.Keyword, i.Message
	} else {
		v.Keyword, v.Message = "schema", err.Error()
	}
	return v
}

// deletes tells whether a message says that its key is gone: it has no payload to check.
func deletes(m *front.Message) bool {
	return len(m.Payload) == 0 && (string(wire.HeaderGet(m.Header, "Herald-Op")) == "delete" || wire.HeaderHas(m.Header, "KV-Operation"))
}

// headersJSON is a header block as an object of texts; of several values the first.
func headersJSON(block []byte) []byte {
	all := map[string]string{}
	wire.HeaderEach(block, func(k, v []byte) bool {
		if _, had := all[string(k)]; !had {
			all[string(k)] = string(v)
		}
		return true
	})
	b, err := json.Marshal(all)
	if err != nil { // texts always encode
		return []byte("{}")
	}
	return b
}

// refusal is the answer to a publisher: a JetStream one takes it for its PubAck.
func refusal(v *violation, status int, code uint16) front.Verdict {
	answer := encode(struct {
		Error     apiError   `json:"error"`
		Violation *violation `json:"violation"`
	}{apiError{status, code, v.text()}, v})
	return front.Verdict{Refuse: true, Reason: v.text(), Answer: answer}
}

// quarantined is the header of a message in quarantine: its own, but for what would act on
// the copy, and why it is there, as dead letters say it.
func quarantined(m *front.Message, v *violation) []byte {
	h := wire.HeaderRemove(m.Header, func(key []byte) bool {
		k := string(key)
		return strings.HasPrefix(k, "Nats-") && k != "Nats-Msg-Id" || strings.HasPrefix(k, "Herald-Dead-")
	})
	for _, kv := range [][2]string{
		{"Herald-Dead-Reason", "schema"},
		{"Herald-Dead-Detail", v.text()},
		{"Herald-Dead-Subject", string(m.Subject)},
		{"Herald-Dead-At", time.Now().UTC().Format(time.RFC3339Nano)},
		{"Herald-Dead-Advertisement", v.Advertisement},
		{"Herald-Dead-Schema-Version", v.Version},
		{"Herald-Dead-Pointer", v.Pointer},
		{"Herald-Dead-Keyword", v.Keyword},
	} {
		if kv[1] != "" {
			h = wire.HeaderSet(h, kv[0], oneLine(kv[1]))
		}
	}
	return h
}

// oneLine makes a text fit for a header.
func oneLine(s string) string {
	const most = 1024
	if len(s) > most {
		s = s[:most]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// violationPause is how often one advertisement's violations are told by a node.
const violationPause = 10 * time.Second

// tellViolation publishes an event about violations, now and then.
func (u *rules) tellViolation(r *rule, m *front.Message, v *violation) {
	n := r.untold.Add(1)
	now, last := time.Now(), r.toldAt.Load()
	if now.UnixNano()-last < int64(violationPause) || !r.toldAt.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	r.untold.Add(-n)
	u.s.note(note{
		account: u.v.name, Event: "violation", Name: r.ad.Name, Owner: r.ad.Owner.Key(), Time: now.UTC(), Revision: r.ad.Revision,
		Subject: string(m.Subject), Client: m.Client.Name, User: m.Client.User, Count: n, Violation: v, Enforce: string(r.ad.Enforce),
	})
}
