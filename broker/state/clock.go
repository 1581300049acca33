package state

import (
	"context"
	"encoding/binary"
	"slices"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/topics"
)

// Clocks. Entries carry the time of their leader, and what is too old, or was sent
// twice, is decided by it. It is the cluster's time, not that of a node: nodes agree on
// it and keep it running by clocks that nobody can set.
//
// A node that starts takes the time that the others go by, whatever its own clock says.
// If no other goes by any, as when a cluster is formed or starts as a whole, it is that
// of its own clock, at most clockOff away from the median of all that are connected. The
// first one that leads anything settles it.
//
// From then on it follows the median as clocks are set, or nodes with other ones come
// and go, but slowly: a window of a topic is not shorter by more than a twentieth for
// it. Only where all clocks agree, and the cluster's time is another one, as when a
// machine was asleep, it is set.
const (
	clockOff   = topics.Nanos(time.Second)
	clockEvery = 10 * time.Second
	clockSlew  = 20 // a correction takes so many times its length
)

// clock is the cluster's time as this node knows it.
type clock struct {
	began   time.Time    // what monotonic time is counted from
	offset  atomic.Int64 // the cluster's time less monotonic time, ns
	settled atomic.Bool  // entries may have it

	// Guarded by peers.mu.
	set   topics.Nanos // when it was last corrected, monotonic
	apart bool         // this node's clock is far off
}

// peerClock is what is known of a peer's, each less this node's monotonic time.
type peerClock struct {
	known   bool
	own     topics.Nanos // of its own clock
	cluster topics.Nanos // what it goes by
	settled bool
}

func (k *clock) mono() topics.Nanos { return topics.Nanos(time.Since(k.began)) }

func (k *clock) now() topics.Nanos { return k.mono() + topics.Nanos(k.offset.Load()) }

// start begins with this node's own clock.
func (k *clock) start(now topics.Nanos) {
	k.began = time.Now()
	k.offset.Store(int64(now))
}

// clocks asks the peers for the time, now and then.
func (c *cluster) clocks(ctx context.Context) {
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, name := range c.peers.names() {
				c.askClock(ctx, name)
			}
			c.setClock(false)
		case <-c.peers.untimed:
			c.awaitClocks(ctx)
		}
	}
}

// answerClock tells a peer the time of this node's clock and of the cluster, i64 each,
// and whether that is settled, u8.
func (c *cluster) answerClock(context.Context, string, []byte) ([]byte, error) {
	b := binary.LittleEndian.AppendUint64(nil, uint64(c.s.rawNow()))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.clock.now()))
	if c.clock.settled.Load() {
		return append(b, 1), nil
	}
	return append(b, 0), nil
}

func (c *cluster) askClock(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	began := c.clock.mono()
	b, err := c.net.Call(ctx, name, methodClock, nil)
	at := (began + c.clock.mono()) / 2
	if err != nil || len(b) != 17 {
		return // it is asked again
	}
	k := peerClock{known: true, settled: b[16] != 0}
	k.own = topics.Nanos(binary.LittleEndian.Uint64(b)) - at
	k.cluster = topics.Nanos(binary.LittleEndian.Uint64(b[8:])) - at
	c.peers.mu.Lock()
	p := c.peers.of[name]
	if p != nil {
		p.clock = k
	}
	c.peers.mu.Unlock()
	if p != nil {
		c.setClock(false)
	}
}

// setClock brings the cluster's time up to date; lead: this node is about to decide by
// it.
func (c *cluster) setClock(lead bool) {
	c.peers.mu.Lock()
	defer c.peers.mu.Unlock()
	k, now := &c.clock, c.clock.mono()
	own := c.s.rawNow() - now
	clocks, agreed := []topics.Nanos{own}, []topics.Nanos(nil)
	if k.settled.Load() {
		agreed = append(agreed, topics.Nanos(k.offset.Load()))
	}
	for _, p := range c.peers.of {
		if !p.clock.known {
			continue
		}
		clocks = append(clocks, p.clock.own)
		if p.clock.settled {
			agreed = append(agreed, p.clock.cluster)
		}
	}
	k.offset.Store(int64(agreeOnTime(own, clocks, agreed, now-k.set)))
	k.set = now
	if lead || len(agreed) > 0 {
		k.settled.Store(true)
	}
	off := time.Duration(own - topics.Nanos(k.offset.Load()))
	apart := off.Abs() > time.Duration(2*clockOff)
	if apart && !k.apart {
		c.s.o.Log.Warn("this node's clock is far off the time its cluster goes by", "off", off)
	}
	k.apart = apart
}

// agreeOnTime returns the cluster's time from this node's own clock, those of all nodes
// that are connected, this one included, what those go by that have settled it, and how
// long ago that was done last. The earlier of two counts: what is kept too long can still
// be deleted.
func agreeOnTime(own topics.Nanos, clocks, agreed []topics.Nanos, since topics.Nanos) topics.Nanos {
	slices.Sort(clocks)
	slices.Sort(agreed)
	median := clocks[(len(clocks)-1)/2]
	target := min(max(own, median-clockOff), median+clockOff)
	if len(agreed) == 0 || len(clocks) > 1 && clocks[len(clocks)-1]-clocks[0] <= clockOff {
		return target
	}
	at := agreed[(len(agreed)-1)/2]
	most := since / clockSlew
	return at + min(max(target-at, -most), most)
}

// awaitClocks waits until the clocks of all peers that are connected are known, for
// at most a second: it may be them who are gone.
func (c *cluster) awaitClocks(ctx context.Context) {
	p := &c.peers
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		missing := ""
		p.mu.RLock()
		for name, o := range p.of {
			if !o.clock.known {
				missing = name
			}
		}
		p.mu.RUnlock()
		if missing == "" || ctx.Err() != nil {
			return
		}
		c.askClock(ctx, missing)
	}
}

// settleClock settles the cluster's time for a node that is about to lead. What its
// peers go by may have been settled since they were asked.
func (c *cluster) settleClock(ctx context.Context) {
	if !c.clock.settled.Load() {
		c.peers.mu.Lock()
		for _, p := range c.peers.of {
			p.clock.known = false
		}
		c.peers.mu.Unlock()
	}
	c.awaitClocks(ctx)
	c.setClock(true)
}
