package mesh

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication/peer"
)

// cluster is a number of fronts joined by meshes.
type cluster struct {
	t     testing.TB
	hub   *fakeHub
	nets  []Network
	srv   []*front.Server
	mesh  []*Mesh
	close []func()
}

func name(i int) string { return string(rune('A' + i)) }

// options of each node; change may be nil.
func newCluster(t testing.TB, n int, change func(i int, o *front.Options)) *cluster {
	t.Helper()
	c := &cluster{t: t}
	real := os.Getenv("MESH_FAKE") == ""
	if !real {
		c.hub = newFakeHub()
	}
	c.start(n, change)
	t.Cleanup(c.stop)
	c.settle(n - 1)
	return c
}

func (c *cluster) start(n int, change func(i int, o *front.Options)) {
	var addrs []string
	for i := range n {
		o := front.Options{ServerName: name(i), Cluster: "test"}
		if change != nil {
			change(i, &o)
		}
		srv, err := front.New(o)
		must(c.t, err)
		var net Network
		var start func()
		if c.hub != nil {
			f := c.hub.node(name(i))
			net, start = f, f.start
		} else {
			p, err := peer.Open(peer.Options{Name: name(i), Cluster: "test", Routes: addrs, Version: "1"})
			must(c.t, err)
			addrs = append(addrs, p.Addr().String())
			net, start = p, p.Start
			c.close = append(c.close, func() { _ = p.Close() })
		}
		m := New(Options{Network: net, Server: srv})
		must(c.t, srv.Start())
		m.Start()
		start()
		c.nets, c.srv, c.mesh = append(c.nets, net), append(c.srv, srv), append(c.mesh, m)
	}
}

func (c *cluster) stop() {
	for _, m := range c.mesh {
		m.Close()
	}
	for _, f := range c.close {
		f()
	}
	if c.hub != nil {
		c.hub.closeAll()
	}
	for _, s := range c.srv {
		_ = s.Close()
	}
}

