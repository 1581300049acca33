package delivery

import (
	"slices"
	"strings"
	"time"

	"github.com/heraldmq/herald/topics"
)

// pullState is what a reader has for pull requests. Guarded by the reader's mu.
type pullState struct {
	waiting queue
	policy  priorityPolicy
	pin     pinState
}

type priorityPolicy uint8

const (
	priorityNone priorityPolicy = iota
	priorityOverflow
	priorityPinned
	priorityOrdered
)

// pinState is to which client a group is pinned.
type pinState struct {
	id    string
	since topics.Nanos
	used  topics.Nanos // last pull by the pinned client
	ttl   topics.Nanos
}

const (
	defaultMaxWaiting = 512
	defaultPinTTL     = 2 * time.Minute
)

func (p *pullState) configure(cfg *topics.ConsumerConfig) {
	switch cfg.PriorityPolicy {
	case "overflow":
		p.policy = priorityOverflow
	case "pinned_client":
		p.policy = priorityPinned
	case "prioritized":
		p.policy = priorityOrdered
	default:
		p.policy = priorityNone
	}
	p.pin.ttl = topics.Nanos(cfg.PriorityTimeout)
	if p.pin.ttl <= 0 {
		p.pin.ttl = topics.Nanos(defaultPinTTL)
	}
}

// Pull takes a pull request for a consumer of a topic: what was published to
// $JS.API.CONSUMER.MSG.NEXT. The answers go to reply. It reports false when the
// consumer isn't here, which the caller answers (503, or nothing).
func (e *Engine) Pull(id topics.TopicID, name, reply string, header, body []byte) bool {
	r := e.reader(id, name)
	if r == nil {
		return false
	}
	if reply != "" {
		r.request(reply, header, body)
	}
	return true
}

// request takes a pull request, and wakes the reader to answer it.
func (r *reader) request(reply string, header, body []byte) {
	now := r.e.o.Now()
	w, err := parseRequest(body)
	r.mu.Lock()
	r.active = now
	var refusal []byte
	switch {
	case r.cfg.IsPush():
		refusal = statusPushBased
	case levelTooHigh(header):
		refusal = statusAPILevel
	case err != nil:
		refusal = status(400, badRequestPrefix+err.Error())
	default:
		refusal = r.refuse(&w, now)
	}
	switch {
	case refusal == nil:
		r.enqueue(reply, &w, now)
	case len(refusal) > 0:
		r.say(reply, refusal)
	}
	r.mu.Unlock()
	r.wake()
}

// refuse checks a request against the consumer; the caller holds r.mu.
func (r *reader) refuse(w *wireRequest, now topics.Nanos) []byte {
	c := &r.cfg
	switch {
	case c.MaxRequestBatch > 0 && w.Batch > c.MaxRequestBatch:
		return status(409, "Exceeded MaxRequestBatch of "+itoa(c.MaxRequestBatch))
	case c.MaxRequestExpires > 0 && w.Expires > c.MaxRequestExpires:
		return status(409, "Exceeded MaxRequestExpires of "+c.MaxRequestExpires.String())
	case c.MaxRequestMaxBytes > 0 && w.MaxBytes > c.MaxRequestMaxBytes:
		return status(409, "Exceeded MaxRequestMaxBytes of "+itoa(c.MaxRequestMaxBytes))
	}
	if text := r.refuseGroup(w); text != "" {
		return status(400, badRequestPrefix+text)
	}
	if p := &r.pull; p.policy == priorityPinned && w.ID != "" {
		if w.ID != p.pin.id {
			return pendingStatus(textWrongPin, w.Batch, w.MaxBytes)
		}
		p.pin.used = now
	}
	if r.pull.waiting.len() >= r.maxWaiting() && !r.sweep(now) {
		if w.Heartbeat > 0 {
			return []byte{} // a client with heartbeats finds out by their absence
		}
		return statusMaxWaiting
	}
	if w.NoWait && w.Expires <= 0 {
		return r.refuseNoWait(w)
	}
	return nil
}

