package state

import (
	"context"
	"sync"
	"time"

	"github.com/heraldmq/herald/topics"
)

// The rhythm of expiry.
const (
	expiryGather = 20 * time.Millisecond  // changes are looked at this much later, together
	expiryPause  = 100 * time.Millisecond // the least between two expire records of one topic
)

// expiry proposes the removal of what has become too old, on the group's leader.
// The entry's time decides what goes, on every node alike; this only decides
// when to ask. It holds the next due time of those topics that have one, and no
// timer runs while there are none.
type expiry struct {
	group *replica
	now   func() topics.Nanos
	wake  chan struct{} // capacity 1

	mu    sync.Mutex
	on    bool                            // this node leads the group
	all   bool                            // every topic has to be looked at
	dirty map[topics.TopicID]struct{}     // so have these
	due   map[topics.TopicID]topics.Nanos // when an expire record is to be proposed
	asked map[topics.TopicID]topics.Nanos // when the last one was; only those asked within expiryPause
}

func newExpiry(g *replica, now func() topics.Nanos) *expiry {
	return &expiry{
		group: g, now: now, wake: make(chan struct{}, 1),
		dirty: map[topics.TopicID]struct{}{}, due: map[topics.TopicID]topics.Nanos{}, asked: map[topics.TopicID]topics.Nanos{},
	}
}

// lead turns expiry on where this node leads, else off.
func (e *expiry) lead(on bool) {
	e.mu.Lock()
	e.on, e.all = on, on
	clear(e.dirty)
	clear(e.due)
	e.mu.Unlock()
	e.nudge()
}

// touch asks to look at a topic again.
func (e *expiry) touch(id topics.TopicID) {
	e.mu.Lock()
	on := e.on
	if on {
		e.dirty[id] = struct{}{}
	}
	e.mu.Unlock()
	if on {
		e.nudge()
	}
}

// touchAll asks to look at all topics again.
func (e *expiry) touchAll() {
	e.mu.Lock()
	e.all = e.on
	e.mu.Unlock()
	e.nudge()
}

// grown tells that topics got messages. New messages come due after those that
// are there, so a topic with a due time needs no look.
//
// The exception is a message with a short time to live in a topic that waits
// for a longer one: topics that allow them are looked at each time.
func (e *expiry) grown(ids []topics.TopicID) {
	e.mu.Lock()
	found := false
	if e.on {
		for _, id := range ids {
			if _, has := e.due[id]; has {
				if t, ok := e.group.topic(id); !ok || !t.Config().AllowMsgTTL {
					continue
				}
			}
			e.dirty[id] = struct{}{}
			found = true
		}
	}
	e.mu.Unlock()
	if found {
		e.nudge()
	}
}

func (e *expiry) nudge() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// run looks and proposes until ctx ends.
func (e *expiry) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	at := topics.Nanos(0) // when the timer fires; 0 when it doesn't
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wake:
			soon := e.now() + topics.Nanos(expiryGather)
			if at == 0 || at > soon {
				at = soon
				timer.Reset(expiryGather)
			}
			continue
		case <-timer.C:
		}
		at = e.turn()
		if at != 0 {
			timer.Reset(max(time.Duration(at-e.now()), time.Millisecond))
		}
	}
}

// turn looks at what changed, proposes what is due and returns when the next
// turn should be, 0 for never.
func (e *expiry) turn() topics.Nanos {
	now := e.now()
	look := e.changed()
	at := make([]topics.Nanos, len(look)) // asked without e.mu, which whoever applies entries takes
	for i, id := range look {
		if t := e.group.data.Topic(id); t != nil {
			at[i] = t.NextExpiry()
		}
	}
	e.mu.Lock()
	if !e.on {
		e.mu.Unlock()
		return 0
	}
	for id, last := range e.asked {
		if now-last >= topics.Nanos(expiryPause) {
			delete(e.asked, id)
		}
	}
	for i, id := range look {
		delete(e.due, id)
		if at[i] == 0 {
			continue
		}
		if last, has := e.asked[id]; has {
			at[i] = max(at[i], last+topics.Nanos(expiryPause))
		}
		e.due[id] = at[i]
	}
	var next topics.Nanos
	var ripe []topics.TopicID
	for id, due := range e.due {
		if due <= now {
			delete(e.due, id)
			e.asked[id] = now
			ripe = append(ripe, id)
		} else if next == 0 || due < next {
			next = due
		}
	}
	e.mu.Unlock()
	for _, id := range ripe {
		// When it has been applied there may be another one to wait for.
		e.group.queue.submit(topics.RecordExpire, appendTopic(nil, id), func(any, error) { e.touch(id) })
	}
	return next
}

// changed returns the topics that have to be looked at.
func (e *expiry) changed() []topics.TopicID {
	e.mu.Lock()
	all := e.all
	e.all = false
	look := make([]topics.TopicID, 0, len(e.dirty))
	for id := range e.dirty {
		look = append(look, id)
	}
	clear(e.dirty)
	e.mu.Unlock()
	if all {
		return e.group.topicIDs()
	}
	return look
}
