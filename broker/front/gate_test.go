package front

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// words is a gate that refuses, diverts or passes by the payload.
type words struct {
	mu    sync.Mutex
	asked map[string]int // for rules
}

func (w *words) Rule(subject string) Rule {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[subject]++
	if strings.HasPrefix(subject, "free.") {
		return nil
	}
	return w
}

func (w *words) Check(m *Message) Verdict {
	switch string(m.Payload) {
	case "bad":
		return Verdict{Refuse: true, Reason: "a bad word", Answer: []byte("told")}
	case "odd":
		return Verdict{Divert: "aside." + string(m.Subject), Header: []byte("NATS/1.0\r\nWhy: odd\r\n\r\n")}
	case "lost":
		return Verdict{Divert: "nobody.there", Reason: "odd"}
	}
	return Verdict{}
}

func client(t *testing.T, s *Server, o ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("nats://"+s.Addr().String(), o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// keeper is a sink that answers.
type keeper struct{ got chan string }

func (k *keeper) Capture(batch []Captured) {
	for _, c := range batch {
		k.got <- string(c.Subject) + " " + string(c.Payload)
		if len(c.Reply) > 0 {
			c.Account.Publish(string(c.Reply), "", nil, []byte("stored"))
		}
	}
}

func TestAGateDecidesBeforeAnythingElse(t *testing.T) {
	s := startServer(t, Options{})
	a := s.Account("$G")
	sink := &keeper{make(chan string, 100)}
	a.AddTopic(1, 1, []string{"in.>", "aside.in.>"}, sink)
	errs := make(chan error, 100)
	nc := client(t, s, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { errs <- err }))
	sub, err := nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	g := &words{asked: map[string]int{}}
	a.SetGate(g)
	ask := func(subject, payload string) string {
		t.Helper()
		m, err := nc.Request(subject, []byte(payload), 5*time.Second)
		if err != nil {
			t.Fatalf("%s %s: %v", subject, payload, err)
		}
		return string(m.Data)
	}
	for _, c := range []struct{ payload, answer string }{{"good", "stored"}, {"bad", "told"}, {"odd", "stored"}, {"good", "stored"}} {
		if got := ask("in.x", c.payload); got != c.answer {
			t.Errorf("%s is answered %q", c.payload, got)
		}
	}
	for range 5 {
		for _, p := range []string{"bad", "lost"} {
			if err := nc.Publish("in.x", []byte(p)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := nc.Publish("free.x", []byte("bad")); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	var stored, seen []string
	for len(sink.got) > 0 {
		stored = append(stored, <-sink.got)
	}
	for {
		m, err := sub.NextMsg(100 * time.Millisecond)
		if err != nil {
			break
		}
		if !strings.HasPrefix(m.Subject, "_INBOX") {
			seen = append(seen, m.Subject+" "+string(m.Data)+m.Header.Get("Why"))
		}
	}
	if want := "[in.x good aside.in.x odd in.x good]"; fmt.Sprint(stored) != want {
		t.Errorf("stored %v, wanted %s", stored, want)
	}
	if want := "[in.x good aside.in.x oddodd in.x good free.x bad]"; fmt.Sprint(seen) != want {
		t.Errorf("delivered %v, wanted %s", seen, want)
	}
	select {
	case err := <-errs:
		if !strings.Contains(err.Error(), `Publish to "in.x": a bad word`) {
			t.Errorf("told %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("nobody was told")
	}
	if n := len(errs); n > 1 {
		t.Errorf("told %d times in a moment", n+1)
	}
	g.mu.Lock()
	if g.asked["in.x"] > 2 {
		t.Errorf("the rule of a subject was asked for %d times", g.asked["in.x"])
	}
	g.mu.Unlock()
	a.SetGate(nil)
	if got := ask("in.x", "bad"); got != "stored" {
		t.Errorf("without a gate: %q", got)
	}
}

// counted is an observer with one tally.
type counted struct {
	mu                   sync.Mutex
	adds                 int
	msgs, bytes, offered int64
	keys                 []string
	clients              map[uint64]bool
}

func (c *counted) Tallies(subject string, prefix bool) ([]Tally, bool) {
	if strings.HasPrefix(subject, "count") {
		return []Tally{c}, !prefix || subject == "count.same"
	}
	return nil, true
}

func (c *counted) Add(msgs, bytes int64, client uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.adds++
	c.msgs += msgs
	c.bytes += bytes
	c.clients[client] = true
}

func (c *counted) Offer(*Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offered++
}

func (c *counted) Keyed() bool { return true }

func (c *counted) Key(m *Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys = append(c.keys, string(m.Subject))
}

func TestWhatIsPublishedIsCountedOnceABatch(t *testing.T) {
	s := startServer(t, Options{})
	a := s.Account("$G")
	c := &counted{clients: map[uint64]bool{}}
	a.SetObserver(c)
	nc := client(t, s)
	const n = 1000
	want := int64(0)
	for i := range n {
		for _, subject := range []string{"count.a", fmt.Sprintf("count.same.%d", i), "other"} {
			if err := nc.Publish(subject, []byte("12345")); err != nil {
				t.Fatal(err)
			}
			if subject != "other" {
				want++
			}
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	if c.adds > int(want)/2 {
		t.Errorf("%d messages were told in %d pieces", want, c.adds)
	}
	c.mu.Unlock()
	for i := range n { // subjects that have a counter each
		if err := nc.Publish(fmt.Sprintf("count.once.%d", i), []byte("12345")); err != nil {
			t.Fatal(err)
		}
		want++
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	a.Publish("count.a", "", nil, []byte("12345")) // the broker itself
	want++
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.msgs != want || c.bytes != 5*want || int64(len(c.keys)) != want {
		t.Errorf("%d messages, %d bytes, %d keys are counted, wanted %d", c.msgs, c.bytes, len(c.keys), want)
	}
	if len(c.clients) != 2 || !c.clients[0] {
		t.Errorf("by %v", c.clients)
	}
}
