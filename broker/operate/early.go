package operate

import (
	"context"
	"sync"
	"time"
)

// early is what groups told of operators that the catalogue here doesn't know yet: after a
// restart each group's log is applied at its own pace, the catalogue's too. It is kept until
// the catalogue has them, or is known to be up to date without: they have been removed.
type early struct {
	mu    sync.Mutex
	of    map[uint64]*arrived // by operator
	bytes int
}

type arrived struct {
	tell  []func() // in the order of the log
	bytes int
	since time.Time
}

// The bounds of what is kept early. Steps that don't fit are missing later, and the state is
// got from another replica.
const (
	earlyMax      = 1 << 16 // of an operator
	earlyBytesMax = 64 << 20
)

// tell calls f, now or once the catalogue knows the operator. It never blocks.
func (y *early) tell(e *Engine, k unitKey, size int, f func()) {
	y.mu.Lock()
	defer y.mu.Unlock()
	id := k.id
	a := y.of[id]
	if a == nil && (e.has(k) || e.operator(id) != nil) {
		f()
		return
	}
	if a == nil {
		if y.of == nil {
			y.of = map[uint64]*arrived{}
		}
		a = &arrived{since: time.Now()}
		y.of[id] = a
		e.OperatorChanged(id)
	}
	if len(a.tell) >= earlyMax || y.bytes+size > earlyBytesMax {
		return // those before are good all the same
	}
	a.tell = append(a.tell, f)
	a.bytes += size
	y.bytes += size
}

// known tells what has been kept of operators that the catalogue knows by now, and forgets
// those that it doesn't know once it is up to date.
func (y *early) known(e *Engine) {
	y.mu.Lock()
	var old []uint64
	for id, a := range y.of {
		if e.operator(id) != nil {
			for _, f := range a.tell {
				f()
			}
			y.dropLocked(id)
		} else if time.Since(a.since) > reconcileEvery {
			old = append(old, id)
		}
	}
	y.mu.Unlock()
	if len(old) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(e.ctx, 2*time.Second)
	defer cancel()
	if e.state.SyncCatalogue(ctx) != nil {
		return // it isn't known yet
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, id := range old {
		if e.operator(id) == nil {
			y.dropLocked(id)
		}
	}
}

func (y *early) dropLocked(id uint64) {
	if a := y.of[id]; a != nil {
		y.bytes -= a.bytes
		delete(y.of, id)
	}
}
