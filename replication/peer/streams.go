package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/heraldmq/herald/replication/peer/wire"
)

const (
	// streamCreditBytes of a stream may be on the way at first, or where one side is of a
	// version that knows no more; its reader then grants up to streamWindowBytes. On a
	// busy machine the two sides run in turns: what is on the way has to last for one.
	streamCreditBytes = 1 << 20
	streamWindowBytes = 4 << 20
	// streamQueueBytes wait at the writer's side.
	streamQueueBytes = 1 << 20
)

// streamPrefix comes before every piece of a stream. Nobody changes it.
var streamPrefix = []byte{streamData}

// The first byte of a message of kind Stream.
const (
	streamData byte = iota + 1
	streamEnd
	streamError
)

// HandleStream registers who writes the long answers of a method. Before Start. The
// handler runs on a goroutine of its own; its writer blocks while the reader is
// slow, and fails once nobody reads any more. At most 64 streams for one peer at
// once, more are answered ErrBusy.
func (n *Network) HandleStream(method string, h func(ctx context.Context, from string, body []byte, w io.Writer) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.streams[method] = h
}

// OpenStream asks a peer for an answer of any length, which has the lowest priority
// of all. Reading returns io.EOF only after the handler has returned without error;
// the error it returned (RemoteError), ErrLinkLost, or ctx's. Close lets the other
// side stop.
func (n *Network) OpenStream(ctx context.Context, to, method string, body []byte) (io.ReadCloser, error) {
	if len(body) > CallBytesMax {
		return nil, ErrTooLarge
	}
	l := n.link(to)
	if l == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoPeer, to)
	}
	r := &streamReader{l: l, wake: make(chan struct{}, 1), ctx: ctx, used: streamWindowBytes - streamCreditBytes}
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return nil, fmt.Errorf("%w: %s", ErrNoPeer, to)
	}
	l.nextID++
	r.id = uint32(l.nextID)
	l.opened[r.id] = r
	l.mu.Unlock()
	head := append([]byte{callStream}, byte(r.id), byte(r.id>>8), byte(r.id>>16), byte(r.id>>24))
	head = wire.AppendString(head, method)
	if err := l.out.push(wire.Call, 0, newMessage(append(head, body...))); err != nil {
		r.forget()
		return nil, err
	}
	return r, nil
}

// streamReader is the reading end of a stream.
type streamReader struct {
	l    *link
	id   uint32
	ctx  context.Context
	wake chan struct{}

	mu     sync.Mutex
	queue  [][]byte
	bytes  int64
	err    error
	closed bool

	piece []byte // of the reader alone
	rest  []byte // of piece
	used  int64  // read, and not given back as credit yet
}

func (r *streamReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if len(p) == 0 {
			return 0, nil
		}
		r.mu.Lock()
		switch {
		case r.closed:
			r.mu.Unlock()
			return 0, ErrClosed
		case len(r.queue) > 0:
			r.piece, r.queue = r.queue[0], r.queue[1:]
			r.rest = r.piece[1:]
			r.bytes -= int64(len(r.rest)) + 1 + overhead
			r.used += int64(len(r.rest)) + 1 + overhead
		case r.err != nil:
			err := r.err
			r.mu.Unlock()
			return 0, err
		}
		r.mu.Unlock()
		if len(r.rest) > 0 {
			if r.used >= streamCreditBytes/4 {
				// The first time it makes the window; before anything has come the other
				// side would know no stream of this number.
				r.l.credit(wire.Stream, r.id, r.used)
				r.used = 0
			}
			break
		}
		select {
		case <-r.wake:
		case <-r.ctx.Done():
			return 0, r.ctx.Err()
		}
	}
	n := copy(p, r.rest)
	if r.rest = r.rest[n:]; len(r.rest) == 0 {
		wire.Recycle(r.piece)
		r.piece = nil
	}
	return n, nil
}

// Close ends the stream; the writer gets an error.
func (r *streamReader) Close() error {
	r.mu.Lock()
	over := r.closed || r.err != nil
	r.closed, r.queue = true, nil
	r.mu.Unlock()
	r.forget()
	if !over {
		b := []byte{ctlCancelStream, byte(r.id), byte(r.id >> 8), byte(r.id >> 16), byte(r.id >> 24)}
		_ = r.l.out.push(wire.Control, 0, newMessage(b))
	}
	r.signal()
	return nil
}

