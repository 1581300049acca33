package front

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
)

// Inbound delivers what a peer sends. One goroutine at a time.
type Inbound struct {
	srv      *Server
	from     string
	accounts map[string]*inbound
	ident    []byte // of client
	client   *ClientInfo
	unknown  func(account string)
}

// inbound is one account's part. Its stager has a matcher for each kind of batch:
// for subscriptions without topics and peers, for internal services alone, for
// subscriptions without topics.
type inbound struct {
	account  *Account
	st       stager
	here     matcher
	services matcher
	again    matcher
	back     []byte // messages to be returned
}

// Kinds of matcher.
const (
	matchAll      = iota
	matchHere     // no topics, no peers: what came from a peer
	matchServices // handlers only: what a peer handed on
	matchAgain    // no topics, not the peer itself: what a peer returned
)

// NewInbound returns the way in for one peer. unknown is called for messages of
// accounts that this node doesn't have.
func (s *Server) NewInbound(from string, unknown func(account string)) *Inbound {
	return &Inbound{srv: s, from: from, accounts: map[string]*inbound{}, unknown: unknown}
}

// Delivered says what became of a batch.
type Delivered struct {
	Msgs int
	// SlowFor is the id, on the node it came from, of the client that published
	// the batch, when a receiver is far behind: it should be held back until Wait
	// returns false. Wait waits a little.
	SlowFor uint64
	Wait    func() (again bool)
	// Back are messages that nobody takes here any more, to be sent to the peer.
	Back []byte
}

// Deliver delivers a batch, of which it may keep parts. An error means that the
// peer doesn't speak as it should.
func (in *Inbound) Deliver(batch []byte) (d Delivered, err error) {
	r := cursor{b: batch}
	kind, name, ident := r.byte(), r.bytes(), r.bytes()
	if r.failed {
		return d, errShort
	}
	client, err := in.clientOf(ident)
	if err != nil {
		return d, err
	}
	to := in.account(name)
	if to == nil {
		in.unknown(string(name))
		return d, nil
	}
	c := &chunk{buf: batch[:len(batch):len(batch)], pool: &in.srv.chunks, class: -1}
	c.refs.Store(1)
	defer c.release()
	mt := &to.here
	switch kind {
	case BatchForwarded:
		mt = &to.services
	case BatchReturned:
		mt = &to.again
	}
	for len(r.b) > 0 && err == nil {
		err = to.message(&r, mt, c, client, ident)
		d.Msgs++
	}
	in.srv.countIn(to.account, int64(d.Msgs), int64(len(batch)))
	to.st.flush()
	d.Back, to.back = to.back, nil
	if len(to.st.behind) > 0 {
		if client != nil {
			d.SlowFor, d.Wait = client.ID, waitFor(slices.Clone(to.st.behind))
		}
		clear(to.st.behind)
		to.st.behind = to.st.behind[:0]
	}
	return d, err
}

func (in *Inbound) clientOf(ident []byte) (*ClientInfo, error) {
	if len(ident) == 0 {
		return nil, nil
	}
	if !bytes.Equal(ident, in.ident) {
		c, err := in.srv.readIdent(ident)
		if err != nil {
			return nil, err
		}
		in.ident, in.client = bytes.Clone(ident), c
	}
	return in.client, nil
}

func (in *Inbound) account(name []byte) *inbound {
	to := in.accounts[string(name)]
	if to != nil && !to.account.gone.Load() {
		return to
	}
	a := in.srv.Account(string(name))
	if a == nil {
		delete(in.accounts, string(name))
		return nil
	}
	to = &inbound{account: a}
	to.st.init(in.srv, a, nil)
	to.st.from, to.st.stall = in.from, true
	to.here.init(a, &to.st, nil)
	to.here.kind = matchHere
	to.again.init(a, &to.st, nil)
	to.again.kind = matchAgain
	to.services.init(a, &to.st, nil)
	to.services.kind = matchServices
	in.accounts[a.name] = to
	return to
}

