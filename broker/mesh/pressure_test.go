package mesh

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// rawClient is a connection that reads only when it is told to.
type rawClient struct {
	net.Conn
	r *bufio.Reader
	t testing.TB
}

func (c *cluster) raw(i int) *rawClient {
	conn, err := net.Dial("tcp", c.srv[i].Addr().String())
	must(c.t, err)
	c.t.Cleanup(func() { _ = conn.Close() })
	r := &rawClient{conn, bufio.NewReader(conn), c.t}
	_, err = r.r.ReadString('\n')
	must(c.t, err)
	r.send(`CONNECT {"verbose":false,"headers":true,"no_responders":true}` + "\r\n")
	return r
}

func (r *rawClient) send(s string) {
	_, err := io.WriteString(r, s)
	must(r.t, err)
}

func (r *rawClient) sync() {
	r.send("PING\r\n")
	for {
		line, err := r.r.ReadString('\n')
		must(r.t, err)
		if line == "PONG\r\n" {
			return
		}
	}
}

// flood publishes until stop is set, and counts.
func flood(nc *nats.Conn, subject string, size int, stop *atomic.Bool, n *atomic.Int64) {
	data := make([]byte, size)
	for !stop.Load() {
		if nc.Publish(subject, data) != nil {
			return
		}
		n.Add(1)
	}
	_ = nc.FlushTimeout(20 * time.Second)
}

// A receiver on another node that reads slowly is not cut off: who publishes is
// held back.
func TestPublisherIsHeldBackForAReceiverElsewhere(t *testing.T) {
	c := newCluster(t, 2, nil)
	slow := c.raw(1)
	slow.send("SUB slow 1\r\n")
	slow.sync()
	c.knows(0, "slow", true)
	var stop atomic.Bool
	var sent atomic.Int64
	const size = 16 << 10
	pub := c.dial(0)
	done := make(chan struct{})
	go func() { defer close(done); flood(pub, "slow", size, &stop, &sent) }()
	buf := make([]byte, 64<<10)
	start, got := time.Now(), 0
	for time.Since(start) < 3*time.Second {
		n, err := slow.r.Read(buf) // 64 KiB each 2 ms at most: 32 MB/s
		if err != nil {
			t.Fatalf("cut off after %d bytes: %v", got, err)
		}
		got += n
		<-time.After(2 * time.Millisecond)
	}
	stop.Store(true)
	go func() { _, _ = io.Copy(io.Discard, slow.r) }()
	<-done
	st := c.srv[1].Stats()
	t.Logf("sent %d MB, read %d MB, stalls %d", sent.Load()*size>>20, got>>20, c.srv[0].Stats().StalledClients)
	if st.SlowConsumers != 0 || c.mesh[0].Routes()[0].Dropped != 0 {
		t.Errorf("slow consumers %d, dropped %d", st.SlowConsumers, c.mesh[0].Routes()[0].Dropped)
	}
	if c.srv[0].Stats().StalledClients == 0 {
		t.Error("nobody was held back")
	}
}

