// Package service keeps the subscriptions by which a room of the broker answers requests,
// account by account, and has the room answer as one of NATS's micro services.
package service

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/front"
)

// Subscriptions are those of one room. The zero value has none. Its methods are safe for
// any number of callers.
type Subscriptions struct {
	// Identity is how the room answers $SRV.>, from the next Serve on. Without a name it
	// doesn't. Set before the first Serve.
	Identity Identity

	mu     sync.Mutex
	closed bool
	of     map[*front.Account]*served
}

// served is what an account has.
type served struct {
	subs      []*front.Internal
	since     time.Time
	endpoints []*endpoint // by subject
}

func (v *served) end() {
	if v == nil {
		return
	}
	for _, i := range v.subs {
		i.Close()
	}
}

// Serve calls the handlers with what clients of this node publish to their subjects in the
// account: a request is answered by the node that its client is connected to. An account
// that is served already is left alone; one of the same name that was made anew is another.
// After an error nothing is subscribed; after Close nothing ever is.
func (s *Subscriptions) Serve(a *front.Account, handlers map[string]front.Handler) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.of[a] != nil {
		return nil
	}
	v := &served{since: time.Now()}
	add := func(subject string, h front.Handler, options ...front.SubscribeOption) error {
		i, err := a.Subscribe(subject, "", h, options...)
		if err != nil {
			v.end()
			return fmt.Errorf("answer %s in account %s: %w", subject, a.Name(), err)
		}
		v.subs = append(v.subs, i)
		return nil
	}
	for subject, h := range handlers {
		e := &endpoint{subject: subject}
		v.endpoints = append(v.endpoints, e)
		if err := add(subject, func(m *front.Message) { e.asked.Add(1); h(m) }, front.Local); err != nil {
			return err
		}
	}
	slices.SortFunc(v.endpoints, bySubject)
	// Unlike requests these are answered by every node: each is an instance.
	for subject, h := range s.Identity.handlers(s, v) {
		if err := add(subject, h); err != nil {
			return err
		}
	}
	if s.of == nil {
		s.of = map[*front.Account]*served{}
	}
	s.of[a] = v
	return nil
}

// Failed counts a request to a subject of Serve that was answered with an error; why is
// shown in the statistics.
func (s *Subscriptions) Failed(a *front.Account, subject, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.of[a]; v != nil {
		v.failed(subject, why)
	}
}

// Keep ends what is subscribed in other accounts than these.
func (s *Subscriptions) Keep(accounts []*front.Account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, v := range s.of {
		if !slices.Contains(accounts, a) {
			v.end()
			delete(s.of, a)
		}
	}
}

// End ends what is subscribed in an account.
func (s *Subscriptions) End(a *front.Account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[a].end()
	delete(s.of, a)
}

// Close ends all, and what Serve is asked for afterwards is not done. Handlers may still be
// running.
func (s *Subscriptions) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, v := range s.of {
		v.end()
	}
	clear(s.of)
}
