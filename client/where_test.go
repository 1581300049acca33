package client_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/heraldmq/herald/client"
)

func TestWhereLiveAndDurable(t *testing.T) {
	c := connect(t)
	orders(t, c)
	live, durable, private := make(chan *client.Message, 10), make(chan *client.Message, 10), make(chan *client.Message, 10)
	subscribe := func(to chan *client.Message, options ...client.SubscribeOption) {
		t.Helper()
		if _, err := c.Subscribe("orders.>", into(to), append(options, client.Where(`n % 2 == 1`))...); err != nil {
			t.Fatal(err)
		}
	}
	subscribe(live)
	for i := range 6 {
		if _, err := c.PublishDurable(t.Context(), "orders.a", fmt.Appendf(nil, `{"n":%d}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	subscribe(durable, client.Durable("odd"))
	subscribe(private, client.From(client.First()))
	for _, from := range []chan *client.Message{live, durable, private} {
		for k, m := range receive(t, from, 3) {
			if want := fmt.Sprintf(`{"n":%d}`, 2*k+1); string(m.Payload) != want || m.Subject != "orders.a" {
				t.Errorf("got %s of %s, want %s", m.Payload, m.Subject, want)
			}
		}
	}
	for _, o := range [][]client.SubscribeOption{{}, {client.Durable("bad")}, {client.From(client.First())}} {
		_, err := c.Subscribe("orders.>", into(live), append(o, client.Where(`n >`))...)
		if !errors.Is(err, client.ErrInvalid) {
			t.Errorf("a wrong condition: %v", err)
		}
	}
	if _, err := c.Subscribe("orders.>", into(live), client.Durable("odd"), client.Where(`n == 1`)); !errors.Is(err, client.ErrConflict) {
		t.Errorf("another condition under the name: %v", err)
	}
}
