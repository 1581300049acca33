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
