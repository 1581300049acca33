package delivery

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// taskState is where a task stands: each is in the ready queue or on a worker at
// most once.
type taskState struct{ v atomic.Int32 }

const (
	taskIdle int32 = iota
	taskQueued
	taskRunning
	taskAgain // running, and woken meanwhile
)

// wake tells whether the caller must push the task.
func (s *taskState) wake() bool {
	for {
		switch v := s.v.Load(); v {
		case taskIdle:
			if s.v.CompareAndSwap(v, taskQueued) {
				return true
			}
		case taskRunning:
			if s.v.CompareAndSwap(v, taskAgain) {
				return false
			}
		default:
			return false
		}
	}
}

func (s *taskState) begin() { s.v.Store(taskRunning) }

// finish tells whether the caller must push the task again.
func (s *taskState) finish() bool {
	if s.v.CompareAndSwap(taskRunning, taskIdle) {
		return false
	}
	s.v.Store(taskQueued)
	return true
}

// Notes left for the next turn by those who must not take a reader's lock.
const (
	noteUpdated uint32 = 1 << iota
	noteInterest
)

// reader is the engine's side of one consumer: its live copy and who waits for
// its messages.
type reader struct {
	e     *Engine
	topic *topic
	name  string
	ack   []byte // "$JS.ACK.<stream>.<consumer>."

	state  taskState
	notes  atomic.Uint32
	ending atomic.Pointer[[]byte] // status for those who wait, once it is over
	filter atomic.Pointer[topics.Filter]
	where  atomic.Pointer[where] // nil without a content filter
	order  atomic.Pointer[byKey] // nil without a key
	// grouped tells that the interest must be looked at each turn.
	grouped atomic.Bool

	// Guarded by topic.hungryMu.
	hungry bool
	round  uint64

	// Guarded by clock.mu.
	deadline topics.Nanos
	place    int // in the heap, -1 if not

	mu       sync.Mutex
	c        *consumer.Consumer
	cfg      topics.ConsumerConfig
	outbox   []notice
	pull     pullState
	push     pushState
	active   topics.Nanos // last sign of a user
	idleFor  topics.Nanos // inactive threshold; 0: lives for ever
	swept    topics.Nanos // when the interest of waiting requests was last checked
	deleting topics.Nanos // asked to be deleted at
	sample   int          // percent of acks to report
	replay   replayState
	dead     deadState
	keyless  uint64 // messages without a key
	over     bool   // the end has been told
	turns    uint64 // so far

	// What is proposed.
	recordAt   topics.Nanos // 0: nothing waits for the recorder
	inFlight   int
	held       bool
	failed     bool         // a proposal failed: the live copy is void
	pausedTill topics.Nanos // after a failure, and at the beginning
	acksWanted []string     // replies to acknowledgements not yet proposed

	// What a consumer with a key sends once it is written; see hold.
	unsent   []item // not yet proposed
	sendable []item // written, to be sent
	holding  int    // both, and what is proposed
}

// notice is something to send that isn't a message of the topic.
type notice struct {
	to     string
	header []byte
	body   []byte
	open   bool // publish: captured by topics and routed like anybody's message
}

// replayState paces a consumer with replay policy "original".
type replayState struct {
	until topics.Sequence // messages up to here are paced; 0: none
	last  topics.Nanos    // time of the last message
	at    topics.Nanos    // when it was delivered
}

func newReader(e *Engine, t *topic, c *consumer.Consumer) *reader {
	now := e.o.Now()
	r := &reader{e: e, topic: t, name: c.Name(), place: -1, active: now, swept: now}
	r.ack = []byte("$JS.ACK." + t.name + "." + r.name + ".")
	r.adopt(c)
	if r.cfg.IsPush() && c.Delivered().Consumer == 0 {
		r.pausedTill = now + topics.Nanos(firstPause)
	}
	if r.cfg.ReplayPolicy == topics.ReplayOriginal {
		_, r.replay.until = t.data.Bounds()
	}
	return r
}

// firstPause is how long a new push consumer holds back, so that the answer to its
// creation arrives before its messages: clients set themselves up in between.
const firstPause = 3 * time.Millisecond

// adopt makes c the live copy.
func (r *reader) adopt(c *consumer.Consumer) {
	r.c = c
	r.c.Lead(r.topic.data)
	r.dead.refused, r.dead.most = nil, 0
	r.configure(true)
}

// configure follows the config; anew tells that the live copy is another one.
func (r *reader) configure(anew bool) {
	r.cfg = r.c.Config()
	r.configureWhere(r.cfg.Metadata)
	r.configureKey(r.cfg.Metadata[consumer.KeyOrder], anew)
	if r.dead.subject = ""; r.c.Buries() {
		r.dead.subject = r.cfg.Metadata[consumer.KeyDeadSubject]
	}
	r.cfg.Metadata, r.cfg.Description = nil, "" // not needed here, and there can be very many readers
	r.filter.Store(r.c.Filter())
	r.idleFor = topics.Nanos(r.e.threshold(&r.cfg))
	r.sample = samplePercent(r.cfg.SampleFrequency)
	r.pull.configure(&r.cfg)
	r.push.configure(&r.cfg)
	r.grouped.Store(r.cfg.DeliverSubject != "" && r.cfg.DeliverGroup != "")
}

