package delivery

import (
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/filter"
)

// LiveInfo is how a consumer stands on the leader.
type LiveInfo struct {
	Delivered      consumer.Position
	AckFloor       consumer.Position
	NumAckPending  int
	NumRedelivered int
	NumWaiting     int
	NumPending     uint64
	PushBound      bool
	Paused         bool
	PauseRemaining time.Duration
	Group          string // the pinned_client group, "" if none
	PinnedClientID string
	PinnedSince    topics.Nanos

	Filter *filter.Stats // what the content filter did since this node leads; nil without one

	Dead *DeadStats // nil where nothing is buried
	Keys *KeyStats  // nil without a key

	OldestPending topics.Sequence // the message longest unacknowledged; 0: none
	OldestSince   topics.Nanos    // when it was last delivered
}

// Info returns how a consumer stands, as one consistent picture. It reports false
// when the consumer isn't here, or nobody has used it since this node leads: what
// is committed is then all there is to know.
func (e *Engine) Info(id topics.TopicID, name string) (LiveInfo, bool) {
	r := e.inUse(id, name)
	if r == nil {
		return LiveInfo{}, false
	}
	now := e.o.Now()
	r.heed(now)
	r.heedBound(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shed(now)
	if r.pull.waiting.len() > 0 {
		r.sweep(now)
	}
	i := LiveInfo{
		Delivered:      r.c.Delivered(),
		AckFloor:       r.c.AckFloor(),
		NumAckPending:  r.c.NumAckPending(),
		NumRedelivered: r.c.NumRedelivered(),
		NumWaiting:     r.pull.waiting.len(),
		NumPending:     r.c.NumPending(),
		PushBound:      r.push.bound,
	}
	if until := r.c.PausedUntil(); until > now {
		i.Paused, i.PauseRemaining = true, time.Duration(until-now)
	}
	if r.pull.policy == priorityPinned {
		i.Group, i.PinnedClientID, i.PinnedSince = r.group(), r.pull.pin.id, r.pull.pin.since
	}
	if w := r.where.Load(); w != nil {
		st := w.tally.Stats()
		i.Filter = &st
	}
	i.Dead, i.Keys = r.deadStats(), r.keyStats()
	i.OldestPending, i.OldestSince, _ = r.c.OldestPending()
	return i, true
}

// inUse returns a consumer's reader, made only where it has something to do.
func (e *Engine) inUse(id topics.TopicID, name string) *reader {
	e.mu.RLock()
	t := e.topics[id]
	e.mu.RUnlock()
	if t != nil {
		if r := t.find(name); r != nil {
			return r
		}
	}
	data := e.o.Topic(id)
	if data == nil {
		return nil
	}
	if c := data.Consumer(name); c == nil || !e.restless(c) {
		return nil
	}
	return e.reader(id, name)
}

// heedBound makes push_bound current: clients read it just after they have
// subscribed.
func (r *reader) heedBound(now topics.Nanos) {
	before := r.isBound()
	r.checkInterest(now)
	if r.isBound() != before {
		r.wake()
	}
}

func (r *reader) isBound() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.push.bound
}
