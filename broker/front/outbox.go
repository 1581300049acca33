package front

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// coalesceMax is up to how many bytes are copied into the last waiting
	// chunk instead of queueing a chunk of their own, so that a slow receiver
	// of small messages doesn't hold a chunk for each.
	coalesceMax = 4 << 10
	// stallBytes is how much may wait for one receiver before publishers are
	// held back.
	stallBytes = 8 << 20
	// writeChunksMax bounds one write, so that the write deadline asks for
	// progress and not for the whole queue to be gone.
	writeChunksMax = 64
)

// outbox is what a connection still has to be sent: bounded in bytes by
// max_pending, emptied by the flusher, or by a publisher that finds it empty.
//
// Invariant: only who set writing touches the connection.
type outbox struct {
	sess *session
	max  int64
	wake chan struct{} // holds at most one signal for the flusher

	pending atomic.Int64 // bytes waiting or being written
	written atomic.Int64 // bytes gone to the connection

	mu       sync.Mutex
	queue    []piece
	spare    []piece // the queue before, for its memory
	writing  bool
	signaled bool
	closed   bool          // takes nothing more
	draining bool          // closed, but what waits is still sent
	partial  bool          // the queue begins within a message
	parting  *parting      // not nil: nothing is written until it is closed, see parting.go
	done     chan struct{} // closed by the flusher when it ends
	room     chan struct{} // closed when stalled publishers may go on; nil if none wait
	msgs     int64
	bytes    int64

	raw      inlineWriter // nil where the connection has no plain socket
	deadline time.Time    // owned by who writes
	vec      net.Buffers  // owned by the flusher
}

func (o *outbox) init(s *session) {
	o.sess, o.max = s, s.srv.opts().MaxPending
	o.wake, o.done = make(chan struct{}, 1), make(chan struct{})
}

// push queues pieces, whose references it takes over.
func (o *outbox) push(pieces []piece, size, msgs int) {
	pending := o.pending.Add(int64(size))
	o.mu.Lock()
	if o.closed {
		p := o.parting
		o.mu.Unlock()
		o.pending.Add(-int64(size))
		if p != nil {
			var all []byte
			for _, piece := range pieces {
				all = append(all, piece.b...)
			}
			p.keep(all)
		}
		releaseAll(pieces)
		return
	}
	if o.max > 0 && pending > o.max {
		o.mu.Unlock()
		o.pending.Add(-int64(size))
		releaseAll(pieces)
		o.sess.cutOff(ReasonSlowPending)
		return
	}
	o.msgs += int64(msgs)
	o.bytes += int64(size)
	for _, p := range pieces {
		if len(p.b) <= coalesceMax && o.coalesce(p) {
			continue
		}
		o.queue = append(o.queue, p)
	}
	o.signalLocked()
	o.mu.Unlock()
}

// coalesce copies p behind the last waiting piece if that has room. (A read
// buffer has none: it counts as full.)
func (o *outbox) coalesce(p piece) bool {
	if len(o.queue) == 0 {
		return false
	}
	last := &o.queue[len(o.queue)-1]
	if last.c.refs.Load() != 1 || last.c.room() < len(p.b) {
		return false
	}
	at := len(last.c.buf) - len(last.b)
	last.c.buf = append(last.c.buf, p.b...)
	last.b = last.c.buf[at:]
	p.c.release()
	return true
}

