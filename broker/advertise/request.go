package advertise

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/subject"
)

// The refusals of the service; those about an advertisement itself are the
// catalogue's. The codes from 20000 up are Herald's own.
var (
	faultBusy      = &topics.Fault{Status: 503, ErrCode: 20010, Text: "too many requests are waiting; try again"}
	faultNotLeader = &topics.Fault{Status: 503, ErrCode: 20011, Text: "this node does not lead the catalogue; try again"}
	faultWatches   = &topics.Fault{Status: 503, ErrCode: 20012, Text: fmt.Sprintf("the account has %d watches already", watchesMax)}
)

func badRequest(err error) *topics.Fault {
	return topics.NewFault(400, 20000, "request is not valid: %s", err)
}

// reply is any answer.
type reply struct {
	Error *apiError `json:"error,omitempty"`

	Advertisement *catalogue.Advertisement `json:"advertisement,omitempty"`
	Lease         *leaseReply              `json:"lease,omitempty"`
	Withdrawn     bool                     `json:"withdrawn,omitempty"`

	Advertisements []*catalogue.Advertisement `json:"advertisements,omitzero"` // of a list; [] when there are none
	Total          *int                       `json:"total,omitempty"`
	Offset         *int                       `json:"offset,omitempty"`
	Observed       []*Observed                `json:"observed,omitempty"` // of each advertisement
	Undeclared     []*Observed                `json:"undeclared,omitzero"`
	Nearest        *nearest                   `json:"nearest,omitempty"`
	Watching       bool                       `json:"watching,omitempty"`
	Resumed        bool                       `json:"resumed,omitempty"` // the watch goes on after the revision asked for

	Subscribers *int     `json:"subscribers,omitempty"`
	Warnings    []string `json:"warnings,omitempty"`

	Revision uint64 `json:"revision,omitempty"`
}

type leaseReply struct {
	Holders int        `json:"holders"`           // connections that keep it alive
	Expires *time.Time `json:"expires,omitempty"` // when the last of them must have renewed; none: as long as it is connected
}

type apiError struct {
	Code        int    `json:"code"`
	ErrCode     uint16 `json:"err_code"`
	Description string `json:"description"`
}

func errorReply(err error) reply {
	var f *topics.Fault
	switch {
	case errors.As(err, &f):
	case errors.Is(err, replication.ErrNotLeader):
		f = faultNotLeader
	default:
		f = topics.NewFault(503, 20013, "%s", err)
	}
	return reply{Error: &apiError{f.Status, f.ErrCode, f.Text}}
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // only what was decoded from JSON is in there
		return fmt.Appendf(nil, `{"error":{"code":500,"err_code":20014,"description":%q}}`, err.Error())
	}
	return b
}

// errorIn returns the text of an answer that is an error.
func errorIn(answer []byte) (why string, failed bool) {
	if !bytes.HasPrefix(answer, []byte(`{"error":`)) {
		return "", false
	}
	var r struct {
		Error apiError `json:"error"`
	}
	if json.Unmarshal(answer, &r) != nil {
		return "", false
	}
	return fmt.Sprintf("%d: %s", r.Error.ErrCode, r.Error.Description), true
}

// decode reads a request's body; an empty one is that of {}.
func decode(payload []byte, into any, strict bool) error {
	if len(bytes.TrimSpace(payload)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(into); err != nil {
		return errors.New(catalogue.JSONProblem(err))
	}
	if strict {
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return errors.New("there is something behind the JSON object")
		}
	}
	return nil
}

func (s *Service) answer(ctx context.Context, r request) (reply, error) {
	if !s.o.Catalogue.IsCatalogueLeader() {
		return reply{}, faultNotLeader
	}
	switch r.verb {
	case "PUT":
		return s.put(ctx, r)
	case "GET":
		return s.get(r)
	case "RENEW":
		return s.renew(r)
	default:
		return s.withdraw(ctx, r)
	}
}

// named is the request of GET, RENEW and WITHDRAW. The owner may be left out
// when only one has the name.
type named struct {
	Name  string  `json:"name"`
	Owner *string `json:"owner"`

	Observed    bool `json:"observed"`    // GET: with what is really published
	Subscribers bool `json:"subscribers"` // GET: and tell when subscribers come and go
}

// sees tells whether the client is shown an advertisement: what it may discover, and what
// it may advertise itself.
func (r *request) sees(a *catalogue.Advertisement) bool {
	return r.who.MayDiscover(a.Pattern) || r.mayAdvertise(a) == nil
}

