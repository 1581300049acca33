package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/heraldmq/herald/replication/peer/handshake"
	"github.com/heraldmq/herald/replication/peer/wire"
)

const (
	tickEvery = 500 * time.Millisecond
	// missedMax is how many pings in a row may stay without an answer. Counted in our
	// own ticks, so that a node that was stopped itself doesn't blame the others.
	missedMax   = 6
	silentPings = 2 // so many in a row, and the other side is said to be silent
	lingerFor   = 200 * time.Millisecond
	servingMax  = 128 // calls of one peer that are worked on at once
	streamsMax  = 64  // the same for streams
	probeWithin = time.Second
)

// The first byte of a message of kind Control.
const (
	ctlPing byte = iota + 1
	ctlPong
	ctlCredit
	ctlCancelCall
	ctlCancelStream
	ctlGoodbye
)

// The first byte of a message of kind Call.
const (
	callRequest byte = iota + 1
	callAnswer
	callStream
	callStatus
	callHosts
	callReady
)

var (
	errSilent   = errors.New("peer: it hasn't answered for three seconds")
	errReplaced = errors.New("peer: a newer connection to it took over")
)

// link is one connection to a peer that has proved who it is.
type link struct {
	n        *Network
	name     string
	remote   handshake.Self
	dialer   string // the name of the node that dialed
	conn     net.Conn
	out      *outbox
	since    time.Time
	ctx      context.Context // ends with the link
	cancel   context.CancelFunc
	work     sync.WaitGroup          // handlers
	received map[Channel]*chunkCount // of the reading goroutine alone

	raw     syscall.RawConn // nil: there is no writing without waiting
	writing sync.Mutex
	batch   batch    // of who holds writing
	rest    [][]byte // of batch, which could not be written without waiting; the same

	missed  atomic.Int32
	rtt     atomic.Int64
	serving atomic.Int32

	mu      sync.Mutex
	nextID  uint64
	pending map[uint64]*pending
	calls   map[uint64]context.CancelFunc // of the other side, being worked on
	served  map[uint32]*streamWriter
	opened  map[uint32]*streamReader
	ended   bool
	why     error
	reset   bool

	// Guarded by Network.mu.
	up      bool
	gone    bool // no longer the link of its name
	status  map[string][]byte
	greeted bool
}

// pending is a question on its way. done is called once, with the answer or an
// error, on a goroutine that must not be held up.
type pending struct {
	deadline time.Time // zero: none
	done     func(status byte, body []byte, err error)
}

func newLink(n *Network, s *handshake.Session, dialer string) *link {
	l := &link{
		n: n, name: s.Remote.Name, remote: s.Remote, dialer: dialer, conn: s.Conn(),
		out: newOutbox(s.Secure() || n.o.Wrap != nil), since: time.Now(),
		pending: map[uint64]*pending{}, calls: map[uint64]context.CancelFunc{},
		served: map[uint32]*streamWriter{}, opened: map[uint32]*streamReader{},
		status: map[string][]byte{}, received: map[Channel]*chunkCount{},
	}
	l.ctx, l.cancel = context.WithCancel(n.ctx)
	if c, ok := l.conn.(*net.TCPConn); ok {
		l.raw = rawConn(c)
	}
	return l
}

// run reads and writes until the link has ended and everything that belongs to it
// is over.
func (l *link) run() {
	written := make(chan struct{})
	go func() {
		defer close(written)
		l.write()
	}()
	l.greet()
	err := l.read()
	l.end(err, isReset(err))
	<-written
	l.work.Wait()
}

// end ends the link; the first reason counts.
func (l *link) end(err error, reset bool) {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return
	}
	l.ended, l.why, l.reset = true, err, reset
	waiting := l.pending
	l.pending = nil
	readers := l.opened
	l.opened = nil
	l.mu.Unlock()
	l.n.unlink(l, err, reset)
	l.cancel()
	l.out.close()
	_ = l.conn.Close()
	for _, p := range waiting {
		p.done(0, nil, ErrLinkLost)
	}
	for _, r := range readers {
		r.fail(fmt.Errorf("%w: %w", ErrLinkLost, err))
	}
}

// leave ends the link after telling the other side why.
func (l *link) leave(code handshake.Code, text string) {
	_ = l.out.push(wire.Control, 0, newMessage(wire.AppendString([]byte{ctlGoodbye, byte(code)}, text)))
	l.out.finish()
	// A peer that reads has it in no time, the others needn't.
	_ = l.conn.SetWriteDeadline(time.Now().Add(lingerFor))
}

// write writes whatever nobody else has written.
func (l *link) write() {
	for l.out.wait() {
		l.writing.Lock()
		err := l.flush()
		l.writing.Unlock()
		if err != nil {
			l.end(err, isReset(err))
			return
		}
	}
	// The goodbye is written. The other side ends the connection when it reads it;
	// closing it with something unread would take the goodbye away again.
	_ = l.conn.SetReadDeadline(time.Now().Add(lingerFor))
}

// flush writes one batch. Holds writing.
func (l *link) flush() error {
	if len(l.rest) > 0 {
		rest := l.rest
		l.rest = nil
		l.out.leave(false)
		return l.writeAll(rest)
	}
	l.out.take(&l.batch)
	return l.writeAll(l.batch.vector)
}

func (l *link) writeAll(vector [][]byte) (err error) {
	switch len(vector) {
	case 0:
	case 1:
		_, err = l.conn.Write(vector[0])
	default:
		v := net.Buffers(vector)
		_, err = v.WriteTo(l.conn)
	}
	if err != nil {
		return fmt.Errorf("peer: write: %w", err)
	}
	return nil
}

