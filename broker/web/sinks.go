package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"
)

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// sink makes the request's connection a subscriber's socket.
func (u *subscriber) sink(w http.ResponseWriter, r *http.Request) (sink, error) {
	if u.kind == kindWebsocket {
		return u.websocket(w, r)
	}
	return u.sse(w, r)
}

const (
	frameMax = 4 << 10     // bytes that a subscriber sends at once
	byeTime  = time.Second // for the last words
)

// socket is a websocket subscriber.
type socket struct {
	*websocket.Conn
	deadline time.Duration
	read     chan struct{} // closed when its reader has ended
}

func (u *subscriber) websocket(w http.ResponseWriter, r *http.Request) (sink, error) {
	up := websocket.Upgrader{
		HandshakeTimeout: openTime, ReadBufferSize: 1 << 10, WriteBufferSize: 4 << 10,
		CheckOrigin:  func(*http.Request) bool { return true }, // guarded has
		Subprotocols: []string{"herald.v1"},
	}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(frameMax)
	s := &socket{conn, u.s.o.WriteDeadline, make(chan struct{})}
	// A subscriber that is there answers pings; browsers do by themselves.
	alive := func() { _ = conn.SetReadDeadline(time.Now().Add(3 * u.s.o.Heartbeat)) }
	alive()
	conn.SetPongHandler(func(string) error { alive(); return nil })
	u.s.wg.Go(func() {
		defer close(s.read)
		for {
			_, frame, err := conn.ReadMessage()
			if err != nil {
				f := &failure{statusGone, "the subscriber has gone: " + err.Error()}
				if isTimeout(err) {
					f = u.slow("no sign of life")
				}
				u.stop(f)
				return
			}
			alive()
			if f := u.command(frame); f != nil {
				u.stop(f)
				for err == nil { // it hears why before the connection is closed
					_, _, err = conn.NextReader()
				}
				return
			}
		}
	})
	// The reader ends with the connection. A write that hangs has little time left once
	// it is over.
	u.s.wg.Go(func() {
		<-u.ctx.Done()
		_ = conn.NetConn().SetWriteDeadline(time.Now().Add(byeTime))
		select {
		case <-s.read:
		case <-time.After(2 * byeTime):
		}
		_ = conn.Close()
	})
	return s, nil
}

// command is what a subscriber says.
type command struct {
	Op    string `json:"op"`    // ack, nak, term, wip, pong
	N     uint64 `json:"n"`     // this message
	UpTo  uint64 `json:"upto"`  // ack: all messages up to this one
	Delay string `json:"delay"` // nak: when to deliver it again
}

// command does what a subscriber says.
func (u *subscriber) command(frame []byte) *failure {
	var c command
	if err := json.Unmarshal(frame, &c); err != nil {
		return badParam("a frame is JSON such as {\"op\":\"ack\",\"n\":1}: " + err.Error())
	}
	switch c.Op {
	case "pong":
	case "ack":
		u.settle(max(c.N, c.UpTo), c.UpTo > 0, "+ACK")
	case "nak":
		word := "-NAK"
		if c.Delay != "" {
			d, err := time.ParseDuration(c.Delay)
			if err != nil || d < 0 {
				return badParam("delay: a duration such as 5s")
			}
			word = fmt.Sprintf(`-NAK {"delay":%d}`, d.Nanoseconds())
		}
		u.settle(c.N, false, word)
	case "term":
		u.settle(c.N, false, "+TERM")
	case "wip":
		u.mu.Lock()
		ack := u.pending[c.N]
		u.mu.Unlock()
		if ack != "" && u.p.ack == "client" {
			_ = u.link.publish(ack, "", nil, []byte("+WPI")) // if it is lost, the message comes again
		}
	default:
		return badParam("op: ack, nak, term, wip or pong")
	}
	return nil
}

func (s *socket) text(frame []byte) error {
	_ = s.SetWriteDeadline(time.Now().Add(s.deadline))
	return s.WriteMessage(websocket.TextMessage, frame)
}