func (s *Service) named(r request) (*catalogue.Advertisement, uint64, error) {
	var q named
	if err := decode(r.payload, &q, true); err != nil {
		return nil, 0, badRequest(err)
	}
	all, revision := s.o.Catalogue.Advertisements(r.account)
	var found []*catalogue.Advertisement
	for _, a := range all {
		if a.Name == q.Name && (q.Owner == nil || *q.Owner == a.Owner.Key()) && r.sees(a) {
			found = append(found, a)
		}
	}
	switch len(found) {
	case 0:
		return nil, 0, catalogue.FaultNoAdvertised
	case 1:
		return found[0], revision, nil
	}
	owners := make([]string, len(found))
	for i, a := range found {
		owners[i] = fmt.Sprintf("%q", a.Owner.Key())
	}
	return nil, 0, topics.NewFault(409, 20005, "several advertise %s: say which owner of %s", q.Name, strings.Join(owners, ", "))
}

func holderOf(r request) string { return holderName(r.node, r.client) }

func holderName(node string, client uint64) string { return fmt.Sprintf("%s/c%d", node, client) }

// hold makes the request's connection a holder of an advertisement.
func (s *Service) hold(k leaseKey, terms catalogue.Lease, r request) {
	now := s.o.Now()
	s.mu.Lock()
	s.leases.hold(k, terms, holderOf(r), connection{r.node, r.client}, now)
	s.mu.Unlock()
	s.nudge()
}

func (s *Service) leaseOf(k leaseKey) *leaseReply {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.leases.all[k]
	if e == nil {
		return nil
	}
	l := &leaseReply{Holders: len(e.holders)}
	var last time.Time
	for _, h := range e.holders {
		if h.until.IsZero() {
			return l
		}
		if h.until.After(last) {
			last = h.until
		}
	}
	if !last.IsZero() {
		last = last.UTC()
		l.Expires = &last
	}
	return l
}

func (s *Service) get(r request) (reply, error) {
	a, _, err := s.named(r)
	if err != nil {
		return reply{}, err
	}
	return reply{Advertisement: a, Lease: s.leaseOf(leaseKey{r.account, a.Key()}), Revision: a.Revision}, nil
}

func (s *Service) renew(r request) (reply, error) {
	a, _, err := s.named(r)
	if err == nil {
		err = r.mayAdvertise(a)
	}
	if err == nil && a.Exclusive && !r.owns(a) {
		err = faultNotOwner(a)
	}
	if err != nil {
		return reply{}, err
	}
	k := leaseKey{r.account, a.Key()}
	s.hold(k, a.Lease, r)
	return reply{Lease: s.leaseOf(k), Revision: a.Revision}, nil
}

// withdraw ends the part of the connection that asks. The advertisement goes when
// nobody else holds it, or when the one that asks never did: then somebody means
// the advertisement itself.
func (s *Service) withdraw(ctx context.Context, r request) (reply, error) {
	a, _, err := s.named(r)
	if err == nil {
		err = r.mayAdvertise(a)
	}
	if err == nil && !r.owns(a) && (a.Exclusive || r.who.Restricted() && a.By != "") {
		err = faultNotOwner(a)
	}
	if err != nil {
		return reply{}, err
	}
	k := leaseKey{r.account, a.Key()}
	s.mu.Lock()
	e, who := s.leases.all[k], holderOf(r)
	if e != nil && e.holders[who] != nil && s.leases.release(k, who) {
		s.mu.Unlock()
		return reply{Lease: s.leaseOf(k), Revision: a.Revision}, nil
	}
	s.mu.Unlock()
	if err := s.o.Catalogue.Withdraw(ctx, a, false); err != nil {
		return reply{}, err
	}
	s.mu.Lock()
	s.leases.drop(k)
	s.mu.Unlock()
	return reply{Withdrawn: true, Warnings: s.missedBy(a)}, nil
}

// missedBy says what follows from an advertisement's withdrawal: who reads what it was about,
// and that it comes again.
func (s *Service) missedBy(a *catalogue.Advertisement) (warnings []string) {
	names := slices.Compact(slices.Sorted(slices.Values(s.readers(a.Account).Overlapping(a.Pattern, nil))))
	switch more := len(names) - readByMax; {
	case len(names) == 1:
		warnings = append(warnings, "1 operator reads this: "+names[0])
	case more > 0:
		warnings = append(warnings, fmt.Sprintf("%d operators read this: %s and %d more", len(names), strings.Join(names[:readByMax], ", "), more))
	case len(names) > 0:
		warnings = append(warnings, fmt.Sprintf("%d operators read this: %s", len(names), strings.Join(names, ", ")))
	}
	if o := a.Operator(); o != "" && a.Role == catalogue.Operates {
		warnings = append(warnings, fmt.Sprintf("operator %s advertises it again for as long as it is there: say advertise: false at its output", o))
	}
	return warnings
}

