package state

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/topics"
)

// A message is captured where it enters the cluster, and proposed where its group is
// led. Between the two it is in a parcel: a run of messages in the order in which
// they were captured, sent over the group's channel. What nobody leads is held, for
// a while; then its publishers hear that nobody takes it. A node that gets a parcel
// and doesn't lead any more passes it on, once.
//
// Whether a parcel that was sent to a node which died has been proposed is not known:
// its publishers hear nothing, as with any other loss of a leader.
const (
	parcelBytes      = 128 << 10 // a parcel is closed at this size
	forwardBytesMax  = 4 << 20   // of a group, waiting here; publishers wait at this bound
	forwardAheadMax  = 1 << 20   // given to the network and not sent yet
	forwardHold      = 5 * time.Second
	forwardGroupsMax = 4096
)

// forwarder is the way of a group's messages to the node that leads it.
type forwarder struct {
	c       *cluster
	g       *Group
	wake    chan struct{} // holds one
	pending atomic.Int64  // parcels here, with the one being sent

	mu      sync.Mutex
	room    sync.Cond
	parcels []*parcel // the last one is open
	bytes   int
	runs    bool
	closed  bool
}

func newForwarder(c *cluster, g *Group) *forwarder {
	f := &forwarder{c: c, g: g, wake: make(chan struct{}, 1)}
	f.room.L = &f.mu
	return f
}

// idle tells whether nothing is on its way: what comes now can't overtake anything.
func (f *forwarder) idle() bool { return f.pending.Load() == 0 }

// settle waits until all has been sent.
func (f *forwarder) settle(ctx context.Context) {
	for !f.idle() && sleep(ctx, time.Millisecond) {
	}
}

// capture takes messages, and waits for room first.
func (f *forwarder) capture(batch []front.Captured) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range batch {
		if !f.roomLocked() {
			return // the publishers get no ack, as if the node had been killed now
		}
		p := f.openLocked()
		before := len(p.data)
		p.append(&batch[i])
		f.bytes += len(p.data) - before
	}
	f.startLocked()
}

// roomLocked waits for room; false when the node stops.
func (f *forwarder) roomLocked() bool {
	for f.bytes >= forwardBytesMax && !f.closed {
		f.startLocked()
		f.room.Wait()
	}
	return !f.closed
}

// openLocked returns a parcel with room.
func (f *forwarder) openLocked() *parcel {
	if n := len(f.parcels); n > 0 {
		if p := f.parcels[n-1]; len(p.data) < parcelBytes && !p.passedOn {
			return p
		}
	}
	p := &parcel{since: time.Now()}
	f.parcels = append(f.parcels, p)
	f.pending.Add(1)
	return p
}

// pass takes a parcel that another node sent in vain.
func (f *forwarder) pass(data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.roomLocked() {
		return
	}
	f.parcels = append(f.parcels, &parcel{data: data, since: time.Now(), passedOn: true})
	f.pending.Add(1)
	f.bytes += len(data)
	f.startLocked()
}

// startLocked has the forwarder's goroutine send, and starts it if need be.
func (f *forwarder) startLocked() {
	if !f.runs {
		f.runs = f.c.s.spawn(f.run)
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// stop lets those go who wait for room.
func (f *forwarder) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.room.Broadcast()
}

// run sends until the node stops.
func (f *forwarder) run() {
	ctx := f.c.s.ctx
	defer f.stop()
	for {
		select {
		case <-f.wake:
		case <-ctx.Done():
			return
		}
		for {
			f.mu.Lock()
			if len(f.parcels) == 0 {
				f.mu.Unlock()
				break
			}
			p := f.parcels[0]
			f.parcels[0] = nil
			f.parcels = f.parcels[1:]
			f.mu.Unlock()
			f.deliver(ctx, p)
			f.pending.Add(-1)
			f.mu.Lock()
			f.bytes -= len(p.data)
			f.room.Broadcast()
			f.mu.Unlock()
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// deliver gives a parcel to whoever leads, or has its publishers told that nobody
// does.
func (f *forwarder) deliver(ctx context.Context, p *parcel) {
	for ctx.Err() == nil {
		switch leader := f.g.Leader(); leader {
		case f.c.me:
			if f.g.captureParcel(p.data) {
				return
			}
		case "":
		default:
			if err := f.send(ctx, leader, p); err == nil {
				return
			} else if !errors.Is(err, peer.ErrNoPeer) {
				return // part of it may have been sent
			}
		}
		if time.Since(p.since) > forwardHold {
			f.c.refuse(p.data)
			return
		}
		f.c.pause(ctx, 50*time.Millisecond)
	}
}

// send sends a parcel in pieces.
func (f *forwarder) send(ctx context.Context, to string, p *parcel) error {
	channel := peer.ChannelGroup0 + peer.Channel(f.g.id)
	if f.c.net.Queued(to, channel) >= forwardAheadMax {
		one, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := f.c.net.WaitRoom(one, to, channel, forwardAheadMax); err != nil {
			return peer.ErrNoPeer // nothing was sent: it may have another leader by now
		}
	}
	flags := byte(chunkFirst)
	if p.passedOn {
		flags |= chunkPassedOn
	}
	for rest := p.data; ; {
		n := min(len(rest), peer.ChunkBytesMax-1)
		if n == len(rest) {
			flags |= chunkLast
		}
		chunk := append(append(make([]byte, 0, n+1), flags), rest[:n]...)
		if err := f.c.net.Send(to, channel, chunk); err != nil {
			if flags&chunkFirst == 0 {
				return errPartly
			}
			return peer.ErrNoPeer
		}
		if rest = rest[n:]; len(rest) == 0 {
			return nil
		}
		flags &^= chunkFirst
	}
}

var errPartly = errors.New("the connection broke within a message")

// captureParcel captures a parcel here; false when this node doesn't lead.
func (g *Group) captureParcel(data []byte) bool {
	r := g.local.Load()
	if r == nil || !r.isLeader() {
		return false
	}
	if messages := g.s.cl.open(data); len(messages) > 0 {
		r.queue.capture(messages)
	}
	return true
}

// refuse tells the publishers of a parcel that nobody takes their messages.
func (c *cluster) refuse(data []byte) {
	if c.s.o.Replier == nil {
		return
	}
	repliers := map[*front.Account]Replier{}
	for _, m := range c.open(data) {
		if t, ok := c.s.TopicByID(m.Topic); len(m.Reply) == 0 || ok && t.noAck.Load() {
			continue
		}
		r := repliers[m.Account]
		if r == nil {
			r = c.s.o.Replier(m.Account)
			repliers[m.Account] = r
		}
		r.Deliver(string(m.Reply), string(m.Reply), "", noResponders, nil)
	}
	for _, r := range repliers {
		r.Flush()
	}
}

// answerForward takes what another node forwarded. It is called for one chunk of a
// node and a group at a time, and blocks while the group is full: then that node's
// credit runs out, and its publishers wait.
func (c *cluster) answerForward(from string, channel peer.Channel, chunk []byte) {
	data, flags, whole := c.pieces.add(pieceKey{from, channel}, chunk)
	if !whole {
		return
	}
	g := c.s.groups.get(c.s, topics.GroupID(channel-peer.ChannelGroup0))
	switch {
	case g.captureParcel(data):
	case flags&chunkPassedOn != 0:
		c.refuse(data)
	default:
		g.forward.pass(data)
	}
}
