package jetstream

import (
	"sync"
	"time"

	"github.com/heraldmq/herald/topics"
)

const (
	waitingMost = 16384                 // requests that wait for a leader; more are refused at once
	waitingLook = 20 * time.Millisecond // how often it is looked for one, while somebody waits
)

// waiting holds what nobody can answer because nobody leads the group it is about.
// Its goroutine runs while there is something.
type waiting struct {
	ready func(topics.GroupID) bool // whether somebody leads

	mu      sync.Mutex
	groups  map[topics.GroupID][]parked
	n       int
	running bool
	closed  bool
	wake    chan struct{} // holds one
	wg      sync.WaitGroup
}

// parked is one of them: again has it looked at anew, over ends it.
type parked struct {
	until       time.Time
	again, over func()
}

func newWaiting(ready func(topics.GroupID) bool) *waiting {
	return &waiting{ready: ready, groups: map[topics.GroupID][]parked{}, wake: make(chan struct{}, 1)}
}

// add lets something wait for a leader of a group. What finds no place, or has
// waited long enough, is over at once.
func (w *waiting) add(g topics.GroupID, p parked) {
	w.mu.Lock()
	if w.closed || w.n >= waitingMost || !time.Now().Before(p.until) {
		w.mu.Unlock()
		p.over()
		return
	}
	defer w.mu.Unlock()
	w.groups[g] = append(w.groups[g], p)
	w.n++
	if !w.running {
		w.running = true
		w.wg.Go(w.run)
	}
}

// poke has it looked at once whether somebody leads.
func (w *waiting) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *waiting) run() {
	look := time.NewTicker(waitingLook)
	defer look.Stop()
	for {
		select {
		case <-look.C:
		case <-w.wake:
		}
		again, over, more := w.take()
		for _, p := range over {
			p.over()
		}
		for _, p := range again {
			p.again()
		}
		if !more && w.rest() {
			return
		}
	}
}

// rest ends the goroutine unless something has come in the meantime.
func (w *waiting) rest() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n > 0 {
		return false
	}
	w.running = false
	return true
}

// take takes out what can go on and what is over.
func (w *waiting) take() (again, over []parked, more bool) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for g, list := range w.groups {
		switch {
		case w.closed:
			over = append(over, list...)
			list = nil
		case w.ready(g):
			again = append(again, list...)
			list = nil
		default:
			kept := list[:0]
			for _, p := range list {
				if now.Before(p.until) {
					kept = append(kept, p)
				} else {
					over = append(over, p)
				}
			}
			clear(list[len(kept):])
			list = kept
		}
		if len(list) == 0 {
			delete(w.groups, g)
		} else {
			w.groups[g] = list
		}
	}
	w.n -= len(again) + len(over)
	return again, over, w.n > 0
}

// close ends what waits.
func (w *waiting) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.poke()
	w.wg.Wait()
}
