package delivery

import (
	"strconv"
	"time"
	"unsafe"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/filter"
)

// What a turn does at most, so that the others come to theirs.
const (
	turnMessages = 512
	turnBytes    = 1 << 20
	turnPaced    = 16 // by the original pace
	// demandLarge is how many messages may be asked for at once without being held
	// back for receivers that are far behind.
	demandLarge = 4096
)

// batch is a worker's memory of one turn.
type batch struct {
	redo     []topics.Sequence // to be delivered again, or by last_per_subject
	old      []topics.Message  // of redo; Sequence 0: gone
	again    int               // redo[:again] are redeliveries
	fresh    []topics.Message
	next     topics.Sequence // where fresh ends
	read     bool            // fresh was read
	last     topics.Sequence // of the topic, before reading
	items    []item
	reply    []byte
	header   []byte
	unheard  []unheard
	consumer *consumer.Consumer
	want     int
	room     int

	where                 *where // nil without a content filter
	verdicts, oldVerdicts []verdict
	message               filter.Message // what filters look at

	order         *byKey // nil without a key
	keys, oldKeys []keyed
	learning      bool // redo is what has to be learned, nothing is delivered
}

// item is something to send: a message, or a notice when there is none.
type item struct {
	msg      *topics.Message // in the batch's old or fresh
	notice   *notice
	delivery consumer.Delivery
	to       string
	pin      string
	until    topics.Nanos // when it is too late to send it; of what was held
}

// unheard is a delivery that nobody was there for.
type unheard struct {
	seq topics.Sequence
	to  string
}

func (b *batch) reset() {
	clear(b.old)
	clear(b.fresh)
	clear(b.items)
	clear(b.verdicts)
	clear(b.oldVerdicts)
	clear(b.keys)
	clear(b.oldKeys)
	*b = batch{
		verdicts: b.verdicts[:0], oldVerdicts: b.oldVerdicts[:0], keys: b.keys[:0], oldKeys: b.oldKeys[:0],
		redo: b.redo[:0], old: b.old[:0], fresh: b.fresh[:0], items: b.items[:0],
		reply: b.reply[:0], header: b.header[:0], unheard: b.unheard[:0],
	}
}

// turn gives the reader its turn on a worker.
func (r *reader) turn(w *worker) {
	r.state.begin()
	if r.work(w) {
		r.state.wake()
	}
	if r.state.finish() {
		r.e.pool.push(r)
	}
}

// work does what there is to do, and tells whether there is more.
//
// It looks (under the lock), reads (without), decides and notes (under the lock),
// and sends (without). Between the steps acknowledgements and requests come in;
// what was read is therefore checked again before it is delivered.
func (r *reader) work(w *worker) (more bool) {
	b := &w.batch
	defer b.reset()
	if status := r.ending.Load(); status != nil {
		r.finish(w, *status)
		return false
	}
	now := r.e.o.Now()
	r.heed(now)
	r.mu.Lock()
	r.turns++
	r.tick(now)
	r.plan(b, now)
	r.mu.Unlock()
	r.load(b)
	r.mu.Lock()
	if b.consumer == r.c {
		more = r.decide(b, now)
	} else {
		more = true // reset meanwhile
	}
	r.flushOutbox(b)
	r.arrange(now)
	if r.order.Load() != nil || r.holding > 0 {
		r.hold(b, now)
	}
	stall := r.cfg.IsPush() && !r.push.flow || r.demand(demandLarge) == demandLarge
	headersOnly := r.cfg.HeadersOnly
	r.mu.Unlock()
	if r.send(w, stall, headersOnly) {
		more = true
	}
	return more
}

// tick does what the time asks for.
func (r *reader) tick(now topics.Nanos) {
	r.shed(now)
	r.c.Due(now)
	for _, x := range r.c.TakeExceeded() {
		r.adviseExceeded(x, now)
		r.recordAcks(now, false)
	}
	r.bury(now)
	if r.pull.waiting.len() > 0 || r.push.bound {
		r.active = now
	}
	r.expire(now)
	r.beat(now)
	r.pushBeat(now)
	r.checkPin(now)
	if r.idleFor > 0 && r.pull.waiting.len() > 0 && now >= r.swept+r.idleFor {
		r.sweep(now) // what nobody listens to doesn't keep a consumer alive
		r.swept = now
	}
	r.checkIdle(now)
}

// checkIdle asks for the end of a consumer that nobody uses.
func (r *reader) checkIdle(now topics.Nanos) {
	if r.idleFor <= 0 || now < r.active+r.idleFor || r.deleting != 0 && now < r.deleting+deleteRetry {
		return
	}
	r.deleting = now
	id, name := r.topic.id, r.name
	r.e.pool.call(func() { r.e.o.DeleteConsumer(id, name) })
}

