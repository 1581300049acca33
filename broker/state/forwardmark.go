package state

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication/peer"
)

// mark has a node that was sent parcels say when it has proposed or sent back all of them,
// and waits for that, though not for long.
func (f *forwarder) mark(ctx context.Context, sent string) {
	f.marks++
	mark := binary.LittleEndian.AppendUint32([]byte{chunkMark}, f.marks)
	if f.c.net.Send(sent, peer.ChannelGroup0+peer.Channel(f.g.id), mark) == nil {
		f.awaitEcho(ctx, sent)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = ""
	f.epoch++
	f.unsure.Store(false)
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
			if p, ok := f.c.net.Peer(from); !ok || p.Silent {
				return // it has gone, or hangs: what it still says comes too late
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

// divertedLocked puts a message into its topic's limbo where it would overtake others here,
// and tells whether it did.
func (f *forwarder) divertedLocked(m *front.Captured) bool {
	s := f.c.s
	if !f.g.left.Load() && s.limbos.n.Load() == 0 {
		return false
	}
	t, ok := s.TopicByID(m.Topic)
	if !ok {
		return false
	}
	if l := t.limbo.Load(); t.Group() == f.g && (l == nil || !l.takes()) {
		return false
	}
	s.park(t, m, nil, nil)
	return true
}

// giveUp waits until all that was captured here before the call, for topics that have left
// the group, has been stored, refused or put into their limbos.
func (f *forwarder) giveUp(ctx context.Context) {
	done := make(chan struct{})
	f.mu.Lock()
	f.giveUps = append(f.giveUps, done)
	f.startLocked()
	f.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// serveGiveUps does what giveUp asked for. p is the parcel that is being sent, if any.
func (f *forwarder) serveGiveUps(ctx context.Context, p *parcel) {
	f.mu.Lock()
	asked, sent := f.giveUps, f.sent
	f.giveUps = nil
	f.mu.Unlock()
	if len(asked) == 0 {
		return
	}
	f.awaitOwn(ctx)
	if sent != "" {
		f.mark(ctx, sent)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.back = f.strippedLocked(f.back)
	if p != nil {
		f.strip(p)
	}
	f.parcels = f.strippedLocked(f.parcels)
	f.room.Broadcast()
	for _, done := range asked {
		close(done)
	}
}

// strippedLocked strips parcels and returns those of which something is left.
func (f *forwarder) strippedLocked(parcels []*parcel) []*parcel {
	return slices.DeleteFunc(parcels, func(p *parcel) bool {
		before := len(p.data)
		f.strip(p)
		f.bytes -= before - len(p.data)
		if len(p.data) > 0 {
			return false
		}
		f.pending.Add(-1)
		return true
	})
}

// strip puts the messages of a parcel whose topics have left the group into their limbos.
func (f *forwarder) strip(p *parcel) {
	messages := f.c.open(p.data)
	gone := func(m *front.Captured) (*Topic, bool) {
		t, ok := f.c.s.TopicByID(m.Topic)
		return t, ok && t.Group() != f.g
	}
	if !slices.ContainsFunc(messages, func(m front.Captured) bool { _, left := gone(&m); return left }) {
		return
	}
	p.data, p.messages, p.account = nil, 0, nil
	for i := range messages {
		if t, left := gone(&messages[i]); left {
			f.c.s.park(t, &messages[i], nil, p)
		} else {
			p.append(&messages[i])
		}
	}
}
