package state

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// proposer is what a queue asks of a replication group.
type proposer interface {
	// Propose hands over an entry, which nobody may change from then on. It does
	// not wait for the disk.
	Propose(entry []byte) proposal
}

// proposal is an entry under way.
type proposal interface {
	Done() <-chan struct{}
	Result() (topics.Index, any, error)
}

// batch is what becomes one entry, with those who wait for it. It is reused: the
// entry is an exact copy of buf, since it is kept for ever by the log's and the
// store's memory, while buf has room to spare.
type batch struct {
	buf       []byte // the entry so far
	records   uint32
	publishes uint32
	limited   []string                      // accounts whose storage limits have been looked up for this entry
	submits   []func(result any, err error) // one per record that isn't a publish
	waits     []wait                        // those who want a PubAck, in the order of the publishes
	replies   []byte                        // their reply subjects
	settled   []chan struct{}               // closed once the entry has been applied or refused
	echoes    []echo                        // publishes to tell on another subject
	proposal  proposal
	time      topics.Nanos // of the entry
	urgent    bool         // not to be held back
	chains    uint32       // fast batches that have messages in it which must not overtake a failure
	fasts     int          // waits that are of fast batches
	runs      []run        // who the plain publishes came from
}

// wait is a publisher waiting for its PubAck, or somebody of this node who gets
// the result itself.
type wait struct {
	done    func(topics.PublishResult, error)
	batch   *batchAck // it commits an atomic batch
	fast    *fast     // it is a message of this fast batch, which answers
	place   uint64    // of the message in the fast batch
	topic   *Topic
	account *front.Account
	node    string // it was forwarded by; "" for this one
	publish uint32 // which publish of the entry, from 0
	reply   uint32 // where its reply subject starts in batch.replies
	length  uint32
	gone    bool // it waits elsewhere
}

func (b *batch) empty() bool { return b.records == 0 }

// wait notes somebody who wants a PubAck on a reply subject.
func (b *batch) wait(w wait, reply []byte) {
	w.reply, w.length = uint32(len(b.replies)), uint32(len(reply))
	b.replies = append(b.replies, reply...)
	b.waits = append(b.waits, w)
}

// bufferKept is the largest buffer a batch keeps for the next one.
const bufferKept = 8 << 20

func (b *batch) reset() {
	clear(b.submits)
	clear(b.waits)
	clear(b.settled)
	clear(b.echoes)
	clear(b.runs)
	if cap(b.buf) > bufferKept {
		b.buf = nil
	}
	*b = batch{
		buf: topics.AppendEntryHeader(b.buf[:0], 0), limited: b.limited[:0],
		submits: b.submits[:0], waits: b.waits[:0], replies: b.replies[:0],
		settled: b.settled[:0], echoes: b.echoes[:0], runs: b.runs[:0],
	}
}

// queue gathers what a group is asked for into batches and proposes them.
//
// The rule of group commit: with nothing in flight a batch is proposed at once;
// with something in flight the next one fills until that comes back, so that its
// size follows from how long the disk takes; a batch that reaches twice its cap is
// proposed beside those in flight, up to their most: not sooner, since an entry costs much
// and a byte of it little. What has just been acknowledged is waited for a little, see pace.
// A publisher that finds twice the cap waiting then has to wait itself, which stops its
// session from reading.
//
// Submit never waits, because it is called from where waiting would stop the
// group: the delivery engine and the acker. It is refused at sixteen times the cap.
type queue struct {
	log      proposer
	cap      int
	most     int // in flight
	now      func() topics.Nanos
	find     func(topics.TopicID) (*Topic, bool)
	group    *Group                           // in a cluster: its topics may move away
	account  func(name string) *front.Account // nil: none is known; of what is guarded
	limits   func(account string) (storageLimit, bool)
	pressed  func() bool                           // the store holds more than it can flush: publishers wait
	stalled  func() bool                           // and can't flush at all: they are refused
	answer   func(b *batch, result any, err error) // runs on the queue's goroutine
	handBack func(b *batch)                        // likewise: nobody has taken b; may be nil
	term     func() uint64                         // of the leader, as far as is known here; nil: nobody asks
	flushes  atomic.Uint64                         // that the store has told of
	sent     chan *batch                           // in the order of their entries; never blocks, it has room for all in flight
	finished chan struct{}

	mu       sync.Mutex
	room     sync.Cond // signalled when the open batch may have become smaller, and on close
	open     *batch
	tail     *batch // the last one proposed; of use while something is in flight
	free     []*batch
	inFlight int
	pace     pace
	held     *time.Timer        // proposes an open batch that was held back
	refused  []func(any, error) // Submits over the bound; answered by the queue's goroutine
	last     topics.Nanos       // time of the last entry proposed
	full     bool               // what pressed said last
	closed   bool
	serial   uint64 // counts the batches proposed
	staging  staging
	fasts    fastBatches
	again    again
	tells    []told      // to be sent once mu is free
	gone     []abandoned // to be told by the sweeper
	teller   teller
	swept    chan struct{} // holds one: the sweeper has something to look at
	onGone   func(t *Topic, id, why string)
	domain   string
}