// deleteRetry is how long the deletion of an unused consumer may take before it
// is asked for again.
const deleteRetry = topics.Nanos(10 * time.Second)

// plan decides what to read.
func (r *reader) plan(b *batch, now topics.Nanos) {
	b.consumer = r.c
	if r.c.Paused(now) || r.pausedTill > now || r.failed || r.holding >= heldMost || r.blind() {
		return
	}
	if r.cfg.IsPush() {
		if ok, _ := r.push.allowance(now); r.push.bound && !r.push.stalled() && ok {
			b.want = turnMessages
		}
	} else {
		b.want = r.demand(turnMessages)
	}
	if b.want == 0 || now < r.replay.at {
		return
	}
	if b.redo = r.c.Unlearned(b.redo, b.want); len(b.redo) > 0 {
		b.again, b.learning = len(b.redo), true
		return
	}
	if r.replay.until > 0 {
		b.want = min(b.want, turnPaced)
	}
	b.redo = r.c.Redeliveries(b.redo, b.want)
	b.again = len(b.redo)
	b.room = min(b.want-b.again, r.c.Room())
	if b.room <= 0 {
		return
	}
	b.redo = r.c.Initial(b.redo, b.room)
	if len(b.redo) == b.again {
		b.next, _ = r.c.Cursor()
		b.read = true
	}
}

// load reads what was planned, without a lock.
func (r *reader) load(b *batch) {
	if b.want == 0 {
		return
	}
	_, b.last = r.topic.data.Bounds()
	size := 0
	for i, seq := range b.redo {
		m, err := r.topic.data.Load(seq)
		if err != nil {
			m = topics.Message{}
		}
		b.old = append(b.old, m)
		size += len(m.Header) + len(m.Payload)
		if size > turnBytes {
			b.redo, b.again = b.redo[:i+1], min(b.again, i+1)
			b.read = false
		}
		if size > turnBytes {
			break
		}
	}
	defer r.judge(b)
	defer r.identify(b)
	if !b.read || b.next > b.last {
		return
	}
	room := b.room
	if r.where.Load() != nil {
		room = turnMessages // most may not match
	}
	msgs, next, err := r.topic.data.Read(r.filter.Load(), b.next, room, turnBytes, b.fresh)
	if err != nil {
		r.e.o.Log.Error("a consumer can't read its topic", "stream", r.topic.name, "consumer", r.name, "error", err)
		r.e.clock.set(r, r.e.o.Now()+topics.Nanos(failurePause))
		if next <= b.next {
			next = b.next
		}
	}
	b.fresh, b.next = msgs, max(next, b.next)
}

// decide gives the messages that were read to those who wait, and notes it. It
// tells whether there is more to do at once.
func (r *reader) decide(b *batch, now topics.Nanos) (more bool) {
	if b.want == 0 {
		return false
	}
	if b.learning {
		r.learn(b)
		return true
	}
	if len(b.old) > 0 || len(b.fresh) > 0 {
		r.c.NumPending()
	}
	taken, stopped := 0, false
	for i := range b.old {
		seq := b.redo[i]
		again := i < b.again
		switch {
		case again && !r.c.Redelivers(seq), !again && seq <= r.c.Delivered().Stream:
			continue // dealt with meanwhile
		case b.old[i].Sequence == 0:
			if again {
				r.c.Drop(seq, now)
				r.recordAcks(now, false)
			} else {
				r.c.Skip(seq + 1)
			}
			continue
		case !again && r.c.Room() == 0:
			stopped = true
		case !again && (!r.admits(b, b.oldVerdicts, i, &b.old[i], now) || r.parked(b, b.oldKeys, i, &b.old[i], now)):
			continue
		default:
			stopped = !r.give(b, &b.old[i], now)
		}
		if stopped {
			break
		}
		if !again {
			r.flies(b, b.oldKeys, i, &b.old[i])
			b.count(b.oldVerdicts, i, &b.old[i])
		}
		taken++
	}
	for i := range b.fresh {
		m := &b.fresh[i]
		if stopped || r.c.Room() == 0 {
			stopped = true
			break
		}
		if m.Sequence <= r.c.Delivered().Stream || !r.admits(b, b.verdicts, i, m, now) || r.parked(b, b.keys, i, m, now) {
			continue
		}
		if stopped = !r.give(b, m, now); stopped {
			break
		}
		r.flies(b, b.keys, i, m)
		b.count(b.verdicts, i, m)
		taken++
	}
	if b.read && !stopped {
		r.c.Skip(b.next)
	}
	if taken > 0 {
		r.active = now
		r.e.recorder.add(r, now+topics.Nanos(lingerDeliveries))
	}
	return r.after(b, stopped, now)
}

