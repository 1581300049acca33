package mesh

import (
	"testing"
	"time"
)

// A session that is held by two nodes at once is let go once, and goes on when
// nobody says anything any more.
func TestHoldAndRelease(t *testing.T) {
	c := newCluster(t, 2, nil)
	sub := c.dial(1)
	s, err := sub.SubscribeSync("h")
	must(t, err)
	flush(t, sub)
	c.knows(0, "h", true)
	nc := c.dial(0)
	cid, err := nc.GetClientID()
	must(t, err)
	srv := c.srv[0]
	done := make(chan struct{})
	for range 2 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range 2000 {
				srv.Hold(cid)
				srv.Release(cid)
			}
		}()
	}
	for range 100 {
		must(t, nc.Publish("h", nil))
	}
	flush(t, nc)
	<-done
	<-done
	for range 100 {
		next(t, s)
	}
	srv.Hold(cid)
	start := time.Now()
	must(t, nc.Publish("h", nil))
	flush(t, nc)
	must(t, nc.Publish("h", nil))
	flush(t, nc)
	if d := time.Since(start); d < 500*time.Millisecond {
		t.Errorf("held for %v only", d)
	}
	next(t, s)
	next(t, s)
	srv.Release(cid)
	srv.Release(cid + 1000)
}
