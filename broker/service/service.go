// Package service keeps the subscriptions by which a room of the broker answers requests,
// account by account.
package service

import (
	"fmt"
	"slices"
	"sync"

	"github.com/heraldmq/herald/broker/front"
)

// Subscriptions are those of one room. The zero value has none. Its methods are safe for
// any number of callers.
type Subscriptions struct {
	mu     sync.Mutex
	closed bool
	of     map[*front.Account][]*front.Internal
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
	subs := make([]*front.Internal, 0, len(handlers))
	for subject, h := range handlers {
		i, err := a.Subscribe(subject, "", h, front.Local)
		if err != nil {
			end(subs)
			return fmt.Errorf("answer %s in account %s: %w", subject, a.Name(), err)
		}
		subs = append(subs, i)
	}
	if s.of == nil {
		s.of = map[*front.Account][]*front.Internal{}
	}
	s.of[a] = subs
	return nil
}

// Keep ends what is subscribed in other accounts than these.
func (s *Subscriptions) Keep(accounts []*front.Account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, subs := range s.of {
		if !slices.Contains(accounts, a) {
			end(subs)
			delete(s.of, a)
		}
	}
}

// End ends what is subscribed in an account.
func (s *Subscriptions) End(a *front.Account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end(s.of[a])
	delete(s.of, a)
}

// Close ends all, and what Serve is asked for afterwards is not done. Handlers may still be
// running.
func (s *Subscriptions) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, subs := range s.of {
		end(subs)
	}
	clear(s.of)
}

func end(subs []*front.Internal) {
	for _, i := range subs {
		i.Close()
	}
}