// after looks at what is left once the messages that were read are given away.
func (r *reader) after(b *batch, stopped bool, now topics.Nanos) (more bool) {
	if now < r.replay.at {
		return false
	}
	wanted := r.pull.waiting.len() > 0
	if r.cfg.IsPush() {
		ok, _ := r.push.allowance(now)
		wanted = r.push.bound && !r.push.stalled() && ok
	}
	if !wanted {
		return false
	}
	if r.c.HasRedelivery() && !stopped {
		return true
	}
	if r.c.Room() == 0 {
		return false // an acknowledgement goes on
	}
	if stopped {
		// Requests wait for other things than messages: look again when there are more.
		r.topic.hunger(r, r.patterns(), b.last)
		_, last := r.topic.data.Bounds()
		return last != b.last
	}
	if r.c.HasNew() {
		return true
	}
	r.dry()
	if !r.cfg.IsPush() && r.pull.waiting.len() == 0 {
		return false
	}
	r.topic.hunger(r, r.patterns(), b.last)
	return r.c.HasNew()
}

func (r *reader) patterns() []string { return r.filter.Load().Patterns() }

// give delivers a message to whoever is next; false when nobody takes one.
func (r *reader) give(b *batch, m *topics.Message, now topics.Nanos) bool {
	if r.replay.until > 0 && !r.paced(m, now) {
		return false
	}
	it := item{msg: m}
	if r.cfg.IsPush() {
		if ok, _ := r.push.allowance(now); r.push.stalled() || !ok {
			return false
		}
		it.to = r.cfg.DeliverSubject
		it.delivery = r.c.Deliver(m.Sequence, now)
		b.items = append(b.items, it)
		if fc := r.sent(r.size(m, it.delivery.Attempt, ""), m.Sequence, now); fc != "" {
			b.items = append(b.items, item{notice: &notice{to: it.to, header: statusFlowControl, body: []byte(fc)}})
		}
		return true
	}
	attempt := uint32(1)
	if _, n, ok := r.c.PendingAt(m.Sequence); ok {
		attempt = n + 1
	}
	i := r.pick(func(pin string) int { return r.size(m, attempt, pin) }, now)
	if i < 0 {
		return false
	}
	if r.pull.policy == priorityPinned {
		it.pin = r.pull.pin.id
	}
	r.flushOutbox(b)
	size := 0
	if r.pull.waiting.list[i].maxBytes > 0 {
		size = r.size(m, attempt, it.pin)
	}
	it.delivery = r.c.Deliver(m.Sequence, now)
	it.to = r.served(i, size, now)
	b.items = append(b.items, it)
	r.flushOutbox(b)
	return true
}

// paced tells whether a message may be delivered yet by the original pace.
func (r *reader) paced(m *topics.Message, now topics.Nanos) bool {
	p := &r.replay
	if m.Sequence > p.until {
		*p = replayState{}
		return true
	}
	if p.last != 0 && m.Time > p.last {
		if due := p.at + (m.Time - p.last); due > now {
			p.at, p.last = due, m.Time
			r.e.clock.set(r, due)
			return false
		}
	}
	p.last, p.at = m.Time, now
	return true
}

// size returns what nats.go counts for a message that is delivered next.
func (r *reader) size(m *topics.Message, attempt uint32, pin string) int {
	header, payload := len(m.Header), len(m.Payload)
	if r.cfg.HeadersOnly {
		header, payload = headerLength(header, headerMsgSize, digits(uint64(payload))), 0
	}
	if pin != "" {
		header = headerLength(header, headerPin, len(pin))
	}
	n := len(m.Subject) + header + payload + len(r.ack) + 4
	pending := r.c.PendingAfter(m.Sequence)
	return n + digits(uint64(attempt)) + digits(uint64(m.Sequence)) + digits(r.c.Delivered().Consumer+1) +
		digits(uint64(m.Time)) + digits(pending)
}

func digits(n uint64) int {
	d := 1
	for ; n >= 10; n /= 10 {
		d++
	}
	return d
}

// flushOutbox moves the notices behind the messages decided on so far.
func (r *reader) flushOutbox(b *batch) {
	for _, n := range r.outbox {
		b.items = append(b.items, item{notice: &n})
	}
	clear(r.outbox)
	r.outbox = r.outbox[:0]
}

