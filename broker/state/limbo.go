package state

import (
	"context"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics"
)

// What is captured for a topic while it moves goes to the topic's limbo: on the node
// that leads the group it leaves, and on the one that leads the group it goes to, until
// it is opened there. It is in parcels, as what is forwarded is, and goes on in order
// once the topic is served again: here, or to the node that leads its group then. What
// waits too long, or finds no room, is refused: clients try again.
type limbo struct {
	s *State
	t *Topic

	mu      sync.Mutex
	parcels []*parcel
	bytes   int
	closed  bool
}

// limboLook is how often it is looked whether a topic is served again.
const limboLook = 10 * time.Millisecond

// away tells whether messages of a topic must not be proposed to a group now.
func (g *Group) away(t *Topic) bool {
	return t.held.Load() || t.Group() != g || t.limbo.Load() != nil
}

// divert keeps a message that was captured for a topic that moves. It doesn't block.
func (s *State) divert(t *Topic, m *front.Captured) {
	for {
		l := t.limbo.Load()
		if l == nil {
			l = &limbo{s: s, t: t}
			if !t.limbo.CompareAndSwap(nil, l) {
				continue
			}
			if !s.spawn(func() { l.run(s.ctx) }) {
				return // the publishers get no ack, as if the node had been killed now
			}
		}
		if l.add(m) {
			return
		}
	}
}

// add takes a message; false when the limbo has ended.
func (l *limbo) add(m *front.Captured) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if l.bytes >= forwardBytesMax {
		p := &parcel{}
		p.append(m)
		l.s.spawn(func() { l.s.cl.refuse(p.data) })
		return true
	}
	var p *parcel
	if n := len(l.parcels); n > 0 && len(l.parcels[n-1].data) < parcelBytes {
		p = l.parcels[n-1]
	} else {
		p = &parcel{since: time.Now()}
		l.parcels = append(l.parcels, p)
	}
	before := len(p.data)
	p.append(m)
	l.bytes += len(p.data) - before
	return true
}

// run gives away what has gathered, and ends with it.
func (l *limbo) run(ctx context.Context) {
	for sleep(ctx, limboLook) {
		l.mu.Lock()
		if len(l.parcels) == 0 {
			l.closed = true
			l.t.limbo.CompareAndSwap(l, nil)
			l.mu.Unlock()
			return
		}
		p := l.parcels[0]
		l.mu.Unlock()
		for !l.give(p) && sleep(ctx, limboLook) {
		}
		if ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		l.parcels = l.parcels[1:]
		l.bytes -= len(p.data)
		more := len(l.parcels) > 0
		l.mu.Unlock()
		for more && ctx.Err() == nil {
			more = l.next()
		}
	}
}

// next gives the next parcel away at once, if it can be; false when it is time to look
// again.
func (l *limbo) next() bool {
	l.mu.Lock()
	if len(l.parcels) == 0 {
		l.mu.Unlock()
		return false
	}
	p := l.parcels[0]
	l.mu.Unlock()
	if !l.give(p) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parcels = l.parcels[1:]
	l.bytes -= len(p.data)
	return true
}

// give gives a parcel to whoever serves the topic, or refuses it when that takes too
// long; false when it has to wait.
func (l *limbo) give(p *parcel) bool {
	g := l.t.Group()
	leader := g.Leader()
	switch {
	case l.t.Gone(), time.Since(p.since) > forwardHold:
		l.s.cl.refuse(p.data)
		return true
	case l.t.held.Load() || leader == "":
		return false
	case leader != l.s.cl.me:
		g.forward.take(p.data)
		return true
	}
	r := g.local.Load()
	if r == nil || !r.isLeader() {
		return false
	}
	r.queue.captureSettled(l.s.cl.open(p.data))
	return true
}

// take takes what comes from a limbo, behind all that waits.
func (f *forwarder) take(data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// A node that gets it before it knows of the move has it wait in its own limbo.
	f.parcels = append(f.parcels, &parcel{data: data, since: time.Now()})
	f.pending.Add(1)
	f.bytes += len(data)
	f.startLocked()
}

// captureSettled captures what has been in a limbo.
func (q *queue) captureSettled(messages []front.Captured) {
	q.mu.Lock()
	q.captureFrom(messages, nil, true)
	tells := q.tells
	q.tells = nil
	q.mu.Unlock()
	if len(tells) > 0 {
		q.teller.send(tells)
	}
}

// strayed gives the messages whose topics have moved away from the group to those
// where they are, and returns the rest. A group that no topic has left costs nothing.
func (g *Group) strayed(batch []front.Captured) []front.Captured {
	if !g.left.Load() {
		return batch
	}
	var rest []front.Captured
	for i := range batch {
		t, ok := g.s.TopicByID(batch[i].Topic)
		if !ok || t.Group() == g {
			rest = append(rest, batch[i])
			continue
		}
		t.Group().Capture(batch[i : i+1])
	}
	return rest
}

// hold keeps what is captured for a topic from now on from being proposed, and gives
// its batches up: whoever leads it next doesn't know them.
func (q *queue) hold(t *Topic) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.held.Store(true)
	q.staging.dropTopic(t.id)
	q.fasts.dropTopic(t.id)
}

func (s *staging) dropTopic(id topics.TopicID) {
	for k, b := range s.open {
		if k.topic == id {
			s.remove(k, b)
		}
	}
}

func (s *fastBatches) dropTopic(id topics.TopicID) {
	for _, f := range s.open {
		if f.key.topic == id {
			s.remove(f)
		}
	}
}