// threshold returns how long a consumer lives unused; 0: for ever.
func (e *Engine) threshold(cfg *topics.ConsumerConfig) time.Duration {
	if cfg.InactiveThreshold > 0 || cfg.IsDurable() {
		return max(cfg.InactiveThreshold, 0)
	}
	return e.o.EphemeralThreshold
}

// samplePercent reads sample_freq: "25" or "25%".
func samplePercent(s string) int {
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(s, "%")))
	if err != nil {
		return 0
	}
	return min(max(n, 0), 100)
}

func (r *reader) sampled() bool { return r.sample > 0 && rand.IntN(100) < r.sample }

// watch begins to follow the interest in the deliver subject.
func (r *reader) watch() {
	r.mu.Lock()
	subject := r.cfg.DeliverSubject
	old := r.push.unwatch
	r.push.unwatch = nil
	r.mu.Unlock()
	if old != nil {
		old()
	}
	a := r.e.o.Account(r.topic.account)
	if subject == "" || a == nil {
		return
	}
	cancel := a.WatchInterest(subject, func(bool) { r.note(noteInterest) })
	r.mu.Lock()
	over := r.over
	if !over {
		r.push.unwatch = cancel
	}
	r.mu.Unlock()
	if over {
		cancel()
		return
	}
	r.note(noteInterest)
}

// note leaves a note for the next turn.
func (r *reader) note(n uint32) {
	r.notes.Or(n)
	r.wake()
}

// end has the next turn tell those who wait that it is over.
func (r *reader) end(status []byte) {
	if r.ending.CompareAndSwap(nil, &status) {
		r.wake()
	}
}

// wake puts the reader into the ready queue.
func (r *reader) wake() {
	if r.state.wake() {
		r.e.pool.push(r)
	}
}

// say puts a status into the outbox. The caller holds r.mu and wakes the reader.
func (r *reader) say(to string, header []byte) {
	if to != "" && len(r.outbox) < outboxMost {
		r.outbox = append(r.outbox, notice{to: to, header: header})
	}
}

// outboxMost bounds the statuses of a reader not sent yet. What is over it is
// dropped: a client that floods a consumer with bad requests gets no more answers.
const outboxMost = 16384

// recorded is told what became of a record, for those who wait for it. It runs on the
// proposer's goroutine.
func (r *reader) recorded(result any, err error, answer []string, held []item) {
	r.mu.Lock()
	r.inFlight--
	_, gone := result.(*topics.Fault)
	switch {
	case err != nil:
		if !r.failed && r.ending.Load() == nil && r.e.leads.Load() {
			r.e.o.Log.Warn("the progress of a consumer was not written; it falls back to what was",
				"stream", r.topic.name, "consumer", r.name, "error", err)
		}
		r.failed = true
		r.pausedTill = r.e.o.Now() + topics.Nanos(failurePause)
	case !gone:
		r.answer(answer)
	}
	r.release(held, err == nil && !gone && !r.failed)
	if r.held && r.inFlight <= inFlightMost/2 {
		r.held = false
		r.e.recorder.add(r, r.e.o.Now())
	}
	if r.inFlight == 0 && len(r.unsent) > 0 {
		r.e.recorder.add(r, r.e.o.Now())
	}
	wake := len(r.outbox) > 0 || len(r.sendable) > 0 || r.failed && r.inFlight == 0
	r.mu.Unlock()
	if wake {
		r.wake()
	}
}

// failurePause is how long a consumer delivers nothing after its progress could
// not be written.
const failurePause = 250 * time.Millisecond

// answer tells the senders of acknowledgements that they are durable. The caller
// holds r.mu.
func (r *reader) answer(to []string) {
	for _, reply := range to {
		r.say(reply, nil)
	}
}

// heed does what the notes say. It runs at the beginning of a turn, without r.mu.
func (r *reader) heed(now topics.Nanos) {
	notes := r.notes.Swap(0)
	if notes&noteUpdated != 0 {
		r.follow()
	}
	if notes&noteInterest != 0 || r.grouped.Load() {
		r.checkInterest(now)
	}
	r.mu.Lock()
	reload := r.failed && r.inFlight == 0
	r.mu.Unlock()
	if reload {
		r.reload()
	}
}

// shed lets go of what the topic no longer has: what was purged, or pushed out by
// a limit before it was acknowledged. The caller holds r.mu.
func (r *reader) shed(now topics.Nanos) {
	first, _ := r.topic.data.Bounds()
	if r.c.Shed(first, now) {
		r.recordAcks(now, false)
	}
}

// follow takes over a changed config, pause or reset.
func (r *reader) follow() {
	c := r.topic.data.Consumer(r.name)
	if c == nil {
		return // its end is on the way
	}
	r.mu.Lock()
	subject := r.cfg.DeliverSubject
	if c.Epoch() != r.c.Epoch() || c.ID() != r.c.ID() {
		r.adopt(c)
	} else {
		r.c.Update(c.Config())
		r.c.Pause(c.PausedUntil())
		r.configure(false)
	}
	moved := subject != r.cfg.DeliverSubject
	r.mu.Unlock()
	if moved {
		r.watch()
	}
}

// reload goes back to the replicated copy, after a proposal failed.
func (r *reader) reload() {
	c := r.topic.data.Consumer(r.name)
	if c == nil {
		return
	}
	r.mu.Lock()
	r.acksWanted = nil
	r.release(r.unsent, false)
	r.unsent = nil
	r.failed = false
	r.adopt(c)
	r.mu.Unlock()
}
