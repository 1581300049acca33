package state

import "github.com/heraldmq/herald/topics"

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
