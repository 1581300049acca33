package state

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/replication/placement"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// The node that leads group 0 steers the cluster: it enters nodes into the
// catalogue, plans which nodes hold which groups (replication/placement), and notes
// how far the groups have come:
//
//	planned ──the first node leads it──► founded ──all its nodes vote──► open
//
// Each step is one command, and follows from the tables and from what the groups'
// leaders say, so that whoever leads next goes on where this one stopped. A group's
// leader moves its configuration towards the table by itself (SetMembers).

// control is what the cluster's goroutine remembers.
type control struct {
	refused  []string // nodes the network refuses
	retry    map[topics.GroupID]time.Time
	passed   time.Time // when a lead was last given back
	pulses   map[topics.GroupID]pulse
	led      bool
	balanced time.Time // since when nothing is left to do but that
	settled  time.Time // when topics were last looked through for what is half done
}

// The rhythm of giving leads back to those who are preferred.
const (
	passEvery = 3 * time.Second
	passCalm  = 10 * time.Second // after the last change of anything
	// passBusy is how many entries a second a group commits that isn't disturbed for the
	// sake of balance, for passPatience.
	passBusy     = 20
	passPatience = time.Minute

	settleEvery = 30 * time.Second // what a group that nobody led kept from being settled
)

// steer does what is next where this node leads group 0.
func (c *cluster) steer(ctx context.Context) {
	if !c.leading.Load() || !c.s.IsCatalogueLeader() {
		c.control.led = false
		return
	}
	if !c.control.led {
		c.control.led = true
		c.control.balanced = time.Now()
		c.control.settled = time.Now() // followCatalogue has begun to
	}
	c.settleRest()
	c.startMoves()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := c.enterNodes(ctx)
	if err == nil {
		err = c.markGroups(ctx)
	}
	busy := false
	if err == nil {
		busy, err = c.plan(ctx)
	}
	if err != nil {
		if !errors.Is(err, replication.ErrNotLeader) && ctx.Err() == nil {
			c.s.o.Log.Warn("the tables of the cluster could not be changed; it is tried again", "error", err)
		}
		return
	}
	if busy {
		c.control.balanced = time.Now()
		return
	}
	c.passLeads(ctx)
}

// settleRest settles, now and then, what was left unsettled.
func (c *cluster) settleRest() {
	if time.Since(c.control.settled) < settleEvery || !c.reconciling.CompareAndSwap(false, true) {
		return
	}
	c.control.settled = time.Now()
	if !c.s.spawn(func() {
		defer c.reconciling.Store(false)
		if err := c.s.reconcile(); err != nil && c.s.ctx.Err() == nil {
			c.s.logError(err)
		}
	}) {
		c.reconciling.Store(false)
	}
}

func (c *cluster) put(ctx context.Context, cmd *catalogue.Command) error {
	_, _, err := c.s.decideHere(ctx, cmd)
	if errors.Is(err, catalogue.FaultStale) {
		return nil // the next look sees the newer one
	}
	c.news.ring()
	return err
}

// enterNodes enters this node and those that are connected, with their addresses and tags.
func (c *cluster) enterNodes(ctx context.Context) error {
	addrs := map[string]string{c.me: c.addr()}
	tags := map[string][]string{c.me: catalogue.PlacementTags(c.s.o.Tags)}
	c.peers.mu.RLock()
	for name, p := range c.peers.of {
		addrs[name], tags[name] = p.addr, p.status.Tags
	}
	c.peers.mu.RUnlock()
	for _, name := range append([]string{c.me}, c.peers.names()...) {
		addr, ok := addrs[name]
		if n, known := c.node(name); !ok || known && (n.State == catalogue.Removed || n.Addr == addr && slices.Equal(n.Tags, tags[name])) {
			continue
		}
		if err := c.put(ctx, &catalogue.Command{Op: catalogue.OpPutNode, Node: &catalogue.Node{Name: name, Addr: addr, Tags: tags[name]}}); err != nil {
			return err
		}
	}
	return c.enterOldGroups(ctx)
}

func (c *cluster) addr() string {
	if a := c.net.Addr(); a != nil {
		return a.String()
	}
	return ""
}