// arrange sets when the reader is woken next.
func (r *reader) arrange(now topics.Nanos) {
	at := r.pullDeadline()
	if due, ok := r.c.NextDeadline(); ok {
		at = earlier(at, due)
	}
	if r.idleFor > 0 {
		idle := r.active + r.idleFor
		switch {
		case r.push.bound:
			idle = 0
		case r.pull.waiting.len() > 0:
			idle = r.swept + r.idleFor
		case idle <= now:
			idle = now + deleteRetry
		}
		at = earlier(at, idle)
	}
	if r.dead.next > now && r.c.NumDying() > 0 {
		at = earlier(at, r.dead.next)
	}
	if until := r.c.PausedUntil(); until > now {
		at = earlier(at, until)
	}
	if r.pausedTill > now {
		at = earlier(at, r.pausedTill)
	}
	if r.replay.at > now {
		at = earlier(at, r.replay.at)
	}
	if p := &r.push; p.bound {
		if p.every > 0 {
			at = earlier(at, p.beat)
		}
		if ok, next := p.allowance(now); !ok {
			at = earlier(at, next)
		}
	}
	if at != 0 {
		r.e.clock.set(r, at)
	}
}

// send sends what the turn decided on. It tells whether somebody wasn't there,
// so that the message must go elsewhere.
func (r *reader) send(w *worker, stall, headersOnly bool) (again bool) {
	b := &w.batch
	if len(b.items) == 0 {
		return false
	}
	p := w.publisher(r.topic.account, stall)
	if p == nil {
		return false
	}
	for i := range b.items {
		it := &b.items[i]
		if it.msg == nil {
			r.sendNotice(p, it.notice)
			continue
		}
		header, payload := it.msg.Header, it.msg.Payload
		if headersOnly {
			b.header = appendHeaderBlock(b.header[:0], header, headerMsgSize, strconv.Itoa(len(payload)))
			header, payload = b.header, nil
		}
		if it.pin != "" {
			b.header = appendHeaderBlock(b.header[:0], header, headerPin, it.pin)
			header = b.header
		}
		b.reply = r.appendAck(b.reply[:0], it)
		if !p.Deliver(it.to, it.msg.Subject, borrow(b.reply), header, payload) {
			b.unheard = append(b.unheard, unheard{it.msg.Sequence, it.to})
		}
	}
	p.Flush()
	if len(b.unheard) == 0 {
		return false
	}
	r.takeBack(b.unheard)
	return true
}

func (r *reader) sendNotice(p Publisher, n *notice) {
	switch {
	case n.open:
		p.Publish(n.to, "", n.header, n.body)
	case len(n.body) > 0: // flow control: the body is the reply subject
		p.Deliver(n.to, n.to, string(n.body), n.header, nil)
	default:
		p.Deliver(n.to, n.to, "", n.header, nil)
	}
}

// appendAck appends a message's ack subject.
func (r *reader) appendAck(dst []byte, it *item) []byte {
	dst = append(dst, r.ack...)
	dst = strconv.AppendUint(dst, uint64(it.delivery.Attempt), 10)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, uint64(it.msg.Sequence), 10)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, it.delivery.Consumer, 10)
	dst = append(dst, '.')
	dst = strconv.AppendInt(dst, int64(it.msg.Time), 10)
	dst = append(dst, '.')
	return strconv.AppendUint(dst, it.delivery.Pending, 10)
}

// borrow returns b as a string without copying it: for Deliver, which copies.
func borrow(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// takeBack asks again for messages that nobody was there to receive.
func (r *reader) takeBack(list []unheard) {
	now := r.e.o.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.push.bound = false
	for _, u := range list {
		q := &r.pull.waiting
		for i := q.len() - 1; i >= 0; i-- {
			if q.list[i].reply == u.to {
				q.remove(i)
			}
		}
		r.c.Nak(u.seq, 0, now)
	}
	r.recordAcks(now, false)
}

// finish tells those who wait that it is over, once.
func (r *reader) finish(w *worker, status []byte) {
	b := &w.batch
	r.mu.Lock()
	first := !r.over
	r.over = true
	r.sendWritten(b, r.e.o.Now())
	r.endRequests(status)
	r.flushOutbox(b)
	unwatch := r.push.unwatch
	r.push.unwatch = nil
	r.acksWanted = nil
	r.mu.Unlock()
	r.dropWhere()
	r.topic.sated(r, r.filter.Load() != nil)
	r.e.clock.drop(r)
	if unwatch != nil && first {
		unwatch()
	}
	r.send(w, false, false)
}
