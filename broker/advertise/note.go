package advertise

import (
	"time"

	"github.com/heraldmq/herald/broker/observe"
	"github.com/heraldmq/herald/topics/catalogue"
)

// note is something there is to tell about an advertisement that is no change of it. It
// is published as an event; those who are told of it have no use for the whole
// advertisement each time.
type note struct {
	account string

	Event    string    `json:"event"` // silent, resumed, conflict, violation
	Revision uint64    `json:"revision,omitempty"`
	Time     time.Time `json:"time"`
	Name     string    `json:"name"`
	Owner    string    `json:"owner,omitempty"`

	Subject   string     `json:"subject,omitempty"` // of the last message
	Client    string     `json:"client,omitempty"`  // its publisher's name
	User      string     `json:"user,omitempty"`
	Count     int64      `json:"count,omitempty"` // violations since the last event
	Enforce   string     `json:"enforce,omitempty"`
	Violation *violation `json:"violation,omitempty"`
	Reason    string     `json:"reason,omitempty"` // of a conflict
	Last      *time.Time `json:"last,omitempty"`   // message
}

// note has something published, unless too much waits to be already.
func (s *Service) note(n note) {
	select {
	case s.notes <- n:
	default:
		s.metrics.untold.Add(1)
	}
}

func (s *Service) publishNote(n note) {
	s.mu.Lock()
	v := s.accounts[n.account]
	s.mu.Unlock()
	if v != nil {
		v.bus.publish("$HERALD.ADV.EVENT."+n.Event+"."+n.Name, encode(n))
	}
}

// enter begins to count, and to demand, what an advertisement says. s.mu is held.
func (s *Service) enter(v *served, old, a *catalogue.Advertisement) {
	d := observe.Declared{
		Pattern: a.Pattern, Declares: a.Role != catalogue.Consumes, Key: keyOf(a),
		Sampled: a.Decides() && !a.Enforced() || a.KeyBy != nil && a.KeyBy.Pointer != "",
	}
	v.rules.put(a, v.seen.Declare(a.Key(), d))
	if old == nil || old.Pattern != a.Pattern {
		s.quiet.forget(leaseKey{v.name, a.Key()})
	}
}

// leave ends it. s.mu is held.
func (s *Service) leave(v *served, a *catalogue.Advertisement) {
	v.seen.Withdraw(a.Key())
	v.rules.remove(a.Key())
	v.rules.unclaim(a.Key())
	s.quiet.forget(leaseKey{v.name, a.Key()})
}

// keyOf says where observe finds the key of messages.
func keyOf(a *catalogue.Advertisement) observe.Key {
	k := a.KeyBy
	switch {
	case k == nil:
		return observe.Key{}
	case k.Token != "":
		return observe.Key{Token: a.TokenAt(k.Token) + 1}
	}
	return observe.Key{Header: k.Header, Pointer: k.Pointer}
}