// enterOldGroups enters the groups of a node that was alone before it got a cluster.
func (c *cluster) enterOldGroups(ctx context.Context) error {
	var old []topics.GroupID
	c.s.catalogue.read(func(k *catalogue.Catalogue) {
		if len(k.Groups()) > 0 {
			return
		}
		for _, t := range k.Topics() {
			if !slices.Contains(old, t.Group) {
				old = append(old, t.Group)
			}
		}
	})
	for _, id := range old {
		if err := c.put(ctx, &catalogue.Command{Op: catalogue.OpPutGroup, Group: &catalogue.Group{
			ID: id, Replicas: 1, Nodes: []string{c.me}, Founded: true, Open: true, Revision: 1,
		}}); err != nil {
			return err
		}
	}
	return nil
}

// markGroups notes which groups have been founded, and which have all the voters
// they should have, and no others.
func (c *cluster) markGroups(ctx context.Context) error {
	for _, g := range c.s.tables().groups {
		who, led := c.led(g.ID)
		if who == "" {
			continue
		}
		next := *g
		next.Revision++
		if complete(g, &led) {
			next.Leaving = nil
			next.Open = g.Open || len(g.Nodes) == g.Replicas
		}
		next.Founded = true
		if next.Founded == g.Founded && next.Open == g.Open && len(next.Leaving) == len(g.Leaving) {
			continue
		}
		if err := c.put(ctx, &catalogue.Command{Op: catalogue.OpPutGroup, Group: &next}); err != nil {
			return err
		}
	}
	return nil
}

// complete tells whether a group's voters are those of the table.
func complete(g *catalogue.Group, led *ledNow) bool {
	return g.Founded && len(led.Others) == 0 && slices.Equal(slices.Sorted(slices.Values(g.Nodes)), led.Voters)
}

// plan enters the next changes of the groups. It is busy while any is under way.
func (c *cluster) plan(ctx context.Context) (busy bool, err error) {
	t := c.s.tables()
	nodes, groups := c.planInput(&t)
	want := c.wanted.set()
	active := 0
	for _, n := range nodes {
		if n.State == placement.Active {
			active++
		}
	}
	for _, g := range t.groups {
		want[placement.KindOf(g.Replicas, g.Tags)] = true
	}
	if active >= 3 {
		want[placement.KindOf(3, nil)] = true
	}
	if c.s.voters() < int(c.expected.Load()) {
		return true, nil // others are still coming: they shall get their share at once
	}
	for _, g := range groups {
		busy = busy || g.Busy
	}
	for _, change := range placement.Plan(nodes, groups, want) {
		busy = true
		entry := &catalogue.Group{ID: change.Group, Replicas: change.Replicas, Tags: change.Tags, Nodes: change.Nodes, Revision: 1}
		if !change.New {
			entry = c.changed1(&t, change)
		}
		c.s.o.Log.Info("a group gets its nodes", "group", entry.ID, "nodes", entry.Nodes, "leaving", entry.Leaving)
		if err := c.put(ctx, &catalogue.Command{Op: catalogue.OpPutGroup, Group: entry}); err != nil {
			return true, err
		}
	}
	return busy, nil
}

// changed1 returns a group with other nodes. Those it had stay until the others vote.
func (c *cluster) changed1(t *tables, change placement.Change) *catalogue.Group {
	i := slices.IndexFunc(t.groups, func(g *catalogue.Group) bool { return g.ID == change.Group })
	next := *t.groups[i]
	next.Revision++
	next.Leaving = nil
	for _, n := range t.groups[i].Nodes {
		j := slices.IndexFunc(t.nodes, func(k catalogue.Node) bool { return k.Name == n })
		if !slices.Contains(change.Nodes, n) && j >= 0 && t.nodes[j].State != catalogue.Removed {
			next.Leaving = append(next.Leaving, n)
		}
	}
	next.Nodes = change.Nodes
	next.Pinned = next.Pinned && next.Nodes[0] == t.groups[i].Nodes[0]
	return &next
}

