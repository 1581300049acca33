package web

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// sink is a subscriber's socket. One goroutine writes.
type sink interface {
	message(it *item) error
	hello(frame []byte) error
	beat() error
	bye(f failure)
}

// subscriber is one web subscription.
type subscriber struct {
	s      *Server
	kind   kind
	p      params
	remote string
	link   *link
	out    *queue
	ctx    context.Context
	stop   context.CancelCauseFunc // the cause is a *failure

	mu      sync.Mutex
	pending map[uint64]string // sent and not acknowledged by the subscriber: where to
	oldest  uint64            // no number below is pending
	acked   chan struct{}     // capacity 1: room came
}

// statusGone is the end that the subscriber itself made.
const statusGone = 1

// subscribe serves GET /subscribe, until one side ends it.
func (s *Server) subscribe(w http.ResponseWriter, r *http.Request) {
	p, f := readParams(r, time.Now())
	upgrade := websocket.IsWebSocketUpgrade(r)
	if f != nil && !upgrade {
		s.refuse(w, r, *f)
		return
	}
	u := &subscriber{
		s: s, p: p, remote: r.RemoteAddr, out: newQueue(s.o.MaxPending), pending: map[uint64]string{}, oldest: 1, acked: make(chan struct{}, 1),
		kind: kindSSE,
	}
	if upgrade {
		u.kind = kindWebsocket
	}
	if n := s.stats.open[u.kind].Add(1); n+s.stats.open[1-u.kind].Load() > int64(s.o.MaxConnections) {
		s.stats.open[u.kind].Add(-1)
		s.stats.unavailable[u.kind].Add(1)
		s.refuse(w, r, failure{http.StatusServiceUnavailable, fmt.Sprintf("there are %d subscribers already; try another node, or later", s.o.MaxConnections)})
		return
	}
	defer s.stats.open[u.kind].Add(-1)
	s.stats.opened[u.kind].Add(1)
	u.ctx, u.stop = context.WithCancelCause(s.ctx)
	defer u.stop(nil)
	var hello []byte
	var end func()
	if f == nil {
		hello, end, f = u.begin(r)
		if end != nil {
			defer end()
		}
	}
	if f != nil && (!upgrade || f.Status == http.StatusUnauthorized) {
		s.refuse(w, r, *f)
		return
	}
	to, err := u.sink(w, r)
	if err != nil {
		return // the request has been answered
	}
	if f != nil {
		to.bye(*f)
		return
	}
	u.ended(u.write(to, hello), to)
}

// begin opens the link and the feed. Whatever it returns, end must be called.
func (u *subscriber) begin(r *http.Request) (hello []byte, end func(), f *failure) {
	l, _, err := u.s.dial(r, cmp.Or(u.p.durable, "web subscriber")+" "+u.remote)
	if err != nil {
		return nil, nil, failed(err)
	}
	u.link = l
	l.onEnd(func(why string) {
		u.stop(&failure{http.StatusServiceUnavailable, cmp.Or(why, "the broker ended the connection")})
	})
	ctx, cancel := context.WithTimeout(u.ctx, openTime)
	defer cancel()
	open := map[string]any{"op": "open", "subject": u.p.subject, "heartbeat": u.s.o.Heartbeat.Seconds()}
	if u.p.where != "" {
		open["where"] = u.p.where
	}
	stop := func() {}
	if u.p.stored {
		var t *stored
		if t, err = u.openStored(ctx); t != nil {
			stop = t.close
			open["topic"] = t.topic
			if u.p.durable != "" {
				open["durable"] = u.p.durable
			}
		}
	} else {
		err = u.openLive(ctx)
	}
	if u.p.window > 0 {
		open["window"] = u.p.window
	}
	end = func() {
		u.stop(nil)
		stop()
		l.onEnd(nil)
		l.close()
	}
	if err != nil {
		return nil, end, failed(err)
	}
	hello, err = json.Marshal(open)
	if err != nil {
		return nil, end, failed(err)
	}
	return hello, end, nil
}

