package peer

import (
	"context"
	"slices"
	"sync"

	"github.com/heraldmq/herald/replication/peer/wire"
)

const (
	batchBytes   = 256 << 10 // written at once
	copyBytesMax = 2 << 10   // pieces up to this are copied rather than given to writev
	scratchBytes = 64 << 10
	vectorMax    = 512
	quantumBytes = 64 << 10 // of one lane before the next one of its kind has its turn
	// fairEvery lets the least urgent kind go first once in so many turns: urgent
	// kinds can't starve it for ever.
	fairEvery = 32
	// overhead is what a message costs beside its bytes, so that bounds in bytes also
	// bound the number of small ones.
	overhead = 64
)

// message is one that waits to be sent. Its segments are not changed by anybody
// until it has been written.
type message struct {
	segments [][]byte
	size     int
	copied   func() // called when the segments have been copied; where they are not, never
}

func newMessage(segments ...[]byte) message {
	m := message{segments: segments}
	for _, s := range segments {
		m.size += len(s)
	}
	return m
}

func (m message) cost() int64 { return int64(m.size) + overhead }

type laneKey struct {
	kind wire.Kind
	id   uint32
}

// lane is a queue whose messages are written in order.
type lane struct {
	laneKey
	queue   []message
	bytes   int64 // cost of what is queued
	limited bool  // by credit
	credit  int64
	sent    int // of the first message
	seg     int // where the rest of it begins
	segOff  int
	turn    int // bytes in this turn
	active  bool
	room    chan struct{} // closed when something was taken; nil when nobody waits
}

// outbox holds what waits to be written to one peer.
type outbox struct {
	mu     sync.Mutex
	wake   sync.Cond
	lanes  map[laneKey]*lane
	ready  [wire.Kinds][]*lane // active lanes, the first has its turn
	turns  int
	closed bool
	ending bool // closed once what can be written has been
	left   bool // something that was taken has not been written
	copies bool // write one buffer: TLS has no writev
}

func newOutbox(copies bool) *outbox {
	o := &outbox{lanes: map[laneKey]*lane{}, copies: copies}
	o.wake.L = &o.mu
	return o
}

// laneBytesMax is how many bytes of a kind may wait in one lane.
func laneBytesMax(kind wire.Kind) int64 {
	switch kind {
	case wire.Control, wire.Raft:
		return 16 << 20
	case wire.Append:
		return 1 << 30 // bounded by what raft has in flight
	}
	return QueueBytesMax
}

// creditOf is how many bytes of a lane of a kind may be on the way before there is a word
// from the other side, and at most; 0 for as many as there are.
func creditOf(kind wire.Kind) (first, most int64) {
	switch kind {
	case wire.Chunk:
		return CreditBytes, CreditBytes
	case wire.Stream:
		return streamCreditBytes, streamWindowBytes
	}
	return 0, 0
}

func (o *outbox) lane(key laneKey) *lane {
	l := o.lanes[key]
	if l == nil {
		credit, _ := creditOf(key.kind)
		l = &lane{laneKey: key, credit: credit, limited: credit > 0}
		o.lanes[key] = l
	}
	return l
}

// push queues a message, or says why not: ErrLinkLost, ErrFull, ErrTooLarge.
func (o *outbox) push(kind wire.Kind, id uint32, m message) error {
	err := o.put(kind, id, m)
	if err == nil {
		o.wake.Signal()
	}
	return err
}

// put is push without waking the writer.
func (o *outbox) put(kind wire.Kind, id uint32, m message) error {
	if m.size > kind.Max() {
		return ErrTooLarge
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return ErrLinkLost
	}
	l := o.lane(laneKey{kind, id})
	if l.bytes > 0 && l.bytes+m.cost() > laneBytesMax(kind) {
		return ErrFull
	}
	l.queue = append(l.queue, m)
	l.bytes += m.cost()
	o.activate(l)
	return nil
}

// activate puts a lane that may send in the line. Holds mu.
func (o *outbox) activate(l *lane) {
	if l.active || len(l.queue) == 0 || l.limited && l.credit <= 0 && l.sent == 0 {
		return
	}
	l.active, l.turn = true, 0
	o.ready[l.kind] = append(o.ready[l.kind], l)
}

// addCredit lets a lane send more.
func (o *outbox) addCredit(key laneKey, n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.lanes[key]; l != nil && !o.closed {
		_, most := creditOf(key.kind)
		l.credit = min(l.credit+n, most)
		o.activate(l)
		o.wake.Signal()
	}
}

// drop forgets a lane and what waits in it. Only for kinds whose messages are one
// frame each.
func (o *outbox) drop(key laneKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.lanes[key]; l != nil {
		delete(o.lanes, key)
		if l.active {
			o.ready[key.kind] = slices.DeleteFunc(o.ready[key.kind], func(x *lane) bool { return x == l })
		}
		l.queue, l.bytes = nil, 0
		l.signal()
	}
}

