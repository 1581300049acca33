package mesh

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker/auth"
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
	real := os.Getenv("MESH_FAKE") == "" && os.Getenv("MESH_REAL") != ""
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
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
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
	m, err := s.NextMsg(10 * time.Second)
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
	eventually(t, "everybody listens", func() bool { return len(c.mesh[0].Routes()) == 2 && c.mesh[0].Routes()[1].Subscriptions == 1 })
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
	time.Sleep(20 * time.Millisecond)
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

func TestQueueGroupsAreFair(t *testing.T) {
	for _, members := range [][]int{{1, 1, 1}, {1, 10, 100}, {0, 1, 3}, {10, 0, 0}} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			c := newCluster(t, 3, nil)
			var got [3]atomic.Int64
			total := 0
			for i, n := range members {
				nc := c.dial(i)
				for range n {
					_, err := nc.QueueSubscribe("work.*", "w", func(*nats.Msg) { got[i].Add(1) })
					must(t, err)
				}
				total += n
				flush(t, nc)
			}
			eventually(t, "all members are known", func() bool { return queueWeight(c.mesh[0], "w") == total-members[0] })
			const count = 20000
			pub := c.dial(0)
			for k := range count {
				must(t, pub.Publish(fmt.Sprintf("work.%d", k%3), []byte("x")))
			}
			flush(t, pub)
			eventually(t, "all is delivered", func() bool { return got[0].Load()+got[1].Load()+got[2].Load() == count })
			for i, n := range members {
				want := float64(count) * float64(n) / float64(total)
				if g := float64(got[i].Load()); g < want*0.8-100 || g > want*1.2+100 {
					t.Errorf("node %s with %d of %d members got %.0f of %d, not about %.0f", name(i), n, total, g, count, want)
				}
			}
		})
	}
}

func queueWeight(m *Mesh, queue string) (n int) {
	for _, l := range m.links() {
		l.receiving.Lock()
		for key, h := range l.heard {
			if key.queue == queue {
				n += h.weight
			}
		}
		l.receiving.Unlock()
	}
	return n
}

func TestQueueAndPlainOnceEach(t *testing.T) {
	c := newCluster(t, 5, nil)
	var plain, queue [5]atomic.Int64
	for i := range 5 {
		nc := c.dial(i)
		_, err := nc.Subscribe("s", func(*nats.Msg) { plain[i].Add(1) })
		must(t, err)
		_, err = nc.Subscribe("*", func(*nats.Msg) { plain[i].Add(1) })
		must(t, err)
		_, err = nc.QueueSubscribe("s", "q1", func(*nats.Msg) { queue[i].Add(1) })
		must(t, err)
		_, err = nc.QueueSubscribe(">", "q2", func(*nats.Msg) { queue[i].Add(1) })
		must(t, err)
		flush(t, nc)
	}
	eventually(t, "all is known", func() bool {
		for _, m := range c.mesh {
			for _, l := range m.links() {
				if l.remoteSubs() != 4 {
					return false
				}
			}
		}
		return true
	})
	const count = 1000
	for i := range 5 {
		pub := c.dial(i)
		for range count {
			must(t, pub.Publish("s", nil))
		}
		flush(t, pub)
	}
	sum := func() (p, q int64) {
		for i := range 5 {
			p, q = p+plain[i].Load(), q+queue[i].Load()
		}
		return p, q
	}
	eventually(t, "all is delivered", func() bool { p, q := sum(); return p >= 5*5*2*count && q >= 5*2*count })
	time.Sleep(50 * time.Millisecond)
	if p, q := sum(); p != 5*5*2*count || q != 5*2*count {
		t.Errorf("plain %d, queues %d", p, q)
	}
}

func TestPartitionAndHeal(t *testing.T) {
	c := newCluster(t, 3, nil)
	if c.hub == nil {
		t.Skip("needs the fake network")
	}
	nc := c.dial(1)
	s, err := nc.SubscribeSync("p")
	must(t, err)
	flush(t, nc)
	c.knows(0, "p", true)
	c.hub.part("A", "B")
	c.knows(0, "p", false)
	pub := c.dial(0)
	if _, err := pub.Request("p", nil, time.Second); err != nats.ErrNoResponders {
		t.Fatalf("request while parted: %v", err)
	}
	s2, err := nc.SubscribeSync("p2")
	must(t, err)
	must(t, s.Unsubscribe())
	flush(t, nc)
	c.hub.heal("A", "B")
	c.knows(0, "p2", true)
	c.knows(0, "p", false)
	must(t, pub.Publish("p2", []byte("healed")))
	if m := next(t, s2); string(m.Data) != "healed" {
		t.Fatal(m)
	}
	for k := range 20 { // quickly, one after another
		c.hub.part("A", "B")
		c.hub.heal("A", "B")
		if k%5 == 0 {
			_ = pub.Publish("p2", nil)
		}
	}
	c.knows(0, "p2", true)
}