func (r *reader) refuseGroup(w *wireRequest) string {
	policy := r.pull.policy
	switch {
	case (w.MinPending > 0 || w.MinAckPending > 0) && policy != priorityOverflow:
		return "Not a Overflow Priority consumer"
	case w.ID != "" && policy != priorityPinned:
		return "Not a Pinned Client Priority consumer"
	case policy == priorityNone || w.bare:
		return ""
	case w.Group == "":
		return "Priority Group missing"
	case !slices.Contains(r.cfg.PriorityGroups, w.Group):
		return "Invalid Priority Group"
	}
	return ""
}

// refuseNoWait answers a request that takes what is there, when nothing is there
// or others have asked for it already.
func (r *reader) refuseNoWait(w *wireRequest) []byte {
	there := r.c.NumPending()
	if r.c.HasRedelivery() {
		there++
	}
	if there == 0 {
		return statusNoMessages
	}
	asked := 0
	for _, o := range r.pull.waiting.list {
		asked += o.left
	}
	if uint64(asked) > there {
		return statusRequestsPending
	}
	return nil
}

func (r *reader) maxWaiting() int {
	if r.cfg.MaxWaiting > 0 {
		return r.cfg.MaxWaiting
	}
	return defaultMaxWaiting
}

// sweep drops the requests whose inbox nobody listens to, and tells whether
// there is room now.
func (r *reader) sweep(now topics.Nanos) bool {
	r.expire(now)
	a := r.e.o.Account(r.topic.account)
	q := &r.pull.waiting
	for i := 0; a != nil && i < q.len(); {
		if a.HasInterest(q.list[i].reply) {
			i++
			continue
		}
		q.remove(i)
	}
	return q.len() < r.maxWaiting()
}

// enqueue lets a request wait.
func (r *reader) enqueue(reply string, w *wireRequest, now topics.Nanos) {
	q := &request{
		reply: reply, left: w.Batch, maxBytes: w.MaxBytes, bytes: w.MaxBytes, noWait: w.NoWait, received: now,
		every: topics.Nanos(w.Heartbeat), minPending: w.MinPending, minAckPending: w.MinAckPending,
		pin: w.ID, priority: w.Priority,
	}
	if w.Expires != 0 { // one in the past has expired already
		if q.expires = now; w.Expires > 0 {
			q.expires = now.After(w.Expires)
		}
	}
	if q.every > 0 {
		q.beat = now + q.every
	}
	list := r.pull.waiting.list
	i := len(list)
	if r.pull.policy == priorityOrdered {
		for i > 0 && list[i-1].priority > q.priority {
			i--
		}
	}
	r.pull.waiting.list = slices.Insert(list, i, q)
}

// expire ends the requests whose time is over.
func (r *reader) expire(now topics.Nanos) {
	q := &r.pull.waiting
	for i := 0; i < q.len(); {
		o := q.list[i]
		if o.expires == 0 || now < o.expires {
			i++
			continue
		}
		r.say(o.reply, pendingStatus(textTimeout, o.left, o.bytes))
		q.remove(i)
	}
}

// dry ends the requests that don't wait, once nothing is left to deliver.
func (r *reader) dry() {
	q := &r.pull.waiting
	for i := 0; i < q.len(); {
		o := q.list[i]
		if !o.noWait || o.sent == 0 && o.expires > 0 {
			i++
			continue
		}
		r.say(o.reply, statusNoMessages)
		q.remove(i)
	}
}

// beat sends the heartbeats that are due to waiting requests.
func (r *reader) beat(now topics.Nanos) {
	d := r.c.Delivered()
	for _, o := range r.pull.waiting.list {
		if o.every > 0 && now >= o.beat {
			r.say(o.reply, idleStatus(d.Consumer, uint64(d.Stream), ""))
			o.beat = now + o.every
		}
	}
}

// demand returns how many messages the waiting requests take at most, up to most.
func (r *reader) demand(most int) int {
	n := 0
	for _, o := range r.pull.waiting.list {
		if n += o.left; n >= most {
			return most
		}
	}
	return n
}