// sendNow queues a message and, when nobody is writing, writes it in this goroutine,
// which saves waking another one. It may block like a write.
func (l *link) sendNow(kind wire.Kind, id uint32, m message) error {
	if err := l.out.put(kind, id, m); err != nil {
		return err
	}
	l.writeNow()
	return nil
}

// writeNow writes what waits, unless somebody is writing who will do that.
func (l *link) writeNow() {
	if l.writing.TryLock() {
		err := l.flush()
		l.writing.Unlock()
		if err != nil {
			l.end(err, isReset(err))
			return // it is as lost as what is written and doesn't arrive
		}
	}
	l.out.wakeWriter()
}

// soonMax is how much is written by whoever may not wait; more costs it too long.
const soonMax = 64 << 10

// writeSoon writes what waits as far as that goes without waiting: the rest, or all of
// it when it is much or somebody is writing, is left to the goroutine that writes.
func (l *link) writeSoon() {
	if l.raw != nil && l.out.waiting() <= soonMax && l.writing.TryLock() {
		if len(l.rest) == 0 {
			l.out.take(&l.batch)
			if l.rest = tryWrite(l.raw, l.batch.vector); len(l.rest) > 0 {
				l.out.leave(true)
			}
		}
		l.writing.Unlock()
	}
	l.out.wakeWriter()
}

func (l *link) read() error {
	r := wire.NewReader(l.conn)
	for {
		m, err := r.Next()
		if err != nil {
			return err
		}
		switch m.Kind {
		case wire.Control:
			err = l.control(m.Body)
		case wire.Raft, wire.Append:
			err = l.n.receiveRaft(l, m)
		case wire.Call:
			err = l.receiveCall(m.Body)
		case wire.Chunk:
			err = l.n.receiveChunk(l, Channel(m.ID), m.Body)
		case wire.Stream:
			l.receiveStream(m.ID, m.Body)
		}
		if err != nil {
			return err
		}
	}
}

func isReset(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// control handles what keeps the link itself going.
func (l *link) control(body []byte) error {
	f := wire.NewFields(body)
	switch kind := f.Byte(); kind {
	case ctlPing:
		b := append([]byte{ctlPong}, f.Rest()...)
		_ = l.out.push(wire.Control, 0, newMessage(b))
	case ctlPong:
		id, sent := f.Uint(), f.Uint()
		l.missed.Store(0)
		rtt := int64(l.n.uptime()) - int64(sent)
		if old := l.rtt.Load(); old > 0 {
			rtt = old + (rtt-old)/8
		}
		l.rtt.Store(max(rtt, 1))
		if id != 0 {
			l.answer(id, 0, nil)
		}
	case ctlCredit:
		key := laneKey{wire.Kind(f.Byte()), f.Uint32()}
		if n := f.Uint(); f.Err() == nil && n < 1<<30 && (key.kind == wire.Chunk || key.kind == wire.Stream) {
			l.out.addCredit(key, int64(n))
		}
	case ctlCancelCall:
		id := f.Uint()
		l.mu.Lock()
		cancel := l.calls[id]
		l.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	case ctlCancelStream:
		l.cancelStream(f.Uint32())
	case ctlGoodbye:
		code, text := handshake.Code(f.Byte()), f.String()
		if f.Err() == nil {
			l.end(&handshake.Refusal{Code: code, Remote: l.name, Text: text}, true)
		}
	default:
		return fmt.Errorf("%w: control %d", wire.ErrFrame, kind)
	}
	return f.Err()
}

func (l *link) credit(kind wire.Kind, id uint32, n int64) {
	b := append([]byte{ctlCredit, byte(kind)}, byte(id), byte(id>>8), byte(id>>16), byte(id>>24))
	_ = l.out.push(wire.Control, 0, newMessage(wire.AppendUint(b, uint64(n))))
}

// ask registers a question. False: the link has ended and done won't be called.
func (l *link) ask(p *pending) (uint64, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return 0, false
	}
	l.nextID++
	l.pending[l.nextID] = p
	return l.nextID, true
}

// take forgets a question and returns it, nil if it has been answered.
func (l *link) take(id uint64) *pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pending[id]
	delete(l.pending, id)
	return p
}

func (l *link) answer(id uint64, status byte, body []byte) {
	if p := l.take(id); p != nil {
		p.done(status, body, nil)
	}
}

func (l *link) ping(id uint64) {
	b := wire.AppendUint(wire.AppendUint([]byte{ctlPing}, id), uint64(l.n.uptime()))
	_ = l.out.push(wire.Control, 0, newMessage(b))
}

// tick is called twice a second.
func (l *link) tick(now time.Time) {
	if l.missed.Add(1) > missedMax {
		l.end(errSilent, false)
		return
	}
	l.ping(0)
	var late []*pending
	l.mu.Lock()
	for id, p := range l.pending {
		if !p.deadline.IsZero() && now.After(p.deadline) {
			late = append(late, p)
			delete(l.pending, id)
		}
	}
	l.mu.Unlock()
	for _, p := range late {
		p.done(0, nil, context.DeadlineExceeded)
	}
}

// alive asks whether somebody is there.
func (l *link) alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	pong := make(chan bool, 1)
	id, ok := l.ask(&pending{done: func(_ byte, _ []byte, err error) { pong <- err == nil }})
	if !ok {
		return false
	}
	l.ping(id)
	select {
	case ok := <-pong:
		return ok
	case <-ctx.Done():
		l.take(id)
		return false
	}
}
