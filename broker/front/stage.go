package front

import (
	"time"

	"github.com/heraldmq/herald/broker/wire"
)

const (
	// stagedMax is how many bytes are staged before they are handed over in
	// the middle of a read batch.
	stagedMax = 1 << 20
	// A batch of no more bytes to no more receivers is written by the
	// publisher's own goroutine.
	inlineBytesMax   = 8 << 10
	inlineTargetsMax = 8
	// fanTargetsMax bounds the receivers that share an encoding.
	fanTargetsMax = 1024
	// respondDepthMax bounds how far handlers may answer handlers.
	respondDepthMax = 8
	// stallMax bounds how long a batch is held back for a slow receiver; one
	// that takes stallBytesMin in that time is waited for again, up to
	// stallTotalMax for all.
	stallMax      = 100 * time.Millisecond
	stallBytesMin = 64 << 10
	stallTotalMax = time.Second
	// shareMin is from which size on the bytes of one message are shared by
	// its receivers rather than copied for each.
	shareMin = 8 << 10
	// pinMax is how many times its size a message in a read buffer may keep
	// from being used again.
	pinMax = 5
)

// stage is what one publisher holds for one receiver until its batch ends.
type stage struct {
	target *session
	spool  spool
	msgs   int
	dirty  bool // listed in stager.dirty
}

// stager collects what one publisher delivers and hands it over at the end of
// a batch. Owned by the publisher's goroutine.
//
// Invariant: either fan is nil or dirty is empty, so that what goes to one
// receiver keeps its order.
type stager struct {
	srv     *Server
	account *Account
	self    *session // handed over last; nil for the broker
	stall   bool

	stages  map[*session]*stage
	sweepAt int
	dirty   []*stage
	fans    map[string]*fan
	fan     *fan // the one in use
	fanRun  int  // messages in a row that went to it
	fanOff  int  // messages until sharing is tried again
	counted []*route
	sinks   []sinkStage
	staged  int // bytes

	// Of other nodes; see outward.go.
	remotes  map[*Remote]*remoteStage
	farDirty []*remoteStage
	farSlow  []*Remote
	picks    []pick
	from     string     // of messages that came from a peer: its name
	behind   []*session // of from: receivers that are far behind

	outMsgs, outBytes int64 // since the last flush
	slow              []*session

	tallied []*match // with messages that were counted and not handed over
	seen    Message  // scratch of shown

	respond  matcher // of what handlers answer; made on first use
	depth    int
	messages []Message // by depth, reused
	scratch  []byte    // tail of a message that must be written anew
	bare     []byte    // the same without header
	headBuf  []byte
	pieces   []piece
	arena    []byte // copies for captures that outlive the call
}

func (st *stager) init(srv *Server, a *Account, self *session) {
	st.srv, st.account, st.self = srv, a, self
	st.sweepAt = 64
	if self != nil {
		st.stall = true
	}
}

func (st *stager) stageFor(s *session) *stage {
	if g := st.stages[s]; g != nil {
		return g
	}
	if len(st.stages) >= st.sweepAt {
		for t, g := range st.stages {
			if t.ended.Load() && !g.dirty {
				delete(st.stages, t)
			}
		}
		st.sweepAt = max(64, 2*len(st.stages))
	}
	if st.stages == nil {
		st.stages = map[*session]*stage{}
	}
	g := &stage{target: s}
	st.stages[s] = g
	return g
}

// outgoing is one message to be delivered. A session parses straight into it:
// copying these slices once more per message can be measured.
//
// Tail is the message as it follows the sid, when the publisher already wrote
// it so; nil otherwise.
type outgoing struct {
	wire.Command

	client   *ClientInfo // who publishes; nil for the broker
	route    []byte      // the subject it is routed by, where that isn't Subject
	src      *chunk      // the read buffer that Tail is in, if it may be referred to
	returned bool        // it came back from a peer that had no member of its queue
	answer   bool        // to a client of the node it is sent to, as far as is known
	borrowed bool        // the bytes live until the batch ends, not just during the call
	scratch  bool        // Tail is stager.scratch
	bareOK   bool        // stager.bare holds the tail without header
}