const submitBoundFactor = 16

func newQueue(q *queue) *queue {
	q.room.L = &q.mu
	q.sent = make(chan *batch, q.most+1)
	q.finished = make(chan struct{})
	q.held = time.AfterFunc(time.Hour, q.heldLong)
	q.held.Stop()
	q.swept = make(chan struct{}, 1)
	q.again.wake = make(chan struct{}, 1)
	q.open = &batch{}
	q.open.reset()
	return q
}

// resume takes note of the time of the last entry that others have proposed: the
// time of entries never goes back, whatever the clocks do.
func (q *queue) resume(last topics.Nanos) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last = max(q.last, last)
}

// start begins to answer; stop ends it.
func (q *queue) start() { go q.complete() }

// stop refuses what comes from now on and waits until all in flight has been
// answered. The log must answer all that was proposed, if need be by closing.
func (q *queue) stop() {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		<-q.finished
		return
	}
	q.closed = true
	q.held.Stop()
	q.proposeMaybeLocked() // what was held back
	q.room.Broadcast()
	if q.inFlight == 0 {
		close(q.sent)
	}
	q.mu.Unlock()
	<-q.finished
}

// capture appends publishes and waits for room first. What another node sent is not
// taken, and false returned, if this isn't the term it was meant for.
func (q *queue) capture(messages []front.Captured, o origin) bool {
	q.mu.Lock()
	taken := q.captureFrom(messages, o)
	tells := q.tells
	q.tells = nil
	q.mu.Unlock()
	if len(tells) > 0 {
		q.teller.send(tells)
	}
	return taken
}

// origin is which way messages came to the queue.
type origin struct {
	from *sender // the node that forwarded them; nil: they were captured here
	via  *parcel // they were with this node's forwarder, in this parcel
	rest *parcel // they were in a limbo, and what can't be proposed now is appended to this
}

// captureFrom appends publishes. The queue's mu is held.
func (q *queue) captureFrom(messages []front.Captured, o origin) bool {
	from, node := o.from, o.from.name()
	for (len(q.open.buf) >= 2*q.cap || q.fasts.held >= 2*q.cap || q.again.full(messages) || q.full && !q.stalled()) && !q.closed {
		q.room.Wait()
	}
	if q.closed {
		return true // the publishers get no ack, as if the node had been killed now
	}
	if from != nil && q.term != nil && q.term() != from.term {
		return false
	}
	b := q.open
	settled := o.rest != nil || o.via != nil && o.via.settled
	kept := false // one of them: then so are all that follow
	var at *Topic
	for i := range messages {
		m := &messages[i]
		if at == nil || at.id != m.Topic {
			t, ok := q.find(m.Topic)
			if !ok {
				continue // deleted since the session looked it up
			}
			at = t
			q.stateLimits(b, t.account)
		}
		if q.group != nil && (settled && kept || q.group.away(at, settled)) {
			kept = true
			if o.rest != nil {
				o.rest.append(m)
			} else {
				q.group.s.park(at, m, from, o.via)
			}
			continue
		}
		if bytes.HasSuffix(m.Reply, fastSuffix) {
			q.tellFault(at, m, node, q.fast(at, m, node))
			continue
		}
		if id, ok := isBatched(m.Header); ok {
			q.tellFault(at, m, node, q.stage(at, m, node, id))
			continue
		}
		p := topics.Publish{Topic: m.Topic, Subject: m.Subject, Header: m.Header, Payload: m.Payload}
		if !m.Mapped {
			p.Subject = at.mapped(m.Subject)
		}
		start := len(b.buf)
		if at.echo.Load() != nil {
			b.echoes = append(b.echoes, echo{topic: at, account: m.Account, publish: b.publishes, record: len(b.buf)})
		}
		b.buf = topics.AppendPublish(b.buf, &p)
		b.run(start, m, from)
		if len(m.Reply) > 0 && !at.noAck.Load() {
			b.wait(wait{topic: at, account: m.Account, node: node, publish: b.publishes}, m.Reply)
		}
		b.publishes++
		b.records++
	}
	q.proposeMaybeLocked()
	return true
}

