package operate

import (
	"testing"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
)

// Steps that come faster than they can be taken in are left out from the first one on that has
// no room: those in front of it still follow the state that is here. The beginning of an epoch
// is never left out.
func TestAFullQueueKeepsWhatFollowsTheState(t *testing.T) {
	u := &unit{wake: make(chan struct{}, 1)}
	u.told.L = &u.mu
	for i := range topics.Index(queueMax + 10) {
		u.push(item{step: state.Step{Index: i + 1}, index: i + 1})
	}
	u.push(item{epoch: 2, index: queueMax + 11})
	if !u.lost || u.held != queueMax+11 {
		t.Errorf("lost: %v; up to entry %d it was told", u.lost, u.held)
	}
	for i := range topics.Index(queueMax) {
		if got, ok := u.pop(); !ok || got.index != i+1 {
			t.Fatalf("entry %d is %d, %v", i+1, got.index, ok)
		}
	}
	if got, ok := u.pop(); !ok || got.epoch != 2 {
		t.Errorf("the epoch's beginning is left out: %+v", got)
	}
	if _, ok := u.pop(); ok || u.taken != u.held {
		t.Errorf("something follows; taken up to %d of %d", u.taken, u.held)
	}
}
