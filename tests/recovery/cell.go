package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/tests/harness"
)

// The operator under each recovery. What has a pad is the ballast: it stays in windows of
// a day, which are open all the time.
const text = `
operator: HA
%s
state: {max: 4GiB}
time: {event: at, unit: ms, disorder: 0s, idle_after: 0s, max_future: 0s}
inputs: [{topic: IN}]
steps:
  - {name: live, filter: pad == ""}
  - key: k
  - window: {tumble: 100ms}
  - {name: results, aggregate: {n: count(), total: sum(v)}}
  - {name: ballast, from: IN, filter: pad != ""}
  - key: k
  - window: {tumble: 1d}
  - {name: held, aggregate: {pad: last(pad)}}
outputs:
  - {topic: OUT, from: results}
  - {topic: HELD, from: held}
`

// padding is how many bytes of state a ballast record leaves, about.
func (o options) padding(size int) int {
	switch {
	case o.value > 0:
		return max(o.value, 200)
	case size > 64:
		return 16_000
	}
	return 1000
}

// lean is the operator without the ballast's windows.
func lean(spec string) string {
	head, _, _ := strings.Cut(spec, "  - {name: ballast")
	return head + "outputs: [{topic: OUT, from: results}]\n"
}

const (
	patience = 3 * time.Minute // a large state takes that long to be read on a busy machine
	keys     = 5
)

// start is the event time of the first record, and of the ballast.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// result is what a cell of the table says.
type result struct {
	silence, elect, apply, first []time.Duration
	overhead, processor          float64
	verdict                      string
	broken                       bool
}

// cell is one run.
type cell struct {
	*harness.Cluster
	o  options
	nc *nats.Conn
	js jetstream.JetStream
	c  *client.Client

	sent    atomic.Int64 // records of IN that were acknowledged
	stopped chan struct{}
	loaded  sync.WaitGroup

	killed []time.Time
	lost   uint64 // records that primaries said were lost
	again  uint64 // steps or records that they ran again
}

func measure(o options, m mode, size int) (r result, err error) {
	if m.name == "amnesia" {
		size = 0 // with windows of a day it would withhold everything for a day
	}
	t := &harness.Program{Say: o.log}
	defer t.End()
	defer harness.Recover(&err)
	o.value = o.padding(size)
	c := &cell{Cluster: harness.NewCluster(t, harness.ClusterOptions{}), o: o, stopped: make(chan struct{})}
	if err := c.Start(); err != nil {
		return r, err
	}
	if err := c.connect(t); err != nil {
		return r, err
	}
	for _, name := range []string{"IN", "OUT", "HELD"} {
		if err := c.topic(name); err != nil {
			return r, err
		}
	}
	spec := fmt.Sprintf(text, m.spec)
	if o.class == "deterministic" {
		spec = strings.Replace(spec, "  - window: {tumble: 1d}\n", "", 1)
		spec = strings.Replace(spec, "aggregate: {pad: last(pad)}}", `aggregate: {pad: last(pad)}, having: 'pad == ""'}`, 1)
	}
	if size == 0 {
		spec = lean(spec)
	}
	if err := c.deploy(spec); err != nil {
		return r, err
	}
	t.Logf("%s, %d MiB: filling the state", m.name, size)
	if err := c.ballast(size << 20 / o.padding(size)); err != nil {
		return r, err
	}
	var once sync.Once
	halt := func() { once.Do(func() { close(c.stopped) }); c.loaded.Wait() }
	defer halt()
	c.loaded.Go(c.load)
	if err := c.overhead(&r, m); err != nil {
		return r, err
	}
	for i := range o.kills {
		t.Logf("%s, %d MiB: kill %d", m.name, size, i+1)
		if err := c.kill(&r); err != nil {
			return r, err
		}
	}
	halt()
	return r, c.judge(&r, m)
}

func (c *cell) connect(t *harness.Program) (err error) {
	options := []nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1),
		nats.IgnoreDiscoveredServers(), nats.RetryOnFailedConnect(true), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}
	if c.nc, err = nats.Connect(c.URLs(), options...); err != nil {
		return err
	}
	t.Cleanup(c.nc.Close)
	if c.js, err = jetstream.New(c.nc); err != nil {
		return err
	}
	if c.c, err = client.Connect(c.URLs(), client.Reconnects(-1), client.ReconnectWait(20*time.Millisecond)); err != nil {
		return err
	}
	t.Cleanup(func() { _ = c.c.Close() })
	return nil
}

// within tries until something works.
func within(what string, f func(context.Context) error) error {
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err = f(ctx)
		cancel()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("waited in vain for %s: %w", what, err)
}

func (c *cell) topic(name string) error {
	cfg := jetstream.StreamConfig{Name: name, Subjects: []string{strings.ToLower(name)}, Replicas: 3, Duplicates: 10 * time.Minute}
	return within("topic "+name, func(ctx context.Context) error {
		_, err := c.js.CreateOrUpdateStream(ctx, cfg)
		return err
	})
}

func (c *cell) deploy(spec string) error {
	return within("the operator", func(ctx context.Context) error {
		var to client.OperatorChange
		return c.c.Operators(ctx, "DEPLOY", client.OperatorRequest{Spec: spec}, &to)
	})
}

func (c *cell) info() (i client.OperatorInfo, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = c.c.Operators(ctx, "INFO", client.OperatorRequest{Name: "HA"}, &i)
	return i, err
}

// primary returns what the primary says, once there is one.
func (c *cell) primary(ok func(*client.OperatorReplica) bool) (r client.OperatorReplica, err error) {
	err = within("a primary", func(context.Context) error {
		i, err := c.info()
		for _, r = range i.Replicas {
			if r.Leads && ok(&r) {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("operator %s %s, %d replicas", i.Operator.State, i.Operator.Error, len(i.Replicas)))
	})
	return r, err
}

// kill ends the primary and waits until results come again and the node is back.
func (c *cell) kill(r *result) error {
	before, err := c.primary(func(*client.OperatorReplica) bool { return true })
	if err != nil {
		return err
	}
	n := c.Node(before.Node)
	at := time.Now()
	c.killed = append(c.killed, at)
	n.Kill()
	after, err := c.primary(func(r *client.OperatorReplica) bool {
		return r.Node != before.Node && r.Stats.Since.After(at) && r.Stats.FirstOutput > 0
	})
	if err != nil {
		return err
	}
	c.lost += after.Stats.Lost
	c.again += after.Stats.Again
	r.elect, r.apply, r.first = append(r.elect, after.Stats.Elect), append(r.apply, after.Stats.Apply), append(r.first, after.Stats.FirstOutput)
	<-time.After(time.Second) // of results
	if err := n.Start(); err != nil {
		return err
	}
	return within(n.Name+" to be level again", func(context.Context) error {
		i, err := c.info()
		if err != nil {
			return err
		}
		for _, r := range i.Replicas {
			if r.Behind > 100 || r.Faulty {
				return fmt.Errorf("%s is %d steps behind", r.Node, r.Behind)
			}
		}
		if len(i.Replicas) < len(c.Nodes) {
			return fmt.Errorf("%d replicas", len(i.Replicas))
		}
		return nil
	})
}