// pick chooses who gets a message of a size: the place of a waiting request, or
// -1. Requests that turn out to be over are ended on the way.
func (r *reader) pick(size func(pin string) int, now topics.Nanos) int {
	p := &r.pull
	for i := 0; i < p.waiting.len(); {
		o := p.waiting.list[i]
		if !r.eligible(o) {
			i++
			continue
		}
		if p.policy == priorityPinned && o.pin != "" && o.pin != p.pin.id {
			r.say(o.reply, pendingStatus(textWrongPin, o.left, o.bytes))
			p.waiting.remove(i)
			continue
		}
		if !r.listens(o) {
			p.waiting.remove(i)
			continue
		}
		if p.policy == priorityPinned && p.pin.id == "" {
			r.pinTo(o, now)
		}
		if o.maxBytes > 0 && size(p.pin.id) > o.bytes {
			r.say(o.reply, pendingStatus(textSizeExceeds, o.left, o.bytes))
			p.waiting.remove(i)
			continue
		}
		return i
	}
	return -1
}

// listens tells whether the request's inbox has interest; it asks once per turn.
func (r *reader) listens(o *request) bool {
	if o.checked == r.turns {
		return true
	}
	a := r.e.o.Account(r.topic.account)
	if a == nil || !a.HasInterest(o.reply) {
		return false
	}
	o.checked = r.turns
	return true
}

// eligible tells whether a request may get a message now.
func (r *reader) eligible(o *request) bool {
	switch r.pull.policy {
	case priorityOverflow:
		if o.minPending <= 0 && o.minAckPending <= 0 {
			return true
		}
		return o.minPending > 0 && r.c.NumPending() >= uint64(o.minPending) ||
			o.minAckPending > 0 && r.c.NumAckPending() >= int(o.minAckPending)
	case priorityPinned:
		return r.pull.pin.id == "" || o.pin != ""
	default:
		return true
	}
}

// served notes that the request at i got a message of a size, and returns its
// inbox.
func (r *reader) served(i, size int, now topics.Nanos) string {
	q := &r.pull.waiting
	o := q.list[i]
	o.left--
	o.sent++
	if o.every > 0 {
		o.beat = now + o.every
	}
	if o.maxBytes > 0 {
		o.bytes -= size
		if o.bytes <= 0 {
			o.left, o.bytes = 0, 0
		}
	}
	if o.left > 0 {
		r.rotate(i)
		return o.reply
	}
	q.remove(i)
	if o.bytes > 0 {
		r.say(o.reply, pendingStatus(textBatchDone, o.left, o.bytes))
	}
	return o.reply
}

// rotate lets the requests take turns, within their priority.
func (r *reader) rotate(i int) {
	q := &r.pull.waiting
	if r.pull.policy != priorityOrdered {
		if q.len() > 1 {
			q.rotate(i)
		}
		return
	}
	for ; i+1 < q.len() && q.list[i+1].priority == q.list[i].priority; i++ {
		q.list[i], q.list[i+1] = q.list[i+1], q.list[i]
	}
}

// pullDeadline returns when the waiting requests need attention, 0 if never.
func (r *reader) pullDeadline() topics.Nanos {
	var at topics.Nanos
	for _, o := range r.pull.waiting.list {
		at = earlier(at, o.expires)
		at = earlier(at, o.beat)
	}
	if r.pull.pin.id != "" {
		at = earlier(at, r.pull.pin.used+r.pull.pin.ttl)
	}
	return at
}

// earlier returns the earlier of two times, of which 0 is never.
func earlier(a, b topics.Nanos) topics.Nanos {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// endRequests tells all who wait that it is over.
func (r *reader) endRequests(status []byte) {
	for _, o := range r.pull.waiting.list {
		r.say(o.reply, status)
	}
	r.pull.waiting.list = nil
}

// group returns the consumer's priority group.
func (r *reader) group() string { return strings.Join(r.cfg.PriorityGroups, ",") }
