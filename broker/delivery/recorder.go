package delivery

import (
	"sync"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// How long what a live copy did may wait to be proposed. A delivery that is lost
// with the leader is a redelivery, never a lost message.
const (
	lingerDeliveries = 50 * time.Millisecond
	lingerAcks       = 2 * time.Millisecond
)

// inFlightMost bounds the records of one consumer that are proposed and not
// applied; beyond it they gather in the journal, where they shrink.
const inFlightMost = 32

// recorder proposes what the live copies did, on one goroutine, so that the
// records of a consumer stay in order.
type recorder struct {
	e    *Engine
	kick chan struct{}
	done chan struct{}

	mu       sync.Mutex
	dirty    []*reader
	deadline topics.Nanos // of the most urgent; 0: none
	spare    []*reader
	records  []consumer.Record // owned by run
	flushMu  sync.Mutex        // one flush at a time
}

func (c *recorder) init(e *Engine) {
	c.e, c.kick, c.done = e, make(chan struct{}, 1), make(chan struct{})
}

// add has a reader's journal proposed by the given time. The caller holds r.mu.
func (c *recorder) add(r *reader, at topics.Nanos) {
	if r.recordAt != 0 && r.recordAt <= at {
		return
	}
	c.mu.Lock()
	if r.recordAt == 0 {
		c.dirty = append(c.dirty, r)
	}
	r.recordAt = at
	urgent := c.deadline == 0 || at < c.deadline
	if urgent {
		c.deadline = at
	}
	c.mu.Unlock()
	if urgent {
		select {
		case c.kick <- struct{}{}:
		default:
		}
	}
}

func (c *recorder) close() { close(c.done) }

// finish proposes everything now.
func (c *recorder) finish() { c.flush() }

func (c *recorder) run() {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		c.mu.Lock()
		at := c.deadline
		c.mu.Unlock()
		if at != 0 {
			wait := time.Duration(at - c.e.o.Now())
			if wait <= 0 {
				c.flush()
				continue
			}
			timer.Reset(wait)
		}
		select {
		case <-timer.C:
		case <-c.kick:
			timer.Stop()
		case <-c.done:
			return
		}
	}
}

// flush proposes the journals of all readers that have something in them: what
// is not urgent rides along.
func (c *recorder) flush() {
	c.flushMu.Lock()
	defer c.flushMu.Unlock()
	c.mu.Lock()
	list := c.dirty
	c.dirty, c.spare, c.deadline = c.spare[:0], nil, 0
	c.mu.Unlock()
	for i, r := range list {
		c.record(r)
		list[i] = nil
	}
	c.mu.Lock()
	c.spare = list[:0]
	c.mu.Unlock()
}

// record proposes one reader's journal. Those who want an answer to their
// acknowledgement get it when the last of the records has been applied; then what was
// held until then is sent, too.
func (c *recorder) record(r *reader) {
	r.mu.Lock()
	r.recordAt = 0
	if r.ending.Load() != nil || r.failed {
		r.mu.Unlock()
		return
	}
	if r.inFlight >= inFlightMost {
		r.held = true // asks again when they come back
		r.mu.Unlock()
		return
	}
	records := r.c.Records(c.records[:0])
	waiters, held := r.acksWanted, r.unsent
	r.acksWanted, r.unsent = nil, nil
	if len(records) == 0 {
		r.answer(waiters)
		if r.inFlight > 0 {
			r.unsent, held = held, nil // statuses, which stay behind messages that are on their way
		}
		r.release(held, true)
		r.mu.Unlock()
		if len(waiters)+len(held) > 0 {
			r.wake() // nothing comes back that would have them sent
		}
		return
	}
	r.inFlight += len(records)
	id := r.c.ID()
	r.mu.Unlock()
	for i, rec := range records {
		body := topics.AppendConsumerRecord(make([]byte, 0, topics.ConsumerRecordHeader+len(rec.Body)), r.topic.id, id)
		body = append(body, rec.Body...)
		var answer []string
		var send []item
		if i == len(records)-1 {
			answer, send = waiters, held
		}
		c.e.o.Proposer.Submit(rec.Kind, body, func(result any, err error) { r.recorded(result, err, answer, send) })
	}
	clear(records)
	c.records = records[:0]
}
