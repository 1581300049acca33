package front

import (
	"io"
	"testing"
)

func TestPublishSubscribe(t *testing.T) {
	s := startServer(t, Options{})
	sub := connect(t, s, "")
	sub.send("SUB foo.* 1\r\nSUB foo.bar 2\r\n")
	sub.sync()
	pub := connect(t, s, "")
	pub.send("PUB foo.bar 5\r\nhello\r\nPUB  foo.baz  reply.x\t3\r\nabc\r\npub foo.bar 0\r\n\r\nPING\r\n")
	pub.expect("PONG")
	got := map[string]int{}
	for range 2 {
		got[sub.line()]++
		got[sub.line()]++
	}
	if got["MSG foo.bar 1 5"] != 1 || got["MSG foo.bar 2 5"] != 1 || got["hello"] != 2 {
		t.Fatalf("got %v", got)
	}
	sub.expect("MSG foo.baz 1 reply.x 3", "abc")
	sub.expect("MSG foo.bar", "", "MSG foo.bar", "")
}

func TestVerboseBeforeConnect(t *testing.T) {
	s := startServer(t, Options{})
	c := dial(t, s)
	c.send("SUB foo 1\r\nPUB foo 2\r\nhi\r\nPING\r\n")
	c.expect("+OK", "+OK", "MSG foo 1 2", "hi", "PONG")
}

func TestHeadersAreStrippedForThoseWhoDontTakeThem(t *testing.T) {
	s := startServer(t, Options{})
	plain := connect(t, s, "")
	rich := connect(t, s, `"headers":true`)
	for _, c := range []*rawConn{plain, rich} {
		c.send("SUB foo 7\r\n")
		c.sync()
	}
	rich.send("HPUB foo r 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nxy\r\n")
	rich.expect("HMSG foo 7 r 18 20", "NATS/1.0", "A: b", "", "xy")
	plain.expect("MSG foo 7 r 2", "xy")
}

func TestNoResponders(t *testing.T) {
	s := startServer(t, Options{})
	c := connect(t, s, `"headers":true,"no_responders":true`)
	c.send("SUB inbox.* 1\r\nPUB nobody inbox.1 0\r\n\r\n")
	c.expect("HMSG inbox.1 1 38 38", "NATS/1.0 503", "Nats-Subject: nobody", "", "")
	c.send("SUB nobody 2\r\nPUB nobody inbox.2 0\r\n\r\n")
	c.expect("MSG nobody 2 inbox.2 0", "")
}

func TestAutoUnsubscribe(t *testing.T) {
	s := startServer(t, Options{})
	sub := connect(t, s, "")
	sub.send("SUB foo 1\r\nUNSUB 1 3\r\n")
	sub.sync()
	pub := connect(t, s, "")
	for range 10 {
		pub.send("PUB foo 1\r\nx\r\n")
	}
	pub.sync()
	sub.expect("MSG foo 1 1", "x", "MSG foo 1 1", "x", "MSG foo 1 1", "x")
	sub.sync()
}

func TestQueueGroupsGetOneCopyEach(t *testing.T) {
	s := startServer(t, Options{})
	a, b, plain := connect(t, s, ""), connect(t, s, ""), connect(t, s, "")
	a.send("SUB foo q 1\r\n")
	b.send("SUB foo q 1\r\n")
	plain.send("SUB foo 1\r\n")
	a.sync()
	b.sync()
	plain.sync()
	const n = 1000
	pub := connect(t, s, "")
	for range n {
		pub.send("PUB foo 1\r\nx\r\n")
	}
	pub.sync()
	count := func(c *rawConn) (n int) {
		c.send("PING\r\n")
		for c.line() != "PONG" {
			c.line()
			n++
		}
		return n
	}
	na, nb, np := count(a), count(b), count(plain)
	if na+nb != n || np != n || na < n/4 || nb < n/4 {
		t.Fatalf("members got %d and %d, the plain subscription %d, of %d", na, nb, np, n)
	}
}

func TestSecondInfoComesAfterPong(t *testing.T) {
	s := startServer(t, Options{})
	c := dial(t, s)
	c.send("CONNECT {\"verbose\":false,\"protocol\":1}\r\nPING\r\n")
	c.expect("PONG", "INFO {")
}

