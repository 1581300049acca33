package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// The outputs of operators that say so are advertised for as long as the operator is
// there, by the node that leads group 0: with what they are made from as lineage.

// advertiseEvery is how often advertisements are looked at, at most.
const advertiseEvery = time.Second

// advertID begins the ids of advertisements that an operator made.
const advertID = "op-"

// advertKey is an advertisement of an account.
type advertKey struct {
	account string
	catalogue.Key
}

// advertsOf makes the advertisements of an operator's outputs.
func (e *Engine) advertsOf(account string, g *graph.Graph) (all []*catalogue.Advertisement, err error) {
	for _, a := range g.Adverts {
		if a.Fields["subject"] == nil {
			t, ok := e.state.Topic(account, a.Topic)
			if !ok {
				continue // it is made, or the operator stops
			}
			a = a.With(firstSubject(t.Config()))
		}
		body, err := json.Marshal(a.Fields)
		if err != nil {
			return nil, err
		}
		ad, f := catalogue.ParseAdvertisement(body)
		if f != nil {
			return nil, f
		}
		ad.Account = account
		all = append(all, ad)
	}
	return all, nil
}

// mayAdvertise tells why whoever deploys an operator may not advertise its outputs.
func (s *service) mayAdvertise(account string, r *Request, g *graph.Graph) error {
	all, err := s.e.advertsOf(account, g)
	if err != nil || r.advertises == nil {
		return err
	}
	for _, a := range all {
		if !r.advertises(a.Pattern, true) {
			return refuse(403, "advertise: to advertise %s takes the permission to", a.Pattern)
		}
	}
	return nil
}

// advertise sees to it that what is advertised is what the operators say, on the node that
// leads group 0.
func (e *Engine) advertise() {
	if !e.runs() || !e.state.IsCatalogueLeader() {
		e.quiet = false
		return
	}
	if time.Since(e.looked) < advertiseEvery {
		e.pending = true
		return
	}
	e.looked = time.Now()
	want := map[advertKey][]byte{}
	for _, o := range e.state.Operators("") {
		for _, a := range e.adverts(o) {
			want[advertKey{o.Account, a.Key()}] = a.Body()
		}
	}
	if len(want) == 0 && e.quiet {
		return
	}
	e.quiet = true
	there, _ := e.state.Advertisements("")
	for _, a := range there {
		k := advertKey{a.Account, a.Key()}
		body, ours := want[k]
		e.quiet = e.quiet && !strings.HasPrefix(a.ID, advertID)
		switch {
		case ours && bytes.Equal(body, a.Body()):
			delete(want, k)
		case !ours && strings.HasPrefix(a.ID, advertID):
			e.advertised("withdraw", k, func(ctx context.Context) error { return e.state.Withdraw(ctx, a, false) })
		}
	}
	for k, body := range want {
		e.quiet = false
		e.advertised("put", k, func(ctx context.Context) error {
			_, _, err := e.state.Advertise(ctx, state.Put{Account: k.account, ID: fmt.Sprint(advertID, k.Name, "-", e.state.Now()), Body: body})
			return err
		})
	}
}

// adverts are an operator's advertisements, kept for as long as its spec is the same.
func (e *Engine) adverts(o *catalogue.Operator) []*catalogue.Advertisement {
	f := e.first(o)
	if f.graph == nil || len(f.graph.Adverts) == 0 {
		return nil
	}
	all, err := e.advertsOf(o.Account, f.graph)
	if err != nil {
		e.o.Log.Warn("What an operator advertises can't be read", "operator", o.Name, "error", err)
	}
	return all
}

// advertised does something about an advertisement, and tells once why it can't be done.
func (e *Engine) advertised(what string, k advertKey, f func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(e.ctx, 5*time.Second)
	defer cancel()
	err := f(ctx)
	if err == nil {
		delete(e.refused, k)
		return
	}
	if why := err.Error(); e.refused[k] != why {
		e.refused[k] = why
		e.o.Log.Warn("An advertisement of an operator's output can't be changed", "what", what, "account", k.account, "name", k.Name, "error", err)
	}
	var fault *topics.Fault
	if !errors.As(err, &fault) {
		e.pending = true // it is tried again soon
	}
}
