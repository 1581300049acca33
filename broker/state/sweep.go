package state

import (
	"context"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// sweepLeftovers puts away, once after the start, the files of replicas that the
// catalogue doesn't give this node: their removal was cut short, and a later replica of
// that group would find them in its way. The catalogue must be up to date.
func (c *cluster) sweepLeftovers(t *tables) {
	if c.swept || !c.metaOK.Load() || len(t.groups) == 0 {
		return
	}
	c.swept = true
	left, err := c.s.node.Leftovers()
	if err != nil {
		c.s.logError(err)
		return
	}
	wanted := map[topics.GroupID]bool{}
	for _, g := range t.groups {
		if g.Holds(c.me) {
			wanted[g.ID] = true
		}
	}
	for _, id := range left {
		if wanted[id] {
			continue
		}
		if _, err := c.s.node.StowGroup(id, "the catalogue does not give it to this node"); err != nil {
			c.s.logError(err)
		}
	}
}

// sweepArrivals drops, now and then, what late records have left of moves that have
// ended, in the groups that this node leads.
func (c *cluster) sweepArrivals() {
	if time.Since(c.arrivals) < settleEvery {
		return
	}
	c.arrivals = time.Now()
	for _, r := range c.s.replicas() {
		if all := r.data.Arrivals(); len(all) > 0 && r.isLeader() {
			c.s.spawn(func() { c.dropArrivals(r.group, all) })
		}
	}
}

func (c *cluster) dropArrivals(g *Group, all map[topics.TopicID]uint64) {
	ctx, cancel := context.WithTimeout(c.s.ctx, settleTimeout)
	defer cancel()
	if c.s.SyncCatalogue(ctx) != nil {
		return // a move that this node has not heard of yet looks like one that has ended
	}
	for id, number := range all {
		var t *catalogue.Topic
		c.s.catalogue.read(func(k *catalogue.Catalogue) { t = k.Topic(id) })
		if t != nil && t.Move != nil && t.Move.Number <= number {
			continue
		}
		m := &mover{c: c, id: id, number: number}
		if err := m.drop(ctx, g); err != nil {
			c.s.o.Log.Debug("what a move has left is dropped later", "topic", id, "group", g.id, "error", err)
			return
		}
		c.s.o.Log.Info("what a move has left was dropped", "topic", id, "group", g.id)
	}
}
