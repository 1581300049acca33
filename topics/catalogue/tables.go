package catalogue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/heraldmq/herald/topics"
)

// A catalogue of a cluster has two more tables: the nodes, and the data groups with
// the nodes that hold them. That of a node alone has neither; its topics are in
// groups 1 to Command.Groups.

// GroupsPlanned as Command.Groups says that groups are only those of the table: where it
// is empty no topic can be placed yet, and the fault is FaultNoGroup.
const GroupsPlanned = -1

// NodeState says how far a node takes part.
type NodeState string

// The states.
const (
	Active   NodeState = "active"   // holds replicas and may get more
	Draining NodeState = "draining" // is being relieved of its replicas
	Removed  NodeState = "removed"  // is refused until it is added again
)

// Node is a node of the cluster.
type Node struct {
	Name   string       `json:"name"`
	Addr   string       `json:"addr,omitempty"` // where its peers reach it, as it said last
	State  NodeState    `json:"state"`
	Joined topics.Nanos `json:"joined"`
	Tags   []string     `json:"tags,omitempty"` // see PlacementTags; as it said last
}

// Group is a data group. It is immutable.
type Group struct {
	ID       topics.GroupID `json:"id"`
	Replicas int            `json:"replicas"`
	// Tags must be those of every node that holds it. It takes topics that ask for them.
	Tags []string `json:"tags,omitempty"`
	// Nodes are to hold it, the preferred leader first.
	Nodes []string `json:"nodes"`
	// Pinned tells that somebody asked for the preferred leader: it isn't changed only to
	// spread leads.
	Pinned bool `json:"pinned,omitempty"`
	// Leaving still hold it, until all of Nodes vote: nobody deletes what may be the
	// last copy.
	Leaving []string `json:"leaving,omitempty"`
	// Founded tells that the group exists: from then on a replica without files joins
	// and never begins the group anew.
	Founded bool `json:"founded,omitempty"`
	// Open tells that the group takes topics: it has had all its voters.
	Open bool `json:"open,omitempty"`
	// Revision is one higher with each change.
	Revision uint64 `json:"revision"`
}

// PlacementTags returns what a topic asks of the nodes that hold it, or the tags of a node:
// in lower case, sorted, each once; nil for none.
func PlacementTags(tags []string) []string {
	var all []string
	for _, t := range tags {
		all = append(all, strings.ToLower(t))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Asked returns how many replicas a topic is to have, and the tags of the nodes.
func Asked(cfg *topics.Config) (replicas int, tags []string) {
	if cfg.Placement != nil {
		tags = PlacementTags(cfg.Placement.Tags)
	}
	return max(cfg.Replicas, 1), tags
}

// Fits tells whether the group is as a topic asks for.
func (g *Group) Fits(cfg *topics.Config) bool {
	replicas, tags := Asked(cfg)
	return g.Replicas == replicas && slices.Equal(g.Tags, tags)
}

// Holders returns the nodes that have, or are to have, a replica.
func (g *Group) Holders() []string {
	all := slices.Clone(g.Nodes)
	for _, n := range g.Leaving {
		if !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all
}

// Holds tells whether a node has, or is to have, a replica.
func (g *Group) Holds(node string) bool {
	return slices.Contains(g.Nodes, node) || slices.Contains(g.Leaving, node)
}

// FaultNoGroup answers the creation of a topic for which no group takes topics now.
// Whoever asks waits for one, or gives up; clients don't see it.
var FaultNoGroup = &topics.Fault{Status: 503, ErrCode: 20040, Text: "no group of this many replicas takes topics yet"}

// FaultStale refuses a change of a group that is not as it was when the change was
// planned.
var FaultStale = &topics.Fault{Status: 409, ErrCode: 20041, Text: "the group has changed meanwhile"}

// FaultNodeNotFound refuses a change of a node that nobody knows.
var FaultNodeNotFound = &topics.Fault{Status: 404, ErrCode: 20042, Text: "node not found"}

// putNode enters a node, or notes its new address, with which come its tags. Its state is as the command says
// or, without one, as it is.
func (c *Catalogue) putNode(cmd *Command) (Result, error) {
	n := cmd.Node
	if n == nil || n.Name == "" {
		return Result{}, fmt.Errorf("%w: %s without a named node", topics.ErrBadEntry, cmd.Op)
	}
	now, had := c.nodes[n.Name]
	switch {
	case !had && n.State == "":
		now = Node{Name: n.Name, State: Active, Joined: c.clock}
	case !had && n.State != Active:
		return Result{Fault: FaultNodeNotFound}, nil
	case !had:
		now = Node{Name: n.Name, Joined: c.clock}
	}
	now.State = cmp.Or(n.State, now.State)
	if n.Addr != "" {
		now.Addr, now.Tags = n.Addr, n.Tags
	}
	c.nodes[n.Name] = now
	return Result{Tables: true}, nil
}

func (g *Group) valid() bool {
	return g != nil && g.ID != topics.CatalogueGroup && len(g.Nodes) > 0 && g.Replicas >= 1
}

// putGroup enters a group, or changes it if it still has the revision before the
// command's.
func (c *Catalogue) putGroup(cmd *Command) (Result, error) {
	g := cmd.Group
	if !g.valid() {
		return Result{}, fmt.Errorf("%w: %s without nodes", topics.ErrBadEntry, cmd.Op)
	}
	last := uint64(0)
	if old := c.groups[g.ID]; old != nil {
		last = old.Revision
	}
	if g.Revision != last+1 {
		return Result{Fault: FaultStale}, nil
	}
	c.groups[g.ID] = g
	return Result{Tables: true}, nil
}

// Nodes returns the nodes by name.
func (c *Catalogue) Nodes() []Node {
	all := make([]Node, 0, len(c.nodes))
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		all = append(all, c.nodes[name])
	}
	return all
}

// Node returns a node by name.
func (c *Catalogue) Node(name string) (Node, bool) {
	n, ok := c.nodes[name]
	return n, ok
}

// Groups returns the data groups by number.
func (c *Catalogue) Groups() []*Group {
	all := make([]*Group, 0, len(c.groups))
	for _, id := range slices.Sorted(maps.Keys(c.groups)) {
		all = append(all, c.groups[id])
	}
	return all
}

// Group returns a data group by number, nil when it is in no table.
func (c *Catalogue) Group(id topics.GroupID) *Group { return c.groups[id] }

// Load returns how many topics are in a group, those on their way out too.
func (c *Catalogue) Load(id topics.GroupID) int { return c.load[id] }

// place picks the group of a new topic: of those that take topics and are as it asks for,
// the one with the fewest topics.
func (c *Catalogue) place(cmd *Command, cfg *topics.Config) (topics.GroupID, *topics.Fault) {
	if len(c.groups) == 0 {
		if cmd.Groups == GroupsPlanned {
			return 0, FaultNoGroup
		}
		return c.leastUsed(max(cmd.Groups, 1)), nil
	}
	var best *Group
	for _, g := range c.Groups() {
		if g.Open && g.Fits(cfg) && (best == nil || c.load[g.ID] < c.load[best.ID]) {
			best = g
		}
	}
	if best == nil {
		return 0, FaultNoGroup
	}
	return best.ID, nil
}
