package front

// Publisher publishes for the broker, with its own match cache and staging.
// One goroutine at a time.
type Publisher struct {
	st stager
	mt matcher
}

// NewPublisher returns a publisher. It holds no resources to give back.
func (a *Account) NewPublisher() *Publisher {
	p := &Publisher{}
	p.st.init(a.srv, a, nil)
	p.mt.init(a, &p.st, nil)
	return p
}

// Publish stages one message for everybody who listens, topics included, and
// reports whether there was anybody. The bytes are copied. What is staged
// leaves at Flush, or earlier when it is much.
func (p *Publisher) Publish(subject, reply string, header, payload []byte) bool {
	o := newOutgoing(bytesOf(subject), bytesOf(reply), header, payload)
	m := p.mt.find(o.Subject)
	if at := p.st.account.observer.Load(); at != nil {
		p.st.observe(at, m, &o)
	}
	ok := p.st.publishTo(m, &o)
	p.limit()
	return ok
}

// Deliver stages a message that is routed by one subject and shown as another:
// what a consumer delivers. Topics never capture it.
func (p *Publisher) Deliver(to, subject, reply string, header, payload []byte) bool {
	m := p.mt.find(bytesOf(to))
	o := newOutgoing(bytesOf(subject), bytesOf(reply), header, payload)
	if to != subject {
		o.route = bytesOf(to)
	}
	ok := p.st.deliver(m, &o) > 0
	p.limit()
	return ok
}

// Answer stages an answer to those who listen to reply. Topics never capture it. Where the
// request came from another node, node is its name, and the answer goes there even when
// this node hasn't heard that anybody listens there: a client that subscribes and then asks
// must get it, but the request may have taken a way on which it overtook the interest.
func (p *Publisher) Answer(node, reply string, header, payload []byte) {
	m := p.mt.find(bytesOf(reply))
	o := newOutgoing(bytesOf(reply), nil, header, payload)
	known := node == "" || m.reaches(node)
	queues := len(m.groups) > 0
	p.st.deliver(m, &o)
	if !known {
		p.st.answerTo(node, &o, queues)
	}
	p.limit()
}

// Tell stages a message that a topic has already for those who listen to its subject. It
// counts as published; no topic captures it again. It reports whether anybody listens. The
// bytes are copied.
func (p *Publisher) Tell(subject, header, payload []byte) bool {
	o := newOutgoing(subject, nil, header, payload)
	m := p.mt.find(o.Subject)
	if at := p.st.account.observer.Load(); at != nil {
		p.st.observe(at, m, &o)
	}
	ok := p.st.deliver(m, &o) > 0
	p.limit()
	return ok
}

func (p *Publisher) limit() {
	if p.st.staged >= stagedMax {
		p.st.flush()
	}
}

// Flush hands over what is staged.
func (p *Publisher) Flush() {
	if len(p.st.tallied) > 0 {
		p.st.handOverTallies()
	}
	p.st.flush()
}

// SetStall makes Flush wait a little (at most 100 ms) for receivers that are far
// behind but moving. Off by default.
func (p *Publisher) SetStall(on bool) { p.st.stall = on }

// publish stages o for everybody in its match.
func (st *stager) publish(mt *matcher, o *outgoing) bool {
	return st.publishTo(mt.find(o.Subject), o)
}

func (st *stager) publishTo(m *match, o *outgoing) bool {
	if len(m.captures) > 0 {
		st.capture(m, o)
	}
	return st.deliver(m, o) > 0 || len(m.captures) > 0
}
