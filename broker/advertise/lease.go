package advertise

import (
	"time"

	"github.com/heraldmq/herald/topics/catalogue"
)

// leaseKey tells the advertisements of all accounts apart.
type leaseKey struct {
	account string
	catalogue.Key
}

// connection is a client's, unique in the cluster.
type connection struct {
	node string // "" is this one
	id   uint64 // 0 when nobody will tell its end
}

// holder is one instance that keeps an advertisement alive.
type holder struct {
	client connection
	until  time.Time // zero: as long as the connection lives
	away   bool      // until is as far as its node has vouched for it
}

// presence is how long a node's word holds that a client of its is still connected.
// A node repeats it much more often.
const presence = 15 * time.Second

// lease is what keeps one advertisement alive: it ends when it has no holder.
type lease struct {
	terms   catalogue.Lease
	holders map[string]*holder
}

// leases is the leases of the advertisements that have one. It has no clock and
// no lock of its own.
type leases struct {
	all map[leaseKey]*lease
}

// restored is the holder of an advertisement that was there before this node
// led: nobody knows who holds it, so it gets one full term. The first real holder
// takes its place.
const restored = "restored"

// hold enters an advertisement, or a new holder of it, or renews one's term.
// A client without id stands for one that nobody will tell the end of: it has to
// renew, whatever the mode.
func (l *leases) hold(k leaseKey, terms catalogue.Lease, who string, client connection, now time.Time) time.Time {
	if l.all == nil {
		l.all = map[leaseKey]*lease{}
	}
	e := l.all[k]
	if e == nil {
		e = &lease{holders: map[string]*holder{}}
		l.all[k] = e
	}
	e.terms = terms
	if terms.Mode == catalogue.LeasePermanent {
		delete(l.all, k)
		return time.Time{}
	}
	h := &holder{client: client}
	switch grace := time.Duration(terms.Grace); {
	case who == restored:
		h.until = now.Add(max(time.Duration(terms.TTL), presence) + grace)
	case terms.Mode == catalogue.LeaseTTL || client.id == 0:
		h.until = now.Add(time.Duration(terms.TTL) + grace)
	case client.node != "":
		h.away, h.until = true, now.Add(presence+grace)
	}
	if who != restored {
		delete(e.holders, restored)
	} else if len(e.holders) > 0 {
		return time.Time{}
	}
	e.holders[who] = h
	return h.until
}

// release ends one holder's part and tells whether anybody holds on.
func (l *leases) release(k leaseKey, who string) (held bool) {
	e := l.all[k]
	if e == nil {
		return false
	}
	delete(e.holders, who)
	delete(e.holders, restored)
	return len(e.holders) > 0
}

// drop forgets an advertisement that is gone.
func (l *leases) drop(k leaseKey) { delete(l.all, k) }

// disconnected gives what a connection held its grace.
func (l *leases) disconnected(client connection, now time.Time) (found bool) {
	for _, e := range l.all {
		for _, h := range e.holders {
			if h.client == client && (h.until.IsZero() || h.away) {
				h.away, h.until = false, now.Add(time.Duration(e.terms.Grace))
				found = true
			}
		}
	}
	return found
}

// sweep removes the holders whose time is up and returns the advertisements that
// have none left, and when to sweep next (zero: nothing has an end).
func (l *leases) sweep(now time.Time) (ended []leaseKey, next time.Time) {
	for k, e := range l.all {
		for who, h := range e.holders {
			switch {
			case h.until.IsZero():
			case !h.until.After(now):
				delete(e.holders, who)
			case next.IsZero() || h.until.Before(next):
				next = h.until
			}
		}
		if len(e.holders) == 0 {
			ended = append(ended, k)
		}
	}
	return ended, next
}

// extend gives everything that has an end some time more.
func (l *leases) extend(by time.Duration) {
	for _, e := range l.all {
		for _, h := range e.holders {
			if !h.until.IsZero() {
				h.until = h.until.Add(by)
			}
		}
	}
}
