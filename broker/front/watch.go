package front

import (
	"sync"
	"sync/atomic"

	"github.com/heraldmq/herald/topics/subject"
)

// watches are who wants to know of interest in literal subjects.
type watches struct {
	any atomic.Int64 // number of watchers: most accounts have none

	mu        sync.Mutex
	bySubject map[string][]*watch
}

// watch is one watcher. Its mutex makes calls of f come one at a time, with
// the state as it is then, so that the last call tells the truth.
type watch struct {
	subject  string
	canceled atomic.Bool

	mu  sync.Mutex
	has bool
	f   func(bool)
}

// WatchInterest calls f whenever interest in the literal subject begins or
// ends, until cancel. It isn't called for the state at the time of the call:
// ask HasInterest afterwards. Calls come one at a time, on the goroutine that
// changed it, with no lock of the account held; f must not block.
func (a *Account) WatchInterest(subject string, f func(has bool)) (cancel func()) {
	w := &watch{subject: subject, f: f}
	ws := &a.watch
	w.mu.Lock() // until the first state is known
	ws.any.Add(1)
	ws.mu.Lock()
	if ws.bySubject == nil {
		ws.bySubject = map[string][]*watch{}
	}
	ws.bySubject[subject] = append(ws.bySubject[subject], w)
	ws.mu.Unlock()
	w.has = a.HasInterest(subject)
	w.mu.Unlock()
	return func() { ws.drop(w) }
}

func (ws *watches) drop(w *watch) {
	if w.canceled.Swap(true) {
		return
	}
	ws.mu.Lock()
	list := ws.bySubject[w.subject]
	for i, o := range list {
		if o == w {
			// A copy: changed may be walking the old list.
			kept := append(append(make([]*watch, 0, len(list)-1), list[:i]...), list[i+1:]...)
			if len(kept) == 0 {
				delete(ws.bySubject, w.subject)
			} else {
				ws.bySubject[w.subject] = kept
			}
			break
		}
	}
	ws.mu.Unlock()
	ws.any.Add(-1)
}

// changed asks those whose subject the pattern matches to look again.
func (ws *watches) changed(a *Account, pattern string) {
	if ws.any.Load() == 0 {
		return
	}
	var hit []*watch
	ws.mu.Lock()
	if subject.IsLiteral(pattern) {
		hit = append(hit, ws.bySubject[pattern]...)
	} else {
		for s, list := range ws.bySubject {
			if subject.Match(pattern, s) {
				hit = append(hit, list...)
			}
		}
	}
	ws.mu.Unlock()
	for _, w := range hit {
		w.look(a)
	}
}

func (w *watch) look(a *Account) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if has := a.HasInterest(w.subject); has != w.has && !w.canceled.Load() {
		w.has = has
		w.f(has)
	}
}
