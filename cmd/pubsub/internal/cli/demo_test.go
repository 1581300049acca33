package cli

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"
)

func TestDemoAddsUpAfterARealKill(t *testing.T) {
	w := nowhere(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o := w.with(ctx, "", "demo", "--single", "-o", "json", "--dir", filepath.Join(t.TempDir(), "data"))
	if o.code != 0 {
		t.Fatalf("%+v", o)
	}
	var r map[string]any
	if err := json.Unmarshal([]byte(o.out), &r); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"published": 1707, "acked": 1707, "live_received": 1707, "stored": 1707, "replayed": 1707, "duplicates": 0, "missing": 0, "damaged": 0, "out_of_order": 0} {
		if r[name] != want {
			t.Errorf("%s is %v, want %v", name, r[name], want)
		}
	}
}

func TestDemoOnThreeNodesIsIdenticalAfterRealKills(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it starts three nodes and kills each")
	}
	w := nowhere(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "data")
	o := w.with(ctx, "", "demo", "-o", "json", "--dir", dir)
	if o.code != 0 {
		t.Fatalf("%+v", o)
	}
	var r struct {
		Earthquakes, Flights, Airports, Acked, Stored, Filtered int

		Kills     []struct{ Operators []string }
		Operators []struct {
			Name                            string
			Results, Rows, Differing, Wrong int
		}
	}
	if err := json.Unmarshal([]byte(o.out), &r); err != nil {
		t.Fatal(err)
	}
	if n := r.Earthquakes + r.Flights + r.Airports; n != 1707+6000+213 || r.Acked != n || r.Stored != n || r.Filtered == 0 {
		t.Errorf("%+v", r)
	}
	hit := 0
	for _, k := range r.Kills {
		hit += len(k.Operators)
	}
	if hit != 3 || len(r.Operators) != 3 {
		t.Fatalf("the primaries of %d of %d operators were killed", hit, len(r.Operators))
	}
	for i, want := range []int{1707, 1707, 6000} {
		if op := r.Operators[i]; op.Results != want || op.Rows == 0 || op.Differing != 0 || op.Wrong != 0 {
			t.Errorf("%+v", op)
		}
	}
}

func TestDemoThatIsInterruptedLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it starts three nodes")
	}
	w := nowhere(t)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan outcome, 1)
	go func() { ended <- w.with(ctx, "", "demo") }()
	folder := filepath.Join(temporary, "herald-demo-*", "n1", "log")
	for deadline := time.After(time.Minute); ; {
		if found, err := filepath.Glob(folder); err != nil || len(found) > 0 {
			break
		}
		select {
		case <-deadline:
			t.Fatal("the nodes did not start")
		case <-time.After(20 * time.Millisecond):
		}
	}
	cancel()
	if o := <-ended; o.code == 0 {
		t.Errorf("%+v", o)
	}
	if left, err := filepath.Glob(filepath.Join(temporary, "herald-demo-*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left: %v", left, err)
	}
}