func (r *streamReader) forget() {
	r.l.mu.Lock()
	delete(r.l.opened, r.id)
	r.l.mu.Unlock()
}

func (r *streamReader) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *streamReader) fail(err error) {
	r.mu.Lock()
	if r.err == nil {
		r.err = err
	}
	r.mu.Unlock()
	r.signal()
}

// receiveStream gets a piece of a stream that we opened.
func (l *link) receiveStream(id uint32, body []byte) {
	l.mu.Lock()
	r := l.opened[id]
	l.mu.Unlock()
	if r == nil || len(body) == 0 {
		return // closed meanwhile
	}
	switch body[0] {
	case streamData:
		r.mu.Lock()
		if !r.closed {
			r.queue = append(r.queue, body)
			r.bytes += int64(len(body)) + overhead
		}
		over := r.bytes > streamWindowBytes+wire.FrameMax+overhead
		r.mu.Unlock()
		if over {
			r.fail(errors.New("peer: more than there was credit for"))
			r.forget()
			return
		}
		r.signal()
	case streamEnd:
		r.fail(io.EOF)
		r.forget()
	case streamError:
		if len(body) > 1 {
			r.fail(answerErr(l.name, body[1], body[2:]))
			r.forget()
		}
	}
}

// streamWriter is the writing end.
type streamWriter struct {
	l      *link
	id     uint32
	ctx    context.Context
	cancel context.CancelFunc
}

// Write copies p and waits until there is room for it.
func (w *streamWriter) Write(p []byte) (int, error) { return w.write(slices.Clone(p), nil) }

// WriteKept is Write without the copy: p is not changed by anybody until done is called.
// It is never called where a connection is written to without a copy, or has ended.
func (w *streamWriter) WriteKept(p []byte, done func()) error {
	_, err := w.write(p, done)
	return err
}

func (w *streamWriter) write(p []byte, done func()) (int, error) {
	total := len(p)
	for len(p) > 0 {
		if err := w.ctx.Err(); err != nil {
			return total - len(p), err
		}
		if err := w.l.out.waitRoom(w.ctx, laneKey{wire.Stream, w.id}, streamQueueBytes); err != nil {
			return total - len(p), err
		}
		n := min(len(p), wire.FrameMax-1)
		m := newMessage(streamPrefix, p[:n:n])
		if n == len(p) {
			m.copied = done // messages of a lane go in order
		}
		if err := w.l.out.push(wire.Stream, w.id, m); err != nil {
			return total - len(p), err
		}
		p = p[n:]
	}
	return total, nil
}

// serveStream runs a handler of a stream.
func (l *link) serveStream(id uint32, method string, body []byte) {
	l.n.mu.Lock()
	h := l.n.streams[method]
	l.n.mu.Unlock()
	w := &streamWriter{l: l, id: id}
	w.ctx, w.cancel = context.WithCancel(l.ctx)
	l.mu.Lock()
	_, again := l.served[id]
	busy := len(l.served) >= streamsMax
	if h != nil && !busy && !again {
		l.served[id] = w
	}
	l.mu.Unlock()
	switch {
	case again:
		w.cancel()
	case h == nil:
		w.end(ErrNoHandler)
	case busy:
		w.end(ErrBusy)
	default:
		l.work.Go(func() {
			_, err := l.guarded(func() ([]byte, error) { return nil, h(w.ctx, l.name, body, w) })
			w.end(err)
		})
	}
}

// end tells the reader how it ended and waits until it has been told, or has left.
func (w *streamWriter) end(err error) {
	b := []byte{streamEnd}
	if err != nil {
		status, text := answerOf(err)
		b = append([]byte{streamError, status}, text...)
	}
	key := laneKey{wire.Stream, w.id}
	push := func() {
		if w.l.out.push(wire.Stream, w.id, newMessage(b)) == nil {
			_ = w.l.out.waitRoom(w.ctx, key, 1)
		}
		w.l.out.drop(key)
		w.l.mu.Lock()
		delete(w.l.served, w.id)
		w.l.mu.Unlock()
		w.cancel()
	}
	w.l.mu.Lock()
	mine := w.l.served[w.id] == w
	w.l.mu.Unlock()
	if mine {
		push()
		return
	}
	// Refused on the reader's goroutine, which can't wait.
	w.l.work.Go(push)
}

func (l *link) cancelStream(id uint32) {
	l.mu.Lock()
	w := l.served[id]
	l.mu.Unlock()
	if w != nil {
		w.cancel()
	}
}
