package front

import (
	"sync/atomic"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/interest"
	"github.com/heraldmq/herald/topics/subject"
)

// sub is one entry of an account's interest: a client's subscription, one of
// the broker itself, a topic, or what another node asks for. Exactly one of sess,
// handler, topic and remote is set.
type sub struct {
	// Set at construction.
	id      uint64 // unique in the process
	account *Account
	subject string
	queue   string
	sess    *session
	sid     string
	handler Handler
	topic   *TopicInterest
	remote  *Remote
	local   bool // not told to other nodes

	told *announced // guarded by announcer.mu

	weight    atomic.Int64             // of remote: members of the queue group there
	filter    atomic.Pointer[[]string] // denied patterns that overlap with subject; nil: none
	max       atomic.Int64             // deliveries after which it ends; 0: no limit
	delivered atomic.Int64
	closed    atomic.Bool
}

type index = interest.Index[*sub]

// take counts one delivery of a limited subscription; false when it has had
// all of them.
func (u *sub) take() (ok, last bool) {
	n, most := u.delivered.Add(1), u.max.Load()
	if most > 0 && n > most {
		u.delivered.Add(-1)
		return false, false
	}
	return true, n == most
}

// wants tells whether the filter lets a subject through.
func (u *sub) wants(s string) bool {
	f := u.filter.Load()
	return f == nil || len(*f) == 0 || !subject.MatchAny(*f, s)
}

// listens tells whether a message of the subject would be delivered by it.
func (u *sub) listens(s string) bool {
	return u.topic == nil && (u.remote == nil || !u.remote.gone.Load()) && u.wants(s)
}

// filtered tells whether there are subjects that the filter keeps back.
func (u *sub) filtered() bool {
	f := u.filter.Load()
	return f != nil && len(*f) > 0
}

// TopicInterest is a topic's place in the account's interest.
type TopicInterest struct {
	id    topics.TopicID
	group topics.GroupID
	sink  Sink
	subs  []*sub
}

// AddTopic makes the topic capture what is published to its subjects. Patterns
// that aren't valid are left out.
func (a *Account) AddTopic(id topics.TopicID, group topics.GroupID, subjects []string, sink Sink) *TopicInterest {
	t := &TopicInterest{id: id, group: group, sink: sink}
	for _, s := range subjects {
		u := &sub{id: a.srv.nextSub.Add(1), account: a, subject: s, topic: t}
		if a.index.Add(s, u) {
			t.subs = append(t.subs, u)
		}
	}
	return t
}

// Remove ends the capture. Read batches under way may still be captured.
func (t *TopicInterest) Remove() {
	for _, u := range t.subs {
		u.closed.Store(true)
		u.account.index.Remove(u.subject, u)
	}
}

// Topic is the id it was added with.
func (t *TopicInterest) Topic() topics.TopicID { return t.id }

// Sink is the sink it was added with.
func (t *TopicInterest) Sink() Sink { return t.sink }

// Group is the group it was added with.
func (t *TopicInterest) Group() topics.GroupID { return t.group }
