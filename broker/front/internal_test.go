package front

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker/wire"
)

// natsConnect is a nats.go client of the server.
func natsConnect(t testing.TB, s *Server, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("nats://"+s.Addr().String(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestHandlerAnswersInTheReadBatch(t *testing.T) {
	s := startServer(t, Options{})
	a := s.GlobalAccount()
	var seen *ClientInfo
	svc, err := a.Subscribe("svc.*", "", func(m *Message) {
		seen = m.Client
		m.Respond(wire.NewHeader("X", "y"), append([]byte("re:"), m.Payload...))
	})
	if err != nil {
		t.Fatal(err)
	}
	nc := natsConnect(t, s, nats.Name("asker"))
	m, err := nc.Request("svc.echo", []byte("hello"), testTimeout)
	if err != nil || string(m.Data) != "re:hello" || m.Header.Get("X") != "y" {
		t.Fatalf("answer %v, %v", m, err)
	}
	if seen == nil || seen.Name != "asker" || seen.Account != "$G" || !seen.MayPublish("x") {
		t.Fatalf("the handler was told of %+v", seen)
	}
	svc.Close()
	if _, err := nc.Request("svc.echo", nil, testTimeout); err != nats.ErrNoResponders {
		t.Fatalf("after Close: %v", err)
	}
}

func TestHandlersThatAnswerEachOther(t *testing.T) {
	s := startServer(t, Options{})
	a := s.GlobalAccount()
	mustSubscribe(t, a, "first", func(m *Message) { m.Respond(nil, []byte("one")) })
	mustSubscribe(t, a, "second", func(m *Message) {
		if m.Client != nil {
			t.Error("the broker's answer is taken for the client's")
		}
		m.Respond(nil, []byte("two"))
	})
	c := connect(t, s, "")
	c.send("SUB > 1\r\n")
	c.sync()
	c.send("PUB first second 1\r\nx\r\nPING\r\n")
	c.expect("MSG first 1 second 1", "x", "MSG second 1 3", "one", "PONG")
}

func mustSubscribe(t testing.TB, a *Account, subject string, h Handler) *Internal {
	t.Helper()
	i, err := a.Subscribe(subject, "", h)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestInternalQueueGroup(t *testing.T) {
	s := startServer(t, Options{})
	a := s.GlobalAccount()
	got := 0
	if _, err := a.Subscribe("work", "q", func(*Message) { got++ }); err != nil {
		t.Fatal(err)
	}
	c := connect(t, s, "")
	c.send("SUB work q 1\r\n")
	c.sync()
	p := a.NewPublisher()
	for range 100 {
		p.Publish("work", "", nil, []byte("x"))
	}
	p.Flush()
	n := 0
	for c.send("PING\r\n"); c.line() != "PONG"; n++ {
		c.line()
	}
	if got+n != 100 || got < 10 || n < 10 {
		t.Fatalf("the handler got %d, the client %d", got, n)
	}
	if !a.QueueInterest("work", "q") || a.QueueInterest("work", "r") {
		t.Fatal("QueueInterest is wrong")
	}
}

// recorder is a sink that keeps copies.
type recorder struct {
	mu  sync.Mutex
	got []string
}

func (r *recorder) Capture(batch []Captured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range batch {
		r.got = append(r.got, fmt.Sprintf("%d %s %s %s%s", c.Topic, c.Subject, c.Reply, c.Header, c.Payload))
	}
}

func (r *recorder) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func TestTopicsCaptureBeforePong(t *testing.T) {
	s := startServer(t, Options{})
	a := s.GlobalAccount()
	r := &recorder{}
	topic := a.AddTopic(7, 1, []string{"orders.*", "orders.>", "other"}, r)
	c := connect(t, s, `"headers":true,"no_responders":true`)
	c.send("PUB orders.a inbox 2\r\nhi\r\nPUB other 3\r\nabc\r\nPUB none 1\r\nx\r\nPING\r\n")
	c.expect("PONG")
	want := []string{"7 orders.a inbox hi", "7 other  abc"}
	if got := r.list(); !slices.Equal(got, want) {
		t.Fatalf("captured %q, want %q", got, want)
	}
	p := a.NewPublisher()
	buf := []byte("volatile")
	if !p.Publish("orders.b", "", nil, buf) {
		t.Fatal("a topic is a listener")
	}
	copy(buf, "XXXXXXXX")
	if p.Deliver("orders.c", "shown", "", nil, buf) {
		t.Fatal("Deliver reached a topic")
	}
	p.Flush()
	if got := r.list(); got[len(got)-1] != "7 orders.b  volatile" {
		t.Fatalf("captured %q", got)
	}
	if a.HasInterest("orders.a") {
		t.Fatal("topics count as interest")
	}
	topic.Remove()
	c.send("SUB inbox.* 1\r\nPUB orders.a inbox.1 2\r\nhi\r\n")
	c.expect("HMSG inbox.1 1", "NATS/1.0 503")
}

func TestDeliverShowsAnotherSubject(t *testing.T) {
	s := startServer(t, Options{})
	c := connect(t, s, `"headers":true`)
	c.send("SUB _INBOX.me.* 1\r\n")
	c.sync()
	p := s.GlobalAccount().NewPublisher()
	// More than the caches need to settle in every mode.
	for i := range 20 {
		to := fmt.Sprintf("_INBOX.me.%d", i%3)
		if !p.Deliver(to, "orders.x", "$JS.ACK.1", nil, []byte("body")) {
			t.Fatal("nobody there")
		}
		if !p.Publish(to, "", wire.NewHeader("A", "b"), nil) {
			t.Fatal("nobody there")
		}
	}
	if p.Deliver("_OTHER.me.1", "orders.x", "", nil, nil) {
		t.Fatal("somebody there")
	}
	p.Flush()
	for i := range 20 {
		c.expect("MSG orders.x 1 $JS.ACK.1 4", "body", fmt.Sprintf("HMSG _INBOX.me.%d 1 18 18", i%3), "NATS/1.0", "A: b", "", "")
	}
}

func TestInterestChangesReachThePrefixCache(t *testing.T) {
	s := startServer(t, Options{})
	p := s.GlobalAccount().NewPublisher()
	for i := range 10 {
		if p.Publish(fmt.Sprint("_INBOX.me.", i), "", nil, nil) {
			t.Fatal("somebody there")
		}
	}
	c := connect(t, s, "")
	c.send("SUB _INBOX.me.* 1\r\n")
	c.sync()
	if !p.Publish("_INBOX.me.77", "", nil, nil) {
		t.Fatal("the cache missed a subscription")
	}
	c.send("SUB _INBOX.me.78 2\r\n")
	c.sync()
	p.Publish("_INBOX.me.78", "", nil, nil)
	p.Flush()
	c.expect("MSG _INBOX.me.77 1 0", "")
	got := []string{c.line(), c.line(), c.line(), c.line()}
	if !slices.Contains(got, "MSG _INBOX.me.78 2 0") || !slices.Contains(got, "MSG _INBOX.me.78 1 0") {
		t.Fatalf("got %q", got)
	}
	c.send("UNSUB 1\r\nUNSUB 2\r\n")
	c.sync()
	if p.Publish("_INBOX.me.79", "", nil, nil) {
		t.Fatal("the cache kept a subscription")
	}
}

func TestWatchInterest(t *testing.T) {
	s := startServer(t, Options{})
	a := s.GlobalAccount()
	var mu sync.Mutex
	var got []bool
	cancel := a.WatchInterest("deliver.x", func(has bool) {
		mu.Lock()
		got = append(got, has)
		mu.Unlock()
	})
	c := connect(t, s, "")
	c.send("SUB deliver.x 1\r\nSUB deliver.* 2\r\nUNSUB 1\r\n")
	c.sync()
	if !a.HasInterest("deliver.x") {
		t.Fatal("no interest")
	}
	c.Close()
	eventually(t, "the end of interest", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(got, []bool{true, false})
	})
	cancel()
	cancel()
	mustSubscribe(t, a, "deliver.x", func(*Message) {})
	if len(got) != 2 {
		t.Fatal("called after cancel")
	}
}

func TestPublishFromAnywhere(t *testing.T) {
	s := startServer(t, Options{})
	a := s.GlobalAccount()
	nc := natsConnect(t, s)
	sub, err := nc.SubscribeSync("out")
	if err != nil {
		t.Fatal(err)
	}
	mustSubscribe(t, a, "in", func(m *Message) { a.Publish("out", "", nil, m.Payload) })
	nc.Flush()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				a.Publish("in", "", nil, []byte("x"))
			}
		})
	}
	wg.Wait()
	for range 400 {
		if _, err := sub.NextMsg(testTimeout); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCloneAnswersLater(t *testing.T) {
	s := startServer(t, Options{})
	later := make(chan *Message, 1)
	mustSubscribe(t, s.GlobalAccount(), "slow", func(m *Message) { later <- m.Clone() })
	nc := natsConnect(t, s)
	go func() {
		m := <-later
		m.Respond(nil, []byte("at last"))
	}()
	m, err := nc.Request("slow", nil, testTimeout)
	if err != nil || string(m.Data) != "at last" {
		t.Fatalf("%v, %v", m, err)
	}
}

func TestNatsGoRoundTrip(t *testing.T) {
	s := startServer(t, Options{})
	nc := natsConnect(t, s, nats.Name("me"))
	sub, err := nc.QueueSubscribeSync("q.>", "workers")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Publish("q.a", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.NextMsg(testTimeout); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Request("nobody", nil, testTimeout); err != nats.ErrNoResponders {
		t.Fatalf("got %v", err)
	}
	if rtt, err := nc.RTT(); err != nil || rtt > time.Second {
		t.Fatal(rtt, err)
	}
	if id, err := nc.GetClientID(); err != nil || id == 0 {
		t.Fatal(id, err)
	}
	if err := sub.Drain(); err != nil {
		t.Fatal(err)
	}
}
