package peer

import (
	"slices"
	"sync"
)

// events hands changes to the listeners. The queue grows with the changes a listener
// is behind; changes of one value that nobody has seen yet count once.
type events struct {
	mu        sync.Mutex
	wake      sync.Cond
	listeners []func(Event)
	queue     []Event
	closed    bool
}

func (e *events) add(x Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	if x.Kind == Status {
		// Only as long as nothing else has happened to the peer meanwhile.
		for i, old := range slices.Backward(e.queue) {
			if old.Peer.Name != x.Peer.Name {
				continue
			}
			if old.Kind == Status && old.Key == x.Key {
				e.queue = slices.Delete(e.queue, i, i+1)
			} else if old.Kind == Status {
				continue
			}
			break
		}
	}
	e.queue = append(e.queue, x)
	e.wake.Signal()
}

func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.wake.Broadcast()
}

func (e *events) run() {
	for {
		e.mu.Lock()
		for len(e.queue) == 0 && !e.closed {
			e.wake.Wait()
		}
		if e.closed {
			e.mu.Unlock()
			return
		}
		x := e.queue[0]
		e.queue = e.queue[1:]
		listeners := e.listeners
		e.mu.Unlock()
		for _, f := range listeners {
			f(x)
		}
	}
}
