package state

import (
	"context"
	"encoding/binary"
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
// a while; then its publishers hear that nobody takes it.
//
// Order is kept when the lead moves. A node that gets a parcel and doesn't lead sends
// it back, and all that follow it, until a mark comes. Whoever sent them sends that
// mark before it turns to another node, or when something came back: its echo says
// that all that was sent before has been taken or is here again. That goes first. A
// node that doesn't echo soon is not waited for; what it sends back later is refused.
//
// Whether a parcel that was sent to a node which died has been proposed is not known:
// its publishers hear nothing, as with any other loss of a leader.
const (
	parcelBytes      = 128 << 10 // a parcel is closed at this size
	forwardBytesMax  = 4 << 20   // of a group, waiting here; publishers wait at this bound
	forwardAheadMax  = 1 << 20   // given to the network and not sent yet
	forwardHold      = 5 * time.Second
	forwardEcho      = 400 * time.Millisecond // for the echo of a mark
	forwardGroupsMax = 4096
	forwardTriesMax  = 7 // a parcel is sent again so many times
)

// forwarder is the way of a group's messages to the node that leads it.
type forwarder struct {
	c       *cluster
	g       *Group
	wake    chan struct{} // holds one
	pending atomic.Int64  // parcels here, with the one being sent
	unsure  atomic.Bool   // sent isn't ""
	echo    chan uint32   // numbers of marks, holds one
	marks   uint32        // sent so far

	mu      sync.Mutex
	room    sync.Cond
	sent    string    // who was sent parcels, and may send some back
	came    []*parcel // what it has sent back since the last mark, in order
	back    []*parcel // what had been sent back before: goes before the others
	parcels []*parcel // the last one is open
	bytes   int
	runs    bool
	closed  bool
}

func newForwarder(c *cluster, g *Group) *forwarder {
	f := &forwarder{c: c, g: g, wake: make(chan struct{}, 1), echo: make(chan uint32, 1)}
	f.room.L = &f.mu
	return f
}

// idle tells whether nothing is on its way: what comes now can't overtake anything.
func (f *forwarder) idle() bool { return f.pending.Load() == 0 && !f.unsure.Load() }

// settle waits until all has been sent.
func (f *forwarder) settle(ctx context.Context) {
	for f.pending.Load() != 0 && sleep(ctx, time.Millisecond) {
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
		if p := f.parcels[n-1]; len(p.data) < parcelBytes {
			return p
		}
	}
	p := &parcel{since: time.Now()}
	f.parcels = append(f.parcels, p)
	f.pending.Add(1)
	return p
}

// returned takes a parcel that was sent in vain. What comes from a node that others
// have been sent to since would come too late.
func (f *forwarder) returned(from string, data []byte, tries byte) {
	f.mu.Lock()
	if f.sent != from || f.closed || tries >= forwardTriesMax {
		f.mu.Unlock()
		f.c.refuse(data)
		return
	}
	defer f.mu.Unlock()
	f.came = append(f.came, &parcel{data: data, since: time.Now(), tries: tries + 1})
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
			p := f.next()
			if p == nil {
				if f.turn(ctx, "", nil) {
					continue
				}
				break
			}
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

// next takes the parcel that goes next, nil if there is none.
func (f *forwarder) next() *parcel {
	f.mu.Lock()
	defer f.mu.Unlock()
	from := &f.parcels
	if len(f.back) > 0 {
		from = &f.back
	}
	if len(*from) == 0 {
		return nil
	}
	p := (*from)[0]
	(*from)[0] = nil
	*from = (*from)[1:]
	return p
}

// deliver gives a parcel to whoever leads, or has its publishers told that nobody
// does. What has come back meanwhile goes first.
func (f *forwarder) deliver(ctx context.Context, p *parcel) {
	for ctx.Err() == nil {
		leader := f.g.Leader()
		if f.turn(ctx, leader, p) {
			return
		}
		switch leader {
		case f.c.me:
			if f.g.captureParcel(p.data) {
				return
			}
		case "":
		default:
			if p.tries > 0 { // it may lead by now, or not be able to yet
				f.c.pause(ctx, min(10*time.Millisecond<<p.tries, time.Second))
			}
			f.toldTo(leader)
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

func (f *forwarder) toldTo(leader string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = leader
	f.unsure.Store(true)
}

// turn makes sure, before anything is sent to another node than before, or once
// something has come back, that all that was sent has been taken or is back. What is
// back goes first: then p, which was to go now, is put behind it, and turn says so.
func (f *forwarder) turn(ctx context.Context, leader string, p *parcel) bool {
	f.mu.Lock()
	sent, came := f.sent, len(f.came)
	f.mu.Unlock()
	if sent == "" || came == 0 && (leader == "" || leader == sent) {
		return false
	}
	f.marks++
	mark := binary.LittleEndian.AppendUint32([]byte{chunkMark}, f.marks)
	if f.c.net.Send(sent, peer.ChannelGroup0+peer.Channel(f.g.id), mark) == nil {
		f.awaitEcho(ctx, sent)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = ""
	f.unsure.Store(false)
	first := f.came
	if f.came = nil; len(first) == 0 {
		return false
	}
	if p != nil {
		f.pending.Add(1)
		f.bytes += len(p.data)
		if p.tries > 0 { // it had been sent before what is left of those
			first = append(first, p)
		} else {
			f.parcels = append([]*parcel{p}, f.parcels...)
		}
	}
	f.back = append(first, f.back...)
	return true
}

// awaitEcho waits for the echo of the last mark, as long as there is any hope.
func (f *forwarder) awaitEcho(ctx context.Context, from string) {
	late := time.After(forwardEcho)
	for {
		select {
		case n := <-f.echo:
			if n == f.marks {
				return
			}
		case <-late:
			return
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
			if _, ok := f.c.net.Peer(from); !ok {
				return
			}
		}
	}
}

// echoed takes an echo.
func (f *forwarder) echoed(n uint32) {
	select {
	case <-f.echo: // of a mark that nobody waits for
	default:
	}
	select {
	case f.echo <- n:
	default:
	}
}

// send sends a parcel.
func (f *forwarder) send(ctx context.Context, to string, p *parcel) error {
	channel := peer.ChannelGroup0 + peer.Channel(f.g.id)
	if f.c.net.Queued(to, channel) >= forwardAheadMax {
		one, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := f.c.net.WaitRoom(one, to, channel, forwardAheadMax); err != nil {
			return peer.ErrNoPeer // nothing was sent: it may have another leader by now
		}
	}
	return f.c.sendPieces(to, channel, p.tries<<chunkTries, p.data)
}

// sendPieces sends a parcel in pieces that bear some flags.
func (c *cluster) sendPieces(to string, channel peer.Channel, flags byte, data []byte) error {
	flags |= chunkFirst
	for rest := data; ; {
		n := min(len(rest), peer.ChunkBytesMax-1)
		if n == len(rest) {
			flags |= chunkLast
		}
		chunk := append(append(make([]byte, 0, n+1), flags), rest[:n]...)
		if err := c.net.Send(to, channel, chunk); err != nil {
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

// answerForward takes what another node forwarded, or sends back. It is called for
// one chunk of a node and a group at a time, and blocks while the group is full: then
// that node's credit runs out, and its publishers wait.
func (c *cluster) answerForward(from string, channel peer.Channel, chunk []byte) {
	g := c.s.groups.get(c.s, topics.GroupID(channel-peer.ChannelGroup0))
	if len(chunk) == 5 && chunk[0]&(chunkMark|chunkEcho) != 0 {
		n := binary.LittleEndian.Uint32(chunk[1:])
		if chunk[0] == chunkEcho {
			g.forward.echoed(n)
			return
		}
		c.returning.Delete(pieceKey{from: from, channel: channel})
		_ = c.net.Send(from, channel, binary.LittleEndian.AppendUint32([]byte{chunkEcho}, n))
		return
	}
	if len(chunk) == 0 {
		return
	}
	key := pieceKey{from, channel, chunk[0]&chunkReturned != 0}
	data, flags, whole := c.pieces.add(key, chunk)
	if !whole {
		return
	}
	tries := flags >> chunkTries
	if key.returned {
		g.forward.returned(from, data, tries)
		return
	}
	if _, after := c.returning.Load(key); !after && g.captureParcel(data) {
		return
	}
	c.returning.Store(key, true)
	if c.sendPieces(from, channel, chunkReturned|tries<<chunkTries, data) != nil {
		c.refuse(data)
	}
}
