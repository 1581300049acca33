package delivery

import (
	"container/heap"
	"sync"
	"time"

	"github.com/heraldmq/herald/topics"
)

// clock holds the deadlines of all readers, one each, and wakes them. A deadline
// may only move forward in time by coming up: a reader that finds nothing due
// sets the next one. So a busy reader touches the clock about once per ack_wait,
// not once per message.
type clock struct {
	e    *Engine
	kick chan struct{}
	done chan struct{}

	mu   sync.Mutex
	heap deadlines
}

func (k *clock) init(e *Engine) {
	k.e, k.kick, k.done = e, make(chan struct{}, 1), make(chan struct{})
}

// set makes sure that the reader is woken at the given time or earlier.
func (k *clock) set(r *reader, at topics.Nanos) {
	k.mu.Lock()
	first := false
	switch {
	case r.place < 0:
		r.deadline = at
		heap.Push(&k.heap, r)
		first = k.heap[0] == r
	case at < r.deadline:
		r.deadline = at
		heap.Fix(&k.heap, r.place)
		first = k.heap[0] == r
	}
	k.mu.Unlock()
	if first {
		k.nudge()
	}
}

// drop forgets the reader's deadline.
func (k *clock) drop(r *reader) {
	k.mu.Lock()
	if r.place >= 0 {
		heap.Remove(&k.heap, r.place)
	}
	k.mu.Unlock()
}

func (k *clock) nudge() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

func (k *clock) close() { close(k.done) }

// due takes out the readers whose time has come, and tells when the next is due.
func (k *clock) due(now topics.Nanos) (ready []*reader, next topics.Nanos) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.heap) > 0 && k.heap[0].deadline <= now {
		ready = append(ready, heap.Pop(&k.heap).(*reader))
	}
	if len(k.heap) > 0 {
		next = k.heap[0].deadline
	}
	return ready, next
}

func (k *clock) run() {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		now := k.e.o.Now()
		ready, next := k.due(now)
		for _, r := range ready {
			r.wake()
		}
		if next > 0 {
			timer.Reset(time.Duration(next - now))
		}
		select {
		case <-timer.C:
		case <-k.kick:
			timer.Stop()
		case <-k.done:
			return
		}
	}
}

// deadlines is a heap of readers by deadline.
type deadlines []*reader

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].deadline < d[j].deadline }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}

// Push implements heap.Interface.
func (d *deadlines) Push(x any) {
	r := x.(*reader)
	r.place = len(*d)
	*d = append(*d, r)
}

// Pop implements heap.Interface.
func (d *deadlines) Pop() any {
	old := *d
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	r.place = -1
	return r
}
