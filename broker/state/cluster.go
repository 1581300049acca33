package state

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// cluster is what a State does beside other nodes. nil when the node is alone.
//
// Its goroutine forms the cluster, or finds it formed, starts group 0, and from
// then on makes this node have the replicas that the catalogue gives it. Where
// group 0 is led it also steers (controller.go).
type cluster struct {
	s     *State
	net   *peer.Network
	me    string
	began time.Time
	news  bell          // something changed that somebody may wait for
	work  chan struct{} // holds one: the cluster's goroutine has something to do

	peers       peers
	clock       clock
	resets      resets
	expected    atomic.Int64 // voters group 0 must have before anything may be changed
	lame        atomic.Bool  // it hands over its leads and takes none
	refused     bool         // by a peer, since the last connection; of the network's goroutine
	removed     atomic.Bool  // see standing
	wanted      wanted       // numbers of replicas that somebody waits for
	control     control      // of the cluster's goroutine
	held        usageCache
	moves       moves
	arrivals    time.Time     // when they were last looked at
	swept       bool          // of the cluster's goroutine: no files are left of replicas that went
	pieces      pieces        // of messages that other nodes forward
	returning   sync.Map      // pieceKey: what comes is sent back, until a mark
	asking      chan struct{} // a slot for each Submit on its way to another node
	askers      askers
	why         atomic.Pointer[string]
	metaOK      atomic.Bool // group 0 has been caught up once
	metaRun     tenancy     // what works on group 0's log; of the cluster's goroutine
	reconciling atomic.Bool
	leading     atomic.Bool // this node leads group 0 and has all that was committed
}

const submitsAway = 4096

// bell wakes all who wait for a change.
type bell struct {
	mu sync.Mutex
	c  chan struct{}
}

// wait returns a channel that is closed with the next ring.
func (b *bell) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}

func newCluster(s *State) *cluster {
	c := &cluster{
		s: s, net: s.o.Network, me: s.o.Network.Name(), began: time.Now(), work: make(chan struct{}, 1), asking: make(chan struct{}, submitsAway),
	}
	c.peers.of, c.peers.untimed = map[string]*peerState{}, make(chan struct{}, 1)
	c.clock.start(s.rawNow())
	c.listen()
	return c
}

// wake has the cluster's goroutine look again.
func (c *cluster) wake() {
	select {
	case c.work <- struct{}{}:
	default:
	}
}

// changed tells everybody who may care that something changed.
func (c *cluster) changed() {
	c.news.ring()
	c.wake()
}

