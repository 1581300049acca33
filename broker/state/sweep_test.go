package state

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWhatARemovalLeftIsPutAway: files of a group that the catalogue doesn't give this
// node are moved, those of its own groups stay.
func TestWhatARemovalLeftIsPutAway(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	f.create("a", replicated(3, "T", "t.>"))
	f.calm()
	if a := f.publish("a", "T", "t.x", "", "x"); a == "" {
		t.Fatal("no answer")
	}
	f.kill("b")
	left := filepath.Join(f.dir, "b", "groups", "77")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "state.db"), []byte("left"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.join("b")
	f.wait("it is put away", func() (bool, string) {
		_, err := os.Stat(left)
		return os.IsNotExist(err), ""
	})
	moved, err := filepath.Glob(filepath.Join(f.dir, "b", "damaged", "*-77", "groups-77", "state.db"))
	if err != nil || len(moved) != 1 {
		t.Errorf("moved to %v, %v", moved, err)
	}
	all, _ := filepath.Glob(filepath.Join(f.dir, "b", "damaged", "*"))
	if len(all) != 1 {
		t.Errorf("more was put away: %v", all)
	}
	f.same("T")
}
