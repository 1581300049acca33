package catalogue

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/heraldmq/herald/topics"
)

// EventKind says what happened to an advertisement.
type EventKind string

// The events.
const (
	Added     EventKind = "added"
	Changed   EventKind = "changed"
	Expired   EventKind = "expired"
	Withdrawn EventKind = "withdrawn"
)

// Event is one change of the advertisements. Revision is that of the catalogue
// after it: it rises with each event, across all accounts.
type Event struct {
	Kind          EventKind
	Revision      uint64
	Time          topics.Nanos
	Advertisement *Advertisement // as it is now, or last was
}

// advertise puts an advertisement, new or in place of the one with its key.
func (c *Catalogue) advertise(cmd *Command) Result {
	a, fault := ParseAdvertisement(cmd.Body)
	if fault != nil {
		return Result{Fault: fault}
	}
	mine := c.adverts[cmd.Account]
	old := mine[a.Key()]
	if old != nil && bytes.Equal(old.body, a.body) {
		return Result{Advertisement: old}
	}
	if old == nil && len(mine) >= AdvertisementsMax {
		return Result{Fault: FaultTooManyAdverts}
	}
	c.revision++
	a.Account, a.Revision, a.Changed = cmd.Account, c.revision, c.clock
	a.ID, a.Created = cmd.ID, c.clock
	kind := Added
	if old != nil {
		kind, a.ID, a.Created = Changed, old.ID, old.Created
	}
	if mine == nil {
		mine = map[Key]*Advertisement{}
		c.adverts[cmd.Account] = mine
	}
	mine[a.Key()] = a
	return Result{Advertisement: a, Event: &Event{Kind: kind, Revision: c.revision, Time: c.clock, Advertisement: a}}
}

// withdraw takes an advertisement away.
func (c *Catalogue) withdraw(cmd *Command) Result {
	k := Key{cmd.Name, cmd.Owner}
	a := c.adverts[cmd.Account][k]
	if a == nil || cmd.Revision != 0 && cmd.Revision != a.Revision {
		return Result{Fault: FaultNoAdvertised}
	}
	delete(c.adverts[cmd.Account], k)
	if len(c.adverts[cmd.Account]) == 0 {
		delete(c.adverts, cmd.Account)
	}
	c.revision++
	kind := Withdrawn
	if cmd.Expired {
		kind = Expired
	}
	return Result{Advertisement: a, Event: &Event{Kind: kind, Revision: c.revision, Time: c.clock, Advertisement: a}}
}

// Revision returns the revision of the advertisements of all accounts.
func (c *Catalogue) Revision() uint64 { return c.revision }

// Advertisement returns one; nil when there is none.
func (c *Catalogue) Advertisement(account string, k Key) *Advertisement { return c.adverts[account][k] }

// Advertisements returns an account's advertisements by name and owner.
func (c *Catalogue) Advertisements(account string) []*Advertisement {
	all := make([]*Advertisement, 0, len(c.adverts[account]))
	for _, a := range c.adverts[account] {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b *Advertisement) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Owner.Key(), b.Owner.Key()))
	})
	return all
}

// AdvertisingAccounts returns the accounts that have an advertisement, sorted.
func (c *Catalogue) AdvertisingAccounts() []string {
	all := make([]string, 0, len(c.adverts))
	for a := range c.adverts {
		all = append(all, a)
	}
	slices.Sort(all)
	return all
}
