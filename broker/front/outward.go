package front

import (
	"encoding/binary"
	"time"

	"github.com/heraldmq/herald/broker/wire"
)

// A batch for another node is
//
//	BatchMessages, account, who publishes (empty: the broker), messages
//
// and a message is
//
//	flags, lengths of subject, reply, header, payload and tail,
//	with flagQueues: their number, each queue
//	with flagRouted: the subject it is routed by, where that isn't its own
//	subject, tail
//
// Numbers are uvarints; strings whose length isn't said have it before them. The
// tail is the message as it follows the sid, as it was published: the receiving
// node copies it behind the heads of its subscriptions.

// First bytes of batches.
const (
	BatchMessages  = 'M'
	BatchForwarded = 'F' // one message for internal services
	BatchReturned  = 'R' // messages whose queue group has gone where they were sent
)

const (
	flagPlain    = 1 << iota // for everybody without a queue
	flagQueues               // for a member of each queue named
	flagRouted               // routed by another subject
	flagClient               // published by the client named, not by the broker itself
	flagReturned             // came back from another node before
	flagAnswer               // to whoever asked there: without a queue, or else of any
)

const (
	// remoteBatchMax is how long a batch may get before it leaves; a longer
	// message is a batch of its own.
	remoteBatchMax = 128 << 10
	remoteBatchMin = 512
)

// remoteStage is what one publisher holds for one peer until its batch ends.
type remoteStage struct {
	target *Remote
	buf    []byte
	hint   int // how long batches have been
	msgs   int
	dirty  bool // listed in stager.far
}

// pick is a queue group whose member is on a peer.
type pick struct {
	stage *remoteStage
	queue string
}

func (st *stager) remoteStageFor(r *Remote) *remoteStage {
	if g := st.remotes[r]; g != nil {
		return g
	}
	for t, g := range st.remotes {
		if t.gone.Load() && !g.dirty {
			delete(st.remotes, t)
		}
	}
	if st.remotes == nil {
		st.remotes = map[*Remote]*remoteStage{}
	}
	g := &remoteStage{target: r, hint: remoteBatchMin}
	st.remotes[r] = g
	return g
}

// toRemotes stages o once for each peer that wants it for everybody, or that was
// picked for a queue group.
func (st *stager) toRemotes(all []*remoteStage, o *outgoing, picks []pick) (n int) {
	for _, g := range all {
		if !g.target.gone.Load() {
			st.far(g, o, true, picks)
			n++
		}
	}
	for i, p := range picks {
		again := false
		for _, before := range picks[:i] {
			again = again || before.stage == p.stage
		}
		for _, g := range all {
			again = again || g == p.stage
		}
		if !again {
			st.far(p.stage, o, false, picks)
		}
	}
	return n
}

// reaches tells whether somebody without a queue is known to listen on a node.
func (m *match) reaches(node string) bool {
	for _, g := range m.remotes {
		if g.target.name == node {
			return true
		}
	}
	return false
}

// answerTo stages an answer for the node that the request came from, which knows who asked.
// known tells whether members of queue groups have got it already.
func (st *stager) answerTo(node string, o *outgoing, known bool) {
	c := st.srv.joined()
	if c == nil {
		return
	}
	r := c.Peer(node)
	if r == nil || r.gone.Load() {
		return
	}
	o.answer = !known
	st.far(st.remoteStageFor(r), o, true, nil)
}

// far stages o for one peer.
func (st *stager) far(g *remoteStage, o *outgoing, plain bool, picks []pick) {
	if o.Tail == nil {
		st.writeTail(o)
	}
	size := len(o.Subject) + len(o.Tail) + len(o.route) + 64
	for _, p := range picks {
		size += len(p.queue) + 4
	}
	if len(g.buf) > 0 && len(g.buf)+size > remoteBatchMax {
		st.pushRemote(g)
	}
	if len(g.buf) == 0 {
		st.openRemote(g, size)
	}
	g.buf = st.appendFar(g.buf, g, o, plain, picks)
	g.msgs++
	st.staged += size
}

