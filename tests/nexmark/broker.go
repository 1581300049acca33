package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/tests/harness"
	"github.com/heraldmq/herald/topics"
)

// patience bounds each wait for a broker.
const patience = 5 * time.Minute

// brokers are processes that have the events in a topic.
type brokers struct {
	*harness.Cluster
	js     jetstream.JetStream
	c      *client.Client
	nodes  int
	events []*topics.Message
}

// through runs the queries in real brokers, one after the other, and prints how fast they
// were and whether they gave what this process gives.
func through(g *Generator, events int64, only string, nodes int) (err error) {
	p := &harness.Program{}
	defer p.End()
	defer harness.Recover(&err)
	b := &brokers{Cluster: harness.NewCluster(p, harness.ClusterOptions{Nodes: nodes}), nodes: nodes}
	g.Stripe(0, 1, events, func(e *Event) { b.events = append(b.events, message(e)) })
	if err := b.start(p); err != nil {
		return err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	average, _, _ := strings.Cut(string(load), " ")
	fmt.Printf("%d events, %d per second of event time, in a topic of %d replicas; brokers' processor time, log and outputs included; load average %s.\n\n",
		events, g.Rate, nodes, average)
	fmt.Printf("| query | thousands of events per second | per processor second | Flink, published, per core | ratio | outputs | held against this process |\n|---|---:|---:|---:|---:|---:|---|\n")
	names := strings.Split(only, ",")
	differ := 0
	for _, q := range queries {
		if only != "" && !slices.Contains(names, q.name) {
			continue
		}
		r, err := b.query(q)
		if err != nil {
			return fmt.Errorf("query %s: %w", q.name, err)
		}
		flink, ratio := "–", "–"
		rate := float64(events) / r.spent / 1e3
		if q.flink > 0 {
			flink, ratio = fmt.Sprint(q.flink), fmt.Sprintf("%.2f", rate/q.flink)
		}
		if r.verdict != "the same" && r.verdict != clocked && r.verdict != empty {
			differ++
		}
		fmt.Printf("| %s | %.1f | %.1f | %s | %s | %d | %s |\n", q.name, float64(events)/r.took.Seconds()/1e3, rate, flink, ratio, r.outputs, r.verdict)
	}
	if differ > 0 {
		return fmt.Errorf("%d queries gave something else than this process", differ)
	}
	return nil
}

func (b *brokers) start(p *harness.Program) (err error) {
	if err := b.Start(); err != nil {
		return err
	}
	nc, err := nats.Connect(b.URLs(), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	p.Cleanup(nc.Close)
	if b.js, err = jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(2000)); err != nil {
		return err
	}
	if b.c, err = client.Connect(b.URLs()); err != nil {
		return err
	}
	p.Cleanup(func() { _ = b.c.Close() })
	if err := b.topic("NEXMARK", "nexmark.>"); err != nil {
		return err
	}
	if err := b.topic("SIDE", "side"); err != nil {
		return err
	}
	for k := range sideRows {
		_, err := b.js.PublishAsync("side", fmt.Appendf(nil, `{"id":%d,"value":"side %d","date_time":%d}`, k, k, base.UnixMilli()), jetstream.WithStallWait(time.Minute))
		if err != nil {
			return err
		}
	}
	for _, m := range b.events {
		if _, err := b.js.PublishAsync(m.Subject, m.Payload, jetstream.WithStallWait(time.Minute)); err != nil {
			return err
		}
	}
	select {
	case <-b.js.PublishAsyncComplete():
	case <-time.After(patience):
		return errors.New("the events were not acknowledged")
	}
	s, err := b.js.Stream(context.Background(), "NEXMARK")
	if err != nil {
		return err
	}
	if n := s.CachedInfo().State.Msgs; n != uint64(len(b.events)) {
		return fmt.Errorf("%d of %d events are stored", n, len(b.events))
	}
	return nil
}

// within tries until something works.
func within(what string, f func(context.Context) error) error {
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err = f(ctx)
		cancel()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("waited in vain for %s: %w", what, err)
}

func (b *brokers) topic(name, subject string) error {
	return within("topic "+name, func(ctx context.Context) error {
		_, err := b.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{subject}, Replicas: b.nodes})
		return err
	})
}

// ran is what a query did.
type ran struct {
	took    time.Duration // from the request to deploy it until everything was read and written
	spent   float64       // seconds of the brokers' processors meanwhile
	outputs int
	verdict string
}

// clocked is said of results that depend on the clock or on how two inputs meet.
const clocked = "not held: it depends on the clock, or on when the table is read"

// empty is said where the events are too short for a window to end: nothing is shown.
const empty = "nothing came out: take a lower -rate"