func TestForwardReachesServices(t *testing.T) {
	users := auth.Config{Users: []auth.User{{Name: "joe", Password: "p", Permissions: &auth.Permissions{
		Publish: &auth.SubjectPermission{Allow: []string{"api.>"}},
	}}}}
	c := newCluster(t, 2, func(_ int, o *front.Options) { o.Auth = users })
	a, b := c.srv[0].GlobalAccount(), c.srv[1].GlobalAccount()
	var here, there atomic.Int64
	type seen struct {
		client                   front.ClientInfo
		forwarded, subject, body string
		may, mayNot              bool
	}
	got := make(chan seen, 1)
	_, err := b.Subscribe("api.>", "", func(m *front.Message) {
		there.Add(1)
		got <- seen{*m.Client, m.Forwarded, string(m.Subject), string(m.Payload), m.Client.MayPublish("api.x"), m.Client.MayPublish("other")}
		m.Respond(nil, []byte("answer"))
	}, front.Local)
	must(t, err)
	_, err = a.Subscribe("api.>", "", func(m *front.Message) {
		here.Add(1)
		if err := c.mesh[0].Forward("B", m); err != nil {
			t.Error(err)
		}
		if err := c.mesh[0].Forward("C", m); err != ErrNoPeer {
			t.Error(err)
		}
	}, front.Local)
	must(t, err)
	nc := c.dial(0, nats.UserInfo("joe", "p"), nats.Name("joe's"))
	m, err := nc.Request("api.do", []byte("body"), 10*time.Second)
	must(t, err)
	if string(m.Data) != "answer" || here.Load() != 1 || there.Load() != 1 {
		t.Fatalf("%s %d %d", m.Data, here.Load(), there.Load())
	}
	s := <-got
	if s.client.Name != "joe's" || s.client.User != "joe" || s.forwarded != "A" || s.subject != "api.do" || s.body != "body" || !s.may || s.mayNot {
		t.Errorf("%+v", s)
	}
	if b.HasInterest("api.do") != true || c.srv[0].GlobalAccount().QueueInterest("api.do", "q") {
		t.Error("interest")
	}
}

func TestSystemServicesAnswerFromAllNodes(t *testing.T) {
	c := newCluster(t, 3, func(_ int, o *front.Options) {
		o.Auth = auth.Config{Users: []auth.User{{Name: "sys", Password: "p", Account: auth.SystemAccount}}}
	})
	for i, s := range c.srv {
		_, err := s.SystemAccount().Subscribe("$SYS.REQ.SERVER.PING", "", func(m *front.Message) {
			if m.Client == nil || m.Client.User != "sys" {
				t.Errorf("client %+v", m.Client)
			}
			m.Clone().Respond(nil, []byte(name(i)))
		})
		must(t, err)
	}
	nc := c.dial(0, nats.UserInfo("sys", "p"))
	eventually(t, "services are known", func() bool {
		return len(c.mesh[0].links()) == 2 && c.mesh[0].links()[0].remoteSubs() == 1 && c.mesh[0].links()[1].remoteSubs() == 1
	})
	in, err := nc.SubscribeSync("in")
	must(t, err)
	must(t, nc.PublishRequest("$SYS.REQ.SERVER.PING", "in", nil))
	names := map[string]bool{}
	for range 3 {
		names[string(next(t, in).Data)] = true
	}
	if len(names) != 3 {
		t.Error(names)
	}
	// Events of one node reach who listens on another.
	ev, err := nc.SubscribeSync("$SYS.ACCOUNT.*.CONNECT")
	must(t, err)
	flush(t, nc)
	eventually(t, "interest", func() bool { return c.srv[2].SystemAccount().HasInterest("$SYS.ACCOUNT.$G.CONNECT") })
	c.srv[2].SystemAccount().Publish("$SYS.ACCOUNT.$G.CONNECT", "", nil, []byte("joe"))
	if m := next(t, ev); string(m.Data) != "joe" {
		t.Error(m)
	}
}

func TestWatchInterestOfTheCluster(t *testing.T) {
	c := newCluster(t, 2, nil)
	events := make(chan bool, 10)
	cancel := c.srv[0].GlobalAccount().WatchInterest("deliver.x", func(has bool) { events <- has })
	defer cancel()
	nc := c.dial(1)
	s, err := nc.QueueSubscribeSync("deliver.*", "g")
	must(t, err)
	flush(t, nc)
	if !<-events {
		t.Fatal("began with an end")
	}
	if !c.srv[0].GlobalAccount().QueueInterest("deliver.x", "g") || c.srv[0].GlobalAccount().LiteralInterest("deliver.x") {
		t.Error("kinds of interest")
	}
	p := c.srv[0].GlobalAccount().NewPublisher()
	if !p.Deliver("deliver.x", "shown", "", nil, []byte("1")) {
		t.Error("nobody got it")
	}
	p.Flush()
	if m := next(t, s); m.Subject != "shown" || string(m.Data) != "1" {
		t.Error(m)
	}
	must(t, s.Unsubscribe())
	flush(t, nc)
	if <-events {
		t.Fatal("didn't end")
	}
}

func TestGossip(t *testing.T) {
	c := newCluster(t, 3, nil)
	addr := func(i int) string { return c.srv[i].Addr().String() }
	nc := c.dial(0)
	eventually(t, "the client knows all", func() bool { return len(nc.DiscoveredServers()) == 2 })
	info := c.infoOf(1)
	if !strings.Contains(info, `"connect_urls":["`+addr(1)+`"`) || !strings.Contains(info, addr(0)) || !strings.Contains(info, addr(2)) ||
		!strings.Contains(info, `"cluster":"test"`) {
		t.Error(info)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	c.srv[2].LameDuck(ctx)
	eventually(t, "the lame duck is gone", func() bool { return !strings.Contains(c.infoOf(0), addr(2)) })
	if !strings.Contains(c.infoOf(0), addr(1)) {
		t.Error(c.infoOf(0))
	}
	late := c.dial(0)
	if len(late.Servers()) != 2 {
		t.Error(late.Servers())
	}
}