// openRemote begins a batch.
func (st *stager) openRemote(g *remoteStage, size int) {
	var ident []byte
	if st.self != nil {
		ident = st.self.identBytes()
	}
	g.buf = make([]byte, 0, max(g.hint, size+len(st.account.name)+len(ident)+16))
	g.buf = append(g.buf, BatchMessages)
	g.buf = appendBytes(g.buf, st.account.name)
	g.buf = appendBytes(g.buf, ident)
	if !g.dirty {
		g.dirty = true
		st.farDirty = append(st.farDirty, g)
	}
}

func (st *stager) appendFar(b []byte, g *remoteStage, o *outgoing, plain bool, picks []pick) []byte {
	var flags byte
	if plain {
		flags |= flagPlain
	}
	if o.client != nil && st.self != nil {
		flags |= flagClient
	}
	if o.returned {
		flags |= flagReturned
	}
	if o.answer {
		flags |= flagAnswer
	}
	queues := uint64(0)
	for _, p := range picks {
		if p.stage == g {
			flags |= flagQueues
			queues++
		}
	}
	if len(o.route) > 0 {
		flags |= flagRouted
	}
	b = append(b, flags)
	b = appendLengths(b, o)
	if queues > 0 {
		b = binary.AppendUvarint(b, queues)
		for _, p := range picks {
			if p.stage == g {
				b = appendBytes(b, p.queue)
			}
		}
	}
	if len(o.route) > 0 {
		b = appendBytes(b, o.route)
	}
	return append(append(b, o.Subject...), o.Tail...)
}

func appendLengths(b []byte, o *outgoing) []byte {
	b = binary.AppendUvarint(b, uint64(len(o.Subject)))
	b = binary.AppendUvarint(b, uint64(len(o.Reply)))
	b = binary.AppendUvarint(b, uint64(len(o.Header)))
	b = binary.AppendUvarint(b, uint64(len(o.Payload)))
	return binary.AppendUvarint(b, uint64(len(o.Tail)))
}

// pushRemote hands one peer what is staged for it.
func (st *stager) pushRemote(g *remoteStage) {
	if g.msgs == 0 {
		return
	}
	g.hint = min(max(remoteBatchMin, len(g.buf)), remoteBatchMax)
	st.outMsgs += int64(g.msgs)
	st.outBytes += int64(len(g.buf))
	g.target.link.Push(g.buf, g.msgs)
	g.buf, g.msgs = nil, 0
	if st.stall && g.target.link.Behind() {
		st.farSlow = append(st.farSlow, g.target)
	}
}

func (st *stager) pushRemotes() {
	for i, g := range st.farDirty {
		st.pushRemote(g)
		g.dirty = false
		st.farDirty[i] = nil
	}
	st.farDirty = st.farDirty[:0]
}

// waitForRemotes holds the publisher back while peers, or receivers there, are far
// behind.
func (st *stager) waitForRemotes() {
	if st.from == "" && !st.srv.opts().NoFastProducerStall {
		deadline := time.Now().Add(stallTotalMax)
		for i, r := range st.farSlow {
			for j := range i {
				if st.farSlow[j] == r {
					r = nil
					break
				}
			}
			for r != nil && st.countStall() && r.link.Wait() && time.Now().Before(deadline) {
			}
		}
	}
	clear(st.farSlow)
	st.farSlow = st.farSlow[:0]
}

func (st *stager) countStall() bool {
	st.srv.stalled.Add(1)
	if st.self != nil {
		st.self.stalls.Add(1)
	}
	return true
}

// identBytes is who the client is, as other nodes are told. Reader only.
func (s *session) identBytes() []byte {
	rules := s.rules() != nil
	if s.identOf != s.info || s.identRules != rules {
		s.ident, s.identOf, s.identRules = appendIdent(nil, s.info), s.info, rules
	}
	return s.ident
}

// AppendForward appends a message for the internal services of another node.
func AppendForward(dst []byte, m *Message) []byte {
	dst = append(dst, BatchForwarded)
	dst = appendBytes(dst, m.Account.name)
	var flags byte
	if m.Client != nil {
		flags = flagClient
		dst = appendBytes(dst, appendIdent(nil, m.Client))
	} else {
		dst = appendBytes(dst, "")
	}
	o := newOutgoing(m.Subject, m.Reply, m.Header, m.Payload)
	o.Tail = wire.AppendTail(nil, m.Reply, m.Header, m.Payload)
	dst = appendLengths(append(dst, flags), &o)
	return append(append(dst, o.Subject...), o.Tail...)
}