// message reads one message and stages it.
func (to *inbound) message(r *cursor, mt *matcher, src *chunk, client *ClientInfo, ident []byte) error {
	flags := r.byte()
	subj, reply, header := r.uvarint(), r.uvarint(), r.uvarint()
	payload, tail := r.uvarint(), r.uvarint()
	var space [8][]byte
	queues := space[:0]
	if flags&flagQueues != 0 {
		for n := r.uvarint(); n > 0 && !r.failed; n-- {
			queues = append(queues, r.bytes())
		}
	}
	var route []byte
	if flags&flagRouted != 0 {
		route = r.bytes()
	}
	o := outgoing{src: src, borrowed: true}
	o.Subject, o.Tail = r.take(subj), r.take(tail)
	t := uint64(len(o.Tail))
	if r.failed || reply > t || header > t || payload > t || reply+header+payload+2 > t {
		return fmt.Errorf("front: a message with lengths that don't add up: %w", errShort)
	}
	if flags&flagClient != 0 {
		o.client = client
	}
	body := t - 2 - payload
	o.Reply, o.Payload = o.Tail[:reply], o.Tail[body:t-2]
	o.Header = o.Tail[body-header : body]
	o.route = route
	if route == nil {
		route = o.Subject
	}
	m := mt.find(route)
	switch mt.kind {
	case matchServices:
		to.st.deliver(m, &o)
	case matchAgain:
		to.st.deliverAgain(m, &o, queues)
	default:
		if flags&flagAnswer != 0 && len(m.plain)+len(m.handlers) == 0 {
			for i := range m.groups {
				to.st.member(m, &m.groups[i], &o)
			}
		}
		if left := to.st.deliverHere(m, &o, flags&flagPlain != 0, queues); len(left) > 0 && flags&flagReturned == 0 {
			to.giveBack(&o, left, ident)
		}
	}
	if to.st.staged >= stagedMax {
		to.st.flush()
	}
	return nil
}

// deliverHere stages a message of a peer: for all without a queue if it is plain,
// and for a member of each of the queues named. It returns those that have gone.
func (st *stager) deliverHere(m *match, o *outgoing, plain bool, queues [][]byte) (left [][]byte) {
	if plain {
		st.toPlain(m, o)
	}
	for _, q := range queues {
		if g := m.group(q); g == nil || !st.member(m, g, o) {
			left = append(left, q)
		}
	}
	if plain {
		for _, u := range m.handlers {
			st.handle(u, o)
		}
	}
	return left
}

// deliverAgain stages a message that a peer returned for another member of its
// queue groups, here or on a third node.
func (st *stager) deliverAgain(m *match, o *outgoing, queues [][]byte) {
	o.returned = true
	base := len(st.picks)
	for _, q := range queues {
		if g := m.group(q); g != nil {
			st.member(m, g, o)
		}
	}
	st.toRemotes(nil, o, st.picks[base:])
	st.picks = st.picks[:base]
}

func (m *match) group(queue []byte) *group {
	for i := range m.groups {
		if m.groups[i].queue == string(queue) {
			return &m.groups[i]
		}
	}
	return nil
}

// giveBack returns a message to where it was published: the last member of a queue
// group left while it was on its way. That node has heard so by the time the
// message is back, and picks another. It happens once to a message.
func (to *inbound) giveBack(o *outgoing, queues [][]byte, ident []byte) {
	if to.back == nil {
		to.back = appendBytes(append(to.back, BatchReturned), to.account.name)
		to.back = appendBytes(to.back, ident)
	}
	flags := byte(flagQueues | flagReturned)
	if o.client != nil {
		flags |= flagClient
	}
	if len(o.route) > 0 {
		flags |= flagRouted
	}
	if o.Tail == nil {
		to.st.writeTail(o) // a handler's answer took its place
	}
	b := appendLengths(append(to.back, flags), o)
	b = binary.AppendUvarint(b, uint64(len(queues)))
	for _, q := range queues {
		b = appendBytes(b, q)
	}
	if len(o.route) > 0 {
		b = appendBytes(b, o.route)
	}
	to.back = append(append(b, o.Subject...), o.Tail...)
}