// settle waits until each node has that many peers.
func (c *cluster) settle(peers int) {
	c.t.Helper()
	eventually(c.t, "all are connected", func() bool {
		for _, m := range c.mesh {
			up := 0
			for _, l := range m.links() {
				if l.up.Load() {
					up++
				}
			}
			if up != peers {
				return false
			}
		}
		return true
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// dial connects a client to node i.
func (c *cluster) dial(i int, opts ...nats.Option) *nats.Conn {
	c.t.Helper()
	opts = append([]nats.Option{nats.NoReconnect()}, opts...)
	nc, err := nats.Connect("nats://"+c.srv[i].Addr().String(), opts...)
	must(c.t, err)
	c.t.Cleanup(nc.Close)
	return nc
}

// knows waits until node i knows of interest in a subject (of the global account).
func (c *cluster) knows(i int, subject string, want bool) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("node %s knows that there is interest in %s: %v", name(i), subject, want), func() bool {
		return c.srv[i].GlobalAccount().HasInterest(subject) == want
	})
}

func flush(t testing.TB, nc *nats.Conn) {
	t.Helper()
	must(t, nc.FlushTimeout(10*time.Second))
}

func next(t testing.TB, s *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := s.NextMsg(30 * time.Second)
	must(t, err)
	return m
}

func TestPublishReachesOtherNodes(t *testing.T) {
	c := newCluster(t, 3, nil)
	pub := c.dial(0)
	var subs []*nats.Subscription
	for i := range 3 {
		nc := c.dial(i)
		s, err := nc.SubscribeSync("x.>")
		must(t, err)
		flush(t, nc)
		subs = append(subs, s)
		for j := range 3 {
			c.knows(j, "x.1", true)
		}
	}
	eventually(t, "everybody listens", func() bool {
		r := c.mesh[0].Routes()
		return len(r) == 2 && r[0].Subscriptions == 1 && r[1].Subscriptions == 1
	})
	for k := range 1000 {
		m := nats.NewMsg(fmt.Sprintf("x.%d", k%7))
		m.Data = []byte(fmt.Sprint(k))
		if k%2 == 0 {
			m.Header.Set("K", fmt.Sprint(k))
		}
		must(t, pub.PublishMsg(m))
	}
	flush(t, pub)
	for _, s := range subs {
		for k := range 1000 {
			m := next(t, s)
			if string(m.Data) != fmt.Sprint(k) || m.Subject != fmt.Sprintf("x.%d", k%7) {
				t.Fatalf("message %d: %s %q", k, m.Subject, m.Data)
			}
			if k%2 == 0 && m.Header.Get("K") != fmt.Sprint(k) {
				t.Fatalf("message %d: header %v", k, m.Header)
			}
		}
	}
	<-time.After(20 * time.Millisecond)
	for i, s := range subs {
		if n, _, _ := s.Pending(); n != 0 {
			t.Errorf("node %s got %d messages twice", name(i), n)
		}
	}
	r := c.mesh[0].Routes()[0]
	if r.OutMsgs != 1000 || r.Name != "B" || r.ServerID != c.srv[1].Options().ServerID {
		t.Errorf("route: %+v", r)
	}
}

func TestLargeMessages(t *testing.T) {
	c := newCluster(t, 2, func(_ int, o *front.Options) { o.MaxPayload = 9 << 20 })
	pub, nc := c.dial(0), c.dial(1)
	s, err := nc.SubscribeSync("big")
	must(t, err)
	flush(t, nc)
	c.knows(0, "big", true)
	for _, size := range []int{0, 1, 8 << 10, 128 << 10, 200 << 10, 256 << 10, 1 << 20, 8 << 20, 3} {
		data := bytes.Repeat([]byte{byte(size), 'x'}, size/2+1)[:size]
		m := &nats.Msg{Subject: "big", Data: data, Header: nats.Header{"A": {"b"}}}
		must(t, pub.PublishMsg(m))
		flush(t, pub)
		got := next(t, s)
		if !bytes.Equal(got.Data, data) || got.Header.Get("A") != "b" {
			t.Fatalf("%d bytes: got %d", size, len(got.Data))
		}
	}
}

func TestRequestsWithFreshInboxes(t *testing.T) {
	c := newCluster(t, 3, nil)
	responder := c.dial(2)
	_, err := responder.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	must(t, err)
	flush(t, responder)
	c.knows(0, "echo", true)
	c.knows(1, "echo", true)
	var wait sync.WaitGroup
	for w := range 8 {
		nc := c.dial(w%2, nats.UseOldRequestStyle())
		wait.Go(func() {
			for k := range 300 {
				want := fmt.Sprint(w, " ", k)
				m, err := nc.Request("echo", []byte(want), 10*time.Second)
				if err != nil || string(m.Data) != want {
					t.Errorf("request %s: %v", want, err)
					return
				}
			}
		})
	}
	wait.Wait()
	// What the inboxes cost is gone again.
	eventually(t, "interest in inboxes is gone", func() bool { return c.mesh[2].links()[0].remoteSubs() == 0 && c.mesh[2].links()[1].remoteSubs() == 0 })
}

func (l *link) remoteSubs() int {
	l.receiving.Lock()
	defer l.receiving.Unlock()
	return len(l.heard)
}

func TestNoResponders(t *testing.T) {
	c := newCluster(t, 2, nil)
	a, b := c.dial(0), c.dial(1)
	if _, err := a.Request("svc", nil, time.Second); err != nats.ErrNoResponders {
		t.Fatalf("nobody there: %v", err)
	}
	s, err := b.Subscribe("svc", func(m *nats.Msg) { _ = m.Respond(nil) })
	must(t, err)
	flush(t, b)
	c.knows(0, "svc", true)
	if _, err := a.Request("svc", nil, 5*time.Second); err != nil {
		t.Fatalf("somebody on the other node: %v", err)
	}
	must(t, s.Unsubscribe())
	flush(t, b)
	c.knows(0, "svc", false)
	if _, err := a.Request("svc", nil, time.Second); err != nats.ErrNoResponders {
		t.Fatalf("nobody there any more: %v", err)
	}
}

// part breaks the connection of A and B, heal makes it again.
func (c *cluster) part() {
	if c.hub != nil {
		c.hub.part("A", "B")
		return
	}
	c.nets[0].(*peer.Network).Disconnect("B", "test")
	c.nets[1].(*peer.Network).Disconnect("A", "test")
}

func (c *cluster) heal() {
	if c.hub != nil {
		c.hub.heal("A", "B")
		return
	}
	c.nets[0].(*peer.Network).Allow("B")
	c.nets[1].(*peer.Network).Allow("A")
}

func TestPartitionAndHeal(t *testing.T) {
	c := newCluster(t, 3, nil)
	nc := c.dial(1)
	s, err := nc.SubscribeSync("p")
	must(t, err)
	flush(t, nc)
	c.knows(0, "p", true)
	c.part()
	c.knows(0, "p", false)
	pub := c.dial(0)
	if _, err := pub.Request("p", nil, time.Second); err != nats.ErrNoResponders {
		t.Fatalf("request while parted: %v", err)
	}
	s2, err := nc.SubscribeSync("p2")
	must(t, err)
	must(t, s.Unsubscribe())
	flush(t, nc)
	c.heal()
	c.knows(0, "p2", true)
	c.knows(0, "p", false)
	must(t, pub.Publish("p2", []byte("healed")))
	if m := next(t, s2); string(m.Data) != "healed" {
		t.Fatal(m)
	}
	for k := range 20 { // quickly, one after another
		c.part()
		c.heal()
		if k%5 == 0 {
			_ = pub.Publish("p2", nil)
		}
	}
	c.knows(0, "p2", true)
}