func (s *socket) hello(frame []byte) error { return s.text(frame) }

func (s *socket) message(it *item) error { return s.text(it.frame) }

// beat pings, which browsers answer, and sends a frame that pages can see.
func (s *socket) beat() error {
	if err := s.WriteControl(websocket.PingMessage, nil, time.Now().Add(s.deadline)); err != nil {
		return err
	}
	return s.text([]byte(`{"op":"ping"}`))
}

// reasonMax is what a close frame has room for.
const reasonMax = 123

// bye closes with a code, the status and 4000, and a reason.
func (s *socket) bye(f failure) {
	code := 4000 + f.Status
	if f.Status == http.StatusServiceUnavailable && f.Reason == "the server stops" {
		code = websocket.CloseGoingAway
	}
	reason := f.Reason
	for len(reason) > reasonMax || !utf8.ValidString(reason) {
		reason = reason[:min(len(reason)-1, reasonMax)]
	}
	wait := time.Now().Add(byeTime)
	_ = s.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), wait) // it closes anyway
	select {
	case <-s.read: // it has answered
	case <-time.After(time.Until(wait)):
	}
	_ = s.Close()
	<-s.read
}

// events is a subscriber of Server-Sent Events.
type events struct {
	w        http.ResponseWriter
	c        *http.ResponseController
	deadline time.Duration
	buf      []byte
}

// retry is what browsers are told to wait before they connect again.
const retry = 2 * time.Second

func (u *subscriber) sse(w http.ResponseWriter, r *http.Request) (sink, error) {
	if r.ProtoMajor == 1 && r.ProtoMinor == 0 {
		u.s.refuse(w, r, failure{http.StatusHTTPVersionNotSupported, "events need HTTP/1.1"})
		return nil, errors.New("HTTP/1.0")
	}
	e := &events{w: w, c: http.NewResponseController(w), deadline: u.s.o.WriteDeadline}
	_ = e.c.SetReadDeadline(time.Time{}) // it lasts
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies are to pass events on at once
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	gone := r.Context()
	u.s.wg.Go(func() {
		select {
		case <-gone.Done():
			u.stop(&failure{statusGone, "the subscriber has gone"})
		case <-u.ctx.Done():
			_ = e.c.SetWriteDeadline(time.Now().Add(byeTime)) // for a write that hangs
		}
	})
	return e, nil
}

func (e *events) send() error {
	_ = e.c.SetWriteDeadline(time.Now().Add(e.deadline))
	if _, err := e.w.Write(e.buf); err != nil {
		return err
	}
	return e.c.Flush()
}

// event writes one event. A frame with line breaks takes a data line for each.
func (e *events) event(name string, id uint64, frame []byte) error {
	e.buf = append(append(e.buf[:0], "event: "...), name...)
	if id > 0 {
		e.buf = append(e.buf, "\nid: "...)
		e.buf = strconv.AppendUint(e.buf, id, 10)
	}
	frame = bytes.ReplaceAll(frame, []byte{'\r'}, []byte{' '}) // only between values: JSON strings have none
	for line := range bytes.SplitSeq(frame, []byte{'\n'}) {
		e.buf = append(append(e.buf, "\ndata: "...), line...)
	}
	e.buf = append(e.buf, "\n\n"...)
	return e.send()
}

func (e *events) hello(frame []byte) error {
	e.buf = fmt.Appendf(e.buf[:0], "retry: %d\n\n", retry.Milliseconds())
	if err := e.send(); err != nil {
		return err
	}
	return e.event("open", 0, frame)
}

func (e *events) message(it *item) error { return e.event("message", it.seq, it.frame) }

func (e *events) beat() error {
	e.buf = append(e.buf[:0], ": still here\n\n"...)
	return e.send()
}

// bye sends an event "end"; browsers connect again unless the page closes.
func (e *events) bye(f failure) {
	b, err := json.Marshal(f)
	e.deadline = byeTime
	if err == nil {
		_ = e.event("end", 0, b) // it ends anyway
	}
}