func newOutgoing(subject, reply, header, payload []byte) outgoing {
	return outgoing{Command: wire.Command{Subject: subject, Reply: reply, Header: header, Payload: payload}}
}

// deliver stages o for everybody in m but topics, and returns to how many.
func (st *stager) deliver(m *match, o *outgoing) int {
	if !m.several {
		// The most common case.
		if len(m.plain) == 0 {
			return 0
		}
		if st.fan != nil {
			st.leaveFan()
		}
		if st.one(m, m.plain[0], o) {
			return 1
		}
		return 0
	}
	n := st.toPlain(m, o)
	base := len(st.picks) // a handler may be publishing
	for i := range m.groups {
		if st.member(m, &m.groups[i], o) {
			n++
		}
	}
	if len(m.remotes) > 0 || len(st.picks) > base {
		n += st.toRemotes(m.remotes, o, st.picks[base:])
		st.picks = st.picks[:base]
	}
	for _, u := range m.handlers {
		st.handle(u, o)
		n++
	}
	return n
}

// toPlain stages o for the sessions that listen without a queue.
func (st *stager) toPlain(m *match, o *outgoing) (n int) {
	if len(m.plain) == 0 {
		return 0
	}
	if o.Tail == nil {
		st.writeTail(o)
	}
	if m.fan != nil && st.fanOff == 0 && (len(o.Header) == 0 || m.fan.headers) {
		return st.shared(m, o)
	}
	if st.fanOff > 0 {
		st.fanOff--
	}
	if st.fan != nil {
		st.leaveFan()
	}
	if len(o.Tail) >= shareMin && len(m.plain) > 1 && !o.pins() {
		return st.linked(m, o)
	}
	for _, r := range m.plain {
		if st.one(m, r, o) {
			n++
		}
	}
	return n
}

func (st *stager) writeTail(o *outgoing) {
	st.scratch = wire.AppendTail(st.scratch[:0], o.Reply, o.Header, o.Payload)
	o.Tail, o.scratch = st.scratch, true
}

// prepare counts a delivery and returns the head and tail for r.
func (st *stager) prepare(m *match, r *route, o *outgoing) (head, tail []byte, last, ok bool) {
	if r.limited {
		if ok, last = r.sub.take(); !ok {
			return nil, nil, false, false
		}
	} else {
		if r.n == 0 {
			st.counted = append(st.counted, r)
		}
		r.n++
	}
	if o.Tail == nil {
		st.writeTail(o)
	}
	if m.exact && len(o.Subject) == len(m.subject) && string(o.Subject) == m.subject {
		head = r.head
	} else {
		st.headBuf = appendHead(st.headBuf[:0], o.Subject, r.sub.sid)
		head = st.headBuf
	}
	tail = o.Tail
	switch {
	case len(o.Header) == 0:
		head = head[1:]
	case !r.headers:
		head = head[1:]
		if !o.bareOK {
			st.bare = wire.AppendTail(st.bare[:0], o.Reply, nil, o.Payload)
			o.bareOK = true
		}
		tail = st.bare
	}
	return head, tail, last, true
}

// one stages o for one receiver.
func (st *stager) one(m *match, r *route, o *outgoing) bool {
	head, tail, last, ok := st.prepare(m, r, o)
	if !ok {
		return false
	}
	if o.pins() && len(tail) == len(o.Tail) {
		st.append(r.stage, head, nil)
		st.link(r.stage, piece{o.src, tail})
	} else {
		st.append(r.stage, head, tail)
	}
	st.after(r, o, last)
	return true
}