// write sends what comes until it is over, and returns why.
func (u *subscriber) write(to sink, hello []byte) *failure {
	gone := func(err error) *failure {
		if cause := u.cause(); cause != nil {
			return cause
		}
		if isTimeout(err) {
			return u.slow(fmt.Sprintf("a write took longer than %s", u.s.o.WriteDeadline))
		}
		return &failure{statusGone, err.Error()}
	}
	if err := to.hello(hello); err != nil {
		return gone(err)
	}
	beat := time.NewTicker(u.s.o.Heartbeat)
	defer beat.Stop()
	for {
		if u.ctx.Err() != nil {
			return u.cause()
		}
		if u.room() {
			if it, ok := u.out.take(); ok {
				u.sent(&it)
				if err := to.message(&it); err != nil {
					return gone(err)
				}
				u.s.stats.messages.Add(1)
				u.s.stats.bytes.Add(uint64(len(it.frame)))
				u.autoAck(&it)
				continue
			}
		}
		select {
		case <-u.out.wake:
		case <-u.acked:
		case <-beat.C:
			if err := to.beat(); err != nil {
				return gone(err)
			}
		case <-u.ctx.Done():
		}
	}
}

// cause is why the subscription was ended, nil if it wasn't.
func (u *subscriber) cause() *failure {
	if u.ctx.Err() == nil {
		return nil
	}
	if f, ok := context.Cause(u.ctx).(*failure); ok {
		return f
	}
	return &failure{http.StatusServiceUnavailable, "the server stops"}
}

// statusSlow is the end of one that doesn't take what comes.
const statusSlow = http.StatusRequestTimeout

func (u *subscriber) slow(why string) *failure {
	return &failure{statusSlow, "too slow: " + why}
}

// full ends a subscriber whose queue has no room for a live message.
func (u *subscriber) full() {
	n, size := u.out.waiting()
	u.stop(u.slow(fmt.Sprintf("%d messages (%d bytes) wait", n, size)))
}

// ended counts and logs an end, and tells the subscriber.
func (u *subscriber) ended(f *failure, to sink) {
	if f.Status == statusSlow {
		n, size := u.out.waiting()
		u.s.stats.slow[u.kind].Add(1)
		u.s.o.Log.Warn("A web subscriber was cut because it is too slow", "remote", u.remote, "kind", u.kind.String(),
			"subject", u.p.subject, "durable", u.p.durable, "reason", f.Reason, "waiting", n, "bytes", size)
	} else {
		u.s.o.Log.Debug("A web subscriber ended", "remote", u.remote, "kind", u.kind.String(), "subject", u.p.subject, "reason", f.Reason)
	}
	if f.Status != statusGone {
		to.bye(*f)
	}
}

// room tells whether the window lets another message through.
func (u *subscriber) room() bool {
	if u.p.window == 0 {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.pending) < u.p.window
}

// sent notes a message that the subscriber is to acknowledge. Before it is written:
// the answer may be fast.
func (u *subscriber) sent(it *item) {
	if u.p.window == 0 {
		return
	}
	u.mu.Lock()
	u.pending[it.n] = it.ack
	u.mu.Unlock()
}

// autoAck acknowledges to the broker what the socket took, unless the subscriber does
// that itself.
func (u *subscriber) autoAck(it *item) {
	if it.ack == "" || u.p.durable == "" || u.p.ack == "client" {
		return
	}
	_ = u.link.publish(it.ack, "", nil, []byte("+ACK")) // if it is lost, the message comes again
}

// settle takes messages out of what is pending: number n, or all up to n. word is
// what the broker is told.
func (u *subscriber) settle(n uint64, all bool, word string) {
	var acks []string
	u.mu.Lock()
	from := n
	if all {
		from = u.oldest
		u.oldest = max(u.oldest, n+1)
	}
	if n-from > uint64(len(u.pending)) { // fewer are pending than numbers passed
		for k, ack := range u.pending {
			if k >= from && k <= n {
				acks = append(acks, ack)
				delete(u.pending, k)
			}
		}
	} else {
		for k := from; k <= n; k++ {
			if ack, ok := u.pending[k]; ok {
				acks = append(acks, ack)
				delete(u.pending, k)
			}
		}
	}
	u.mu.Unlock()
	if u.p.ack == "client" {
		for _, ack := range acks {
			_ = u.link.publish(ack, "", nil, []byte(word)) // if it is lost, the message comes again
		}
	}
	select {
	case u.acked <- struct{}{}:
	default:
	}
}
