package front

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/heraldmq/herald/broker/auth"
	"github.com/heraldmq/herald/topics/interest"
	"github.com/heraldmq/herald/topics/subject"
)

// Account is an isolated subject space: its interest, its topics, its users.
// All methods may be called by any number of goroutines.
type Account struct {
	srv    *Server
	name   string
	system bool
	index  index

	limits     atomic.Pointer[auth.Limits]
	gate       atomic.Pointer[gateAt]
	observer   atomic.Pointer[observerAt]
	watch      watches
	gone       atomic.Bool // dropped by a reload
	slow       atomic.Int64
	total      atomic.Uint64
	conns      atomic.Int64
	clientSubs atomic.Int64
	remote     atomic.Int64 // things that other nodes listen to
	in         counters
	out        counters

	mu   sync.Mutex
	idle []*Publisher // for Publish
}

func newAccount(s *Server, name string, system bool) *Account {
	a := &Account{srv: s, name: name, system: system}
	a.limits.Store(&auth.Limits{})
	return a
}

// Name is the account's name.
func (a *Account) Name() string { return a.name }

// System tells whether this is the system account.
func (a *Account) System() bool { return a.system }

// Limits are those of the configuration.
func (a *Account) Limits() auth.Limits { return *a.limits.Load() }

// Internal is a subscription of the broker itself.
type Internal struct{ sub *sub }

// SubscribeOption says more about a subscription of the broker.
type SubscribeOption int

// Local keeps a subscription from the other nodes of the cluster: only what is
// published on this node, or handed to it by Forward, comes to it.
const Local SubscribeOption = 1

// Subscribe registers h for the pattern; with a queue, one member of it gets
// each message. Unless it is Local, h also gets what is published on other
// nodes, with Message.Forwarded set.
func (a *Account) Subscribe(subj, queue string, h Handler, opts ...SubscribeOption) (*Internal, error) {
	u := &sub{id: a.srv.nextSub.Add(1), account: a, subject: subj, queue: queue, handler: h}
	u.local = slices.Contains(opts, Local)
	if !subject.Valid(subj) || queue != "" && !subject.Valid(queue) {
		return nil, fmt.Errorf("front: subscribe to %q with queue %q: not a valid subject", subj, queue)
	}
	a.add(u)
	return &Internal{sub: u}, nil
}

// Close ends the subscription. A handler that runs on another goroutine may
// still be running when it returns.
func (i *Internal) Close() {
	if !i.sub.closed.Swap(true) {
		i.sub.account.remove(i.sub)
	}
}

func (a *Account) add(u *sub) {
	a.index.Add(u.subject, u)
	a.srv.announce.add(u)
	a.watch.changed(a, u.subject)
}

func (a *Account) remove(u *sub) {
	a.index.Remove(u.subject, u)
	a.srv.announce.remove(u)
	a.watch.changed(a, u.subject)
}

// Publish publishes one message at once, from any goroutine. It is for the
// occasional message: a Publisher is cheaper. It reports whether anybody
// listened.
func (a *Account) Publish(subject, reply string, header, payload []byte) bool {
	// The publisher is taken out of the list, not locked: a handler it calls
	// may publish as well.
	a.mu.Lock()
	var p *Publisher
	if n := len(a.idle); n > 0 {
		p, a.idle = a.idle[n-1], a.idle[:n-1]
	}
	a.mu.Unlock()
	if p == nil {
		p = a.NewPublisher()
	}
	ok := p.Publish(subject, reply, header, payload)
	p.Flush()
	a.mu.Lock()
	a.idle = append(a.idle, p)
	a.mu.Unlock()
	return ok
}

// HasInterest tells whether a subscription of a client or of the broker, on any
// node, matches the literal subject. Topics don't count.
func (a *Account) HasInterest(subject string) bool {
	return a.index.Has(subject, func(u *sub) bool { return u.listens(subject) })
}

// LiteralInterest tells whether somebody subscribed to the literal subject itself,
// rather than to a pattern that matches it.
func (a *Account) LiteralInterest(subject string) bool {
	return a.index.Has(subject, func(u *sub) bool { return u.subject == subject && u.listens(subject) })
}

// Captures tells whether a topic that is led here keeps messages of the literal
// subject.
func (a *Account) Captures(subject string) bool {
	return a.index.Has(subject, func(u *sub) bool { return u.topic != nil })
}

// QueueInterest tells whether a member of the queue group listens to the
// literal subject.
func (a *Account) QueueInterest(subject, queue string) bool {
	return a.index.Has(subject, func(u *sub) bool { return u.queue == queue && u.listens(subject) })
}

// ClientSubscriptions returns how many subscriptions clients of this node have that share
// a subject with the pattern.
func (a *Account) ClientSubscriptions(pattern string) (n int) {
	for _, u := range a.index.Overlapping(pattern, nil) {
		if u.sess != nil && !u.closed.Load() {
			n++
		}
	}
	return n
}

// Interested remembers who listens to the subjects of a pattern, so that asking whether
// that may have changed takes two loads, or a few.
type Interested struct{ stamp interest.Stamp }

// Interested returns the present interest in the subjects of a pattern; ask
// ClientSubscriptions afterwards. Those of a pattern that begins with a wildcard may
// always have changed.
func (a *Account) Interested(pattern string) Interested {
	if first := subject.Token(pattern, 0); first == "*" || first == ">" {
		return Interested{}
	}
	return Interested{a.index.Stamp(pattern)}
}

// Same tells whether nothing has changed.
func (i Interested) Same() bool { return i.stamp.Fresh() }

// Stats returns the account's counters.
func (a *Account) Stats() AccountStats {
	st := AccountStats{
		Name: a.name, Connections: int(a.conns.Load()), TotalConnections: a.total.Load(),
		Subscriptions: a.index.Len(), SlowConsumers: a.slow.Load(),
	}
	st.InMsgs, st.InBytes = a.in.load()
	st.OutMsgs, st.OutBytes = a.out.load()
	return st
}

// counters are totals that are added to once per batch.
type counters struct{ msgs, bytes atomic.Int64 }

func (c *counters) add(msgs, bytes int64) {
	c.msgs.Add(msgs)
	c.bytes.Add(bytes)
}

func (c *counters) load() (msgs, bytes int64) { return c.msgs.Load(), c.bytes.Load() }
