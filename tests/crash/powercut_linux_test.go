package crash

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// newDisk makes a disk of the given size. Skips, loudly, where this machine or
// user can't mount loop devices.
func newDisk(t *testing.T, megabytes int) *harness.Disk {
	t.Helper()
	d, err := harness.NewDisk(t, megabytes)
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	return d
}

func startOn(t *testing.T, d *harness.Disk) *harness.Broker {
	t.Helper()
	b := harness.New(t, fmt.Sprintf("server_name: n1\njetstream { enabled: true, store_dir: %q }\n", filepath.Join(d.Dir, "store")))
	must(t, b.Run())
	return b
}

// TestPowerCut cuts the power of the machine while messages are published:
// 20 times in the long form, 3 in the short one. Nothing acknowledged is lost.
func TestPowerCut(t *testing.T) {
	cuts := 3
	if long() {
		cuts = 20
	}
	random := seeded(t)
	d := newDisk(t, 700)
	b := startOn(t, d)
	l := &ledger{lines: quakes(t), acked: map[int]uint64{}}
	nc := connect(t, b)
	createTopic(t, nc)
	for range cuts {
		stop, done := make(chan struct{}), make(chan struct{})
		go func() { l.publish(nc, 1+random.IntN(500), stop); close(done) }()
		<-time.After(time.Duration(100+random.IntN(900)) * time.Millisecond)
		must(t, d.Cut())
		b.Kill()
		close(stop)
		<-done
		nc.Close()
		must(t, d.Restore())
		must(t, b.Run())
		nc = connect(t, b)
	}
	if len(l.acked) == 0 {
		t.Fatal("nothing was acknowledged between the cuts")
	}
	l.check(t, nc)
}
