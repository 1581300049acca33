package advertise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// In a cluster a request is carried out by the node that leads the catalogue, and
// answered by the one it came to; watches are told by the latter. A client that
// advertises for as long as it is connected is vouched for by its node, again and
// again, to whoever leads.

// Peers is the way to the other nodes. Group 0 is the catalogue.
type Peers interface {
	Name() string
	Nodes() []string                // all of the cluster
	Leader(g topics.GroupID) string // "" when nobody is known to lead
	Linearize(ctx context.Context, g topics.GroupID) error
	Call(ctx context.Context, node, method string, body []byte) ([]byte, error)
	Handle(method string, h func(ctx context.Context, from string, body []byte) ([]byte, error))
}

const (
	callRequest = "adv.request" // carry out a request
	callVouch   = "adv.vouch"   // clients that are still connected, with what they hold
	callEnded   = "adv.ended"   // one that no longer is

	vouchEvery  = 3 * time.Second
	vouchLook   = 250 * time.Millisecond // how often it is looked whether the lead has moved
	vouchMost   = 2000                   // in one call
	repeatAfter = 50 * time.Millisecond
)

// passedOn is a request on its way to the leader.
type passedOn struct {
	Account string `json:"account"`
	Verb    string `json:"verb"`
	Payload []byte `json:"payload"`
	Client  uint64 `json:"client"`
	Ident   []byte `json:"ident,omitempty"` // who the client is
}

// carriedOut is its answer.
type carriedOut struct {
	Elsewhere bool   `json:"elsewhere,omitempty"` // the node doesn't lead (any more)
	Reply     []byte `json:"reply,omitempty"`
	Held      *held  `json:"held,omitempty"`     // what the client holds now, or no longer
	Revision  uint64 `json:"revision,omitempty"` // that must be in force before it is answered
}

type held struct {
	Account string `json:"account"`
	Owner   string `json:"owner,omitempty"`
	Name    string `json:"name"`
	Client  uint64 `json:"client"`
	Not     bool   `json:"not,omitempty"`
	// Claims: it may publish what is exclusive; otherwise it no longer may, if it could.
	Claims bool `json:"claims,omitempty"`
}

func (h *held) key() leaseKey {
	return leaseKey{h.Account, catalogue.Key{Owner: h.Owner, Name: h.Name}}
}

// carryOut has a request carried out by whoever leads the catalogue, and repeats it
// while nobody does. What only reads is answered by the node that was asked.
func (s *Service) carryOut(ctx context.Context, r request) {
	for {
		done, err := s.try(ctx, &r)
		if done {
			return
		}
		if s.o.Peers == nil {
			r.respond(encode(errorReply(faultNotLeader)))
			return
		}
		timer := time.NewTimer(repeatAfter)
		select {
		case <-timer.C:
			continue
		case <-ctx.Done():
		}
		timer.Stop()
		if err == nil {
			err = faultNotLeader
		}
		r.respond(encode(errorReply(err)))
		return
	}
}

// linearize waits until what is read here is as new as what anybody was told.
func (s *Service) linearize(ctx context.Context) error {
	if s.o.Peers != nil {
		return s.o.Peers.Linearize(ctx, topics.CatalogueGroup)
	}
	if !s.o.Catalogue.IsCatalogueLeader() {
		return replication.ErrNotLeader
	}
	return nil
}

// try carries a request out once; done is false when there was no leader.
func (s *Service) try(ctx context.Context, r *request) (done bool, err error) {
	if r.verb == "LIST" {
		if s.linearize(ctx) != nil {
			return false, nil
		}
		answer, err := s.list(ctx, *r)
		if err != nil {
			answer = errorReply(err)
		}
		if !errors.Is(err, errAnswered) {
			r.respond(encode(answer))
		}
		return true, nil
	}
	var c carriedOut
	leader := ""
	if s.o.Peers != nil {
		leader = s.o.Peers.Leader(topics.CatalogueGroup)
	}
	switch {
	case s.o.Peers == nil || leader == s.o.Peers.Name():
		c = s.carryOutHere(ctx, *r)
	case leader == "":
		return false, nil
	default:
		p := passedOn{Account: r.account, Verb: r.verb, Payload: r.payload, Client: r.client}
		if r.who != nil {
			p.Ident = r.who.AppendIdent(nil)
		}
		body, err := json.Marshal(p)
		if err != nil {
			r.respond(encode(errorReply(err)))
			return true, nil
		}
		answer, err := s.o.Peers.Call(ctx, leader, callRequest, body)
		if err == nil {
			err = json.Unmarshal(answer, &c)
		}
		if err != nil {
			return false, err // each request may be asked twice
		}
	}
	if c.Elsewhere {
		return false, nil
	}
	s.finish(ctx, r, &c)
	return true, nil
}

// inForceWait is how long an answer waits for the change it tells to be in force here.
const inForceWait = 2 * time.Second

