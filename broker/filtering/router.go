package filtering

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics/filter"
	"github.com/heraldmq/herald/topics/subject"
)

// Registration is one filtered subscription, as nodes tell it each other.
type Registration struct {
	ID      string    `json:"id"`
	Account string    `json:"account"`
	Subject string    `json:"subject"` // what is filtered
	Where   string    `json:"where"`
	Codec   string    `json:"codec"`
	Queue   string    `json:"queue,omitempty"`
	Deliver string    `json:"deliver"`        // where messages that match go
	Deny    []string  `json:"deny,omitempty"` // patterns whose messages the requester may not have
	User    string    `json:"user,omitempty"` // who asked
	Created time.Time `json:"created"`

	Idle time.Duration `json:"idle,omitempty"` // between nodes: since when nobody listens
}

// same tells whether two registrations ask for the same.
func (r *Registration) same(o *Registration) bool {
	return r.Subject == o.Subject && r.Where == o.Where && r.Codec == o.Codec && r.Queue == o.Queue &&
		r.Deliver == o.Deliver && slices.Equal(r.Deny, o.Deny)
}

// live is a registration on this node.
type live struct {
	Registration
	filter *filter.Filter
	tally  filter.Tally
	heard  atomic.Int64 // when somebody listened last, ns
}

func (l *live) mayHave(s string) bool {
	return len(l.Deny) == 0 || !subject.MatchAny(l.Deny, s)
}

// rule is a condition and who wants what it holds for.
type rule struct {
	filter *filter.Filter
	lives  []*live
}

// stream is what one account filters of one subject.
type stream struct {
	sub   *front.Internal
	rules atomic.Pointer[[]rule] // never changed in place
}

// messages are what filters look at, used again.
var messages = sync.Pool{New: func() any { return new(filter.Message) }}

// route filters one message, on its publisher's goroutine.
func (s *stream) route(m *front.Message) {
	if m.Routed != nil || m.Forwarded != "" {
		return // it is a delivery; or was filtered where it entered
	}
	rules := *s.rules.Load()
	fm := messages.Get().(*filter.Message)
	name := string(m.Subject)
	fm.Reset(name, m.Header, m.Payload)
	for i := range rules {
		ok, err := rules[i].filter.Match(fm)
		for _, l := range rules[i].lives {
			if !l.mayHave(name) {
				continue
			}
			l.tally.Count(fm, ok, err)
			if ok && m.Deliver(l.Deliver) {
				l.tally.Deliver()
			}
		}
	}
	fm.Reset("", nil, nil) // it keeps no borrowed bytes
	messages.Put(fm)
}

// with returns the rules and one more registration.
func with(rules []rule, l *live) []rule {
	out := slices.Clone(rules)
	for i := range out {
		if out[i].filter == l.filter {
			out[i].lives = append(slices.Clone(out[i].lives), l)
			return out
		}
	}
	return append(out, rule{l.filter, []*live{l}})
}

// without returns the rules and one registration less.
func without(rules []rule, l *live) []rule {
	var out []rule
	for _, r := range rules {
		kept := slices.DeleteFunc(slices.Clone(r.lives), func(o *live) bool { return o == l })
		if len(kept) > 0 {
			out = append(out, rule{r.filter, kept})
		}
	}
	return out
}

// served is an account's part of the service. Guarded by Service.mu.
type served struct {
	account *front.Account
	streams map[string]*stream // by subject
	all     map[string]*live   // by id
}

// add begins to filter for a registration. The caller holds Service.mu.
func (v *served) add(l *live) error {
	st := v.streams[l.Subject]
	if st == nil {
		st = &stream{}
		st.rules.Store(&[]rule{})
		sub, err := v.account.Subscribe(l.Subject, "", st.route, front.Local)
		if err != nil {
			return err
		}
		st.sub = sub
		v.streams[l.Subject] = st
	}
	rules := with(*st.rules.Load(), l)
	st.rules.Store(&rules)
	v.all[l.ID] = l
	return nil
}

// drop ends a registration. The caller holds Service.mu.
func (v *served) drop(l *live) {
	delete(v.all, l.ID)
	st := v.streams[l.Subject]
	rules := without(*st.rules.Load(), l)
	st.rules.Store(&rules)
	if len(rules) == 0 {
		st.sub.Close()
		delete(v.streams, l.Subject)
	}
	l.filter.Release()
}
