package mesh

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication/peer"
)

const (
	// queueMax is how many bytes of messages wait for one peer; changes of
	// interest may take what the network has beyond that.
	queueMax = peer.QueueBytesMax - 8<<20
	// behindAt is from how many waiting bytes on publishers are held back.
	behindAt = 8 << 20
	// stuckAfter is how long a peer may take nothing before messages for it are
	// dropped.
	stuckAfter = 10 * time.Second
	// waitMax is how long one wait for a peer is; one that takes movedMin in that
	// time is worth another.
	waitMax  = 100 * time.Millisecond
	movedMin = 64 << 10
)

// link is what this node has with one peer. It is kept when the connection breaks,
// for the next one.
type link struct {
	m    *Mesh
	name string

	up      atomic.Bool // it is told of interest
	stuck   atomic.Bool
	untold  atomic.Bool  // it missed changes for want of room
	stuckAt atomic.Int64 // what it had taken, plus 1, when a wait for it was in vain
	in, out counters
	dropped atomic.Int64
	// remote is the peer as a receiver: another one for each connection. It is replaced
	// while receiving is held.
	remote atomic.Pointer[front.Remote]

	sending sync.Mutex // what goes over the channel, in one piece each
	pushed  atomic.Int64

	// receiving is held while a chunk is handled, and while what the peer told is
	// forgotten.
	receiving sync.Mutex
	inbound   *front.Inbound
	heard     map[heardKey]*heard
	round     uint64 // of full tellings
	partial   []byte // of a long batch
	missing   int
	holds     map[uint64]bool // publishers there that are held back
}

type counters struct{ msgs, bytes atomic.Int64 }

func (c *counters) add(msgs, bytes int) {
	c.msgs.Add(int64(msgs))
	c.bytes.Add(int64(bytes))
}

func newLink(m *Mesh, name string) *link {
	l := &link{m: m, name: name, heard: map[heardKey]*heard{}, holds: map[uint64]bool{}}
	l.remote.Store(front.NewRemote(name, l))
	l.inbound = m.srv.NewInbound(name, m.unknownAccount)
	return l
}

// Push implements front.Link.
func (l *link) Push(batch []byte, msgs int) {
	if l.send(batch) != nil {
		l.dropped.Add(int64(msgs))
		return
	}
	l.out.add(msgs, len(batch))
}

// send queues one batch of messages behind all interest of before.
func (l *link) send(batch []byte) error {
	l.m.tell()
	l.sending.Lock()
	defer l.sending.Unlock()
	if !l.up.Load() {
		return ErrNoPeer
	}
	if l.stuck.Load() || l.queued()+int64(len(batch)) > max(queueMax, int64(len(batch))) {
		return ErrFull
	}
	return l.chunksLocked(batch)
}

// chunksLocked queues bytes in chunks as long as the network takes.
func (l *link) chunksLocked(b []byte) error {
	if len(b) <= peer.ChunkBytesMax {
		return l.chunkLocked(b)
	}
	// Nothing comes between: sending is held.
	if err := l.chunkLocked(partHead(len(b))); err != nil {
		return err
	}
	for len(b) > 0 {
		n := min(len(b), peer.ChunkBytesMax-1)
		part := append(append(make([]byte, 0, n+1), chunkMore), b[:n]...)
		if err := l.chunkLocked(part); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (l *link) chunkLocked(b []byte) error {
	err := l.m.net.Send(l.name, peer.ChannelMesh, b)
	switch {
	case err == nil:
		l.pushed.Add(int64(len(b)))
		return nil
	case errors.Is(err, peer.ErrFull):
		return ErrFull
	case errors.Is(err, peer.ErrNoPeer):
		return ErrNoPeer
	}
	return err
}

func (l *link) queued() int64 { return l.m.net.Queued(l.name, peer.ChannelMesh) }

// taken is how many bytes the peer has taken so far.
func (l *link) taken() int64 { return l.pushed.Load() - l.queued() }

// Behind implements front.Link.
func (l *link) Behind() bool { return l.queued() >= behindAt }

// Wait implements front.Link.
func (l *link) Wait() (again bool) {
	before := l.taken()
	if !l.up.Load() || l.stuck.Load() || l.stuckAt.Load() == before+1 {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitMax)
	defer cancel()
	if l.m.net.WaitRoom(ctx, l.name, peer.ChannelMesh, behindAt) == nil {
		return false
	}
	moved := l.taken() - before
	if moved <= 0 {
		l.stuckAt.Store(before + 1)
	}
	return moved >= movedMin
}

// forward queues a message for internal services.
func (l *link) forward(b []byte) error {
	if !l.up.Load() {
		return ErrNoPeer
	}
	if err := l.send(b); err != nil {
		return err
	}
	l.out.add(1, len(b))
	return nil
}

// watch notices that a peer takes nothing. Called about once a second.
type watch struct {
	taken int64
	since time.Time
}

func (l *link) look(w *watch, now time.Time) {
	taken, queued := l.taken(), l.queued()
	if taken != w.taken || queued == 0 || w.since.IsZero() {
		w.taken, w.since = taken, now
		if l.stuck.Swap(false) {
			l.m.log.Info("a peer takes messages again", "peer", l.name, "dropped", l.dropped.Load())
		}
		return
	}
	if now.Sub(w.since) >= stuckAfter && !l.stuck.Swap(true) {
		l.m.log.Warn("a peer has taken nothing for long: live messages for it are dropped until it does",
			"peer", l.name, "waiting", queued)
	}
}
