package mesh

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker/front"
)

// TestAClientOfANodeThatStopsHearsEveryAnswer asks without pause while the node that it is
// connected to stops, and goes on at another one. Whatever it asked before, between and
// after must be answered.
func TestAClientOfANodeThatStopsHearsEveryAnswer(t *testing.T) {
	atOnce := func(s *front.Server) error { return s.Close() }
	lame := func(s *front.Server) error {
		s.LameDuck(context.Background())
		return s.Close()
	}
	for _, c := range []struct {
		name   string
		window int // questions without an answer
		stop   func(*front.Server) error
	}{{"one at a time", 1, atOnce}, {"many at once", 500, atOnce}, {"lame duck", 500, lame}} {
		t.Run(c.name, func(t *testing.T) { answersOutliveANode(t, c.window, c.stop) })
	}
}

func answersOutliveANode(t *testing.T, window int, stop func(*front.Server) error) {
	c := newCluster(t, 3, func(_ int, o *front.Options) {
		o.LameDuckGrace, o.LameDuckDuration = time.Millisecond, 20*time.Millisecond
	})
	_, err := c.srv[2].GlobalAccount().Subscribe("ask.*", "", func(m *front.Message) { m.Respond(nil, m.Payload) })
	must(t, err)
	c.knows(0, "ask.x", true)
	c.knows(1, "ask.x", true)
	moved := make(chan string, 1)
	nc := c.dial(0, func(o *nats.Options) error {
		o.Servers = []string{"nats://" + c.srv[0].Addr().String(), "nats://" + c.srv[1].Addr().String()}
		o.Url, o.NoRandomize, o.AllowReconnect, o.ReconnectWait = "", true, true, 5*time.Millisecond
		o.ReconnectedCB = func(nc *nats.Conn) { moved <- nc.ConnectedServerName() }
		return nil
	})
	var mu sync.Mutex
	answered := map[int]int{}
	room := make(chan struct{}, window)
	inbox := nc.NewInbox()
	_, err = nc.Subscribe(inbox+".*", func(m *nats.Msg) {
		n, err := strconv.Atoi(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
		mu.Lock()
		defer mu.Unlock()
		if err != nil || string(m.Data) != fmt.Sprint(n) {
			t.Errorf("answer %q on %s", m.Data, m.Subject)
		}
		if answered[n]++; answered[n] == 1 {
			<-room
		}
	})
	must(t, err)
	flush(t, nc)
	asked := 0
	ask := func() {
		select {
		case room <- struct{}{}:
			must(t, nc.PublishRequest(fmt.Sprintf("ask.%d", asked%3), fmt.Sprintf("%s.%d", inbox, asked), fmt.Append(nil, asked)))
			asked++
		case <-time.After(30 * time.Second):
			mu.Lock()
			defer mu.Unlock()
			t.Fatalf("%d of %d answered, nothing more comes", len(answered), asked)
		}
	}
	for range 100 {
		ask()
	}
	closed := make(chan error, 1)
	go func() { closed <- stop(c.srv[0]) }()
	for on := ""; on == ""; ask() {
		select {
		case on = <-moved:
			if on != "B" {
				t.Fatalf("the client went to %s", on)
			}
		default:
		}
	}
	for range 100 {
		ask()
	}
	must(t, <-closed)
	eventually(t, "all are answered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(answered) == asked
	})
	t.Logf("%d asked", asked)
}
