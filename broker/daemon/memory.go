package daemon

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// The collector's rule is that the heap may double before the next collection.
// That is right for a small heap that is left alone. A broker with a hundred thousand
// topics would hold a gigabyte of garbage: beyond headroomMax it collects earlier
// instead. One with a small heap and much to do, such as a thousand topics to make,
// would collect many times a second: then the heap may grow by headroomBusy, until
// it has been calm for calmAfter.
const (
	headroomMax  = 256 << 20
	headroomBusy = 64 << 20
	percentMin   = 25
	percentUsual = 100

	busyWithin = time.Second // from one collection to the next
	calmAfter  = 5 * time.Second
)

// boundHeadroom makes the collector follow that rule, unless the environment says
// how it shall work. It looks after each collection and starts no goroutine.
func boundHeadroom() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	f := &follower{percent: percentUsual}
	f.calm = time.AfterFunc(time.Hour, func() { f.look(false) })
	f.calm.Stop()
	f.wait()
}

// follower sets by how many percent the heap may grow.
type follower struct {
	mu      sync.Mutex
	percent int
	last    time.Time   // of the last collection
	calm    *time.Timer // runs while the heap may grow by more than usual
}

// sentinel is an object that nothing refers to: the next collection takes it. It
// has a pointer so that it isn't put together with other small objects.
type sentinel struct{ _ *sentinel }

func (f *follower) wait() {
	runtime.AddCleanup(&sentinel{}, func(f *follower) {
		f.look(true)
		f.wait()
	}, f)
}

// look sets what is right now; collected tells that there was a collection, else that
// there was none for long.
func (f *follower) look(collected bool) {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return
	}
	live := sample[0].Value.Uint64()
	f.mu.Lock()
	defer f.mu.Unlock()
	busy := false
	if now := time.Now(); collected {
		busy = now.Sub(f.last) < busyWithin
		f.last = now
	}
	want := percentFor(live, busy)
	if busy && want > percentUsual {
		f.calm.Reset(calmAfter)
	}
	// Setting it stops the world for a moment: not for trifles.
	if diff := want - f.percent; diff > 5 || diff < -5 {
		debug.SetGCPercent(want)
		f.percent = want
	}
}

// percentFor returns by how many percent the heap may grow, given what was alive at
// the last collection, and whether collections follow each other closely.
func percentFor(live uint64, busy bool) int {
	usual := percentUsual
	if live > headroomMax {
		usual = max(percentMin, int(headroomMax*100/live))
	}
	if !busy {
		return usual
	}
	return max(usual, int(headroomBusy*100/max(live, 4<<20)))
}
