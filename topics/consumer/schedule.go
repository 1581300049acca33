package consumer

import "github.com/heraldmq/herald/topics"

// alarm says that a message becomes due.
type alarm struct {
	due topics.Nanos
	seq topics.Sequence
}

// schedule is a live copy's redelivery schedule: a heap of alarms and, behind
// it, the queue of the messages whose time has come.
//
// An alarm is never searched for: acknowledging or deferring a message leaves its
// alarm in the heap, where it is recognised as stale when it comes up, because
// the message's due time differs. Deliveries come with due times that mostly
// grow, so that a push rarely moves anything; the stale ones are swept when they
// make up most of the heap, which costs a constant per push.
type schedule struct {
	alarms []alarm
	ready  []topics.Sequence // ready[head:] are to be delivered again, in this order
	head   int
}

// before orders alarms; what is due at the same time keeps the topic's order.
func (a alarm) before(b alarm) bool {
	return a.due < b.due || a.due == b.due && a.seq < b.seq
}

func (s *schedule) push(a alarm) {
	s.alarms = append(s.alarms, a)
	i := len(s.alarms) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !a.before(s.alarms[up]) {
			break
		}
		s.alarms[i] = s.alarms[up]
		i = up
	}
	s.alarms[i] = a
}

func (s *schedule) pop() {
	n := len(s.alarms) - 1
	a := s.alarms[n]
	s.alarms = s.alarms[:n]
	if n > 0 {
		s.down(0, a)
	}
}

// down puts a into the subtree at i.
func (s *schedule) down(i int, a alarm) {
	n := len(s.alarms)
	for {
		kid := 2*i + 1
		if kid >= n {
			break
		}
		if kid+1 < n && s.alarms[kid+1].before(s.alarms[kid]) {
			kid++
		}
		if !s.alarms[kid].before(a) {
			break
		}
		s.alarms[i] = s.alarms[kid]
		i = kid
	}
	s.alarms[i] = a
}

// rebuild makes the heap anew from what is pending.
func (s *schedule) rebuild(w *window) {
	s.alarms = s.alarms[:0]
	w.each(func(e *entry) bool {
		if !e.ready && e.due != noDue {
			s.alarms = append(s.alarms, alarm{e.due, e.seq})
		}
		return true
	})
	for i := len(s.alarms)/2 - 1; i >= 0; i-- {
		s.down(i, s.alarms[i])
	}
}

// set arranges for e to come up when it is due.
func (s *schedule) set(w *window, e *entry) {
	e.ready = false
	if e.due == noDue {
		return
	}
	if len(s.alarms) > 2*w.count+64 {
		s.rebuild(w)
		return // e is in the window
	}
	s.push(alarm{e.due, e.seq})
}

// next returns the earliest due time of a pending message.
func (s *schedule) next(w *window) (topics.Nanos, bool) {
	for len(s.alarms) > 0 {
		a := s.alarms[0]
		if e := w.find(a.seq); e != nil && e.due == a.due && !e.ready {
			return a.due, true
		}
		s.pop()
	}
	return 0, false
}

// take moves to the queue what is due at now.
func (s *schedule) take(w *window, now topics.Nanos, exceeded func(e *entry) bool) {
	for {
		due, ok := s.next(w)
		if !ok || due > now {
			return
		}
		seq := s.alarms[0].seq
		s.pop()
		e := w.find(seq)
		if exceeded(e) {
			continue
		}
		e.ready = true
		if s.head > 64 && s.head > len(s.ready)/2 {
			s.ready, s.head = s.ready[:copy(s.ready, s.ready[s.head:])], 0
		}
		s.ready = append(s.ready, seq)
	}
}

// queue puts a message behind those that are to be delivered again.
func (s *schedule) queue(e *entry) {
	e.ready = true
	s.ready = append(s.ready, e.seq)
}

// peek returns the next message to be delivered again.
func (s *schedule) peek(w *window) (topics.Sequence, bool) {
	for s.head < len(s.ready) {
		seq := s.ready[s.head]
		if e := w.find(seq); e != nil && e.ready {
			return seq, true
		}
		s.head++
	}
	s.ready, s.head = s.ready[:0], 0
	return 0, false
}