func TestEmptyTokensAreNobodys(t *testing.T) {
	s := startServer(t, Options{})
	r := &recorder{}
	s.GlobalAccount().AddTopic(1, 1, []string{"a.>", "*"}, r)
	c := connect(t, s, "")
	c.send("SUB > 1\r\nSUB a.*.b 2\r\n")
	for _, subj := range []string{"a..b", ".a", "a.", "."} {
		for range 3 {
			c.send("PUB %s 0\r\n\r\n", subj)
		}
	}
	c.sync()
	if got := r.list(); len(got) != 0 {
		t.Fatalf("captured %q", got)
	}
}

// TestAutoUnsubscribeIsExact sets limits while a publisher is in the middle of
// a batch, for one receiver and for several that share their bytes.
func TestAutoUnsubscribeIsExact(t *testing.T) {
	for _, receivers := range []int{1, 3} {
		s := startServer(t, Options{})
		p := s.GlobalAccount().NewPublisher()
		var conns []*rawConn
		for range receivers {
			c := connect(t, s, "")
			c.send("SUB foo 1\r\n")
			c.sync()
			conns = append(conns, c)
		}
		publish := func(n int) {
			for range n {
				p.Publish("foo", "", nil, []byte("x"))
			}
		}
		publish(10)
		p.Flush()
		publish(10) // staged
		for i, c := range conns {
			c.send("UNSUB 1 %d\r\n", 15+i)
			c.send("PING\r\n")
			for range 10 {
				c.expect("MSG foo 1 1", "x")
			}
			c.expect("PONG")
		}
		publish(10)
		p.Flush()
		for i, c := range conns {
			for range 5 + i {
				c.expect("MSG foo 1 1", "x")
			}
			c.sync()
			if got := s.Connections(ConnOpen, false)[i].Subscriptions; got != 0 {
				t.Fatalf("%d subscriptions are left", got)
			}
		}
		if s.GlobalAccount().HasInterest("foo") {
			t.Fatal("interest is left")
		}
	}
}

func TestCutLeavesOtherOperations(t *testing.T) {
	s := startServer(t, Options{})
	var st stager
	st.init(s, s.GlobalAccount(), nil)
	var sp spool
	for _, op := range []string{"MSG a 1 1\r\nx\r\n", "PONG\r\n", "HMSG a 1 r 12 13\r\nNATS/1.0\r\n\r\ny\r\n", "MSG a 12 7\r\nMSG a 1\r\n", "-ERR 'x'\r\n", "MSG b 1 0\r\n\r\n"} {
		sp.append2(&s.chunks, []byte(op), nil)
	}
	out := st.cut(sp.take(nil), "1", 2)
	if got, want := string(out.cur.buf), "MSG a 1 1\r\nx\r\nPONG\r\nMSG a 12 7\r\nMSG a 1\r\n-ERR 'x'\r\n"; got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

// FuzzSession feeds a connection any bytes, before and after CONNECT. The
// server must live, and let go of the connection.
func FuzzSession(f *testing.F) {
	for _, in := range []string{
		"PUB a 1\r\nx\r\n", "SUB > 1\r\nPUB a b 0\r\n\r\nUNSUB 1 1\r\n", "HPUB a b 12 12\r\nNATS/1.0\r\n\r\n\r\n",
		"CONNECT {\"protocol\":1,\"echo\":false}\r\nPING\r\n", "PING\r\nPONG\r\n+OK\r\n-ERR x\r\nINFO {}\r\n",
	} {
		f.Add([]byte(in), false)
		f.Add([]byte(in), true)
	}
	s := startServer(f, Options{NoListen: true})
	mustSubscribe(f, s.GlobalAccount(), "a", func(m *Message) { m.Respond(m.Header, m.Payload) })
	s.GlobalAccount().AddTopic(1, 1, []string{"a", "b.>"}, &recorder{})
	f.Fuzz(func(t *testing.T, in []byte, connected bool) {
		c, err := s.InProcess()
		if err != nil {
			t.Fatal(err)
		}
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			_, _ = io.Copy(io.Discard, c)
		}()
		if connected {
			_, _ = c.Write([]byte("CONNECT {\"headers\":true,\"no_responders\":true}\r\n"))
		}
		_, _ = c.Write(in)
		_ = c.Close()
		<-drained
	})
}