// A peer that takes nothing gets its messages dropped, and holds up nobody.
func TestStuckPeerBlocksNobody(t *testing.T) {
	c := newCluster(t, 3, nil)
	if c.hub == nil {
		t.Skip("needs the fake network")
	}
	b, d := c.dial(1), c.dial(2)
	sb, err := b.SubscribeSync("x")
	must(t, err)
	_ = sb.SetPendingLimits(-1, -1)
	var got atomic.Int64
	_, err = d.Subscribe("x", func(*nats.Msg) { got.Add(1) })
	must(t, err)
	flush(t, b)
	flush(t, d)
	for _, l := range c.mesh[0].links() {
		eventually(t, "interest", func() bool { return l.remoteSubs() == 1 })
	}
	c.nets[0].(*fakeNet).set("B", func(l *fakeLink) { l.paused = true })
	pub := c.dial(0)
	const count, size = 100, 1 << 20
	start := time.Now()
	for range count {
		must(t, pub.Publish("x", make([]byte, size)))
	}
	must(t, pub.FlushTimeout(30*time.Second))
	eventually(t, "the others get all", func() bool { return got.Load() == count })
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("held up for %v", d)
	}
	l := c.mesh[0].link("B")
	if l.queued() > queueMax || l.dropped.Load() == 0 {
		t.Errorf("%d bytes wait, %d messages dropped", l.queued(), l.dropped.Load())
	}
	// It is noticed, and what waits isn't added to.
	var w watch
	now := time.Now()
	l.look(&w, now)
	l.look(&w, now.Add(stuckAfter+time.Second))
	if !l.stuck.Load() {
		t.Fatal("not noticed")
	}
	before := l.queued()
	must(t, pub.Publish("x", []byte("lost")))
	flush(t, pub)
	if l.queued() != before {
		t.Error("still queued")
	}
	// Interest is told although.
	s2, err := c.dial(0).SubscribeSync("y")
	must(t, err)
	c.nets[0].(*fakeNet).set("B", func(l *fakeLink) { l.paused = false })
	c.knows(1, "y", true)
	l.look(&w, now.Add(stuckAfter+2*time.Second))
	must(t, b.Publish("y", []byte("alive")))
	if m := next(t, s2); string(m.Data) != "alive" {
		t.Error(m)
	}
	must(t, pub.Publish("x", []byte("last")))
	for {
		if m := next(t, sb); string(m.Data) == "last" {
			break
		}
	}
}

// A peer's queue that is so full that interest can't be told is told everything
// later.
func TestInterestIsToldAgainWhenThereWasNoRoom(t *testing.T) {
	c := newCluster(t, 2, nil)
	if c.hub == nil {
		t.Skip("needs the fake network")
	}
	f := c.nets[0].(*fakeNet)
	f.set("B", func(l *fakeLink) { l.paused, l.bytes = true, l.bytes+64<<20 })
	nc := c.dial(0)
	_, err := nc.SubscribeSync("late")
	must(t, err)
	flush(t, nc)
	eventually(t, "there is no room", func() bool { return c.mesh[0].link("B").untold.Load() })
	f.set("B", func(l *fakeLink) { l.paused, l.bytes = false, l.bytes-64<<20 })
	c.knows(1, "late", true)
}

func TestUnsubscribeAfterAcrossNodes(t *testing.T) {
	c := newCluster(t, 2, nil)
	pub := c.dial(0)
	for k := range 50 {
		subj := fmt.Sprintf("auto.%d", k)
		nc := c.raw(1)
		nc.send("SUB " + subj + " 7\r\nUNSUB 7 5\r\n")
		nc.sync()
		c.knows(0, subj, true)
		for range 20 {
			must(t, pub.Publish(subj, []byte("x")))
		}
		flush(t, pub)
		for range 5 {
			line, err := nc.r.ReadString('\n')
			must(t, err)
			if line != "MSG "+subj+" 7 1\r\n" {
				t.Fatal(line)
			}
			_, _ = nc.r.Discard(3)
		}
		c.knows(0, subj, false)
		nc.send("PING\r\n")
		if line, err := nc.r.ReadString('\n'); err != nil || line != "PONG\r\n" {
			t.Fatalf("%q %v", line, err)
		}
	}
}

// A hundred thousand subscriptions are told cheaply.
func TestManySubscriptions(t *testing.T) {
	c := newCluster(t, 2, nil)
	nc := c.dial(1)
	count := 100_000
	if testing.Short() {
		count = 10_000
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	for k := range count {
		_, err := nc.Subscribe(fmt.Sprintf("many.of.these.%d", k), func(*nats.Msg) {})
		must(t, err)
	}
	flush(t, nc)
	here := time.Since(start)
	c.knows(0, fmt.Sprintf("many.of.these.%d", count-1), true)
	there := time.Since(start)
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("%d subscriptions: %v here, %v there; %d bytes each, client and all", count, here, there, (after.HeapAlloc-before.HeapAlloc)/uint64(count))
	if c.hub == nil {
		return
	}
	start = time.Now()
	c.part()
	c.knows(0, "many.of.these.7", false)
	gone := time.Since(start)
	c.heal()
	c.knows(0, "many.of.these.7", true)
	eventually(t, "all is known again", func() bool { return c.mesh[0].Routes()[0].Subscriptions == count })
	t.Logf("gone in %v, back in %v", gone, time.Since(start))
}
