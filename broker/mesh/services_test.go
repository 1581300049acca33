package mesh

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker/auth"
	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication/peer"
)

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

// A node that is removed loses its peers first, and only then sends its clients away: they
// have to know where to.
func TestClientsOfARemovedNodeKnowTheOthers(t *testing.T) {
	c := newCluster(t, 3, nil)
	again := func(o *nats.Options) error { o.AllowReconnect = true; return nil }
	nc := c.dial(0, again, nats.ReconnectWait(10*time.Millisecond))
	eventually(t, "the client knows all", func() bool { return len(nc.DiscoveredServers()) == 2 })
	for i := 1; i < 3; i++ {
		if c.hub != nil {
			c.hub.part(name(0), name(i))
			continue
		}
		c.nets[0].(*peer.Network).Disconnect(name(i), "test")
		c.nets[i].(*peer.Network).Disconnect(name(0), "test")
	}
	eventually(t, "it hears that they are gone", func() bool { return len(nc.DiscoveredServers()) == 0 })
	c.srv[0].SendAway()
	eventually(t, "it goes to another", func() bool { return nc.IsConnected() && nc.ConnectedAddr() != c.srv[0].Addr().String() })
}

func TestReloadOfAccounts(t *testing.T) {
	with := func(names ...string) func(o *front.Options) {
		return func(o *front.Options) { o.Auth = accounts(names...) }
	}
	c := newCluster(t, 2, func(_ int, o *front.Options) { with("one")(o) })
	reload := func(i int, names ...string) {
		o := c.srv[i].Options()
		with(names...)(&o)
		must(t, c.srv[i].Reload(o))
	}
	reload(1, "one", "two")
	nc := c.dial(1, nats.UserInfo("two", "p"))
	s, err := nc.SubscribeSync("x")
	must(t, err)
	flush(t, nc)
	eventually(t, "node A has heard", func() bool { return c.mesh[0].link("B").remoteSubs() == 1 })
	reload(0, "one", "two")
	has := func() bool { a := c.srv[0].Account("two"); return a != nil && a.HasInterest("x") }
	eventually(t, "what was heard before counts", has)
	pub := c.dial(0, nats.UserInfo("two", "p"))
	must(t, pub.Publish("x", []byte("1")))
	if m := next(t, s); string(m.Data) != "1" {
		t.Fatal(m)
	}
	reload(1, "one") // drops the account, and its client
	eventually(t, "interest ends", func() bool { return !has() })
	reload(1, "one", "two")
	nc = c.dial(1, nats.UserInfo("two", "p"))
	_, err = nc.SubscribeSync("x")
	must(t, err)
	flush(t, nc)
	eventually(t, "and begins again", has)
	reload(0, "one")
	reload(0, "one", "two")
	eventually(t, "on a new account as well", has)
}
