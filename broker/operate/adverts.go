package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// The outputs of operators are advertised for as long as the operator is there, by the node
// that leads group 0: with what they are made from as lineage. What nobody asked for gives
// way to what somebody advertises, and demands nothing of messages: it has no schema, but one
// that describes.

// advertiseEvery is how often advertisements are looked at, at most.
const advertiseEvery = time.Second

// advertID begins the ids of advertisements that an operator made.
const advertID = "op-"

// advertKey is an advertisement of an account.
type advertKey struct {
	account string
	catalogue.Key
}

// advertised is the advertisement of an output.
type advertised struct {
	graph.Advert
	ad  *catalogue.Advertisement // nil: there is none
	why string                   // nothing is to be advertised, and this is why
}

// spoken is what there is to be advertised of an operator, kept for as long as what it
// follows from is the same.
type spoken struct {
	subjects []string // of the outputs' topics; "": there is none
	denied   []string
	list     []advertised
}

// told is what was seen to: nothing has to be done again before it is another.
type told struct {
	want     map[advertKey]*catalogue.Advertisement
	revision uint64 // of the advertisements
	done     bool
}

// subjectsOf are where the outputs go that say no subject themselves.
func (e *Engine) subjectsOf(account string, g *graph.Graph) []string {
	subjects := make([]string, len(g.Adverts))
	for i, a := range g.Adverts {
		if a.Fields["subject"] != nil {
			subjects[i] = "-"
		} else if t, ok := e.state.Topic(account, a.Topic); ok {
			subjects[i] = firstSubject(t.Config())
		}
	}
	return subjects
}

// advertsOf makes the advertisements of an operator's outputs. The error is of those that
// somebody asked for.
func advertsOf(account string, g *graph.Graph, subjects, denied []string) (all []advertised, err error) {
	for i, a := range g.Adverts {
		one := advertised{Advert: a, why: a.Why}
		switch {
		case a.Why != "":
		case subjects[i] == "":
			one.why = "there is no topic " + a.Topic // it is made, or the operator stops
		case a.Fields["subject"] == nil:
			a = a.With(subjects[i])
		}
		if one.why == "" {
			if one.ad, err = parseAdvert(account, a); err != nil && !a.Implicit {
				return nil, err
			} else if err != nil {
				one.why = err.Error()
			}
		}
		if a.Implicit && one.ad != nil && slices.Contains(denied, a.Output) {
			one.why, one.ad = "who deployed it may not advertise "+one.ad.Pattern, nil
		}
		all = append(all, one)
	}
	return all, nil
}

func parseAdvert(account string, a graph.Advert) (*catalogue.Advertisement, error) {
	body, err := json.Marshal(a.Fields)
	if err != nil {
		return nil, err
	}
	ad, f := catalogue.ParseAdvertisement(body)
	if f == nil {
		f = ad.Check()
	}
	if f != nil {
		return nil, f
	}
	ad.Account = account
	return ad, nil
}

// mayAdvertise tells why whoever deploys an operator may not advertise its outputs as the
// spec says, and which may not be where it says nothing.
func (s *service) mayAdvertise(account string, r *Request, g *graph.Graph) (denied []string, err error) {
	all, err := advertsOf(account, g, s.e.subjectsOf(account, g), nil)
	if err != nil || r.advertises == nil {
		return nil, err
	}
	for _, a := range all {
		switch {
		case a.ad == nil || r.advertises(a.ad.Pattern, true):
		case a.Implicit:
			denied = append(denied, a.Output)
		default:
			return nil, refuse(403, "advertise: to advertise %s takes the permission to", a.ad.Pattern)
		}
	}
	return denied, nil
}

// advertise sees to it that what is advertised is what the operators say, on the node that
// leads group 0. As long as neither has changed nothing is done.
func (e *Engine) advertise() {
	if !e.runs() || !e.state.IsCatalogueLeader() {
		e.told = told{}
		return
	}
	if time.Since(e.looked) < advertiseEvery {
		e.pending = true
		return
	}
	e.looked = time.Now()
	want := map[advertKey]*catalogue.Advertisement{}
	for _, o := range e.state.Operators("") {
		for _, a := range e.adverts(o) {
			if a.ad == nil {
				continue
			}
			k := advertKey{o.Account, a.ad.Key()}
			if other := want[k]; other == nil || other.Implicit() && !a.Implicit {
				want[k] = a.ad
			}
		}
	}
	revision := e.state.AdvertisementRevision()
	if e.told.done && revision == e.told.revision && maps.Equal(want, e.told.want) {
		return
	}
	e.told = told{want, revision, e.settle(want)}
}