// query is the request of LIST.
type query struct {
	Name    string         `json:"name"`    // exactly this
	Owner   *string        `json:"owner"`   // exactly this
	Subject string         `json:"subject"` // a pattern that overlaps the advertised one
	Role    catalogue.Role `json:"role"`
	Kind    string         `json:"kind"`
	Tags    []string       `json:"tags"` // all of these
	Offset  int            `json:"offset"`
	Limit   int            `json:"limit"`

	Watch bool    `json:"watch"`
	Since *uint64 `json:"since"` // with Watch: only what changed after this revision

	Observed   bool `json:"observed"`   // with what is really published, beside each
	Silent     bool `json:"silent"`     // only those quiet for longer than silence_after
	Unused     bool `json:"unused"`     // only those that nobody subscribes to or consumes
	Violating  bool `json:"violating"`  // only those with messages that don't conform
	Undeclared bool `json:"undeclared"` // what is published without an advertisement, instead
	Nearest    bool `json:"nearest"`    // who is there for subject, or what is like it
}

func (q *query) matches(a *catalogue.Advertisement) bool {
	return (q.Name == "" || q.Name == a.Name) &&
		(q.Owner == nil || *q.Owner == a.Owner.Key()) &&
		(q.Subject == "" || subject.Overlap(q.Subject, a.Pattern)) &&
		(q.Role == "" || q.Role == a.Role) &&
		(q.Kind == "" || q.Kind == a.Kind) &&
		!slices.ContainsFunc(q.Tags, func(t string) bool { return !slices.Contains(a.Tags, t) })
}

// The bounds of one page: it must fit into a message, whose default bound is 1
// MiB, even when an advertisement is as big as may be.
const (
	pageMax      = 1000
	pageBytesMax = 512 << 10
)

func (s *Service) list(ctx context.Context, r request) (reply, error) {
	var q query
	if err := decode(r.payload, &q, true); err != nil {
		return reply{}, badRequest(err)
	}
	if q.Subject != "" && !subject.Valid(q.Subject) {
		return reply{}, badRequest(errors.New("subject is not a pattern"))
	}
	switch {
	case q.Watch:
		return reply{}, s.watch(ctx, r, q)
	case q.Undeclared:
		return s.undeclared(ctx, r, q)
	case q.Nearest:
		return s.nearest(ctx, r, q)
	}
	all, revision := s.o.Catalogue.Advertisements(r.account)
	all = slices.DeleteFunc(all, func(a *catalogue.Advertisement) bool { return !q.matches(a) || !r.sees(a) })
	var seen map[catalogue.Key]*Observed
	if q.Silent || q.Unused || q.Violating {
		seen = s.observed(ctx, r.account, all)
		all = slices.DeleteFunc(all, func(a *catalogue.Advertisement) bool {
			o := seen[a.Key()]
			return q.Silent && !o.Silent || q.Unused && !o.Unused || q.Violating && o.Failed1h == 0
		})
	}
	total, offset := len(all), min(max(q.Offset, 0), len(all))
	all = all[offset:]
	all = all[:min(len(all), cmp.Or(max(q.Limit, 0), pageMax), pageMax)]
	if all == nil {
		all = []*catalogue.Advertisement{}
	}
	size := 0
	for i, a := range all {
		if size += len(a.Body()) + 1024; size > pageBytesMax && i > 0 {
			all = all[:i]
			break
		}
	}
	out := reply{Advertisements: all, Total: &total, Offset: &offset, Revision: revision}
	if q.Observed {
		if seen == nil {
			seen = s.observed(ctx, r.account, all)
		}
		for _, a := range all {
			out.Observed = append(out.Observed, seen[a.Key()])
		}
	}
	return out, nil
}

// sorted returns advertisements by name and owner.
func sorted(all map[catalogue.Key]*catalogue.Advertisement) []*catalogue.Advertisement {
	out := make([]*catalogue.Advertisement, 0, len(all))
	for _, a := range all {
		out = append(out, a)
	}
	catalogue.SortAdvertisements(out)
	return out
}
