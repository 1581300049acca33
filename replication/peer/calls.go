package peer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/heraldmq/herald/replication/peer/wire"
)

// What an answer begins with.
const (
	answerOK byte = iota
	answerError
	answerNoHandler
	answerBusy
	answerWrongReplica
)

type (
	// Handler answers a call. It runs on a goroutine of its own; ctx ends when the
	// caller has given up, with the connection, and with the network. The body is its
	// own.
	Handler func(ctx context.Context, from string, body []byte) ([]byte, error)
)

// Handle registers who answers the calls of a method. Before Start. At most 128
// calls of one peer are worked on at once, more are answered ErrBusy.
func (n *Network) Handle(method string, h func(ctx context.Context, from string, body []byte) ([]byte, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.handlers[method] = h
}

// Call asks a peer and waits for the answer, until ctx ends, or for a minute. Body
// and answer have at most CallBytesMax bytes; the body isn't changed by the caller
// until Call has returned.
// An error of the handler is a RemoteError. ErrLinkLost and a context's error leave
// open whether the other side has done it.
func (n *Network) Call(ctx context.Context, to, method string, body []byte) ([]byte, error) {
	if len(body) > CallBytesMax {
		return nil, ErrTooLarge
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if to == n.o.Name {
		return n.callSelf(ctx, method, body)
	}
	l := n.link(to)
	if l == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoPeer, to)
	}
	type result struct {
		status byte
		body   []byte
		err    error
	}
	got := make(chan result, 1)
	id, ok := l.ask(&pending{done: func(s byte, b []byte, err error) { got <- result{s, b, err} }})
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNoPeer, to)
	}
	deadline, _ := ctx.Deadline()
	head := wire.AppendUint([]byte{callRequest}, id)
	head = wire.AppendUint(head, uint64(max(time.Until(deadline).Milliseconds(), 1)))
	head = wire.AppendString(head, method)
	if err := l.out.push(wire.Call, 0, newMessage(append(head, body...))); err != nil {
		l.take(id)
		return nil, err
	}
	select {
	case r := <-got:
		if r.err != nil {
			return nil, r.err
		}
		return r.body, answerErr(to, r.status, r.body)
	case <-ctx.Done():
		if l.take(id) != nil {
			_ = l.out.push(wire.Control, 0, newMessage(wire.AppendUint([]byte{ctlCancelCall}, id)))
		}
		return nil, ctx.Err()
	}
}

func (n *Network) callSelf(ctx context.Context, method string, body []byte) ([]byte, error) {
	n.mu.Lock()
	h := n.handlers[method]
	n.mu.Unlock()
	if h == nil {
		return nil, ErrNoHandler
	}
	return h(ctx, n.o.Name, body)
}

func answerErr(peer string, status byte, body []byte) error {
	switch status {
	case answerOK:
		return nil
	case answerNoHandler:
		if len(body) > 0 {
			return fmt.Errorf("%w: %s", ErrNoHandler, body)
		}
		return ErrNoHandler
	case answerBusy:
		return ErrBusy
	case answerWrongReplica:
		return fmt.Errorf("%w: %s", ErrWrongReplica, body)
	}
	return &RemoteError{Peer: peer, Text: string(body)}
}

// answerOf is what an error is sent as.
func answerOf(err error) (byte, []byte) {
	switch {
	case err == nil:
		return answerOK, nil
	case errors.Is(err, ErrNoHandler):
		return answerNoHandler, nil
	case errors.Is(err, ErrBusy):
		return answerBusy, nil
	}
	text := err.Error()
	return answerError, []byte(text[:min(len(text), 32<<10)])
}

func (l *link) receiveCall(body []byte) error {
	f := wire.NewFields(body)
	switch kind := f.Byte(); kind {
	case callRequest:
		id, ms, method, arg := f.Uint(), f.Uint(), f.String(), f.Rest()
		if f.Err() == nil {
			l.serve(id, time.Duration(min(ms, 60_000))*time.Millisecond, method, arg)
		}
	case callAnswer:
		id, status, arg := f.Uint(), f.Byte(), f.Rest()
		if f.Err() == nil {
			l.answer(id, status, arg)
		}
	case callStream:
		id, method, arg := f.Uint32(), f.String(), f.Rest()
		if f.Err() == nil {
			l.serveStream(id, method, arg)
		}
	case callStatus:
		key, there, value := f.String(), f.Byte() == 1, f.Rest()
		if f.Err() == nil {
			l.n.statusOf(l, key, there, value)
		}
	case callHosts:
		l.n.learnAll(l, f)
	case callReady:
		l.n.linkUp(l)
	default:
		return fmt.Errorf("%w: call %d", wire.ErrFrame, kind)
	}
	return f.Err()
}

func (l *link) reply(id uint64, status byte, body []byte) {
	head := append(wire.AppendUint([]byte{callAnswer}, id), status)
	if err := l.out.push(wire.Call, 0, newMessage(head, body)); errors.Is(err, ErrFull) {
		l.end(fmt.Errorf("peer: it takes no answers: %w", err), false)
	}
}

// serve runs a handler.
func (l *link) serve(id uint64, limit time.Duration, method string, body []byte) {
	l.n.mu.Lock()
	h := l.n.handlers[method]
	l.n.mu.Unlock()
	if h == nil {
		l.reply(id, answerNoHandler, nil)
		return
	}
	if l.serving.Add(1) > servingMax {
		l.serving.Add(-1)
		l.reply(id, answerBusy, nil)
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, limit)
	l.mu.Lock()
	l.calls[id] = cancel
	l.mu.Unlock()
	l.work.Go(func() {
		defer l.serving.Add(-1)
		defer func() {
			l.mu.Lock()
			delete(l.calls, id)
			l.mu.Unlock()
			cancel()
		}()
		answer, err := l.guarded(func() ([]byte, error) { return h(ctx, l.name, body) })
		if err == nil && len(answer) > CallBytesMax {
			err = fmt.Errorf("the answer has %d bytes, at most %d are allowed", len(answer), CallBytesMax)
		}
		if err != nil {
			status, text := answerOf(err)
			l.reply(id, status, text)
			return
		}
		l.reply(id, answerOK, answer)
	})
}

// guarded makes an error of a panic: what a peer sends must not end the process.
func (l *link) guarded(f func() ([]byte, error)) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			l.n.log.Error("a handler of a peer's request panicked", "peer", l.name, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}
