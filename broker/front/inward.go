package front

import (
	"bytes"
	"fmt"
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

// inbound is one account's part. Its stager has two matchers: one for
// subscriptions without topics and peers, one for internal services alone.
type inbound struct {
	account  *Account
	st       stager
	mt       matcher
	services matcher
}

// Kinds of matcher.
const (
	matchAll      = iota
	matchHere     // no topics, no peers: what came from a peer
	matchServices // handlers only: what a peer handed on
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
	// the batch, when a receiver is far behind: it should be held back.
	SlowFor uint64
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
	mt := &to.mt
	if kind == BatchForwarded {
		mt = &to.services
	}
	for len(r.b) > 0 && err == nil {
		err = to.message(&r, mt, c, client)
		d.Msgs++
	}
	in.srv.countIn(to.account, int64(d.Msgs), int64(len(batch)))
	to.st.flush()
	if to.st.sawSlow {
		to.st.sawSlow = false
		if client != nil {
			d.SlowFor = client.ID
		}
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
	to.mt.init(a, &to.st, nil)
	to.mt.kind = matchHere
	to.services.init(a, &to.st, nil)
	to.services.kind = matchServices
	in.accounts[a.name] = to
	return to
}

// message reads one message and stages it.
func (to *inbound) message(r *cursor, mt *matcher, src *chunk, client *ClientInfo) error {
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
	if route == nil {
		route = o.Subject
	}
	m := mt.find(route)
	if mt.kind == matchServices {
		to.st.deliver(m, &o)
	} else {
		to.st.deliverHere(m, &o, flags&flagPlain != 0, queues)
	}
	if to.st.staged >= stagedMax {
		to.st.flush()
	}
	return nil
}

// deliverHere stages a message of a peer: for all without a queue if it is plain,
// and for a member of each of the queues named. A queue that has gone meanwhile
// gets nothing.
func (st *stager) deliverHere(m *match, o *outgoing, plain bool, queues [][]byte) {
	if plain {
		st.toPlain(m, o)
	}
	for _, q := range queues {
		for i := range m.groups {
			if g := &m.groups[i]; g.queue == string(q) {
				st.member(m, g, o)
			}
		}
	}
	if plain {
		for _, u := range m.handlers {
			st.handle(u, o)
		}
	}
}
