package web

import "sync"

// item is one message on its way to a subscriber.
type item struct {
	n     uint64 // its number in this subscription, from 1
	seq   uint64 // in the topic, 0 for a live one
	ack   string // where it is acknowledged, "" if it isn't
	frame []byte // JSON
}

// queue holds what waits for a subscriber's socket, up to a bound.
type queue struct {
	max  int64
	wake chan struct{} // capacity 1

	mu    sync.Mutex
	items []item
	size  int64
	n     uint64
}

func newQueue(most int64) *queue { return &queue{max: most, wake: make(chan struct{}, 1)} }

// itemSize is what an item costs besides its frame.
const itemSize = 96

// push adds an item, whose number it makes up and passes to frame; false when there
// is no room. One item always finds room.
func (q *queue) push(it item, frame func(n uint64) []byte) bool {
	q.mu.Lock()
	if q.size > q.max {
		q.mu.Unlock()
		return false
	}
	q.n++
	it.n = q.n
	it.frame = frame(it.n)
	q.items = append(q.items, it)
	q.size += int64(len(it.frame)) + itemSize
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true
}

// take returns the first item.
func (q *queue) take() (item, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return item{}, false
	}
	it := q.items[0]
	q.items[0] = item{}
	if q.items = q.items[1:]; len(q.items) == 0 {
		q.items = nil
	}
	q.size -= int64(len(it.frame)) + itemSize
	return it, true
}

// waiting returns how many items and bytes there are.
func (q *queue) waiting() (items int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items), q.size
}
