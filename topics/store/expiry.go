package store

import (
	"container/heap"
	"fmt"
	"time"

	"github.com/heraldmq/herald/topics"
)

// expiries is when the messages with a time of their own go. The dead may still
// be in it.
type expiries struct {
	at  map[topics.Sequence]topics.Nanos // never included
	due dueHeap                          // never excluded
	// old is the first message that max_age was not applied to yet: all live ones
	// below it have a time of their own.
	old topics.Sequence
	// oldTime is the time of the message max_age applies to next, 0 if there is
	// none. It may be too early, which costs an Expire that sets it right.
	oldTime topics.Nanos
}

type dueMessage struct {
	at  topics.Nanos
	seq topics.Sequence
}

type dueHeap []dueMessage

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)   { *h = append(*h, x.(dueMessage)) }
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

// expire gives a message that was stored at a time a time of its own to go.
func (t *Topic) expire(seq topics.Sequence, ttl, stored topics.Nanos) {
	at := never
	if ttl < never-stored {
		at = stored + ttl
	}
	t.schedule(seq, at)
}

func (t *Topic) schedule(seq topics.Sequence, at topics.Nanos) {
	if t.expiries == nil {
		t.expiries = &expiries{at: make(map[topics.Sequence]topics.Nanos), oldTime: t.firstTime}
	}
	t.expiries.at[seq] = at
	if at != never {
		heap.Push(&t.expiries.due, dueMessage{at, seq})
	}
}

// Expire lets go of what is past its age at the time of the entry: messages by
// max_age, messages with a time to live, message ids past the window.
func (s *Store) Expire(id topics.TopicID) {
	t := s.find(id)
	if t == nil {
		return
	}
	t.forgetIDs()
	if t.cfg.Sealed {
		return
	}
	t.expireDue()
	t.expireOld()
	t.touch()
}

// expireDue removes the messages whose own time has come.
func (t *Topic) expireDue() {
	for t.expiries != nil && len(t.expiries.due) > 0 && t.expiries.due[0].at <= t.s.now {
		seq := heap.Pop(&t.expiries.due).(dueMessage).seq
		if t.alive(seq) {
			t.removeMarked(seq)
		}
	}
}

// expireOld removes the messages older than max_age, but for those with a time
// of their own.
func (t *Topic) expireOld() {
	if t.cfg.MaxAge <= 0 {
		return
	}
	limit := t.s.now - topics.Nanos(t.cfg.MaxAge)
	seq := t.first
	if t.expiries != nil {
		seq = max(seq, t.expiries.old)
	}
	end := t.last // markers made on the way are new
	oldest := topics.Nanos(0)
	for ; seq <= end; seq++ {
		if seq = t.dead.nextLive(max(seq, t.first)); seq > end {
			break
		}
		if t.expiries != nil {
			t.expiries.old = seq
			if _, own := t.expiries.at[seq]; own {
				continue
			}
		}
		if at := t.timeOf(seq); at > limit {
			oldest = at
			break
		}
		t.removeMarked(seq)
	}
	if t.expiries != nil {
		t.expiries.oldTime = oldest
	}
}

// removeMarked removes a message, and leaves a delete marker when it was its
// subject's last and the topic wants one.
func (t *Topic) removeMarked(seq topics.Sequence) {
	ttl := t.cfg.SubjectDeleteMarkerTTL
	if ttl <= 0 {
		t.remove(seq)
		return
	}
	m, err := t.load(seq)
	t.remove(seq)
	if err != nil || isMarker(m.Header) {
		return
	}
	if _, more := t.subjects.find(m.Subject); more {
		return
	}
	p := topics.Publish{
		Topic:   t.id,
		Time:    t.s.now,
		Subject: []byte(m.Subject),
		Header: fmt.Appendf(nil, "NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: %s\r\nNats-Rollup: sub\r\n\r\n",
			ttl.Truncate(time.Second)),
	}
	r, _ := t.s.keepMade(&p)
	t.append(r, m.Subject, t.size(len(p.Subject), len(p.Header), 0), p.Time)
	t.expire(t.last, topics.Nanos(ttl.Truncate(time.Second)), p.Time)
	t.lastMsgID = ""
}

// isMarker tells whether a message itself says that its subject is gone.
func isMarker(header []byte) bool {
	return fieldOf(header, "Nats-Marker-Reason") != "" || fieldOf(header, "KV-Operation") == "PURGE"
}

// nextExpiry returns the earliest time at which Expire would do something.
func (t *Topic) nextExpiry() topics.Nanos {
	next := topics.Nanos(0)
	sooner := func(at topics.Nanos) {
		if next == 0 || at < next {
			next = at
		}
	}
	if d := t.dedupe; d != nil && d.head < len(d.queue) {
		sooner(d.queue[d.head].time + topics.Nanos(t.cfg.Duplicates))
	}
	if t.cfg.Sealed {
		return next
	}
	if t.cfg.MaxAge > 0 && t.messages > 0 {
		oldest := t.firstTime
		if t.expiries != nil {
			oldest = t.expiries.oldTime
		}
		if oldest > 0 {
			sooner(oldest + topics.Nanos(t.cfg.MaxAge))
		}
	}
	if t.expiries != nil && len(t.expiries.due) > 0 {
		sooner(t.expiries.due[0].at)
	}
	return next
}