func (o *outbox) signalLocked() {
	if o.writing || o.signaled {
		return // whoever writes looks again afterwards
	}
	o.signaled = true
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// tryInline writes one piece at once if nothing waits and nobody writes: it
// saves the hop to the flusher. It never blocks; what the socket doesn't take is
// queued. false: not done, push instead.
func (o *outbox) tryInline(p piece, msgs int) bool {
	if o.raw == nil {
		return false
	}
	o.mu.Lock()
	if o.closed || o.writing || len(o.queue) > 0 || o.parting != nil {
		o.mu.Unlock()
		return false
	}
	o.writing = true
	o.msgs += int64(msgs)
	o.bytes += int64(len(p.b))
	o.mu.Unlock()

	o.extendDeadline() // an old one would fail the write
	n, err := o.raw.write(p.b)
	o.written.Add(int64(n))

	o.mu.Lock()
	o.writing = false
	rest := p.b[n:]
	if err == nil && len(rest) > 0 && !o.closed {
		o.pending.Add(int64(len(rest)))
		o.queue = append(o.queue, piece{})
		copy(o.queue[1:], o.queue)
		o.queue[0] = piece{c: p.c, b: rest}
		o.partial = true
		p.c = nil
	}
	if len(o.queue) > 0 || o.closed {
		o.signalLocked()
	}
	o.mu.Unlock()
	if p.c != nil {
		p.c.release()
	}
	if err != nil {
		o.sess.cutOff(ReasonWriteError)
	}
	return true
}

// flush is the flusher goroutine: it writes what waits until the outbox is
// closed, and, when draining, until nothing waits.
func (o *outbox) flush() {
	defer func() {
		// The reader may be waiting for a client that has been told to go.
		if o.sess.parting.Load() != nil {
			o.sess.halfClose()
		} else {
			_ = o.sess.sock.SetReadDeadline(time.Unix(1, 0))
		}
		close(o.done)
	}()
	for {
		o.mu.Lock()
		if o.writing || !o.closed && (len(o.queue) == 0 || o.parting != nil && !o.partial) {
			o.signaled = false
			o.mu.Unlock()
			<-o.wake
			continue
		}
		if o.closed && (len(o.queue) == 0 || !o.draining) {
			o.dropLocked()
			o.mu.Unlock()
			return
		}
		q := o.queue
		o.queue, o.spare = o.spare[:0], nil
		o.writing, o.signaled, o.partial = true, false, false
		o.mu.Unlock()

		n, err := o.write(q)

		o.mu.Lock()
		o.writing = false
		o.pending.Add(-n)
		clear(q)
		o.spare = q[:0]
		o.releaseRoomLocked()
		if err != nil {
			o.closed, o.draining = true, false
		}
		o.mu.Unlock()
		if err != nil {
			reason := ReasonWriteError
			if errors.Is(err, os.ErrDeadlineExceeded) {
				reason = ReasonSlowDeadline
			}
			o.sess.cutOff(reason)
		}
	}
}

// write sends all of q, releases it, and returns how many bytes it was, sent
// or not.
func (o *outbox) write(q []piece) (total int64, err error) {
	for len(q) > 0 {
		part := q[:min(len(q), writeChunksMax)]
		q = q[len(part):]
		var n int64
		o.vec = o.vec[:0]
		for _, p := range part {
			o.vec = append(o.vec, p.b)
			n += int64(len(p.b))
		}
		total += n
		if err == nil {
			o.extendDeadline()
			vec := o.vec // consumed by the write; the array stays ours
			if err = o.sess.writeAll(vec); err == nil {
				o.written.Add(n)
			}
		}
		clear(o.vec)
		for _, p := range part {
			p.c.release()
		}
	}
	return total, err
}

// extendDeadline moves the write deadline, but not for every write: a tenth of
// it may be missing.
func (o *outbox) extendDeadline() {
	limit := o.sess.srv.opts().WriteDeadline
	if limit <= 0 {
		return
	}
	now := time.Now()
	if o.deadline.Sub(now) < limit-limit/10 {
		o.deadline = now.Add(limit)
		// An error shows at the write that follows.
		_ = o.sess.conn.SetWriteDeadline(o.deadline)
	}
}

// close stops the outbox. With drain, what waits is still sent.
func (o *outbox) close(drain bool) {
	o.mu.Lock()
	if !o.closed {
		o.closed, o.draining = true, drain
	} else if !drain {
		o.draining = false
	}
	o.releaseRoomLocked()
	o.signaled = true
	select {
	case o.wake <- struct{}{}:
	default:
	}
	o.mu.Unlock()
}

func (o *outbox) dropLocked() {
	for _, p := range o.queue {
		o.pending.Add(-int64(len(p.b)))
		p.c.release()
	}
	o.queue, o.spare = nil, nil
}

func (o *outbox) releaseRoomLocked() {
	if o.room != nil && (o.closed || o.pending.Load() < o.stallAt()) {
		close(o.room)
		o.room = nil
	}
}

// stallAt is from how many pending bytes on publishers are held back.
func (o *outbox) stallAt() int64 {
	at := int64(stallBytes)
	if o.max > 0 {
		at = min(at, o.max*3/4)
	}
	return at
}

// waitRoom returns a channel that is closed when the outbox has room again, nil
// when it has room now.
func (o *outbox) waitRoom() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.pending.Load() < o.stallAt() {
		return nil
	}
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room
}

func (o *outbox) counters() (msgs, bytes int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.msgs, o.bytes
}

func releaseAll(pieces []piece) {
	for _, p := range pieces {
		p.c.release()
	}
}

// inlineWriter writes to a socket without ever waiting for it.
type inlineWriter interface {
	write(b []byte) (n int, err error)
}

func newInlineWriter(c net.Conn) inlineWriter {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return newRawWriter(raw)
}