// stateLimits puts the account's storage limits into the entry, before its first
// publish to one of the account's topics.
func (q *queue) stateLimits(b *batch, account string) {
	if q.limits == nil {
		return
	}
	for _, a := range b.limited {
		if a == account {
			return
		}
	}
	b.limited = append(b.limited, account)
	if l, ok := q.limits(account); ok {
		b.buf = topics.AppendRecord(b.buf, topics.RecordStorageLimits, appendStorageLimit(nil, l))
		b.submits = append(b.submits, nil)
		b.records++
		topics.SetFlags(b.buf, topics.EntryLimited)
	}
}

// submit appends one record.
func (q *queue) submit(kind topics.RecordKind, body []byte, done func(any, error)) {
	if kind == topics.RecordGuard {
		if err := q.guardable(body); err != nil {
			done(nil, err)
			return
		}
	}
	q.mu.Lock()
	if q.closed && q.inFlight == 0 {
		q.mu.Unlock() // the queue's goroutine has ended
		if done != nil {
			done(nil, ErrClosed)
		}
		return
	}
	defer q.mu.Unlock()
	b := q.open
	if q.closed || len(b.buf) >= submitBoundFactor*q.cap {
		if done != nil {
			q.refused = append(q.refused, done) // something is in flight, so somebody will look
		}
		return
	}
	if kind == topics.RecordGuard {
		q.guardLocked(body, done)
	} else {
		b.buf = topics.AppendRecord(b.buf, kind, body)
		b.submits = append(b.submits, done)
		b.records++
	}
	b.urgent = true
	q.proposeMaybeLocked()
}

// proposeMaybeLocked proposes the open batch if it is its turn.
func (q *queue) proposeMaybeLocked() {
	if q.open.empty() || q.inFlight >= q.most || q.inFlight > 0 && len(q.open.buf) < 2*q.cap {
		return
	}
	b := q.open
	if q.inFlight == 0 && !q.closed && !b.urgent && len(b.buf) < q.cap/holdPart && q.pace.holds(len(b.waits)) {
		return
	}
	if n := len(q.free); n > 0 {
		q.open, q.free = q.free[n-1], q.free[:n-1]
	} else {
		q.open = &batch{}
		q.open.reset()
	}
	entry := append([]byte(nil), b.buf...)
	q.serial++
	q.last = max(q.last, q.now())
	topics.SetTime(entry, q.last)
	b.time = q.last
	topics.SetRecords(entry, b.records)
	q.inFlight++
	q.pace.proposed(len(b.waits))
	if q.full && b.publishes > 0 && q.stalled() {
		b.proposal = refusal{replication.ErrNoSpace}
	} else {
		b.proposal = q.log.Propose(entry)
	}
	q.tail = b
	q.sent <- b
}

// heldLong is called when a batch has been held back for long enough.
func (q *queue) heldLong() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pace.holds(len(q.open.waits)) {
		q.pace.missed()
		q.proposeMaybeLocked()
	}
}

// settle returns a channel that is closed once all that was accepted so far has
// been applied or refused; nil when nothing is under way.
func (q *queue) settle() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.open
	if b.empty() {
		if q.inFlight == 0 {
			return nil
		}
		b = q.tail
	}
	done := make(chan struct{})
	b.settled = append(b.settled, done)
	return done
}

// relieve looks again whether the store has room; the store calls it after each
// flush, and when flushing stalls or goes on.
func (q *queue) relieve() {
	q.flushes.Add(1)
	full := q.pressed()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full = full; !full || q.stalled() {
		q.room.Broadcast()
	}
}

// complete answers what comes back, in order, until the queue is stopped.
func (q *queue) complete() {
	defer close(q.finished)
	for b := range q.sent {
		<-b.proposal.Done()
		_, result, err := b.proposal.Result()
		if q.handBack != nil && errors.Is(err, replication.ErrNotLeader) && !errors.Is(err, replication.ErrOutcomeUnknown) {
			q.handBack(b) // before anybody hears that it is settled
		}
		flushes := q.flushes.Load()
		full := q.pressed()
		q.mu.Lock()
		q.inFlight--
		if d := q.pace.returned(len(b.waits), len(q.open.waits)); d > 0 {
			q.held.Reset(d)
		}
		for _, done := range b.settled {
			close(done)
		}
		b.settled = b.settled[:0]
		// A flush that ended since pressed was asked has said something newer, and
		// there may not be another one for long.
		if flushes == q.flushes.Load() {
			q.full = full
		}
		refused := q.refused
		q.refused = nil
		why := ErrBusy
		if q.closed {
			why = ErrClosed
			q.proposeMaybeLocked() // what was accepted before stop still goes out
			if q.inFlight == 0 {
				close(q.sent)
			}
		} else {
			q.proposeMaybeLocked()
		}
		q.room.Broadcast()
		q.mu.Unlock()

		q.answer(b, result, err)
		for _, done := range refused {
			done(nil, why)
		}
		b.reset()
		q.mu.Lock()
		q.free = append(q.free, b)
		q.mu.Unlock()
	}
}
