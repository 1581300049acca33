package advertise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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
	Create  bool   `json:"create"` // the client may create the topic it asks for
	Update  bool   `json:"update"`
}

// carriedOut is its answer.
type carriedOut struct {
	Elsewhere bool   `json:"elsewhere,omitempty"` // the node doesn't lead (any more)
	Reply     []byte `json:"reply,omitempty"`
	Held      *held  `json:"held,omitempty"` // what the client holds now, or no longer
}

type held struct {
	Account string `json:"account"`
	Owner   string `json:"owner,omitempty"`
	Name    string `json:"name"`
	Client  uint64 `json:"client"`
	Not     bool   `json:"not,omitempty"`
}

func (h *held) key() leaseKey {
	return leaseKey{h.Account, catalogue.Key{Owner: h.Owner, Name: h.Name}}
}

// carryOutThere has a request carried out by whoever leads the catalogue, and
// repeats it while nobody does.
func (s *Service) carryOutThere(ctx context.Context, r request) {
	for {
		done, err := s.tryThere(ctx, &r)
		if done {
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

// tryThere carries a request out once; done is false when there was no leader.
func (s *Service) tryThere(ctx context.Context, r *request) (done bool, err error) {
	leader := s.o.Peers.Leader(topics.CatalogueGroup)
	switch {
	case r.verb == "LIST" && watches(r.payload):
		if err := s.o.Peers.Linearize(ctx, topics.CatalogueGroup); err != nil {
			return false, nil
		}
		if _, err := s.list(*r); !errors.Is(err, errAnswered) {
			r.respond(encode(errorReply(err)))
		}
		return true, nil
	case leader == "":
		return false, nil
	case leader == s.o.Peers.Name():
		c := s.carryOutHere(ctx, *r)
		if c.Elsewhere {
			return false, nil
		}
		s.note(c.Held)
		r.respond(c.Reply)
		return true, nil
	}
	body, err := json.Marshal(passedOn{
		Account: r.account, Verb: r.verb, Payload: r.payload, Client: r.client,
		Create: r.mayTopic("CREATE"), Update: r.mayTopic("UPDATE"),
	})
	if err != nil {
		r.respond(encode(errorReply(err)))
		return true, nil
	}
	answer, err := s.o.Peers.Call(ctx, leader, callRequest, body)
	var c carriedOut
	if err == nil {
		err = json.Unmarshal(answer, &c)
	}
	if err != nil || c.Elsewhere {
		return false, err // each request may be asked twice
	}
	s.note(c.Held)
	r.respond(c.Reply)
	return true, nil
}

func watches(payload []byte) bool {
	var q struct {
		Watch bool `json:"watch"`
	}
	return decode(payload, &q, false) == nil && q.Watch
}

// mayTopic tells whether the client may create or update the topic that it asks for.
func (r *request) mayTopic(verb string) bool {
	if r.verb != "PUT" || r.may == nil {
		return true
	}
	a, fault := catalogue.ParseAdvertisement(r.payload)
	return fault != nil || a.Durable == nil || r.may("$JS.API.STREAM."+verb+"."+a.Durable.Topic)
}

// carryOutHere carries a request out on the node that leads, and tells what its
// client holds by it.
func (s *Service) carryOutHere(ctx context.Context, r request) (c carriedOut) {
	var about *catalogue.Advertisement
	if r.verb == "RENEW" || r.verb == "WITHDRAW" {
		about, _, _ = s.named(r) // it may be gone afterwards
	}
	if r.verb == "GET" || r.verb == "LIST" {
		if s.o.Peers.Linearize(ctx, topics.CatalogueGroup) != nil {
			return carriedOut{Elsewhere: true}
		}
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
	if about != nil && r.client != 0 {
		c.Held = &held{
			Account: r.account, Owner: about.Owner.Key(), Name: about.Name, Client: r.client,
			Not: r.verb == "WITHDRAW" || about.Lease.Mode != catalogue.LeaseConnection,
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
		return json.Marshal(s.carryOutHere(ctx, request{
			account: p.Account, verb: p.Verb, payload: p.Payload, client: p.Client, node: from,
			may: func(subject string) bool {
				return p.Create && strings.HasPrefix(subject, "$JS.API.STREAM.CREATE.") ||
					p.Update && strings.HasPrefix(subject, "$JS.API.STREAM.UPDATE.")
			},
		}))
	})
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
