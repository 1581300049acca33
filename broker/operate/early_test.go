package operate

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// What a group's log says of an operator before the catalogue has it comes to the operator
// later, in its order; of one that the catalogue doesn't have nothing stays.
func TestStepsInFrontOfTheCatalogue(t *testing.T) {
	p := open(t, t.TempDir(), nil)
	defer p.close()
	p.topics(1)
	e := p.ops
	var told []int
	tell := func(id uint64, n int) {
		e.early.tell(e, unitKey{id: id}, 100, func() { told = append(told, n) })
	}
	kept := func() (ids []uint64, bytes int) {
		e.early.mu.Lock()
		defer e.early.mu.Unlock()
		for id := range e.early.of {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		return ids, e.early.bytes
	}
	tell(1, 1)
	tell(99, -1)
	tell(1, 2)
	if ids, bytes := kept(); !slices.Equal(ids, []uint64{1, 99}) || bytes != 300 {
		t.Fatalf("%v, %d bytes are kept", ids, bytes)
	}
	if o := p.deploy(fmt.Sprintf(counting, "delta")); o.ID != 1 {
		t.Fatalf("the first operator is %d", o.ID)
	}
	wait(t, "what came early", func() (bool, string) {
		ids, bytes := kept()
		return slices.Equal(ids, []uint64{99}) && bytes == 100, fmt.Sprint(ids, bytes)
	})
	tell(1, 3)
	if !slices.Equal(told, []int{1, 2, 3}) {
		t.Errorf("told %v", told)
	}
	e.early.mu.Lock()
	e.early.of[99].since = time.Now().Add(-2 * reconcileEvery)
	e.early.mu.Unlock()
	e.OperatorChanged(0)
	wait(t, "the rest to be forgotten", func() (bool, string) {
		ids, bytes := kept()
		return len(ids) == 0 && bytes == 0, fmt.Sprint(ids, bytes)
	})
	// What is too much is left out.
	for range earlyMax + 5 {
		e.early.tell(e, unitKey{id: 98}, 1<<10, func() {})
	}
	if _, bytes := kept(); bytes > earlyBytesMax {
		t.Errorf("%d bytes are kept", bytes)
	}
	p.publish(`{"k":"a","v":5}`)
	p.lines(1)
}
