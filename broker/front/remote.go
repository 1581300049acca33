package front

import "sync/atomic"

// Cluster is told what the other nodes must know. Its methods are called with no
// lock held, by any goroutine, and must not block.
type Cluster interface {
	// InterestChanged: TakeInterest has something.
	InterestChanged()
	// Tell passes on at once what changed, before something that may be answered.
	Tell()
	// Peer returns another node as a receiver, also when nothing is known yet of what is
	// listened to there; nil when it isn't connected.
	Peer(name string) *Remote
	// AccountAdded: the account was made (again), after the start or by a reload.
	AccountAdded(a *Account)
	// AddressChanged: what ConnectURLs returns may be something else, or clients are
	// to go elsewhere.
	AddressChanged()
}

// Join makes the server tell c about its interest. Call it once, before Start.
func (s *Server) Join(c Cluster) {
	s.cluster.Store(&c)
	s.announce.start(s, c)
}

func (s *Server) joined() Cluster {
	if c := s.cluster.Load(); c != nil {
		return *c
	}
	return nil
}

// Link carries batches of messages to one peer. Any goroutine may call it.
type Link interface {
	// Push queues a batch, which it keeps; it never blocks. What doesn't fit is
	// dropped and counted.
	Push(batch []byte, msgs int)
	// Behind tells whether so much waits that publishers should.
	Behind() bool
	// Wait waits until the peer is no longer behind, but not long; again tells
	// whether it is worth to go on waiting.
	Wait() (again bool)
}

// Remote is another node as a receiver of messages.
type Remote struct {
	name string
	link Link
	gone atomic.Bool
	subs atomic.Int64
}

// NewRemote returns the peer of that name, with no interest yet.
func NewRemote(name string, link Link) *Remote { return &Remote{name: name, link: link} }

// Subscriptions is how many subjects and queue groups the peer listens to.
func (r *Remote) Subscriptions() int { return int(r.subs.Load()) }

// Gone ends the peer: from now on nothing is sent to it and its interest doesn't
// count. What AddRemote returned must still be removed.
func (s *Server) Gone(r *Remote) {
	r.gone.Store(true)
	for _, a := range s.Accounts() {
		a.index.Touch(">")
	}
}

// RemoteInterest is one thing that a peer listens to.
type RemoteInterest struct{ sub *sub }

// AddRemote makes messages of the subject go to the peer: to everybody there when
// queue is empty, else to a member of the queue group in proportion to weight,
// the number of its members there. nil when the subject isn't valid.
func (a *Account) AddRemote(r *Remote, subject, queue string, weight int) *RemoteInterest {
	u := &sub{id: a.srv.nextSub.Add(1), account: a, subject: subject, queue: queue, remote: r}
	u.weight.Store(int64(weight))
	if !a.index.Add(subject, u) {
		return nil
	}
	r.subs.Add(1)
	a.remote.Add(1)
	a.watch.changed(a, subject)
	return &RemoteInterest{u}
}

// SetWeight changes the number of members.
func (i *RemoteInterest) SetWeight(n int) {
	if i.sub.weight.Swap(int64(n)) != int64(n) {
		i.sub.account.index.Touch(i.sub.subject)
	}
}

// Remove ends it.
func (i *RemoteInterest) Remove() {
	u := i.sub
	if u.closed.Swap(true) {
		return
	}
	u.account.index.Remove(u.subject, u)
	u.remote.subs.Add(-1)
	u.account.remote.Add(-1)
	u.account.watch.changed(u.account, u.subject)
}
