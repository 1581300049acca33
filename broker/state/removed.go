package state

import (
	"context"
	"time"

	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/topics/catalogue"
)

// A node that is removed doesn't see it in its catalogue: the others end their
// connections to it as soon as that is decided, and take none. What they say when they
// do is how it learns of it (peer.Unwelcome). A connection to anybody says that it is a
// member, or is one again: who refuses it may have been away for longer than it.

// removedPoll is how often removeSelf looks, should it miss the news.
const removedPoll = 100 * time.Millisecond

// standing notes what an event says about whether this node is a member.
func (c *cluster) standing(kind peer.EventKind) {
	switch kind {
	case peer.Up:
		c.refused = false
	case peer.Unwelcome:
		c.refused = true
	}
	out := c.refused && len(c.peers.names()) == 0
	if c.removed.Swap(out) != out && c.s.o.OnRemoved != nil {
		c.s.o.OnRemoved(out)
	}
}

// removeSelf removes this node. The others may end their connections to it before they
// have answered, and what they decided is never applied here.
func (c *cluster) removeSelf(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.s.spawn(func() {
		for !c.removed.Load() {
			if !c.pause(ctx, removedPoll) {
				return
			}
		}
		cancel()
	})
	err := c.s.putNodeState(ctx, c.me, catalogue.Removed)
	if c.removed.Load() {
		return nil
	}
	return err
}