func (c *cluster) planInput(t *tables) (nodes []placement.Node, groups []placement.Group) {
	for _, n := range t.nodes {
		state := placement.Active
		switch n.State {
		case catalogue.Draining:
			state = placement.Draining
		case catalogue.Removed:
			state = placement.Removed
		}
		nodes = append(nodes, placement.Node{Name: n.Name, State: state, Offline: !c.online(n.Name), Tags: n.Tags})
	}
	for _, g := range t.groups {
		who, led := c.led(g.ID)
		groups = append(groups, placement.Group{
			ID: g.ID, Replicas: g.Replicas, Tags: g.Tags, Nodes: g.Nodes, Topics: t.topics[g.ID], Pinned: g.Pinned,
			Busy: who == "" || !g.Founded || len(g.Leaving) > 0 || !complete(g, &led),
		})
	}
	return nodes, groups
}

// pulse is how much a group had to do when it was last looked at.
type pulse struct {
	at    time.Time
	index topics.Index
	since time.Time // it has been busy; zero when it isn't
}

// disturbed tells whether passing a group's lead on now would be felt: its readers'
// requests end with it, and its publishers wait. A group without a replica here looks
// quiet.
func (c *cluster) disturbed(id topics.GroupID, now time.Time) bool {
	g := c.s.Group(id)
	if g == nil || !g.Local() {
		return false
	}
	if c.control.pulses == nil {
		c.control.pulses = map[topics.GroupID]pulse{}
	}
	p := c.control.pulses[id]
	if d := now.Sub(p.at); d >= time.Second {
		index := g.Stats().Committed
		unknown := d > time.Minute
		busy := unknown || index > p.index && float64(index-p.index) > passBusy*d.Seconds()
		switch {
		case !busy:
			p.since = time.Time{}
		case p.since.IsZero() || unknown:
			p.since = now
		}
		p.at, p.index = now, index
		c.control.pulses[id] = p
	}
	return !p.since.IsZero() && now.Sub(p.since) < passPatience
}

// passLeads gives a lead back to the node that is preferred, when all is calm: one
// at a time, and only where one node leads two groups more than the other. Less is not
// worth a change of leaders under load.
func (c *cluster) passLeads(ctx context.Context) {
	now := time.Now()
	if now.Sub(c.control.balanced) < passCalm || now.Sub(c.control.passed) < passEvery {
		return
	}
	groups := c.s.tables().groups
	leads := map[string]int{}
	for _, g := range groups {
		who, _ := c.led(g.ID)
		leads[who]++
	}
	for _, g := range groups {
		who, led := c.led(g.ID)
		to := g.Nodes[0]
		if who == "" || who == to || leads[who] < leads[to]+2 || !c.online(to) || c.unfit(to) || !slices.Contains(led.Current, to) ||
			c.disturbed(g.ID, now) {
			continue
		}
		c.control.passed = now
		c.s.o.Log.Info("a group's lead goes to the node that is preferred", "group", g.ID, "from", who, "to", to)
		if err := c.transfer(ctx, g.ID, to); err != nil && ctx.Err() == nil {
			c.s.o.Log.Warn("a group's lead could not be given to the node that is preferred", "group", g.ID, "from", who, "to", to, "error", err)
		}
		return
	}
}

// prefer makes a node the one that is preferred to lead a group: somebody asked for it.
func (c *cluster) prefer(ctx context.Context, id topics.GroupID, node string) error {
	for {
		var next catalogue.Group
		c.s.catalogue.read(func(k *catalogue.Catalogue) {
			if g := k.Group(id); g != nil {
				next = *g
			}
		})
		i := slices.Index(next.Nodes, node)
		if i < 0 || i == 0 && next.Pinned {
			return nil // it is on its way out, or preferred already
		}
		next.Nodes = slices.Insert(slices.Delete(slices.Clone(next.Nodes), i, i+1), 0, node)
		next.Pinned = true
		next.Revision++
		_, err := c.s.decide(ctx, &catalogue.Command{Op: catalogue.OpPutGroup, Group: &next})
		if !errors.Is(err, catalogue.FaultStale) {
			return err
		}
		if err := c.s.SyncCatalogue(ctx); err != nil {
			return err
		}
	}
}
