package scheduling

import (
	"bytes"
	"errors"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/schedule"
	"github.com/heraldmq/herald/topics/store"
)

const (
	readMessages = 256
	readBytes    = 1 << 20
	retryAfter   = 2 * time.Second // what could not be published is tried again
)

// watch is one topic's schedules.
type watch struct {
	e     *Engine
	topic *state.Topic
	grown bool // guarded by e.mu; nobody has read what is new
	leads bool // guarded by e.mu; this node leads the topic, as far as it was told

	next topics.Sequence // where to read on; owned by the engine's goroutine

	mu      sync.Mutex
	entries map[string]*entry // by the subject of the schedule's message
}

// entry is one schedule.
type entry struct {
	seq   topics.Sequence // its message
	plan  *schedule.Schedule
	due   time.Time
	under bool // being published
}

func newWatch(e *Engine, t *state.Topic) *watch {
	return &watch{e: e, topic: t, grown: true, next: 1, entries: map[string]*entry{}}
}

// read takes in what is new in the topic.
func (w *watch) read() {
	for w.e.ctx.Err() == nil && w.topic.Data() != nil {
		msgs, next, err := w.topic.Data().Read(nil, w.next, readMessages, readBytes, nil)
		if err != nil {
			w.e.o.Log.Warn("Schedules can't be read", "topic", w.topic.Name(), "error", err)
			return
		}
		for i := range msgs {
			w.take(&msgs[i])
		}
		w.next = max(next, w.next)
		if len(msgs) == 0 {
			return
		}
	}
}

// take looks at one message: is it a schedule, or does it tell when one is due
// next?
func (w *watch) take(m *topics.Message) {
	if !bytes.Contains(m.Header, []byte("Nats-Schedule")) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if of, ok := jsapi.HeaderValue(m.Header, "Nats-Scheduler"); ok {
		text, _ := jsapi.HeaderValue(m.Header, "Nats-Schedule-Next")
		if e := w.entries[of]; e != nil && !e.under && e.seq < m.Sequence {
			if due, err := time.Parse(time.RFC3339, text); err == nil {
				e.due = due
			}
		}
		return
	}
	pattern, ok := jsapi.HeaderValue(m.Header, "Nats-Schedule")
	if !ok {
		return
	}
	zone, _ := jsapi.HeaderValue(m.Header, "Nats-Schedule-Time-Zone")
	plan, err := schedule.Parse(pattern, zone)
	if err != nil {
		return // it was checked before it was stored; the zone's data may be gone
	}
	due, ok := plan.Next(time.Unix(0, int64(m.Time)))
	if !ok {
		return
	}
	w.entries[m.Subject] = &entry{seq: m.Sequence, plan: plan, due: due}
}

// fire publishes what is due and returns when the next is.
func (w *watch) fire(now time.Time) (next time.Time, ok bool) {
	if !w.topic.Group().IsLeader() || w.topic.Data() == nil {
		return next, false // Lead reads anew
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for subject, e := range w.entries {
		if e.under {
			continue
		}
		if !e.due.After(now) {
			if !w.publish(subject, e, now) {
				delete(w.entries, subject)
				continue
			}
			if e.under {
				continue
			}
		}
		if !ok || e.due.Before(next) {
			next, ok = e.due, true
		}
	}
	return next, ok
}

// publish appends what an entry asks for; false when its message is gone. The
// caller holds w.mu.
func (w *watch) publish(subject string, e *entry, now time.Time) bool {
	data := w.topic.Data()
	m, err := data.Load(e.seq)
	if err != nil {
		return !errors.Is(err, store.ErrNotFound)
	}
	following, again := time.Time{}, false
	if !e.plan.Once() {
		following, again = e.plan.Next(now)
	}
	target, _ := jsapi.HeaderValue(m.Header, "Nats-Schedule-Target")
	body := m
	if source, ok := jsapi.HeaderValue(m.Header, "Nats-Schedule-Source"); ok {
		seq := data.LastFor(source)
		if body, err = data.Load(seq); seq == 0 || err != nil {
			e.due = following // nothing to sample yet
			return again
		}
	}
	account := w.e.o.Account(w.topic.Account())
	if target == "" || account == nil {
		return false
	}
	e.under = true
	w.topic.Group().Append(w.topic, state.Addition{
		Publish: topics.Publish{
			Flags: topics.PublishSourced, Subject: []byte(target), Payload: body.Payload,
			Header: produced(&m, body.Header, subject, following, again),
		},
		Account: account,
		Done: func(r topics.PublishResult, err error) {
			w.done(subject, e, following, again, err == nil && r.Fault == nil)
		},
	})
	return true
}

// done goes on after a message has been published, or not. It runs on the
// group's answering goroutine.
func (w *watch) done(subject string, e *entry, following time.Time, again, stored bool) {
	w.mu.Lock()
	e.under = false
	switch {
	case !stored:
		e.due = w.e.o.Now().Add(retryAfter)
	case again:
		e.due = following
	case w.entries[subject] == e:
		delete(w.entries, subject)
	}
	w.mu.Unlock()
	w.e.poke()
}

// produced returns the header of a produced message: that of the body without
// what is about schedules and publishing, and where it comes from.
func produced(plan *topics.Message, header []byte, subject string, following time.Time, again bool) []byte {
	b := append(make([]byte, 0, len(header)+192), "NATS/1.0\r\n"...)
	_, rest, _ := bytes.Cut(header, []byte("\r\n"))
	for len(rest) > 2 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		if len(line) > 0 && !ownHeader(line) {
			b = append(append(b, line...), "\r\n"...)
		}
	}
	next := "purge"
	if again {
		next = following.UTC().Format(time.RFC3339)
	}
	b = append(append(append(b, "Nats-Scheduler: "...), subject...), "\r\nNats-Schedule-Next: "...)
	b = append(append(b, next...), "\r\n"...)
	if ttl, ok := jsapi.HeaderValue(plan.Header, "Nats-Schedule-TTL"); ok {
		b = append(append(append(b, "Nats-TTL: "...), ttl...), "\r\n"...)
	}
	if rollup, ok := jsapi.HeaderValue(plan.Header, "Nats-Schedule-Rollup"); ok {
		b = append(append(append(b, "Nats-Rollup: "...), rollup...), "\r\n"...)
	}
	return append(b, "\r\n"...)
}

// ownHeader tells whether a header line is about how its message is stored
// rather than about its content.
func ownHeader(line []byte) bool {
	for _, prefix := range []string{
		"Nats-Schedule", "Nats-Expected-", "Nats-Msg-Id:", "Nats-Rollup:", "Nats-TTL:", "Nats-Stream-Source:",
	} {
		if bytes.HasPrefix(line, []byte(prefix)) {
			return true
		}
	}
	return false
}
