package state

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication/peer"
)

// A message is captured where it enters the cluster, and proposed where its group is
// led. Between the two it is in a parcel: a run of messages in the order in which
// they were captured, sent over the group's channel. What nobody leads is held, for
// a while; then its publishers hear that nobody takes it.
//
// Order is kept when the lead moves. Parcels are numbered, and meant for a leader in
// its term. A node that doesn't lead in that term sends a parcel back, also when it
// has taken it and finds out before it is proposed, and all that follow until a mark;
// it never passes one on. Whoever sent it sends that mark before it turns to another leader, or when something came back:
// its echo says that all that was sent before has been proposed or is here again. That
// goes first, by number. A node that doesn't echo soon is not waited for; what it sends
// back later is refused, and can't be taken by it later, since its term is over.
//
// A group's channel is not that of the changes of interest, so the leader may store and
// answer a message before it has heard that its publisher listens. Each wait keeps the node
// that sent the parcel, which gets the answer in any case.
//
// What is captured where the leader is comes back in the same way (handback.go), and when
// a topic leaves the group, what is here of it goes to its limbo (limbo.go).
//
// Whether a parcel that was sent to a node which died has been proposed is not known:
// its publishers hear nothing, as with any other loss of a leader.
const (
	parcelBytes      = 128 << 10 // a parcel is closed at this size
	forwardBytesMax  = 4 << 20   // of a group, waiting here; publishers wait at this bound
	forwardAheadMax  = 1 << 20   // given to the network and not sent yet
	forwardHold      = 5 * time.Second
	forwardEcho      = time.Second // for the echo of a mark
	forwardSettle    = 5 * time.Second
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
	term    uint64    // in which that node leads
	epoch   uint32    // one more with each mark
	numbers uint64    // given to parcels so far
	back    []*parcel // came back, in order: they go before the others
	parcels []*parcel // the last one is open
	bytes   int
	runs    bool
	closed  bool
	giveUps []chan struct{} // closed once what is here of topics that left the group is in their limbos
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
		if f.divertedLocked(&batch[i]) {
			continue
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
func (f *forwarder) returned(s *sender, data []byte) {
	f.mu.Lock()
	if f.sent != s.node || s.epoch != f.epoch || f.closed || s.tries >= forwardTriesMax {
		f.mu.Unlock()
		f.c.refuse("", data)
		return
	}
	defer f.mu.Unlock()
	f.backLocked(&parcel{data: data, since: time.Now(), tries: s.tries + 1, number: s.number, epoch: s.epoch})
	f.startLocked()
}

// handedBack takes what was captured where this node led, and not proposed.
func (f *forwarder) handedBack(parcels []*parcel) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	for _, p := range parcels {
		f.numbers++
		p.number, p.epoch = f.numbers, f.epoch-1
		f.backLocked(p)
	}
	f.startLocked()
}

// backLocked puts a parcel among those that came back.
func (f *forwarder) backLocked(p *parcel) {
	p.again = true
	i := len(f.back)
	for i > 0 && f.back[i-1].number > p.number {
		i--
	}
	f.back = slices.Insert(f.back, i, p)
	f.pending.Add(1)
	f.bytes += len(p.data)
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
			f.serveGiveUps(ctx, nil)
			p := f.next()
			if p == nil {
				break
			}
			size := len(p.data)
			f.deliver(ctx, p)
			f.pending.Add(-1)
			f.mu.Lock()
			f.bytes -= size
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
		if f.serveGiveUps(ctx, p); len(p.data) == 0 {
			return
		}
		leader, term := f.c.leaderTerm(f.g.id)
		if leader != f.c.me && !p.again {
			f.awaitOwn(ctx)
		}
		if f.turn(ctx, leader, term, p) {
			f.putBack(p)
			return
		}
		switch leader {
		case f.c.me:
			if f.g.captureParcel(p.data, nil, p) {
				return
			}
		case "":
		default:
			if p.tries > 0 { // it may lead by now, or not be able to yet
				f.c.pause(ctx, min(10*time.Millisecond<<p.tries, time.Second))
			}
			f.tell(leader, term, p)
			if err := f.send(ctx, leader, term, p); err == nil {
				return
			} else if !errors.Is(err, peer.ErrNoPeer) {
				return // part of it may have been sent
			}
		}
		if time.Since(p.since) > forwardHold {
			f.c.refuse("", p.data)
			return
		}
		f.c.pause(ctx, 50*time.Millisecond)
	}
}

// awaitOwn waits until what was captured while this node led has been proposed or has
// come back.
func (f *forwarder) awaitOwn(ctx context.Context) {
	if r := f.g.local.Load(); r != nil {
		r.settle(ctx)
	}
}

// putBack puts a parcel before all that wait here, and behind what goes before it.
func (f *forwarder) putBack(p *parcel) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending.Add(1)
	f.bytes += len(p.data)
	if !p.again {
		f.parcels = append([]*parcel{p}, f.parcels...)
		return
	}
	i := 0
	for i < len(f.back) && f.back[i].number < p.number {
		i++
	}
	f.back = slices.Insert(f.back, i, p)
}

// tell notes whom a parcel is about to be sent to.
func (f *forwarder) tell(leader string, term uint64, p *parcel) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.number == 0 {
		f.numbers++
		p.number = f.numbers
	}
	p.epoch = f.epoch
	f.sent, f.term = leader, term
	f.unsure.Store(true)
}

// turn makes sure, before anything is sent to another leader than before, or once
// something has come back, that all that was sent has been proposed or is back. It
// tells whether anything goes before p.
func (f *forwarder) turn(ctx context.Context, leader string, term uint64, p *parcel) bool {
	f.mu.Lock()
	sent := f.sent
	vain := func(p *parcel) bool { return p.again && p.epoch == f.epoch }
	same := sent == leader && f.term == term && !vain(p) && !slices.ContainsFunc(f.back, vain)
	before := f.beforeLocked(p)
	f.mu.Unlock()
	if sent == "" || leader == "" || same {
		return before
	}
	f.mark(ctx, sent)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.beforeLocked(p)
}

// beforeLocked tells whether anything has come back that goes before p.
func (f *forwarder) beforeLocked(p *parcel) bool {
	return len(f.back) > 0 && (!p.again || f.back[0].number < p.number)
}

// send sends a parcel.
func (f *forwarder) send(ctx context.Context, to string, term uint64, p *parcel) error {
	channel := peer.ChannelGroup0 + peer.Channel(f.g.id)
	if f.c.net.Queued(to, channel) >= forwardAheadMax {
		one, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := f.c.net.WaitRoom(one, to, channel, forwardAheadMax); err != nil {
			return peer.ErrNoPeer // nothing was sent: it may have another leader by now
		}
	}
	return f.c.sendPieces(to, channel, p.tries<<chunkTries, &sender{term: term, number: p.number, epoch: p.epoch}, p.data)
}