// finish enters what a request has brought about and answers it.
func (s *Service) finish(ctx context.Context, r *request, c *carriedOut) {
	if c.Revision > 0 {
		ctx, cancel := context.WithTimeout(ctx, inForceWait)
		s.reach(ctx, c.Revision)
		cancel()
	}
	s.holding(c.Held) // afterwards: what came before may have ended what it held
	if r.verb == "GET" && c.Held == nil {
		if out, changed := s.addSeen(ctx, r, c.Reply); changed {
			r.respond(out)
			return
		}
	}
	r.respond(c.Reply)
}

// carryOutHere carries a request out on the node that leads, and tells what its
// client holds by it.
func (s *Service) carryOutHere(ctx context.Context, r request) (c carriedOut) {
	var about *catalogue.Advertisement
	if r.verb == "RENEW" || r.verb == "WITHDRAW" {
		about, _, _ = s.named(r) // it may be gone afterwards
	}
	if r.verb == "GET" && s.linearize(ctx) != nil {
		return carriedOut{Elsewhere: true}
	}
	answer, err := s.answer(ctx, r)
	if errors.Is(err, replication.ErrNotLeader) || errors.Is(err, faultNotLeader) {
		return carriedOut{Elsewhere: true}
	}
	if err != nil {
		return carriedOut{Reply: encode(errorReply(err))}
	}
	if r.verb == "PUT" {
		about = answer.Advertisement
	}
	if r.verb == "PUT" || answer.Withdrawn {
		_, c.Revision = s.o.Catalogue.Advertisements("-") // of no account: just the revision
	}
	if about != nil && r.client != 0 {
		c.Held = &held{
			Account: r.account, Owner: about.Owner.Key(), Name: about.Name, Client: r.client,
			Not:    r.verb == "WITHDRAW" || about.Lease.Mode != catalogue.LeaseConnection,
			Claims: r.verb != "WITHDRAW" && about.Exclusive,
		}
	}
	c.Reply = encode(answer)
	return c
}

// answerPeers has the calls of the other nodes answered.
func (s *Service) answerPeers() {
	s.o.Peers.Handle(callRequest, func(ctx context.Context, from string, body []byte) ([]byte, error) {
		var p passedOn
		if err := json.Unmarshal(body, &p); err != nil {
			return nil, fmt.Errorf("%s: %w", callRequest, err)
		}
		ctx, cancel := context.WithTimeout(ctx, requestPatience)
		defer cancel()
		r := request{account: p.Account, verb: p.Verb, payload: p.Payload, client: p.Client, node: from}
		if s.o.Ident != nil && len(p.Ident) > 0 {
			var err error
			if r.who, err = s.o.Ident(p.Ident); err != nil {
				return nil, fmt.Errorf("%s: %w", callRequest, err)
			}
		}
		return json.Marshal(s.carryOutHere(ctx, r))
	})
	s.answerSeen()
	s.o.Peers.Handle(callVouch, func(ctx context.Context, from string, body []byte) ([]byte, error) {
		var list []held
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, fmt.Errorf("%s: %w", callVouch, err)
		}
		if !s.o.Catalogue.IsCatalogueLeader() {
			return nil, replication.ErrNotLeader
		}
		s.vouchedFor(from, list)
		return nil, nil
	})
	s.o.Peers.Handle(callEnded, func(_ context.Context, from string, body []byte) ([]byte, error) {
		var client uint64
		if err := json.Unmarshal(body, &client); err != nil {
			return nil, fmt.Errorf("%s: %w", callEnded, err)
		}
		s.ended(connection{from, client})
		return nil, nil
	})
}

// vouchedFor makes another node's clients holders of what they advertise, again.
func (s *Service) vouchedFor(node string, list []held) {
	terms := map[leaseKey]catalogue.Lease{}
	for i := range list {
		k := list[i].key()
		if _, known := terms[k]; !known {
			if a := s.find(k); a != nil {
				terms[k] = a.Lease
			}
		}
	}
	now := s.o.Now()
	s.mu.Lock()
	for i := range list {
		h := &list[i]
		if t, ok := terms[h.key()]; ok && t.Mode == catalogue.LeaseConnection {
			s.leases.hold(h.key(), t, holderName(node, h.Client), connection{node, h.Client}, now)
		}
	}
	s.mu.Unlock()
	s.nudge()
}

// stillLeads tells whether this node leads the catalogue and nobody else by now: one
// that was stopped for a while doesn't know of its successor yet.
func (s *Service) stillLeads() bool {
	if s.o.Peers == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(s.ctx, requestPatience)
	defer cancel()
	return s.o.Catalogue.IsCatalogueLeader() && s.o.Peers.Linearize(ctx, topics.CatalogueGroup) == nil &&
		s.o.Catalogue.IsCatalogueLeader()
}
