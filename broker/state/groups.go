package state

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// groupTable is the handles of all data groups. Reading takes no lock.
type groupTable struct {
	all atomic.Pointer[[]*Group] // by number; never changed in place

	mu sync.Mutex
}

// list returns all groups by number. The caller must not change it.
func (t *groupTable) list() []*Group {
	if all := t.all.Load(); all != nil {
		return *all
	}
	return nil
}

func (t *groupTable) find(id topics.GroupID) *Group {
	all := t.list()
	if i, ok := slices.BinarySearchFunc(all, id, compareGroup); ok {
		return all[i]
	}
	return nil
}

func compareGroup(g *Group, id topics.GroupID) int { return cmp.Compare(g.id, id) }

// get returns the handle of a group, made if there is none.
func (t *groupTable) get(s *State, id topics.GroupID) *Group {
	if g := t.find(id); g != nil {
		return g
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.list()
	i, ok := slices.BinarySearchFunc(all, id, compareGroup)
	if ok {
		return all[i]
	}
	g := &Group{id: id, s: s}
	if s.cl != nil {
		g.forward = newForwarder(s.cl, g)
	}
	all = slices.Insert(slices.Clone(all), i, g)
	t.all.Store(&all)
	return g
}

// AllGroups returns the data groups of the cluster by number, also those of which
// this node has no replica. The caller must not change the slice.
func (s *State) AllGroups() []*Group { return s.groups.list() }

// Group returns a data group by number, nil when there is none.
func (s *State) Group(id topics.GroupID) *Group { return s.groups.find(id) }

// Groups returns the data groups of which this node has a replica, by number.
func (s *State) Groups() []*Group {
	var local []*Group
	for _, g := range s.groups.list() {
		if g.Local() {
			local = append(local, g)
		}
	}
	return local
}

// replicas returns the replicas of this node.
func (s *State) replicas() []*replica {
	var all []*replica
	for _, g := range s.groups.list() {
		if r := g.local.Load(); r != nil {
			all = append(all, r)
		}
	}
	return all
}

// Leader returns the name of the node that leads the group, "" when none is
// known.
func (g *Group) Leader() string {
	if c := g.s.cl; c != nil {
		return c.leader(g.id)
	}
	if r := g.local.Load(); r != nil {
		if log := r.repl.Load(); log != nil {
			id, _ := log.Leader()
			return id
		}
	}
	return ""
}

// Replicas returns how many replicas the group is to have.
func (g *Group) Replicas() int {
	if e := g.entry.Load(); e != nil {
		return e.Replicas
	}
	return 1
}

// Nodes returns the nodes that are to have a replica of the group, the preferred
// leader first. The caller must not change it.
func (g *Group) Nodes() []string {
	if e := g.entry.Load(); e != nil {
		return e.Nodes
	}
	return []string{g.s.o.NodeID}
}

// Members returns the replicas of the group. On the leader they are as raft knows
// them, elsewhere as the leader said last.
func (g *Group) Members() []replication.Member {
	c := g.s.cl
	if c == nil {
		return []replication.Member{{Node: g.s.o.NodeID, Voter: true, Leader: g.IsLeader(), Online: true}}
	}
	return c.members(g.id)
}

// Why tells why the replica of this node can't be served; "" where it can, or there
// is none.
func (g *Group) Why() string {
	if w := g.why.Load(); w != nil {
		return *w
	}
	return ""
}

func (c *cluster) members(id topics.GroupID) []replication.Member {
	if log := c.log(id); log != nil && c.leadsNow(id) {
		return log.Members()
	}
	who, led := c.led(id)
	var all []replication.Member
	for _, n := range led.Voters {
		all = append(all, replication.Member{Node: n, Voter: true, Leader: n == who, Online: c.online(n)})
	}
	for _, n := range led.Others {
		all = append(all, replication.Member{Node: n, Online: c.online(n)})
	}
	return all
}

// Linearize returns once this node is known to still lead the group: what is read
// afterwards is not older than the call. replication.ErrNotLeader where it doesn't.
func (g *Group) Linearize(ctx context.Context) error {
	if !g.IsLeader() {
		return replication.ErrNotLeader
	}
	if g.s.cl == nil {
		return nil
	}
	return g.s.cl.linearize(ctx, g.id)
}

func (c *cluster) linearize(ctx context.Context, id topics.GroupID) error {
	log := c.log(id)
	if log == nil {
		return replication.ErrNotLeader
	}
	return log.Linearize(ctx)
}

// Transfer hands the group's lead to another node, "" for the best. It may be
// called on any node. The lead stays there: the node is the preferred one from now on.
func (g *Group) Transfer(ctx context.Context, to string) error {
	if g.s.cl == nil {
		return ErrAlone
	}
	c := g.s.cl
	before, term := c.leaderTerm(g.id)
	if err := c.transfer(ctx, g.id, to); err != nil {
		return err
	}
	if to == "" {
		to = c.nextLeader(ctx, g.id, before, term)
	}
	if to == "" {
		return nil // it will be seen who leads
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := c.prefer(ctx, g.id, to); err != nil {
		c.s.o.Log.Warn("the lead was handed over, but may not stay there: the catalogue could not be changed", "group", g.id, "to", to, "error", err)
	}
	return nil
}

// nextLeader waits a while until it is known who leads after another, and returns "" if
// it isn't.
func (c *cluster) nextLeader(ctx context.Context, id topics.GroupID, before string, term uint64) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for {
		if who, t := c.leaderTerm(id); who != "" && who != before && t > term {
			return who
		}
		if !c.pause(ctx, 50*time.Millisecond) {
			return ""
		}
	}
}
