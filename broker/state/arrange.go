package state

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/stable"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/datafile"
	"github.com/heraldmq/herald/topics/store"
)

// tables is what the catalogue says about nodes and groups.
type tables struct {
	nodes  []catalogue.Node
	groups []*catalogue.Group
	topics map[topics.GroupID]int
}

func (s *State) tables() tables {
	var t tables
	s.catalogue.read(func(c *catalogue.Catalogue) {
		t.nodes, t.groups = c.Nodes(), c.Groups()
		t.topics = map[topics.GroupID]int{}
		for _, g := range t.groups {
			t.topics[g.ID] = c.Load(g.ID)
		}
	})
	return t
}

// arrange makes this node have the replicas that the catalogue gives it, and tells
// those it has who else is to have one.
func (c *cluster) arrange(ctx context.Context) {
	t := c.s.tables()
	c.refuseRemoved(t.nodes)
	c.sweepLeftovers(&t)
	if voters, others := catalogueMembers(t.nodes); len(voters) > 0 {
		c.s.meta.Load().SetMembers(voters, others)
	}
	for _, entry := range t.groups {
		g := c.s.groups.get(c.s, entry.ID)
		if old := g.entry.Load(); old == nil || old.Revision < entry.Revision {
			g.entry.Store(entry)
		}
		holds := entry.Holds(c.me)
		switch r := g.local.Load(); {
		case holds && r == nil:
			c.adopt(ctx, g, entry)
		case !holds && r != nil:
			c.abandon(g, r)
		}
		if r := g.local.Load(); r != nil && entry.Founded {
			r.repl.Load().SetMembers(entry.Nodes, nil)
			c.heal(ctx, g, r)
		}
	}
}

// refuseRemoved keeps removed nodes out, and lets those in that are not any more.
func (c *cluster) refuseRemoved(nodes []catalogue.Node) {
	for _, n := range nodes {
		refused := slices.Contains(c.control.refused, n.Name)
		switch {
		case n.Name == c.me:
		case n.State == catalogue.Removed && !refused:
			c.net.Disconnect(n.Name, "it has been removed from the cluster")
			c.control.refused = append(c.control.refused, n.Name)
		case n.State != catalogue.Removed && refused:
			c.net.Allow(n.Name)
			c.control.refused = slices.DeleteFunc(c.control.refused, func(s string) bool { return s == n.Name })
		}
	}
}

// adopt starts this node's replica of a group.
func (c *cluster) adopt(ctx context.Context, g *Group, entry *catalogue.Group) {
	if time.Now().Before(c.control.retry[g.id]) {
		return
	}
	s := c.s
	err := s.adopt(g, !entry.Founded && entry.Nodes[0] == c.me)
	if disk.IsNewer(err) { // neither damage nor something that others may fill again
		s.fail(err)
		return
	}
	if err != nil {
		if err = c.reset(ctx, g.id, err); err == nil {
			c.wake()
			return
		}
	}
	if err != nil {
		if c.control.retry == nil {
			c.control.retry = map[topics.GroupID]time.Time{}
		}
		c.control.retry[g.id] = time.Now().Add(30 * time.Second)
		why := fmt.Sprintf("the replica of group %d can't be served: %v", g.id, err)
		g.why.Store(&why)
		s.o.Log.Error("a replica can't be served; its files are left as they are", "group", g.id, "error", err)
		return
	}
	g.why.Store(nil)
	c.news.ring()
}

// damaged tells whether an error says that a replica's files can't be used, but
// those of others might.
func damaged(err error) bool {
	var (
		corrupt *replication.CorruptError
		file    *datafile.CorruptError
		gap     *replication.GapError
		lost    *replication.LostLogError
		vote    *stable.MayNotVoteError
		meta    *catalogue.CorruptError
		differs *replication.DivergedError
	)
	return errors.As(err, &corrupt) || errors.As(err, &file) || errors.As(err, &gap) || errors.As(err, &lost) ||
		errors.As(err, &vote) || errors.As(err, &meta) || errors.As(err, &differs)
}

// adopt opens a replica, starts its log and serves it.
func (s *State) adopt(g *Group, found bool) error {
	r, err := s.openReplica(g)
	if err != nil {
		return err
	}
	g.local.Store(r)
	s.restored(g.id)
	log, err := s.node.StartGroup(g.id, r.machine, replication.StartOptions{Found: found})
	if err != nil {
		g.local.Store(nil)
		s.detach(g)
		r.queue.stop()
		r.cancel()
		return errors.Join(fmt.Errorf("start group %d: %w", g.id, err), r.machine.close())
	}
	r.repl.Store(log)
	r.data.OnDamage(func(err error) {
		log.ReportDamage(err)
		s.cl.wake()
	})
	r.queue.resume(topics.Nanos(r.machine.last.Load()))
	if s.hooks.OnGroup != nil {
		s.hooks.OnGroup(g, true)
	}
	r.running.Go(func() { s.cl.catchUp(r.ctx, g.id, log, &r.current) })
	return s.serve(r)
}

// abandon ends this node's replica of a group, whose files are wanted no more.
func (c *cluster) abandon(g *Group, r *replica) {
	c.s.end(g, r, func() error { return c.s.node.RemoveGroup(g.id) })
	c.s.o.Log.Info("a replica has been moved away", "group", g.id)
}

