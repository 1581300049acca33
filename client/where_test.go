package client_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

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

// TestCaughtUp: who reads by a condition learns that nothing more of what is stored comes.
func TestCaughtUp(t *testing.T) {
	c := connect(t)
	orders(t, c)
	publish := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if _, err := c.PublishDurable(t.Context(), "orders.a", fmt.Appendf(nil, `{"n":%d}`, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish(0, 5)
	live, err := c.Subscribe("orders.>", func(*client.Message) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if up, err := live.CaughtUp(t.Context()); up || err != nil {
		t.Errorf("a live one: %t, %v", up, err)
	}
	for _, way := range []struct {
		name    string
		options []client.SubscribeOption
	}{ // in this order: the second stores more
		{"private", []client.SubscribeOption{client.From(client.First())}},
		{"named", []client.SubscribeOption{client.Durable("named")}},
	} {
		name := way.name
		held, release := make(chan int, 10), make(chan struct{})
		s, err := c.Subscribe("orders.>", func(m *client.Message) error {
			held <- int(m.Stored.Sequence)
			<-release
			return nil
		}, append(way.options, client.Where("n < 2 || n == 7"))...)
		if err != nil {
			t.Fatal(err)
		}
		<-held
		if up, err := s.CaughtUp(t.Context()); up || err != nil { // one is being handled, one waits
			t.Errorf("%s: %t, %v while a message is handled", name, up, err)
		}
		close(release)
		eventually := func() {
			t.Helper()
			deadline, tick := time.After(10*time.Second), time.NewTicker(10*time.Millisecond)
			defer tick.Stop()
			for {
				up, err := s.CaughtUp(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if up {
					return
				}
				select {
				case <-tick.C:
				case <-deadline:
					t.Fatalf("%s: never caught up", name)
				}
			}
		}
		eventually()
		if n := len(held); n != 1 {
			t.Errorf("%s: caught up with %d handled, wanted 2", name, n+1)
		}
		if name == "named" { // and again, behind more that is stored
			publish(5, 10)
			eventually()
			if n := len(held); n != 2 {
				t.Errorf("%s: caught up with %d handled, wanted 3", name, n+1)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCodecsOfConditions(t *testing.T) {
	c := connect(t)
	orders(t, c)
	codec, err := (&client.Schema{Format: "avro", Inline: []byte(`{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}`)}).Codec()
	if err != nil {
		t.Fatal(err)
	}
	live, durable := make(chan *client.Message, 10), make(chan *client.Message, 10)
	subscribe := func(to chan *client.Message, options ...client.SubscribeOption) {
		t.Helper()
		if _, err := c.Subscribe("orders.>", into(to), append(options, client.Where(`n > 10`), client.Codec(codec))...); err != nil {
			t.Fatal(err)
		}
	}
	subscribe(live)
	for _, payload := range []string{"\x02", "\x16", `{"n":11}`, "\x18"} { // 1, 11, no Avro, 12
		if _, err := c.PublishDurable(t.Context(), "orders.a", []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	subscribe(durable, client.Durable("avro"))
	for _, from := range []chan *client.Message{live, durable} {
		for k, m := range receive(t, from, 2) {
			if want := []string{"\x16", "\x18"}[k]; string(m.Payload) != want {
				t.Errorf("got %x, want %x", m.Payload, want)
			}
		}
	}
	for s, want := range map[*client.Schema]string{
		nil: "json", {Format: "json-schema", Inline: []byte(`{}`)}: "json", {Format: "protobuf", Inline: []byte(`"message M {}"`), Message: "M"}: `{"message":"M","protobuf":"message M {}"}`,
	} {
		if got, err := s.Codec(); err != nil || got != want {
			t.Errorf("got %s %v, want %s", got, err, want)
		}
	}
	if _, err := (&client.Schema{Format: "avro", Ref: "x"}).Codec(); err == nil {
		t.Error("a schema that isn't there is not refused")
	}
}