// settle puts what is wanted and withdraws what isn't any more. It tells whether that was
// decided; what was done is seen by the revision.
func (e *Engine) settle(want map[advertKey]*catalogue.Advertisement) (decided bool) {
	decided = true
	maps.DeleteFunc(e.refused, func(k advertKey, _ string) bool { return want[k] == nil })
	there, _ := e.state.Advertisements("")
	for _, a := range there {
		k := advertKey{a.Account, a.Key()}
		if want[k] == nil && madeByOperator(a) {
			decided = e.advertised("withdraw", k, a, func(ctx context.Context) error { return e.state.Withdraw(ctx, a, false) }) && decided
		}
	}
	for k, a := range want {
		if is := e.state.Advertisement(k.account, k.Key); is != nil && bytes.Equal(is.Body(), a.Body()) {
			delete(e.refused, k)
			continue
		}
		if why := e.unsaid(k.account, a); why != "" {
			e.refuse(k, a, "put", why)
			continue
		}
		decided = e.advertised("put", k, a, func(ctx context.Context) error {
			_, _, err := e.state.Advertise(ctx, state.Put{Account: k.account, ID: fmt.Sprint(advertID, k.Name, "-", e.state.Now()), Body: a.Body()})
			return err
		}) && decided
	}
	return decided
}

// madeByOperator tells that nobody else has put an advertisement, or changed it.
func madeByOperator(a *catalogue.Advertisement) bool {
	return strings.HasPrefix(a.ID, advertID) && a.Operator() != ""
}

// unsaid tells why an advertisement isn't put.
func (e *Engine) unsaid(account string, a *catalogue.Advertisement) string {
	if is := e.state.Advertisement(account, a.Key()); a.Implicit() && is != nil && !madeByOperator(is) {
		return fmt.Sprintf("somebody else advertises %s of %q", a.Name, a.Owner.Key())
	}
	if f := e.state.Contradicted(account, a); f != nil {
		return f.Text
	}
	return ""
}

// adverts are an operator's advertisements.
func (e *Engine) adverts(o *catalogue.Operator) []advertised {
	f := e.first(o)
	if f.graph == nil || len(f.graph.Adverts) == 0 {
		return nil
	}
	subjects := e.subjectsOf(o.Account, f.graph)
	if s := f.spoken; s != nil && slices.Equal(s.subjects, subjects) && slices.Equal(s.denied, o.Unadvertised) {
		return s.list
	}
	all, err := advertsOf(o.Account, f.graph, subjects, o.Unadvertised)
	if err != nil {
		e.o.Log.Warn("What an operator advertises can't be read", "operator", o.Name, "error", err)
	}
	f.spoken = &spoken{subjects, o.Unadvertised, all}
	e.firsts[o.ID] = f
	return all
}

// advertised does something about an advertisement, and tells once why it can't be done. It
// tells whether the catalogue has decided.
func (e *Engine) advertised(what string, k advertKey, a *catalogue.Advertisement, f func(ctx context.Context) error) (decided bool) {
	ctx, cancel := context.WithTimeout(e.ctx, 5*time.Second)
	defer cancel()
	err := f(ctx)
	if err == nil {
		delete(e.refused, k)
		return true
	}
	e.refuse(k, a, what, err.Error())
	var fault *topics.Fault
	if !errors.As(err, &fault) {
		e.pending = true // it is tried again soon
		return false
	}
	return true
}

// refuse tells once why something about an advertisement isn't done.
func (e *Engine) refuse(k advertKey, a *catalogue.Advertisement, what, why string) {
	if e.refused[k] == why {
		return
	}
	e.refused[k] = why
	say := e.o.Log.Warn
	if a.Implicit() {
		say = e.o.Log.Info
	}
	say("An operator's output isn't advertised", "what", what, "operator", a.Operator(), "account", k.account, "name", k.Name, "why", why)
}

// AdvertReport is how an output of an operator is advertised.
type AdvertReport struct {
	Output string `json:"output"`
	// Name and Owner are the advertisement's.
	Name     string `json:"name,omitempty"`
	Owner    string `json:"owner,omitempty"`
	Subject  string `json:"subject,omitempty"`
	Implicit bool   `json:"implicit,omitempty"` // the spec says nothing about it
	There    bool   `json:"advertised"`
	Why      string `json:"why,omitempty"` // it isn't
}

// advertReports say how the outputs of an operator are advertised, on any node.
func (e *Engine) advertReports(o *catalogue.Operator) []AdvertReport {
	all := []AdvertReport{}
	g, err := e.compile(o)
	if err != nil {
		return all
	}
	list, _ := advertsOf(o.Account, g, e.subjectsOf(o.Account, g), o.Unadvertised) // an error is logged where it matters
	for _, a := range list {
		r := AdvertReport{Output: a.Output, Implicit: a.Implicit, Why: a.why}
		if a.ad != nil {
			r.Name, r.Owner, r.Subject = a.ad.Name, a.ad.Owner.Key(), a.ad.Subject
			is := e.state.Advertisement(o.Account, a.ad.Key())
			if r.There = is != nil && bytes.Equal(is.Body(), a.ad.Body()); !r.There {
				r.Why = e.unsaid(o.Account, a.ad)
			}
		}
		all = append(all, r)
	}
	return all
}
