package state

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
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
	if r := g.local.Load(); r != nil {
		if log := r.repl.Load(); log != nil {
			id, _ := log.Leader()
			return id
		}
	}
	return ""
}

// Replicas returns how many replicas the group is to have.
func (g *Group) Replicas() int { return 1 }

// Nodes returns the nodes that are to have a replica of the group, the preferred
// leader first.
func (g *Group) Nodes() []string { return []string{g.s.o.NodeID} }

// Members returns the replicas of the group. On the leader they are as raft knows
// them, elsewhere as the catalogue and the connections to peers tell.
func (g *Group) Members() []replication.Member {
	return []replication.Member{{Node: g.s.o.NodeID, Voter: true, Leader: g.IsLeader(), Online: true}}
}

// Linearize returns once this node is known to still lead the group: what is read
// afterwards is not older than the call. replication.ErrNotLeader where it doesn't.
func (g *Group) Linearize(ctx context.Context) error {
	if !g.IsLeader() {
		return replication.ErrNotLeader
	}
	return nil
}

// Transfer hands the group's lead to another node, "" for the best. It may be
// called on any node.
func (g *Group) Transfer(ctx context.Context, to string) error { return ErrAlone }

// CatalogueLeader returns the node that leads group 0, "" when none is known.
func (s *State) CatalogueLeader() string {
	id, _ := s.meta.Leader()
	return id
}

// LinearizeCatalogue is Group.Linearize for group 0.
func (s *State) LinearizeCatalogue(ctx context.Context) error {
	if !s.IsCatalogueLeader() {
		return replication.ErrNotLeader
	}
	return nil
}

// TransferCatalogue is Group.Transfer for group 0.
func (s *State) TransferCatalogue(ctx context.Context, to string) error { return ErrAlone }

// CatalogueMembers is Group.Members for group 0.
func (s *State) CatalogueMembers() []replication.Member {
	return []replication.Member{{Node: s.o.NodeID, Voter: true, Leader: s.IsCatalogueLeader(), Online: true}}
}

// Clustered tells whether this node has, or could get, peers.
func (s *State) Clustered() bool { return false }

// Nodes returns the nodes of the cluster by name, also those that are removed; a
// node alone is not in any table.
func (s *State) Nodes() []catalogue.Node { return nil }

// StepDown hands over the lead of every group that this node leads, as far as
// others can take it, and takes none from then on.
func (s *State) StepDown(ctx context.Context) error { return nil }

// Ready tells whether what clients want changed can be: the cluster is formed,
// the catalogue here is up to date, and so is every replica. Otherwise why says
// what is missing.
func (s *State) Ready() (ready bool, why string) { return true, "" }

// AddNode lets a node take part that was drained or removed.
func (s *State) AddNode(ctx context.Context, name string) error { return ErrAlone }

// DrainNode has all replicas and leads moved off a node.
func (s *State) DrainNode(ctx context.Context, name string) error { return ErrAlone }

// RemoveNode takes a node out of the cluster: others take over its replicas where
// they can, and its name is refused until it is added again.
func (s *State) RemoveNode(ctx context.Context, name string) error { return ErrAlone }

// Now returns the time that entries get: the system's, corrected where this
// node's clock is far off those of its peers.
func (s *State) Now() topics.Nanos { return s.now() }

func (s *State) now() topics.Nanos { return s.o.Now() }
