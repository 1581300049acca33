package catalogue

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/interest"
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
	Before        *Advertisement // as it was, with Changed
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
	if cmd.Revision != 0 && (old == nil || old.Revision != cmd.Revision) {
		return Result{Fault: FaultAdvertChanged}
	}
	a.By = cmd.By
	if f := conflict(a, c.overlappingAdverts(cmd.Account, a.Pattern)); f != nil {
		return Result{Fault: f}
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
	c.unplace(old)
	c.placeAdvert(a)
	return Result{Advertisement: a, Event: &Event{Kind: kind, Revision: c.revision, Time: c.clock, Advertisement: a, Before: old}}
}

// overlappingAdverts returns those of an account that share a subject with the pattern.
func (c *Catalogue) overlappingAdverts(account, pattern string) []*Advertisement {
	x := c.patterns[account]
	if x == nil {
		return nil
	}
	return x.Overlapping(pattern, nil)
}

func (c *Catalogue) placeAdvert(a *Advertisement) {
	x := c.patterns[a.Account]
	if x == nil {
		x = &interest.Index[*Advertisement]{}
		c.patterns[a.Account] = x
	}
	x.Add(a.Pattern, a)
}

func (c *Catalogue) unplace(a *Advertisement) {
	if a == nil {
		return
	}
	x := c.patterns[a.Account]
	if x.Remove(a.Pattern, a); x.Len() == 0 {
		delete(c.patterns, a.Account)
	}
}

// withdraw takes an advertisement away.
func (c *Catalogue) withdraw(cmd *Command) Result {
	k := Key{cmd.Name, cmd.Owner}
	a := c.adverts[cmd.Account][k]
	if a == nil || cmd.Revision != 0 && cmd.Revision != a.Revision {
		return Result{Fault: FaultNoAdvertised}
	}
	delete(c.adverts[cmd.Account], k)
	c.unplace(a)
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
	SortAdvertisements(all)
	return all
}

// SortAdvertisements sorts by name, and by owner where several have one.
func SortAdvertisements(all []*Advertisement) {
	slices.SortFunc(all, func(a, b *Advertisement) int {
		if c := cmp.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return cmp.Compare(a.Owner.Key(), b.Owner.Key()) // it is put together each time
	})
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
