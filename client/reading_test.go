package client_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heraldmq/herald/client"
)

func TestReadersOfANameNeverHaveTwoOfAKey(t *testing.T) {
	c := connect(t)
	orders(t, c)
	const keys, each = 4, 25
	for n := range each {
		for k := range keys {
			if _, err := c.PublishDurable(t.Context(), fmt.Sprintf("orders.%d", k), fmt.Appendf(nil, "%d", n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var mu sync.Mutex
	busy, next := map[string]bool{}, map[string]int{}
	done, wrong := make(chan struct{}, keys*each), atomic.Bool{}
	for range 3 {
		_, err := c.Subscribe("orders.>", func(m *client.Message) error {
			mu.Lock()
			if busy[m.Subject] || fmt.Sprint(next[m.Subject]) != string(m.Payload) {
				wrong.Store(true)
			}
			busy[m.Subject] = true
			next[m.Subject]++
			mu.Unlock()
			<-time.After(time.Millisecond)
			mu.Lock()
			busy[m.Subject] = false
			mu.Unlock()
			done <- struct{}{}
			return nil
		}, client.Durable("by-key"), client.ByKey("token:2"))
		if err != nil {
			t.Fatal(err)
		}
	}
	receive(t, done, keys*each)
	if wrong.Load() {
		t.Error("two messages of a key were handled at once, or out of order")
	}
	if _, err := c.Subscribe("orders.>", into(nil), client.Durable("by-key")); !errors.Is(err, client.ErrConflict) {
		t.Errorf("without the key: %v", err)
	}
	for _, o := range [][]client.SubscribeOption{
		{client.ByKey("token:1")}, {client.DeadLetters("dead"), client.From(client.First())}, {client.Durable("x"), client.ByKey("nonsense")},
	} {
		if _, err := c.Subscribe("orders.>", into(nil), o...); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("what can't be: %v", err)
		}
	}
}

func TestWhatAHandlerTerminatesBecomesADeadLetter(t *testing.T) {
	c := connect(t)
	orders(t, c)
	if _, err := c.CreateTopic(t.Context(), client.TopicConfig{Name: "dead", Subjects: []string{"dead.>"}}); err != nil {
		t.Fatal(err)
	}
	dead := make(chan *client.Message, 10)
	if _, err := c.Subscribe("dead.>", into(dead), client.From(client.First())); err != nil {
		t.Fatal(err)
	}
	_, err := c.Subscribe("orders.>", func(m *client.Message) error { return m.Term("no") },
		client.Durable("strict"), client.DeadLetters("dead.orders"), client.ManualAck())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.PublishDurable(t.Context(), "orders.1", []byte("x")); err != nil {
		t.Fatal(err)
	}
	m := receive(t, dead, 1)[0]
	if m.Header.Get("Herald-Dead-Detail") != "no" || m.Header.Get("Herald-Dead-Consumer") != "strict" || string(m.Payload) != "x" {
		t.Errorf("%v %s", m.Header, m.Payload)
	}
}

func TestAScanReadsWhatIsStoredAndEnds(t *testing.T) {
	c := connect(t)
	orders(t, c)
	const n = 1200
	var last *client.Future
	for i := range n {
		f, err := c.PublishAsync(t.Context(), fmt.Sprintf("orders.%d", i%2), fmt.Appendf(nil, `{"n":%d}`, i))
		if err != nil {
			t.Fatal(err)
		}
		last = f
	}
	if _, err := last.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteMessage(t.Context(), "orders", 7); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteMessage(t.Context(), "orders", 7); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a second time: %v", err)
	}
	stop := errors.New("stop")
	for _, s := range []struct {
		scan client.Scan
		want int
		err  error
	}{
		{client.Scan{}, n - 1, nil},
		{client.Scan{Subject: "orders.1"}, n / 2, nil},
		{client.Scan{From: client.At(5), Until: 10}, 5, nil},
		{client.Scan{Where: "n >= 1190"}, 10, nil},
		{client.Scan{Where: "n < 0"}, 0, nil},
		{client.Scan{From: client.At(n + 5)}, 0, nil},
		{client.Scan{From: client.LastPerSubject()}, 2, nil},
		{client.Scan{Subject: "orders.none"}, 0, nil},
		{client.Scan{Where: "n =="}, 0, client.ErrInvalid},
		{client.Scan{From: client.At(3)}, 4, stop},
	} {
		s.scan.Topic = "orders"
		got := 0
		err := c.Scan(t.Context(), s.scan, func(m *client.Message) error {
			if got++; s.err == stop && got == s.want {
				return stop
			}
			return nil
		})
		if got != s.want || !errors.Is(err, s.err) {
			t.Errorf("%+v: %d messages, %v; want %d, %v", s.scan, got, err, s.want, s.err)
		}
	}
}
