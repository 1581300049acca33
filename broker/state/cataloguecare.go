package state

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// tenancy is the goroutines that work on one start of group 0's log.
type tenancy struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	gone    error // why the log was reset; nil while it runs
}

// end waits until they have ended.
func (t *tenancy) end() {
	t.cancel()
	t.running.Wait()
}

// serveCatalogue follows group 0's log, which has been started.
func (c *cluster) serveCatalogue(ctx context.Context) {
	one, cancel := context.WithCancel(ctx)
	c.metaRun.cancel = cancel
	meta := c.s.meta.Load()
	c.metaRun.running.Go(func() { c.followCatalogue(one) })
	c.metaRun.running.Go(func() {
		c.catchUp(one, topics.CatalogueGroup, meta, &c.metaOK)
		if one.Err() == nil {
			c.s.catalogue.refilled()
		}
	})
}

// healCatalogue resets group 0's replica of this node when damage was found in it while
// it ran. What is in memory is served until the others have filled it again.
func (c *cluster) healCatalogue(ctx context.Context) {
	s := c.s
	if c.metaRun.gone == nil {
		select {
		case reason := <-s.meta.Load().Damage():
			if !c.resetCatalogue(ctx, reason) {
				return
			}
		default:
			return
		}
	}
	meta, err := s.node.StartGroup(topics.CatalogueGroup, s.catalogue, replication.StartOptions{})
	if err != nil {
		if ctx.Err() == nil {
			c.down("the catalogue can't be served: %v", errors.Join(err, c.metaRun.gone))
		}
		return // it is tried again
	}
	c.metaRun.gone = nil
	c.metaOK.Store(false)
	s.meta.Store(meta)
	c.serveCatalogue(ctx)
	c.changed()
}

// resetCatalogue moves group 0's files out of the way, if others can fill it again.
func (c *cluster) resetCatalogue(ctx context.Context, reason error) bool {
	s := c.s
	meta := s.meta.Load()
	if meta.Voters() < 2 && c.leading.Load() {
		return false // there is nobody else; it stays named
	}
	if _, leads := meta.Leader(); leads {
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		_ = meta.Transfer(one, "") // if nobody can take it, ResetGroup will say so
		cancel()
	}
	if err := c.reset(ctx, topics.CatalogueGroup, reason); err != nil {
		s.o.Log.Error("the catalogue of this node is damaged, and no other can fill it", "error", err)
		return false
	}
	s.catalogue.refill()
	c.metaRun.end()
	c.metaRun.gone = reason
	return true
}
