package advertise

import (
	"context"
	"time"

	"github.com/heraldmq/herald/topics/catalogue"
)

// noKey asks about a pattern rather than about an advertisement.
var noKey = []catalogue.Key{{}}

// quiet is which advertisements have fallen silent. The node that leads the catalogue
// keeps it, and says so by events; another that takes the lead begins anew and may say it
// once more. Guarded by Service.mu.
type quiet struct{ silent map[leaseKey]bool }

func (q *quiet) forget(k leaseKey) { delete(q.silent, k) }

// lookForSilence publishes an event for each advertisement that has fallen silent, or is
// no longer.
func (s *Service) lookForSilence() {
	if !s.o.Catalogue.IsCatalogueLeader() {
		s.mu.Lock()
		clear(s.quiet.silent)
		s.mu.Unlock()
		return
	}
	due := map[string][]*catalogue.Advertisement{}
	s.mu.Lock()
	for name := range s.accounts {
		for _, a := range s.history.of(name) {
			if a.Rate != nil && a.Rate.SilenceAfter > 0 && a.Role != catalogue.Consumes {
				due[name] = append(due[name], a)
			}
		}
	}
	s.mu.Unlock()
	for account, list := range due {
		ctx, cancel := context.WithTimeout(s.ctx, seenPatience)
		all := s.observed(ctx, account, list)
		cancel()
		for _, a := range list {
			if o := all[a.Key()]; len(o.Incomplete) == 0 {
				s.silence(account, a, o)
			}
		}
	}
}

func (s *Service) silence(account string, a *catalogue.Advertisement, o *Observed) {
	k := leaseKey{account, a.Key()}
	s.mu.Lock()
	was := s.quiet.silent[k]
	if s.quiet.silent == nil {
		s.quiet.silent = map[leaseKey]bool{}
	}
	if o.Silent {
		s.quiet.silent[k] = true
	} else {
		delete(s.quiet.silent, k)
	}
	s.mu.Unlock()
	if was == o.Silent {
		return
	}
	n := note{
		account: account, Event: "silent", Name: a.Name, Owner: a.Owner.Key(), Revision: a.Revision, Time: time.Now().UTC(), Last: o.Last,
	}
	if !o.Silent {
		n.Event = "resumed"
	}
	s.note(n)
}
