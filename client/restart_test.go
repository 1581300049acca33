package client_test

import (
	"context"
	"errors"
	neturl "net/url"
	"strconv"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/client"
)

// node is a broker that can be stopped and started again, on one port and one
// directory.
type node struct {
	t    *testing.T
	dir  string
	port int
	b    *broker.Broker
	done chan error
}

func newNode(t *testing.T) *node {
	n := &node{t: t, dir: t.TempDir(), port: -1}
	n.start()
	t.Cleanup(n.stop)
	u, err := neturl.Parse(n.b.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	if n.port, err = strconv.Atoi(u.Port()); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) start() {
	n.t.Helper()
	o := config.Defaults()
	o.Port, o.JetStream.Enabled = n.port, true
	b, err := broker.New(broker.Config{Options: o, StoreDir: n.dir})
	if err != nil {
		n.t.Fatal(err)
	}
	n.b, n.done = b, make(chan error, 1)
	go func() { n.done <- b.Run(context.Background()) }()
	select {
	case <-b.Ready():
	case err := <-n.done:
		n.t.Fatalf("the broker ended: %v", err)
	}
}

func (n *node) stop() {
	n.t.Helper()
	if n.b == nil {
		return
	}
	if err := errors.Join(n.b.Close(), <-n.done); err != nil {
		n.t.Error(err)
	}
	n.b = nil
}

// connect connects with fast reconnects; back tells of each.
func (n *node) connect() (c *client.Client, back chan string) {
	n.t.Helper()
	back = make(chan string, 10)
	c, err := client.Connect(n.b.ClientURL(), client.ReconnectWait(10*time.Millisecond), client.OnReconnect(func(url string) { back <- url }))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() }) // the broker may be gone by then
	return c, back
}

func TestARestartOfTheBrokerLosesNothingThatWasStored(t *testing.T) {
	n := newNode(t)
	c, back := n.connect()
	orders(t, c)
	fill(t, c, 3)
	messages := make(chan *client.Message, 100)
	sub, err := c.Subscribe("orders.>", into(messages), client.From(client.First()))
	if err != nil {
		t.Fatal(err)
	}
	receive(t, messages, 3)
	n.stop()
	n.start()
	receive(t, back, 1)
	fill(t, c, 2)
	for i, m := range receive(t, messages, 2) {
		if m.Stored.Sequence != uint64(4+i) {
			t.Errorf("after the restart %+v", m.Stored)
		}
	}
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAWatchGoesOnAfterARestart(t *testing.T) {
	n := newNode(t)
	c, back := n.connect()
	owner, ownerBack := n.connect()
	held, err := owner.Advertise(t.Context(), ad("held"))
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan client.Event, 100)
	if _, err := c.Watch(t.Context(), client.Query{}, func(e client.Event) { events <- e }); err != nil {
		t.Fatal(err)
	}
	receive(t, events, 2)
	n.stop()
	n.start()
	receive(t, back, 1)
	receive(t, ownerBack, 1)
	if _, err := owner.PutAdvertisement(t.Context(), ad("new")); err != nil {
		t.Fatal(err)
	}
	// The first thing to be told is the new one: the old one never went.
	if e := receive(t, events, 1)[0]; e.Kind != client.Added || e.Advertisement.Name != "new" {
		t.Errorf("got %+v", e)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if e := receive(t, events, 1)[0]; e.Kind != client.Withdrawn || e.Advertisement.Name != "held" {
		t.Errorf("got %+v", e)
	}
}

func TestALeaseIsRenewedWhileItsHandleIsOpen(t *testing.T) {
	c := connect(t)
	renewals := make(chan *client.Message, 100)
	if _, err := c.Subscribe("$HERALD.ADV.RENEW", into(renewals)); err != nil {
		t.Fatal(err)
	}
	events := make(chan client.Event, 100)
	if _, err := c.Watch(t.Context(), client.Query{}, func(e client.Event) { events <- e }); err != nil {
		t.Fatal(err)
	}
	receive(t, events, 1)
	short := ad("short")
	short.Lease = client.Lease{Mode: client.LeaseTTL, TTL: client.Duration(time.Second), Grace: client.Duration(time.Millisecond)}
	p, err := c.Advertise(t.Context(), short)
	if err != nil {
		t.Fatal(err)
	}
	receive(t, events, 1)
	receive(t, renewals, 4) // a third of a second apart: longer than the lease
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if e := receive(t, events, 1)[0]; e.Kind != client.Withdrawn {
		t.Errorf("the lease ended early: %+v", e)
	}
}
