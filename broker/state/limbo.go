package state

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/topics"
)

// What is captured for a topic while it moves waits in the topic's limbo. What a node
// captured itself and what others forwarded to it are kept apart:
//
//   - Of others it keeps what came while the topic is frozen where this node leads, or
//     isn't open yet. That is proposed here, or goes back to whoever captured it: when
//     the topic has left, when this node leads no more, and before the echo of a mark
//     (forward.go). It is never passed on, since only the node that captured messages
//     knows their order.
//   - Its own is in the order in which it was captured. At the switch to another group
//     that is: what came back from the group it leaves, by the parcels' numbers; what
//     had not been sent; what was captured since. For that the forwarder of the group
//     that it leaves is asked for all that it has of the topic, after a mark: until then
//     nothing goes to the group it is in now.
//
// While a node's own messages are in limbo all that it captures goes there. What waits
// too long, or finds no room, is refused: clients try again.
type limbo struct {
	s    *State
	t    *Topic
	wake chan struct{} // holds one

	giving sync.Mutex // held while something is given away; taken before mu

	mu      sync.Mutex
	others  []*parcel // by from
	back    []*parcel // its own that had been sent or proposed in vain, by number
	front   []*parcel // its own that was in a forwarder
	own     []*parcel // its own that came straight
	leaving int       // forwarders that have been asked for what they have
	bytes   int
	closed  bool
}

const (
	limboLook  = 10 * time.Millisecond // how often it is looked whether a topic is served again
	limboAhead = time.Second           // for a topic that comes here, as others know already
)

// limbos are those of all topics.
type limbos struct {
	n   atomic.Int64
	all sync.Map // *limbo → true
}

func (s *limbos) add(l *limbo) {
	s.n.Add(1)
	s.all.Store(l, true)
}

func (s *limbos) remove(l *limbo) {
	s.all.Delete(l)
	s.n.Add(-1)
}

// giveBack gives back what a node forwarded over a channel.
func (s *limbos) giveBack(from string, channel peer.Channel) {
	s.all.Range(func(k, _ any) bool {
		if l, ok := k.(*limbo); ok {
			l.giveBackTo(from, channel)
		}
		return true
	})
}

// limboOf returns the topic's limbo, and makes one; nil when the node stops.
func (s *State) limboOf(t *Topic) *limbo {
	for {
		if l := t.limbo.Load(); l != nil {
			return l
		}
		l := &limbo{s: s, t: t, wake: make(chan struct{}, 1)}
		if !t.limbo.CompareAndSwap(nil, l) {
			continue
		}
		s.limbos.add(l)
		if !s.spawn(func() { l.run(s.ctx) }) {
			return nil
		}
		return l
	}
}

// park keeps a message that was captured for a topic that moves: by another node, or
// here, where via is the forwarder's parcel it was in. It doesn't block.
func (s *State) park(t *Topic, m *front.Captured, from *sender, via *parcel) {
	for {
		l := s.limboOf(t)
		if l == nil || l.add(m, from, via) {
			return // without one the publishers get no ack, as if the node had been killed now
		}
	}
}

// add takes a message; false when the limbo has ended.
func (l *limbo) add(m *front.Captured, from *sender, via *parcel) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if l.bytes >= forwardBytesMax && via == nil { // a forwarder has its own bound
		p := &parcel{}
		p.append(m)
		l.s.spawn(func() { l.s.cl.refuse(from.name(), p.data) })
		return true
	}
	var p *parcel
	switch {
	case from != nil:
		p = openParcel(&l.others, func(p *parcel) bool { return p.from == from })
		p.from = from
	case via == nil:
		p = openParcel(&l.own, nil)
	case via.again:
		p = numberedParcel(&l.back, via.number)
	default:
		p = openParcel(&l.front, nil)
	}
	before := len(p.data)
	p.append(m)
	l.bytes += len(p.data) - before
	l.lookSoon()
	return true
}

// openParcel returns the last parcel of a list, or a new one if it is full, being given away
// or not fit.
func openParcel(list *[]*parcel, fit func(*parcel) bool) *parcel {
	if n := len(*list); n > 0 {
		if p := (*list)[n-1]; len(p.data) < parcelBytes && !p.given && (fit == nil || fit(p)) {
			return p
		}
	}
	p := &parcel{since: time.Now()}
	*list = append(*list, p)
	return p
}

// numberedParcel returns the parcel of that number, at its place: another one behind it when
// that is being given away.
func numberedParcel(list *[]*parcel, number uint64) *parcel {
	i := len(*list)
	for i > 0 && (*list)[i-1].number > number {
		i--
	}
	if i > 0 && (*list)[i-1].number == number && !(*list)[i-1].given {
		return (*list)[i-1]
	}
	p := &parcel{since: time.Now(), number: number}
	*list = slices.Insert(*list, i, p)
	return p
}

func (l *limbo) lookSoon() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// takes tells whether what is captured now goes behind what waits here.
func (l *limbo) takes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaving > 0 || len(l.back)+len(l.front)+len(l.own) > 0
}

// precedes tells whether something waits here that was given away before, or with, what
// comes from a forwarder now.
func (l *limbo) precedes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.back)+len(l.front) > 0
}

