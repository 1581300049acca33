package peer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/heraldmq/herald/replication/peer/wire"
)

type channelRange struct {
	lo, hi Channel
	handle func(from string, c Channel, chunk []byte)
}

// HandleChannel registers who gets the chunks of the channels lo to hi, both
// included. Before Start. The chunks of one peer and channel come in the order they
// were sent in, one at a time; those of a new connection after those that came over
// the old one. A handler that is slow stalls its channel and nothing else. The chunk
// is the handler's. Chunks may come before Up has been reported.
func (n *Network) HandleChannel(lo, hi Channel, h func(from string, c Channel, chunk []byte)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.channels = append(n.channels, channelRange{lo, hi, h})
}

// Send queues a chunk of at most ChunkBytesMax bytes and keeps it. It never blocks:
// ErrNoPeer when the peer isn't connected, ErrFull when QueueBytesMax are queued.
// When the connection breaks, what was queued or not handled yet is lost without a
// word but Down.
func (n *Network) Send(to string, c Channel, chunk []byte) error {
	l := n.link(to)
	if l == nil {
		return ErrNoPeer
	}
	err := l.out.push(wire.Chunk, uint32(c), newMessage(chunk))
	if err == ErrLinkLost {
		return ErrNoPeer
	}
	return err
}

// Queued is how many bytes of a channel wait to be sent to a peer, with 64 for each
// chunk.
func (n *Network) Queued(to string, c Channel) int64 {
	if l := n.link(to); l != nil {
		return l.out.queued(laneKey{wire.Chunk, uint32(c)})
	}
	return 0
}

// WaitRoom waits until fewer than below bytes are Queued. ErrNoPeer when the peer
// isn't connected or no longer.
func (n *Network) WaitRoom(ctx context.Context, to string, c Channel, below int64) error {
	l := n.link(to)
	if l == nil {
		return ErrNoPeer
	}
	err := l.out.waitRoom(ctx, laneKey{wire.Chunk, uint32(c)}, below)
	if err == ErrLinkLost {
		return ErrNoPeer
	}
	return err
}

// receiver hands the chunks of one peer and channel to their handler. It outlives
// connections, so that there is one goroutine at a time.
type receiver struct {
	n       *Network
	from    string
	channel Channel
	handle  func(from string, c Channel, chunk []byte)

	mu      sync.Mutex
	queue   []received
	running bool
}

type received struct {
	l     *link
	chunk []byte
	count *chunkCount
}

// chunkCount is what of one channel a link has received.
type chunkCount struct {
	unhandled atomic.Int64
	handled   int64 // and not given back as credit yet; of the handling goroutine alone
}

type receiverKey struct {
	from    string
	channel Channel
}

func (n *Network) receiver(from string, c Channel) *receiver {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.receivers[receiverKey{from, c}]
	if r == nil {
		i := slices.IndexFunc(n.channels, func(x channelRange) bool { return x.lo <= c && c <= x.hi })
		if i < 0 {
			return nil
		}
		r = &receiver{n: n, from: from, channel: c, handle: n.channels[i].handle}
		n.receivers[receiverKey{from, c}] = r
	}
	return r
}

// receiveChunk queues a chunk for its handler.
func (n *Network) receiveChunk(l *link, c Channel, chunk []byte) error {
	r := n.receiver(l.name, c)
	if r == nil {
		l.credit(wire.Chunk, uint32(c), int64(len(chunk))+overhead)
		n.complain("channel "+l.name, "a peer sends on a channel nobody here knows", "peer", l.name, "channel", c)
		return nil
	}
	count := l.received[c]
	if count == nil {
		count = &chunkCount{}
		l.received[c] = count
	}
	if count.unhandled.Add(int64(len(chunk))+overhead) > CreditBytes+ChunkBytesMax+overhead {
		return fmt.Errorf("%w: more on channel %d than there was credit for", wire.ErrFrame, c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, received{l, chunk, count})
	if !r.running && n.begin() {
		r.running = true
		go r.run()
	}
	return nil
}

// run handles chunks until there are none. The network waits for it.
func (r *receiver) run() {
	defer r.n.work.Done()
	for {
		r.mu.Lock()
		if len(r.queue) == 0 || r.n.ctx.Err() != nil {
			r.running, r.queue = false, nil
			r.mu.Unlock()
			return
		}
		x := r.queue[0]
		r.queue[0] = received{}
		r.queue = r.queue[1:]
		r.mu.Unlock()
		cost := int64(len(x.chunk)) + overhead
		_, _ = x.l.guarded(func() ([]byte, error) {
			r.handle(r.from, r.channel, x.chunk)
			return nil, nil
		})
		if x.count.handled += cost; x.count.handled >= CreditBytes/8 {
			x.count.unhandled.Add(-x.count.handled)
			x.l.credit(wire.Chunk, uint32(r.channel), x.count.handled)
			x.count.handled = 0
		}
	}
}
