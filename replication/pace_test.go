package replication

import (
	"testing"
	"time"
)

func TestFilesGiveWayToWhatIsWrittenLive(t *testing.T) {
	p := &pacer{}
	now := time.Unix(1000, 0)
	tick := func(d time.Duration) time.Time { now = now.Add(d); return now }
	for range 100 {
		p.synced(time.Millisecond, tick(5*time.Millisecond))
	}
	if d := p.next(tick(time.Second)); d != 0 {
		t.Fatalf("the first block waits %s", d)
	}
	send := func(sync time.Duration, times int) (d time.Duration) {
		for range times {
			p.synced(sync, tick(5*time.Millisecond))
			d = p.next(tick(time.Millisecond))
		}
		return d
	}
	if d := send(1800*time.Microsecond, 50); d != 0 {
		t.Errorf("a pause of %s though syncs take less than twice as long", d)
	}
	if d := send(5*time.Millisecond, 5); d != 5*paceMore {
		t.Errorf("a pause of %s after five slow syncs", d)
	}
	if d := send(time.Second, 100); d != paceMost {
		t.Errorf("a pause of %s, at most %s are allowed", d, paceMost)
	}
	if d := send(time.Millisecond, 100); d != 0 {
		t.Errorf("a pause of %s when the syncs are fast again", d)
	}
	send(time.Second, 100)
	if p.calm > 1200*time.Microsecond {
		t.Errorf("syncs while files are sent count as those without: %s", p.calm)
	}
	if d := p.next(tick(time.Second)); d != 0 {
		t.Errorf("the first block of the next file waits %s", d)
	}
}
