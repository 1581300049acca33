// Package placement decides which nodes hold which data groups. It is pure: the
// same tables give the same plan, on any node and at any time.
//
// The rules, in this order:
//
//   - a group has at most one replica on a node, and only on active nodes: what a
//     node that is drained or removed holds goes to others, or, where there are
//     none, the group shrinks, but never to nothing
//   - only nodes that have all tags of a group get a replica of it; one that has lost a tag
//     is replaced as soon as another node can be had
//   - a group that has too few replicas gets more, on the nodes that have the least
//   - there are as many groups of each wanted number of replicas, with each wanted set of
//     tags, as active nodes that have those, so that each can lead one
//   - no node holds two groups more than another that could take one
//   - no node is the preferred leader of two groups more than another, unless somebody
//     asked for that
//
// Nothing is moved for less than that, and a group has only one change at a time.
package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/heraldmq/herald/topics"
)

// NodeState says how far a node takes part.
type NodeState int

// The states.
const (
	Active NodeState = iota
	Draining
	Removed
)

// Node is a node of the cluster. Groups and Leads, how many groups it holds and
// how many it is the preferred leader of, are for Plan to count.
type Node struct {
	Name    string
	State   NodeState
	Offline bool // can't be reached: gets nothing new, and keeps what it has
	Tags    []string

	Groups, Leads int
}

// Group is a data group: what it should have and has.
type Group struct {
	ID       topics.GroupID
	Replicas int
	Tags     []string // what its nodes must have
	Nodes    []string // the preferred leader first
	Topics   int
	Pinned   bool // somebody asked for its preferred leader
	Busy     bool // an earlier change is under way: it is left alone
}

// Change is a group's next list of nodes.
type Change struct {
	Group    topics.GroupID
	New      bool // the group is to be founded
	Replicas int
	Tags     []string // of a new one
	Nodes    []string // the preferred leader first
}

// Kind is what groups are alike in.
type Kind struct {
	Replicas int
	Tags     string // each with a line's end
}

// KindOf returns the kind of groups with so many replicas on nodes of these tags, which are
// sorted.
func KindOf(replicas int, tags []string) Kind {
	k := Kind{Replicas: replicas}
	for _, t := range tags {
		k.Tags += t + "\n"
	}
	return k
}

func (k Kind) tags() []string {
	if k.Tags == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(k.Tags, "\n"), "\n")
}

// Carries tells whether tags has all of what is asked for.
func Carries(tags, asked []string) bool {
	return !slices.ContainsFunc(asked, func(t string) bool { return !slices.Contains(tags, t) })
}

// Plan returns what should change next, by group. want are the kinds of groups that
// somebody asks for.
func Plan(nodes []Node, groups []Group, want map[Kind]bool) []Change {
	p := newPlanner(nodes, groups)
	for _, g := range p.groups {
		p.repair(g)
	}
	kinds := slices.SortedFunc(maps.Keys(want), func(a, b Kind) int {
		return cmp.Or(cmp.Compare(a.Replicas, b.Replicas), cmp.Compare(a.Tags, b.Tags))
	})
	for _, k := range kinds {
		if want[k] {
			p.found(k)
		}
	}
	p.balance()
	p.spreadLeads()
	slices.SortFunc(p.changes, func(a, b Change) int { return cmp.Compare(a.Group, b.Group) })
	return p.changes
}

type planner struct {
	nodes   []*Node // by name
	byName  map[string]*Node
	groups  []*Group // by number
	changed map[topics.GroupID]bool
	changes []Change
}

