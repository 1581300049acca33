package daemon

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The collector's rule is that the heap may double before the next collection.
// That is right for a small heap. A broker with a hundred thousand topics would
// hold a gigabyte of garbage: beyond headroomMax it collects earlier instead.
const (
	headroomMax  = 256 << 20
	percentMin   = 25
	percentUsual = 100
)

// boundHeadroom makes the collector follow that rule, unless the environment says
// how it shall work. It looks after each collection and starts no goroutine.
func boundHeadroom() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	followCollector(percentUsual)
}

// sentinel is an object that nothing refers to: the next collection takes it. It
// has a pointer so that it isn't put together with other small objects.
type sentinel struct{ _ *sentinel }

func followCollector(now int) {
	runtime.AddCleanup(&sentinel{}, func(now int) {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		if sample[0].Value.Kind() != metrics.KindUint64 {
			return
		}
		want := percentFor(sample[0].Value.Uint64())
		// Setting it stops the world for a moment: not for trifles.
		if diff := want - now; diff > 5 || diff < -5 {
			debug.SetGCPercent(want)
			now = want
		}
		followCollector(now)
	}, now)
}

// percentFor returns by how many percent the heap may grow, given what was alive at
// the last collection.
func percentFor(live uint64) int {
	if live <= headroomMax {
		return percentUsual
	}
	return max(percentMin, int(headroomMax*100/live))
}
