package delivery

import (
	"time"

	"github.com/heraldmq/herald/topics"
)

// A consumer with a key sends a message once it is written that it is delivered, and
// with that the acknowledgement that made room for it. Without that a leader could go,
// and leave the next one to repeat a message of a key whose successor it had sent already.
// Messages of many keys are written together: a key's pace is that of the log, the
// consumer's is not.
//
// What was written and not sent, because the leader went in between, is taken for
// delivered: its key waits for ack_wait.

// heldMost is how many messages and statuses of one consumer wait to be written; beyond
// it nothing is delivered.
const heldMost = 4 * turnMessages

// sendsFor is how long a message may wait to be sent at least. One that waits longer than
// that and its ack_wait isn't sent: it is due again, perhaps with another leader.
const sendsFor = time.Second

// hold keeps what the turn decided on until it is written, and has what was written
// meanwhile sent. The caller holds r.mu.
func (r *reader) hold(b *batch, now topics.Nanos) {
	messages := r.holding > 0
	for i := range b.items {
		messages = messages || b.items[i].msg != nil
	}
	if !messages {
		return // statuses alone wait for nothing
	}
	for i := range b.items {
		it := b.items[i]
		if it.msg != nil {
			m := *it.msg // the batch's own is for this turn
			it.msg = &m
			due, _ := r.c.DueAt(m.Sequence)
			it.until = max(due, now.After(sendsFor))
		}
		r.unsent = append(r.unsent, it)
	}
	r.holding += len(b.items)
	clear(b.items)
	b.items = b.items[:0]
	if len(r.unsent) > 0 {
		r.e.recorder.add(r, now)
	}
	r.sendWritten(b, now)
	r.flushOutbox(b) // who doesn't get one after all
}

// sendWritten moves what was written to what the turn sends. The caller holds r.mu.
func (r *reader) sendWritten(b *batch, now topics.Nanos) {
	for i := range r.sendable {
		it := &r.sendable[i]
		if it.msg != nil {
			_, attempts, ok := r.c.PendingAt(it.msg.Sequence)
			if !ok || attempts != it.delivery.Attempt || now >= it.until {
				r.unserved(it) // acknowledged, purged or due again meanwhile
				continue
			}
		}
		b.items = append(b.items, *it)
	}
	r.holding -= len(r.sendable)
	clear(r.sendable)
	r.sendable = r.sendable[:0]
}

// release tells what became of what was held: it is written, or is not to be sent. The
// caller holds r.mu and wakes the reader.
func (r *reader) release(list []item, written bool) {
	for i := range list {
		if it := &list[i]; written || it.msg == nil {
			r.sendable = append(r.sendable, *it)
			continue
		}
		r.holding--
		r.unserved(&list[i])
	}
}

// unserved tells who would have got a message that this one doesn't come: the request has
// been taken for served. The caller holds r.mu.
func (r *reader) unserved(it *item) {
	if !r.cfg.IsPush() {
		r.say(it.to, pendingStatus(textTimeout, 1, r.size(it.msg, it.delivery.Attempt, it.pin)))
	}
}
