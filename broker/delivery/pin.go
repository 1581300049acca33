package delivery

import (
	"github.com/heraldmq/herald/topics"
)

// pinTo pins the group to the client of a request.
func (r *reader) pinTo(o *request, now topics.Nanos) {
	p := &r.pull.pin
	p.id, p.since, p.used = r.e.o.NewID(), now, now
	o.pin = p.id
	r.advise("CONSUMER.PINNED", &groupPinned{
		event: r.event("advisory", "consumer_group_pinned", now), Account: r.topic.account,
		Stream: r.topic.name, Consumer: r.name, Group: r.group(), PinnedID: p.id, Domain: r.e.o.Domain,
	})
}

// unpin frees the group; the pinned client's requests are ended when the next
// message looks for a taker.
func (r *reader) unpin(reason string, now topics.Nanos) {
	p := &r.pull.pin
	p.id, p.since = "", 0
	r.advise("CONSUMER.UNPINNED", &groupUnpinned{
		event: r.event("advisory", "consumer_group_unpinned", now), Account: r.topic.account,
		Stream: r.topic.name, Consumer: r.name, Group: r.group(), Reason: reason, Domain: r.e.o.Domain,
	})
}

// checkPin frees the group when the pinned client hasn't pulled for too long.
func (r *reader) checkPin(now topics.Nanos) {
	p := &r.pull.pin
	if p.id == "" {
		return
	}
	for _, o := range r.pull.waiting.list {
		if o.pin == p.id {
			p.used = max(p.used, o.received)
		}
	}
	if now >= p.used+p.ttl {
		r.unpin("timeout", now)
	}
}

// Unpin frees a priority group of a consumer from its pinned client. It reports
// false when the consumer isn't here or has no such group.
func (e *Engine) Unpin(id topics.TopicID, name, group string) bool {
	r := e.reader(id, name)
	if r == nil {
		return false
	}
	r.mu.Lock()
	known := r.pull.policy == priorityPinned && r.group() == group
	if known && r.pull.pin.id != "" {
		r.unpin("admin", e.o.Now())
	}
	r.mu.Unlock()
	r.wake()
	return known
}