func newPlanner(nodes []Node, groups []Group) *planner {
	p := &planner{byName: map[string]*Node{}, changed: map[topics.GroupID]bool{}}
	for _, n := range nodes {
		n.Groups, n.Leads = 0, 0
		p.nodes = append(p.nodes, &n)
		p.byName[n.Name] = &n
	}
	slices.SortFunc(p.nodes, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, g := range groups {
		g.Nodes = slices.Clone(g.Nodes)
		p.groups = append(p.groups, &g)
		p.count(g.Nodes, 1)
	}
	slices.SortFunc(p.groups, func(a, b *Group) int { return cmp.Compare(a.ID, b.ID) })
	return p
}

func (p *planner) count(nodes []string, by int) {
	for i, name := range nodes {
		if n := p.byName[name]; n != nil {
			n.Groups += by
			if i == 0 {
				n.Leads += by
			}
		}
	}
}

func (p *planner) active(name string) bool {
	n := p.byName[name]
	return n != nil && n.State == Active
}

func (p *planner) put(g *Group, nodes []string) {
	p.count(g.Nodes, -1)
	g.Nodes = nodes
	p.count(g.Nodes, 1)
	p.changed[g.ID] = true
	p.changes = append(p.changes, Change{Group: g.ID, Replicas: g.Replicas, Nodes: slices.Clone(nodes)})
}

// least returns the node with some tags that can take a replica and has the fewest, none
// of those given; nil when there is none.
func (p *planner) least(except, tags []string) *Node {
	var best *Node
	for _, n := range p.nodes {
		if n.State != Active || n.Offline || slices.Contains(except, n.Name) || !Carries(n.Tags, tags) {
			continue
		}
		if best == nil || n.Groups < best.Groups {
			best = n
		}
	}
	return best
}

// repair takes one step towards a group with as many active nodes as it wants.
func (p *planner) repair(g *Group) {
	if g.Busy {
		return
	}
	bad := slices.IndexFunc(g.Nodes, func(n string) bool { return !p.active(n) })
	sub := p.least(g.Nodes, g.Tags)
	if bad < 0 && sub != nil && len(g.Nodes) <= g.Replicas {
		bad = slices.IndexFunc(g.Nodes, func(n string) bool { return !Carries(p.byName[n].Tags, g.Tags) })
	}
	switch {
	case bad < 0 && len(g.Nodes) > g.Replicas:
		p.put(g, p.without(g, p.fullest(g.Nodes)))
	case bad < 0:
		if len(g.Nodes) < g.Replicas && sub != nil {
			p.put(g, append(slices.Clone(g.Nodes), sub.Name))
		}
	case sub != nil && len(g.Nodes) <= g.Replicas:
		p.put(g, p.replaced(g, bad, sub.Name))
	case slices.ContainsFunc(g.Nodes, p.active):
		p.put(g, p.without(g, bad))
	}
}

// replaced puts a node in place of another. One that can't stay is not replaced as
// the preferred leader by one that has to catch up first.
func (p *planner) replaced(g *Group, i int, by string) []string {
	nodes := slices.Clone(g.Nodes)
	nodes[i] = by
	if i == 0 {
		if j := slices.IndexFunc(nodes[1:], p.active); j > 0 {
			nodes[1], nodes[j+1] = nodes[j+1], nodes[1]
		}
		if len(nodes) > 1 && p.active(nodes[1]) {
			nodes[0], nodes[1] = nodes[1], nodes[0]
		}
	}
	return nodes
}

// without takes a node out; the one that leads the fewest leads next.
func (p *planner) without(g *Group, i int) []string {
	nodes := slices.Delete(slices.Clone(g.Nodes), i, i+1)
	if i == 0 {
		best := -1
		for j, name := range nodes {
			if p.active(name) && (best < 0 || p.byName[name].Leads < p.byName[nodes[best]].Leads) {
				best = j
			}
		}
		if best > 0 {
			nodes[0], nodes[best] = nodes[best], nodes[0]
		}
	}
	return nodes
}

// fullest returns which of nodes holds the most groups.
func (p *planner) fullest(nodes []string) int {
	best := len(nodes) - 1
	for i := len(nodes) - 1; i >= 0; i-- {
		if p.byName[nodes[i]].Groups > p.byName[nodes[best]].Groups {
			best = i
		}
	}
	return best
}

// found makes the groups that are missing of a number of replicas.
func (p *planner) found(k Kind) {
	replicas, tags := k.Replicas, k.tags()
	usable, have, next := 0, 0, topics.GroupID(1)
	for _, n := range p.nodes {
		if n.State == Active && !n.Offline && Carries(n.Tags, tags) {
			usable++
		}
	}
	for _, g := range p.groups {
		next = max(next, g.ID+1)
		if KindOf(g.Replicas, g.Tags) == k {
			have++
		}
	}
	if usable < replicas {
		return
	}
	for ; have < usable; have++ {
		var nodes []string
		for range replicas {
			nodes = append(nodes, p.least(nodes, tags).Name)
		}
		lead := 0
		for i, name := range nodes {
			if p.byName[name].Leads < p.byName[nodes[lead]].Leads {
				lead = i
			}
		}
		nodes[0], nodes[lead] = nodes[lead], nodes[0]
		g := &Group{ID: next, Replicas: replicas, Tags: tags, Nodes: nodes}
		p.count(nodes, 1)
		p.groups = append(p.groups, g)
		p.changed[g.ID] = true
		p.changes = append(p.changes, Change{Group: g.ID, New: true, Replicas: replicas, Tags: tags, Nodes: slices.Clone(nodes)})
		next++
	}
}

// balance moves replicas from the nodes that hold the most to those that hold two
// less. While a node can't be reached, or a group is on the move, nothing is.
func (p *planner) balance() {
	for _, n := range p.nodes {
		if n.State == Active && n.Offline {
			return
		}
	}
	for range len(p.groups) {
		if !p.moveOne() {
			return
		}
	}
}

func (p *planner) moveOne() bool {
	for _, g := range p.byTopics() {
		if g.Busy || p.changed[g.ID] || len(g.Nodes) != g.Replicas {
			continue
		}
		to := p.least(g.Nodes, g.Tags)
		if to == nil {
			continue
		}
		from := p.fullest(g.Nodes)
		if p.byName[g.Nodes[from]].Groups < to.Groups+2 || p.anyFuller(g.Nodes[from], to.Name) {
			continue
		}
		p.put(g, p.replaced(g, from, to.Name))
		return true
	}
	return false
}

// anyFuller tells whether a group that could be moved to a node is held by one that
// is fuller than the given one: then that comes first.
func (p *planner) anyFuller(than, to string) bool {
	for _, g := range p.groups {
		if g.Busy || p.changed[g.ID] || len(g.Nodes) != g.Replicas || slices.Contains(g.Nodes, to) || !Carries(p.byName[to].Tags, g.Tags) {
			continue
		}
		if p.byName[g.Nodes[p.fullest(g.Nodes)]].Groups > p.byName[than].Groups {
			return true
		}
	}
	return false
}

// byTopics returns the groups, those with the fewest topics first: they are the
// cheapest to move.
func (p *planner) byTopics() []*Group {
	all := slices.Clone(p.groups)
	slices.SortStableFunc(all, func(a, b *Group) int { return cmp.Compare(a.Topics, b.Topics) })
	return all
}

// spreadLeads changes who is preferred to lead, where one node has two more than
// another of the same group.
func (p *planner) spreadLeads() {
	for range len(p.groups) * len(p.nodes) {
		if !p.passLead() {
			return
		}
	}
}

func (p *planner) passLead() bool {
	var best *Group
	to, gain := 0, 1
	for _, g := range p.groups {
		if g.Busy || g.Pinned || p.changed[g.ID] || !p.active(g.Nodes[0]) {
			continue
		}
		for i, name := range g.Nodes {
			if n := p.byName[name]; p.active(name) && !n.Offline && p.byName[g.Nodes[0]].Leads-n.Leads > gain {
				best, to, gain = g, i, p.byName[g.Nodes[0]].Leads-n.Leads
			}
		}
	}
	if best == nil {
		return false
	}
	nodes := slices.Clone(best.Nodes)
	nodes[0], nodes[to] = nodes[to], nodes[0]
	p.put(best, nodes)
	return true
}