// end ends a replica; stop stops its log.
func (s *State) end(g *Group, r *replica, stop func() error) {
	r.cancel()
	r.running.Wait()
	s.lead(r, false)
	if s.hooks.OnGroup != nil {
		s.hooks.OnGroup(g, false)
	}
	g.local.Store(nil)
	r.ended.Store(true) // its files may go before it
	if err := stop(); err != nil {
		s.logError(fmt.Errorf("end the replica of group %d: %w", g.id, err))
	}
	r.queue.stop()
	if err := r.machine.close(); err != nil {
		s.o.Log.Debug("a replica's store ended without its files", "group", g.id, "error", err)
	}
	s.detach(g)
	s.cl.tellStatus()
}

// heal resets a replica in which damage was found while it ran.
func (c *cluster) heal(ctx context.Context, g *Group, r *replica) {
	select {
	case reason := <-r.repl.Load().Damage():
		err := reason
		if len(g.Nodes()) > 1 {
			if r.isLeader() {
				one, cancel := context.WithTimeout(ctx, 10*time.Second)
				_ = r.repl.Load().Transfer(one, "") // if nobody can take it, ResetGroup will say so
				cancel()
			}
			r.ended.Store(true)
			err = c.reset(ctx, g.id, reason)
			r.ended.Store(err == nil)
			if err == nil {
				c.s.end(g, r, func() error { return nil })
				c.wake()
				return
			}
		}
		why := fmt.Sprintf("the replica of group %d is damaged, and no other can fill it: %v", g.id, err)
		g.why.Store(&why)
	default:
	}
}

// detach lets the topics of a group be known from the catalogue alone: this node
// has no replica of it any more.
func (s *State) detach(g *Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topics.each(func(t *Topic) bool {
		if t.Group() == g {
			s.detachLocked(t)
		}
		return true
	})
}

func (s *State) detachLocked(t *Topic) {
	t.data.Store(nil)
	var entry *catalogue.Topic
	s.catalogue.read(func(c *catalogue.Catalogue) { entry = c.Topic(t.id) })
	if entry == nil || entry.State == catalogue.Deleting {
		s.dropLocked(t)
	}
}

func (s *State) dropLocked(t *Topic) {
	s.topics.remove(t)
	s.tellTopicLocked(t, Deleted)
}

// tellTopicLocked passes a change on, once there is somebody to tell.
func (s *State) tellTopicLocked(t *Topic, c Change) {
	if s.hooks.OnTopic != nil {
		s.hooks.OnTopic(t, c)
	}
}

// restored is told that all of a group's store is another one: a snapshot was
// installed, or the replica has just been opened.
func (s *State) restored(id topics.GroupID) {
	g := s.groups.get(s, id)
	r := g.local.Load()
	if r == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.data.Topics(func(t *store.Topic) bool {
		s.attachLocked(g, t)
		return true
	})
	s.topics.each(func(t *Topic) bool {
		if t.Group() == g && r.data.Topic(t.id) == nil {
			s.detachLocked(t)
			t.held.Store(r.data.Hides(t.id))
		}
		return true
	})
	r.expiry.touchAll()
}

// attachLocked enters a topic that a replica has, or its messages where it is known
// from the catalogue.
func (s *State) attachLocked(g *Group, data *store.Topic) {
	t, known := s.topics.find(data.ID())
	if !known {
		t = newTopic(g, data)
		s.topics.add(t)
		s.tellTopicLocked(t, Created)
		return
	}
	s.arrivedLocked(t, g, data)
}

// catalogueTopic is told what the catalogue says about a topic. Where this node has
// a replica that holds the topic, the replica knows better.
func (s *State) catalogueTopic(e *catalogue.Topic) {
	if s.cl == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.catalogueTopicLocked(e)
}

func (s *State) catalogueTopicLocked(e *catalogue.Topic) {
	g := s.groups.get(s, e.Group)
	t, known := s.topics.find(e.ID)
	if known && s.switchedLocked(t, e) {
		return
	}
	switch {
	case known && t.Data() != nil:
	case e.State == catalogue.Deleting:
		if known {
			s.dropLocked(t)
		}
	case known:
		t.configure(&e.Config)
		s.tellTopicLocked(t, Updated)
	case g.Local() && e.Synced == 0: // the replica will tell
	default:
		t = newRemoteTopic(g, e)
		if r := g.local.Load(); r != nil {
			t.held.Store(r.data.Hides(t.id))
		}
		s.topics.add(t)
		s.tellTopicLocked(t, Created)
	}
}

// catalogueRestored is told that the whole catalogue is another one.
func (s *State) catalogueRestored() {
	s.operatorChanged(&catalogue.Operator{}) // all may be others
	s.advertisementsRestored()
	if s.cl == nil {
		return
	}
	var all []*catalogue.Topic
	there := map[topics.TopicID]bool{}
	s.catalogue.read(func(c *catalogue.Catalogue) { all = c.Topics() })
	s.mu.Lock()
	for _, e := range all {
		there[e.ID] = true
		s.catalogueTopicLocked(e)
	}
	s.topics.each(func(t *Topic) bool {
		if !there[t.id] && t.Data() == nil {
			s.dropLocked(t)
		}
		return true
	})
	s.mu.Unlock()
	s.cl.changed()
}
