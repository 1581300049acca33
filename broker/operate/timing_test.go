package operate

import "testing"

// TestFiguresOfALeadAreItsOwn: those of an earlier one on the same node are not taken for
// those of the present.
func TestFiguresOfALeadAreItsOwn(t *testing.T) {
	u := &unit{}
	u.led(true)
	u.isReady()
	u.gaveLocked(1)
	if u.stats.FirstOutput <= 0 || u.stats.Apply <= 0 {
		t.Fatalf("%+v", u.stats)
	}
	u.led(false)
	u.leaderKnown("")
	u.led(true)
	if u.stats.FirstOutput != 0 || u.stats.Apply != 0 {
		t.Errorf("a new lead has the figures of the one before: %+v", u.stats)
	}
	if u.isReady(); u.stats.FirstOutput != 0 {
		t.Errorf("a first output before there is one: %v", u.stats.FirstOutput)
	}
}