// leave has what was captured here for a topic and has not been stored by the group that
// the topic leaves go to the one that it goes to, before what is captured from now on.
// The caller sets that group when leave returns, and then calls the function returned.
func (s *State) leave(t *Topic, g *Group) (left func()) {
	g.left.Store(true)
	t.was.Store(g)
	if s.cl == nil {
		return func() {}
	}
	var l *limbo
	for ended := true; ended; {
		if l = s.limboOf(t); l == nil {
			return func() {}
		}
		l.mu.Lock()
		if ended = l.closed; !ended {
			l.joinLocked()
			l.leaving++
		}
		l.mu.Unlock()
	}
	return func() {
		s.spawn(func() {
			g.forward.giveUp(s.ctx)
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.leaving--; l.leaving == 0 {
				l.joinLocked()
			}
			l.lookSoon()
		})
	}
}

// joinLocked makes one list of this node's own messages.
func (l *limbo) joinLocked() {
	l.own = slices.Concat(l.back, l.front, l.own)
	l.back, l.front = nil, nil
}

// run gives away what has gathered, and ends with it.
func (l *limbo) run(ctx context.Context) {
	tick := time.NewTicker(limboLook)
	defer tick.Stop()
	for !l.look() {
		select {
		case <-l.wake:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look gives away what can be, and tells whether the limbo has ended.
func (l *limbo) look() bool {
	l.giving.Lock()
	defer l.giving.Unlock()
	for l.giveOther() {
	}
	for l.giveOwn() {
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leaving > 0 || len(l.others)+len(l.back)+len(l.front)+len(l.own) > 0 {
		return false
	}
	l.closed = true
	l.t.limbo.CompareAndSwap(l, nil)
	l.s.limbos.remove(l)
	return true
}

// first returns the head of the first list that has one. Nothing is put into it from now on:
// what came while it is given away would end with it, unanswered.
func (l *limbo) first(lists ...*[]*parcel) *parcel {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range lists {
		if len(*list) > 0 {
			(*list)[0].given = true
			return (*list)[0]
		}
	}
	return nil
}

// done ends a parcel, of which some may be left: nothing is left of it if rest is empty.
func (l *limbo) done(p, rest *parcel, lists ...*[]*parcel) (all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes += len(rest.data) - len(p.data)
	if len(rest.data) > 0 {
		*p = parcel{data: rest.data, since: p.since, number: p.number, from: p.from}
		return false
	}
	for _, list := range lists {
		if i := slices.Index(*list, p); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
		}
	}
	return true
}

// giveOther proposes the first parcel that another node forwarded, or gives it back;
// false when it has to wait.
func (l *limbo) giveOther() bool {
	p := l.first(&l.others)
	if p == nil {
		return false
	}
	g := l.s.groups.get(l.s, topics.GroupID(p.from.channel-peer.ChannelGroup0))
	r, at := g.local.Load(), l.t.Group()
	leads := r != nil && r.isLeader() && r.repl.Load().Term() == p.from.term
	rest := &parcel{}
	switch {
	case l.t.Gone(), time.Since(p.since) > forwardHold:
		l.s.cl.refuse(p.from.node, p.data)
	case !leads:
		l.s.cl.giveBack(p.from, p.data)
	case at == g && l.t.held.Load():
		return false
	case at == g:
		r.queue.captureSettled(l.s.cl.open(p.data), p.from, rest)
	case l.t.was.Load() == g, time.Since(p.since) > limboAhead:
		l.s.cl.sendBack(p.from, p.data)
	default: // it comes here, and whoever sent this has heard of it before
		return false
	}
	return l.done(p, rest, &l.others)
}

// giveBackTo gives back what a node forwarded over a channel.
func (l *limbo) giveBackTo(from string, channel peer.Channel) {
	l.giving.Lock()
	defer l.giving.Unlock()
	l.mu.Lock()
	var theirs []*parcel
	l.others = slices.DeleteFunc(l.others, func(p *parcel) bool {
		if p.from.node != from || p.from.channel != channel {
			return false
		}
		theirs = append(theirs, p)
		l.bytes -= len(p.data)
		return true
	})
	l.mu.Unlock()
	for _, p := range theirs {
		l.s.cl.sendBack(p.from, p.data)
	}
}

// giveOwn gives the first parcel of this node's own to whoever serves the topic, or
// refuses it when that takes too long; false when it has to wait.
func (l *limbo) giveOwn() bool {
	l.mu.Lock()
	leaving := l.leaving > 0
	l.mu.Unlock()
	p := l.first(&l.back, &l.front, &l.own)
	if p == nil || leaving && !l.t.Gone() {
		return false
	}
	g := l.t.Group()
	leader := g.Leader()
	r, rest := g.local.Load(), &parcel{}
	switch {
	case l.t.Gone(), time.Since(p.since) > forwardHold:
		l.s.cl.refuse("", p.data)
	case l.t.held.Load() || leader == "":
		return false
	case leader != l.s.cl.me || !g.forward.idle():
		g.forward.take(p)
	case r == nil || !r.isLeader():
		return false
	default:
		r.queue.captureSettled(l.s.cl.open(p.data), nil, rest)
	}
	return l.done(p, rest, &l.back, &l.front, &l.own)
}

// take takes what comes from a limbo, behind all that waits.
func (f *forwarder) take(p *parcel) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// A node that gets it before it knows of the move has it wait in its own limbo.
	f.parcels = append(f.parcels, &parcel{data: p.data, since: p.since, settled: true})
	f.pending.Add(1)
	f.bytes += len(p.data)
	f.startLocked()
}