// pause waits for a change, for at most d; false when ctx has ended.
func (c *cluster) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.news.wait():
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// run forms the cluster and keeps this node's share of it.
func (c *cluster) run(ctx context.Context) {
	s := c.s
	for !c.begin(ctx) {
		if !sleep(ctx, time.Second) {
			return
		}
	}
	c.serveCatalogue(ctx)
	s.running.Go(func() { c.clocks(ctx) })
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		c.healCatalogue(ctx)
		c.arrange(ctx)
		c.steer(ctx)
		c.sweepArrivals()
		c.tellLeaders()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-c.work:
			// What changes together is looked at together.
			if !sleep(ctx, 5*time.Millisecond) {
				return
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// begin forms the cluster and starts group 0.
func (c *cluster) begin(ctx context.Context) bool {
	s := c.s
	found, expected, err := replication.Form(ctx, s.node, c.net)
	if err != nil {
		if ctx.Err() == nil {
			c.down("the cluster is not formed: %v", err)
		}
		return false
	}
	c.expected.Store(int64(expected))
	meta, err := s.node.StartGroup(topics.CatalogueGroup, s.catalogue, replication.StartOptions{Found: found})
	if disk.IsNewer(err) {
		s.fail(err)
		return false
	}
	if err != nil {
		err = c.reset(ctx, topics.CatalogueGroup, err)
		if err != nil && ctx.Err() == nil {
			c.down("the catalogue can't be served: %v", err)
		}
		return false
	}
	s.meta.Store(meta)
	c.changed()
	return true
}

// down notes, and logs once, why nothing works.
func (c *cluster) down(format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	if old := c.why.Swap(&why); old == nil || *old != why {
		c.s.o.Log.Error(why)
	}
}

// reset moves a replica that can't be used out of the way, so that it is filled
// again by the others.
func (c *cluster) reset(ctx context.Context, id topics.GroupID, reason error) error {
	if !damaged(reason) {
		return reason
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	moved, err := c.s.node.ResetGroup(ctx, id, reason)
	if err != nil {
		return errors.Join(reason, err)
	}
	c.resets.note(Damage{Group: id, What: reason.Error(), Found: time.Now(), Files: moved})
	c.s.o.Log.Error("a replica was damaged; its files have been moved away, and the other nodes fill it again",
		"group", id, "files", moved, "error", reason)
	return nil
}

// followCatalogue tells when this node gets to lead group 0, or no longer does.
func (c *cluster) followCatalogue(ctx context.Context) {
	s := c.s
	meta := s.meta.Load()
	changes := meta.LeaderChanges()
	led := false
	_, leads := meta.Leader()
	for {
		if leads && !led {
			leads = c.usable(ctx, meta)
		}
		if leads != led {
			led = leads
			c.leading.Store(leads)
			c.tellStatus()
			c.changed()
			if leads {
				s.catalogue.refilled()
				s.spawn(func() {
					if err := s.reconcile(); err != nil && ctx.Err() == nil {
						s.logError(err)
					}
				})
			}
			if s.hooks.OnCatalogueLeader != nil {
				s.hooks.OnCatalogueLeader(leads)
			}
		}
		select {
		case leads = <-changes:
		case <-meta.MembersChanged(): // the next group may wait for this one's voters
			c.tellStatus()
			c.changed()
		case <-ctx.Done():
			if c.leading.Store(false); led && s.ctx.Err() == nil && s.hooks.OnCatalogueLeader != nil {
				s.hooks.OnCatalogueLeader(false)
			}
			return
		}
	}
}

// usable waits until a node that has begun to lead has applied all that was
// committed before, and knows the clocks of its peers; false when it leads no more.
func (c *cluster) usable(ctx context.Context, log *replication.Group) bool {
	c.settleClock(ctx)
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := log.Linearize(one)
		cancel()
		if err == nil {
			return true
		}
		if _, leads := log.Leader(); !leads {
			return false
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return false
		}
	}
	return false
}

// catchUp waits until a replica has all that was committed when it was started,
// and notes that.
func (c *cluster) catchUp(ctx context.Context, id topics.GroupID, log *replication.Group, done *atomic.Bool) {
	for ctx.Err() == nil {
		leader := c.leader(id)
		if leader == c.me {
			break
		}
		if leader != "" {
			one, cancel := context.WithTimeout(ctx, 5*time.Second)
			i, err := c.committedAt(one, leader, id)
			cancel()
			if err == nil && log.WaitApplied(ctx, i) == nil {
				break
			}
		}
		if !c.pause(ctx, 200*time.Millisecond) {
			return
		}
	}
	if ctx.Err() == nil {
		done.Store(true)
		c.changed()
	}
}

// voters of group 0 at most.
const catalogueVoters = 5

// catalogueMembers returns which nodes vote in group 0, and which only hold it. It
// follows from the table alone, so that all nodes say the same.
func catalogueMembers(nodes []catalogue.Node) (voters, others []string) {
	nodes = slices.Clone(nodes)
	slices.SortStableFunc(nodes, func(a, b catalogue.Node) int {
		if (a.State == catalogue.Active) != (b.State == catalogue.Active) {
			if a.State == catalogue.Active {
				return -1
			}
			return 1
		}
		return int(min(max(a.Joined-b.Joined, -1), 1))
	})
	for _, n := range nodes {
		switch {
		case n.State == catalogue.Removed:
		case len(voters) < catalogueVoters && (n.State == catalogue.Active || len(voters) == 0):
			voters = append(voters, n.Name)
		default:
			others = append(others, n.Name)
		}
	}
	return voters, others
}