func (b *brokers) query(q query) (r ran, err error) {
	want, reads, err := b.wanted(q)
	if err != nil {
		return r, err
	}
	topic := strings.ToUpper(q.name)
	subject := q.name
	if q.name == "q10" {
		subject = "q10.>"
	}
	if err := b.topic(topic, subject); err != nil {
		return r, err
	}
	text, err := files.ReadFile("queries/" + q.name + ".yaml")
	if err != nil {
		return r, err
	}
	spent, began := b.Spent(), time.Now()
	var to client.OperatorChange
	err = within("deployment", func(ctx context.Context) error {
		return b.c.Operators(ctx, "DEPLOY", client.OperatorRequest{Spec: string(text)}, &to)
	})
	if err != nil {
		return r, err
	}
	name := client.OperatorRequest{Name: to.Operator.Name}
	err = within("all events to be read", func(ctx context.Context) error {
		var i client.OperatorInfo
		if err := b.c.Operators(ctx, "INFO", name, &i); err != nil {
			return err
		}
		read := uint64(0) // by whoever led: on a busy machine that changes
		for _, x := range i.Replicas {
			read += x.Stats.In
		}
		if read >= uint64(reads) {
			return nil
		}
		return fmt.Errorf("%s %s", i.Operator.State, i.Operator.Error)
	})
	if err != nil {
		return r, err
	}
	r.took, r.spent = time.Since(began), b.Spent()-spent
	got, err := b.read(topic)
	if err != nil {
		return r, err
	}
	r.outputs = len(got)
	r.verdict = verdict(q, want, got)
	return r, within("removal", func(ctx context.Context) error {
		var gone any
		return errors.Join(b.c.Operators(ctx, "REMOVE", name, &gone), b.js.DeleteStream(ctx, topic))
	})
}

// given is an output: its key where it is a row, and the payload.
type given struct{ key, payload string }

// wanted runs the query in this process, and counts what it reads. Windows that are open at
// the end stay so, as they do in a broker for a while.
func (b *brokers) wanted(q query) (all []given, reads int, err error) {
	g, err := compile(q.name)
	if err != nil {
		return nil, 0, err
	}
	d, err := newDriver(g, base, func(o *engine.Output) {
		all = append(all, given{headerOf(o.Header, "Herald-Key"), string(o.Payload)})
	})
	if err != nil {
		return nil, 0, err
	}
	if err := d.side(base.UnixMilli()); err != nil {
		return nil, 0, err
	}
	if q.name == "q13" {
		reads = sideRows
	}
	var arrivals []engine.Arrival
	for _, m := range b.events {
		arrivals = d.arrivals(arrivals, "NEXMARK", m)
	}
	reads += len(arrivals)
	for len(arrivals) > 0 {
		n := min(1000, len(arrivals))
		if err := d.run(arrivals[:n]); err != nil {
			return nil, 0, err
		}
		arrivals = arrivals[n:]
	}
	return all, reads, nil
}

func (b *brokers) read(topic string) (all []given, err error) {
	return all, within("the output to be read", func(ctx context.Context) error {
		all = nil
		s, err := b.js.Stream(ctx, topic)
		if err != nil {
			return err
		}
		cons, err := b.js.OrderedConsumer(context.Background(), topic, jetstream.OrderedConsumerConfig{})
		if err != nil {
			return err
		}
		for n := int(s.CachedInfo().State.Msgs); len(all) < n; {
			batch, err := cons.Fetch(min(n-len(all), 1000), jetstream.FetchMaxWait(5*time.Second))
			if err != nil {
				return err
			}
			for m := range batch.Messages() {
				all = append(all, given{m.Headers().Get("Herald-Key"), string(m.Data())})
			}
			if err := batch.Error(); err != nil {
				return err
			}
		}
		return nil
	})
}

// verdict compares results in any order; of changelogs, the rows there are in the end.
func verdict(q query, want, got []given) string {
	if q.name == "q12" || q.name == "q13" {
		return clocked
	}
	rows := func(all []given) (list []string) {
		table := map[string]string{}
		for _, o := range all {
			if q.keyed {
				table[o.key] = o.payload
			} else {
				list = append(list, o.payload)
			}
		}
		for k, payload := range table {
			if payload != "" {
				list = append(list, k+" "+payload)
			}
		}
		slices.Sort(list)
		return list
	}
	a, b := rows(want), rows(got)
	if !slices.Equal(a, b) {
		return fmt.Sprintf("**differs**: %d rows instead of %d", len(b), len(a))
	}
	if len(a) == 0 {
		return empty
	}
	return "the same"
}
