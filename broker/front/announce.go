package front

import (
	"sync"
	"sync/atomic"
)

// announcer keeps what the other nodes are told of the interest of this one: for
// each account, subject and queue how many listen. It does nothing until the
// server joins a cluster.
type announcer struct {
	on      atomic.Bool
	changes atomic.Uint64 // moves whenever dirty grows

	mu      sync.Mutex
	cluster Cluster
	all     map[interestKey]*announced
	dirty   []*announced
}

// interestKey says what is listened to. Its strings are those of a subscription.
type interestKey struct{ account, subject, queue string }

// announced is one thing that is listened to.
type announced struct {
	interestKey
	count int
	dirty bool // listed
	off   bool // its account is gone
}

// Interest is what a node as a whole listens to. Weight is 1, or the number of
// members of a queue group; 0 when nobody listens any more.
type Interest struct {
	Account, Subject, Queue string
	Weight                  int
}

func (a *announced) interest() Interest {
	i := Interest{Account: a.account, Subject: a.subject, Queue: a.queue, Weight: a.count}
	if a.queue == "" {
		i.Weight = min(i.Weight, 1)
	}
	return i
}

// start counts what is subscribed to already, and everything from now on.
func (x *announcer) start(s *Server, c Cluster) {
	x.mu.Lock()
	x.cluster, x.all = c, map[interestKey]*announced{}
	x.mu.Unlock()
	x.on.Store(true)
	for _, a := range s.Accounts() {
		var subs []*sub
		a.index.Each(func(u *sub) bool { subs = append(subs, u); return true })
		for _, u := range subs {
			x.add(u)
		}
	}
}

func (x *announcer) add(u *sub) {
	if !x.on.Load() || u.local || u.topic != nil || u.remote != nil {
		return
	}
	x.mu.Lock()
	if u.told != nil || u.closed.Load() || u.account.gone.Load() {
		x.mu.Unlock()
		return
	}
	key := interestKey{u.account.name, u.subject, u.queue}
	e := x.all[key]
	if e == nil {
		e = &announced{interestKey: key}
		x.all[key] = e
	}
	u.told = e
	x.countLocked(e, 1)
}

func (x *announcer) remove(u *sub) {
	if !x.on.Load() {
		return
	}
	x.mu.Lock()
	e := u.told
	if e == nil {
		x.mu.Unlock()
		return
	}
	u.told = nil
	x.countLocked(e, -1)
}

// countLocked unlocks.
func (x *announcer) countLocked(e *announced, n int) {
	if !e.off {
		e.count += n
	}
	first := e.count == 0 || n > 0 && e.count == 1
	if e.off || e.dirty || e.queue == "" && !first {
		x.mu.Unlock()
		return
	}
	e.dirty = true
	x.dirty = append(x.dirty, e)
	x.changes.Add(1)
	c := x.cluster
	x.mu.Unlock()
	c.InterestChanged()
}

// drop forgets an account that is gone, and what it listened to.
func (x *announcer) drop(account string) {
	if !x.on.Load() {
		return
	}
	x.mu.Lock()
	for key, e := range x.all {
		if key.account != account {
			continue
		}
		e.off, e.count = true, 0
		delete(x.all, key)
		if !e.dirty {
			e.dirty = true
			x.dirty = append(x.dirty, e)
		}
	}
	x.changes.Add(1)
	c := x.cluster
	x.mu.Unlock()
	c.InterestChanged()
}

// InterestChanges counts the changes of this node's interest so far.
func (s *Server) InterestChanges() uint64 { return s.announce.changes.Load() }

// TakeInterest calls f for everything whose interest changed since the last call,
// with what it is now. One caller at a time; f must not subscribe.
func (s *Server) TakeInterest(f func(Interest)) {
	x := &s.announce
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, e := range x.dirty {
		e.dirty = false
		x.dirty[i] = nil
		f(e.interest())
		if e.count == 0 && x.all[e.interestKey] == e {
			delete(x.all, e.interestKey)
		}
	}
	if cap(x.dirty) > 1<<14 {
		x.dirty = nil
	}
	x.dirty = x.dirty[:0]
}

// AllInterest calls f for all of this node's interest; f must not subscribe.
func (s *Server) AllInterest(f func(Interest)) {
	x := &s.announce
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.all {
		if e.count > 0 {
			f(e.interest())
		}
	}
}
