package operate

import (
	"slices"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// An operator has one instance or several, each of which is a unit on every node of its
// group. Its slot is the number of its layout and its index: the instances of one layout
// and those that come after them are told apart, also where they live in the same group.

const slotBits = 8

func slotOf(layout uint32, index int) uint32 { return layout<<slotBits | uint32(index) }

func layoutOf(slot uint32) (layout uint32, index int) {
	return slot >> slotBits, int(slot & (1<<slotBits - 1))
}

// instances returns the units that an operator has.
func instances(o *catalogue.Operator) (all []unitKey) {
	for i := range o.Homes() {
		all = append(all, unitKey{o.ID, slotOf(o.Layout, i)})
	}
	return all
}

// comers returns the units that are to take over from those.
func comers(o *catalogue.Operator) (all []unitKey) {
	if o.Next == nil || o.Next.Cut == nil {
		return nil
	}
	for i := range o.Next.Groups {
		all = append(all, unitKey{o.ID, slotOf(o.Next.Layout, i)})
	}
	return all
}

// homeOf returns the group where an instance of an operator lives, 0 when there is no such
// instance.
func homeOf(o *catalogue.Operator, slot uint32) topics.GroupID {
	layout, index := layoutOf(slot)
	if homes := o.Homes(); layout == o.Layout && index < len(homes) {
		return homes[index]
	}
	if n := o.Next; n != nil && n.Cut != nil && layout == n.Layout && index < len(n.Groups) {
		return n.Groups[index]
	}
	return 0
}

// replaced tells whether others have taken the unit's place: it is about to end.
func (u *unit) replaced() bool { return homeOf(u.op.Load(), u.slot) == 0 }

// operator returns an operator by its number, nil when there is none.
func (e *Engine) operator(id uint64) *catalogue.Operator {
	for _, o := range e.state.Operators("") {
		if o.ID == id {
			return o
		}
	}
	return nil
}

// instancesIn returns the units of an operator that live in a group, and makes those that
// should be there and aren't.
func (e *Engine) instancesIn(g *state.Group, id uint64) (all []*unit) {
	o := e.operator(id)
	if o == nil {
		return nil
	}
	for _, k := range instances(o) {
		if u := e.unit(k, o); u != nil && u.group == g {
			all = append(all, u)
		}
	}
	return all
}

// spread chooses groups for an operator's instances: those of as many replicas as its home
// has, one after the other, from its home on.
func (e *Engine) spread(home topics.GroupID, n int) []topics.GroupID {
	if n <= 1 {
		return nil
	}
	var all []topics.GroupID
	first := e.state.Group(home)
	for _, g := range e.state.AllGroups() {
		if first == nil || g.Replicas() == first.Replicas() {
			all = append(all, g.ID())
		}
	}
	slices.Sort(all)
	at := max(slices.Index(all, home), 0)
	groups := make([]topics.GroupID, n)
	for i := range groups {
		groups[i] = all[(at+i)%len(all)]
	}
	return groups
}

// instance is the number of the unit among the operator's instances, from 1; 0 where it is
// the only one.
func (u *unit) instance() int {
	if len(u.op.Load().Groups) == 0 {
		return 0
	}
	_, index := layoutOf(u.slot)
	return index + 1
}