// pins tells whether receivers refer to the message where it was read, rather
// than to a copy: it is large enough by itself, and in its buffer.
func (o *outgoing) pins() bool {
	return len(o.Tail) >= shareMin && o.src != nil && !o.scratch && len(o.Tail)*pinMax >= len(o.src.buf)
}

// link stages a piece for one receiver, behind what append staged.
func (st *stager) link(g *stage, p piece) {
	g.spool.link(p)
	st.staged += len(p.b)
}

// after does what is left once a delivery is staged.
func (st *stager) after(r *route, o *outgoing, last bool) {
	r.stage.msgs++
	if r.track && len(o.Reply) > 0 {
		r.stage.target.expectReply(string(o.Reply))
	}
	if last {
		r.sub.sess.removeSub(r.sub)
	}
}

func (st *stager) append(g *stage, head, tail []byte) {
	g.spool.append2(&st.srv.chunks, head, tail)
	st.staged += len(head) + len(tail)
	if !g.dirty {
		g.dirty = true
		st.dirty = append(st.dirty, g)
	}
}

// linked stages a large message: one copy of it, referred to by all.
func (st *stager) linked(m *match, o *outgoing) (n int) {
	c := st.srv.chunks.get(len(o.Tail))
	c.buf = append(c.buf, o.Tail...)
	whole := piece{c, c.buf}
	for _, r := range m.plain {
		head, tail, last, ok := st.prepare(m, r, o)
		if !ok {
			continue
		}
		if len(tail) != len(o.Tail) {
			st.append(r.stage, head, tail) // without its header
		} else {
			st.append(r.stage, head, nil)
			st.link(r.stage, whole)
		}
		st.after(r, o, last)
		n++
	}
	c.release()
	return n
}

// shared stages o once for all receivers of a fan.
func (st *stager) shared(m *match, o *outgoing) int {
	f := m.fan
	if st.fan != f {
		st.leaveFan()
		st.pushDirty()
		if st.fanOff > 0 {
			// leaving made sharing stop: begin with the next message
			st.fanOff--
			n := 0
			for _, r := range m.plain {
				if st.one(m, r, o) {
					n++
				}
			}
			return n
		}
		st.fan, st.fanRun = f, 0
	}
	r := m.plain[0]
	var head []byte
	if m.exact && len(o.Subject) == len(m.subject) && string(o.Subject) == m.subject {
		head = r.head
	} else {
		st.headBuf = appendHead(st.headBuf[:0], o.Subject, r.sub.sid)
		head = st.headBuf
	}
	if len(o.Header) == 0 {
		head = head[1:]
	}
	if o.pins() {
		f.spool.append2(&st.srv.chunks, head, nil)
		f.spool.link(piece{o.src, o.Tail})
	} else {
		f.spool.append2(&st.srv.chunks, head, o.Tail)
	}
	f.msgs++
	st.fanRun++
	st.staged += len(head) + len(o.Tail)
	return len(f.subs)
}

// leaveFan hands over what the fan in use holds, because something else is to
// be staged behind it.
func (st *stager) leaveFan() {
	if st.fan == nil {
		return
	}
	if st.fanRun < fanRunMin {
		st.fanOff = fanRest
	}
	st.pushFan(false)
}

// handle calls one of the broker's own subscriptions.
func (st *stager) handle(u *sub, o *outgoing) {
	if u.closed.Load() || st.depth == respondDepthMax {
		return
	}
	if st.messages == nil {
		st.messages = make([]Message, respondDepthMax)
	}
	msg := &st.messages[st.depth]
	*msg = Message{
		Subject: o.Subject, Reply: o.Reply, Header: o.Header, Payload: o.Payload,
		Account: u.account, Client: o.client, Routed: o.route, via: st,
	}
	if st.depth == 0 {
		msg.Forwarded = st.from // what it is answered enters here
	}
	st.depth++
	u.handler(msg)
	st.depth--
	*msg = Message{}
	// Answers were written to the same scratch space.
	o.bareOK = false
	if o.scratch {
		o.Tail = nil
	}
}