// queued is the cost of what waits in a lane.
func (o *outbox) queued(key laneKey) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if l := o.lanes[key]; l != nil {
		return l.bytes
	}
	return 0
}

// waitRoom waits until fewer than below bytes are queued in a lane.
func (o *outbox) waitRoom(ctx context.Context, key laneKey, below int64) error {
	for {
		o.mu.Lock()
		if o.closed {
			o.mu.Unlock()
			return ErrLinkLost
		}
		l := o.lanes[key]
		if l == nil || l.bytes < below {
			o.mu.Unlock()
			return nil
		}
		if l.room == nil {
			l.room = make(chan struct{})
		}
		room := l.room
		o.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *lane) signal() {
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
}

// finish lets the writer end once it has written what may be written now.
func (o *outbox) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending = true
	o.wake.Broadcast()
}

// close ends everything that waits.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for _, l := range o.lanes {
		l.queue, l.bytes = nil, 0
		l.signal()
	}
	clear(o.lanes)
	o.ready = [wire.Kinds][]*lane{}
	o.wake.Broadcast()
}

// wait waits until there is something to write. False when there won't be.
func (o *outbox) wait() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed {
		if o.anything() {
			return true
		}
		if o.ending {
			return false
		}
		o.wake.Wait()
	}
	return false
}

// wakeWriter wakes the writer if there is something left for it.
func (o *outbox) wakeWriter() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.anything() {
		o.wake.Signal()
	}
}

// leave tells the writer whether something is left of what was taken.
func (o *outbox) leave(left bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.left = left
}

// waiting is how many bytes may be taken now.
func (o *outbox) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, lanes := range o.ready {
		for _, l := range lanes {
			n += int(l.bytes) - l.sent
		}
	}
	return n
}

func (o *outbox) anything() bool {
	if o.left {
		return true
	}
	for kind := range wire.Kinds {
		if len(o.ready[kind]) > 0 {
			return true
		}
	}
	return false
}

// take takes what is to be written next, which may be nothing.
func (o *outbox) take(b *batch) {
	b.reset(o.copies)
	o.mu.Lock()
	defer o.mu.Unlock()
	for !b.full() {
		l := o.next()
		if l == nil {
			break
		}
		o.frame(l, b)
	}
	b.seal()
}

// next picks the lane whose turn it is.
func (o *outbox) next() *lane {
	o.turns++
	if o.turns%fairEvery == 0 {
		for kind := wire.Kinds - 1; ; kind-- {
			if len(o.ready[kind]) > 0 {
				return o.ready[kind][0]
			}
			if kind == 0 {
				return nil
			}
		}
	}
	for kind := range wire.Kinds {
		if len(o.ready[kind]) > 0 {
			return o.ready[kind][0]
		}
	}
	return nil
}

// frame takes one frame from a lane.
func (o *outbox) frame(l *lane, b *batch) {
	m := &l.queue[0]
	if l.sent == 0 && l.limited {
		l.credit -= m.cost()
	}
	n := min(m.size-l.sent, wire.FrameMax)
	h := wire.Header{Len: n, Kind: l.kind, ID: l.id, First: l.sent == 0, Last: l.sent+n == m.size}
	if h.First {
		h.Total = m.size
	}
	var header [wire.HeaderBytes]byte
	h.Put(header[:])
	b.add(header[:], true)
	for left := n; left > 0; {
		s := m.segments[l.seg][l.segOff:]
		take := min(left, len(s))
		b.add(s[:take], o.copies)
		left -= take
		if l.segOff += take; l.segOff == len(m.segments[l.seg]) {
			l.seg, l.segOff = l.seg+1, 0
		}
	}
	l.sent += n
	l.turn += n + overhead
	if h.Last {
		l.bytes -= m.cost()
		if o.copies && m.copied != nil {
			m.copied()
		}
		l.queue[0] = message{}
		if l.queue = l.queue[1:]; len(l.queue) == 0 {
			l.queue = nil
		}
		l.sent, l.seg, l.segOff = 0, 0, 0
		l.signal()
	}
	o.rotate(l)
}

// rotate takes a lane that may not go on out of the line, and one that had its turn
// to the end of it.
func (o *outbox) rotate(l *lane) {
	line := o.ready[l.kind]
	done := len(l.queue) == 0 || l.limited && l.credit <= 0 && l.sent == 0
	if !done && l.turn < quantumBytes || !done && len(line) == 1 {
		return
	}
	// The line has few lanes: moving them costs less than a ring.
	line = slices.Delete(line, 0, 1)
	if done {
		l.active = false
		if l.kind == wire.Append && len(l.queue) == 0 {
			delete(o.lanes, l.laneKey)
		}
	} else {
		l.turn = 0
		line = append(line, l)
	}
	o.ready[l.kind] = line
}
