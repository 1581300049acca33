package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	rate   int64 // of the events that the topic has
	events []*topics.Message
}

// through runs the queries in real brokers, one after the other, and prints how fast they
// were and whether they gave what this process gives. A rate of 0 is each query's own.
func through(g *Generator, events int64, only string, nodes int) (err error) {
	p := &harness.Program{}
	defer p.End()
	defer harness.Recover(&err)
	b := &brokers{Cluster: harness.NewCluster(p, harness.ClusterOptions{Nodes: nodes}), nodes: nodes}
	if err := b.start(p); err != nil {
		return err
	}
	chosen := slices.Clone(queries)
	if only != "" {
		names := strings.Split(only, ",")
		chosen = slices.DeleteFunc(chosen, func(q query) bool { return !slices.Contains(names, q.name) })
	}
	rateOf := func(q query) int64 {
		if g.Rate > 0 {
			return g.Rate
		}
		return q.rate(events)
	}
	var rates []int64
	for _, q := range chosen {
		if !slices.Contains(rates, rateOf(q)) {
			rates = append(rates, rateOf(q))
		}
	}
	lines, differ := map[string]string{}, 0
	loads := []string{load()}
	for _, rate := range rates {
		at := *g
		at.Rate = rate
		if err := b.fill(&at, events); err != nil {
			return err
		}
		for _, q := range chosen {
			if rateOf(q) != rate {
				continue
			}
			r, err := b.query(q)
			if err != nil {
				return fmt.Errorf("query %s: %w", q.name, err)
			}
			if strings.HasPrefix(r.verdict, differs) {
				differ++
			}
			lines[q.name] = r.line(q, events, rate)
			fmt.Fprint(os.Stderr, lines[q.name]) // as it goes
		}
	}
	loads = append(loads, load())
	fmt.Printf("%d events in a topic of %d replicas; processor time is the brokers', with log and outputs; load average %s.\n\n",
		events, nodes, strings.Join(loads, " to "))
	fmt.Printf("| query | events per second of event time | thousands of events per second | per processor second | Flink, published, per core | ratio | outputs | held against this process |\n|---|---:|---:|---:|---:|---:|---:|---|\n")
	for _, q := range chosen {
		fmt.Print(lines[q.name])
	}
	if differ > 0 {
		return fmt.Errorf("%d queries gave something else than this process", differ)
	}
	return nil
}

// load is how busy the machine was in the last minute.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	average, _, _ := strings.Cut(string(b), " ")
	return average
}

// line is a row of the table.
func (r *ran) line(q query, events, rate int64) string {
	flink, ratio := "–", "–"
	each := float64(events) / r.spent / 1e3
	if q.flink > 0 {
		flink, ratio = fmt.Sprint(q.flink), fmt.Sprintf("%.2f", each/q.flink)
	}
	return fmt.Sprintf("| %s | %d | %.1f | %.1f | %s | %s | %d | %s |\n",
		q.name, rate, float64(events)/r.took.Seconds()/1e3, each, flink, ratio, r.outputs, r.verdict)
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
	if err := b.topic("SIDE", "side"); err != nil {
		return err
	}
	for k := range sideRows {
		if err := b.publish("side", fmt.Appendf(nil, `{"id":%d,"value":"side %d","date_time":%d}`, k, k, base.UnixMilli())); err != nil {
			return err
		}
	}
	return b.published("SIDE", sideRows)
}

func (b *brokers) publish(subject string, payload []byte) error {
	_, err := b.js.PublishAsync(subject, payload, jetstream.WithStallWait(time.Minute))
	return err
}

// published waits until a topic has everything that was published.
func (b *brokers) published(topic string, n int) error {
	select {
	case <-b.js.PublishAsyncComplete():
	case <-time.After(patience):
		return fmt.Errorf("what was published to %s was not acknowledged", topic)
	}
	s, err := b.js.Stream(context.Background(), topic)
	if err != nil {
		return err
	}
	if stored := s.CachedInfo().State.Msgs; stored != uint64(n) {
		return fmt.Errorf("%s has %d of %d messages", topic, stored, n)
	}
	return nil
}

// fill makes the topic of events anew.
func (b *brokers) fill(g *Generator, events int64) error {
	if b.events != nil {
		if err := within("the topic of events to go", func(ctx context.Context) error { return b.js.DeleteStream(ctx, "NEXMARK") }); err != nil {
			return err
		}
	}
	b.rate, b.events = g.Rate, nil
	g.Stripe(0, 1, events, func(e *Event) { b.events = append(b.events, message(e)) })
	if err := b.topic("NEXMARK", "nexmark.>"); err != nil {
		return err
	}
	for _, m := range b.events {
		if err := b.publish(m.Subject, m.Payload); err != nil {
			return err
		}
	}
	return b.published("NEXMARK", len(b.events))
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

// What is said of outputs.
const (
	differs = "**differs**"
	// empty is said where the events are too short for a window to end: nothing is shown.
	empty = "nothing came out: take a lower -rate"
)

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
	var got []given
	if q.name == "q12" {
		got, r.verdict, err = b.clocked(topic)
	} else if got, err = b.read(topic); err == nil {
		r.verdict = verdict(q, want, got)
	}
	if err != nil {
		return r, err
	}
	r.outputs = len(got)
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
	if q.name == "q13" {
		return looked(want, got)
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
		return fmt.Sprintf(differs+": %d rows instead of %d", len(b), len(a))
	}
	if len(a) == 0 {
		return empty
	}
	return "the same"
}

// looked compares the results of q13, where a bid that is read in front of the table's row
// finds none: what came must be as here, each once.
func looked(want, got []given) string {
	left := map[given]int{}
	for _, w := range want {
		left[w]++
	}
	for _, g := range got {
		if left[g]--; left[g] < 0 {
			return differs + ": something came that doesn't come here"
		}
	}
	if len(got) == 0 {
		return empty
	}
	return fmt.Sprintf("the same, but for %d bids that were read before the table", len(want)-len(got))
}

// clocked waits for the windows of q12, which go by the clock: how bids are divided among
// them nobody can say beforehand, but each bidder's must add up.
func (b *brokers) clocked(topic string) (got []given, verdict string, err error) {
	want := map[int64]int64{}
	for _, m := range b.events {
		var bid struct{ Bidder int64 }
		if m.Subject == Subjects[Bid] {
			if err := json.Unmarshal(m.Payload, &bid); err != nil {
				return nil, "", err
			}
			want[bid.Bidder]++
		}
	}
	err = within("windows by the clock to end", func(context.Context) error {
		if got, err = b.read(topic); err != nil {
			return err
		}
		have := map[int64]int64{}
		for _, g := range got {
			var row struct{ Bidder, Bids int64 }
			if err := json.Unmarshal([]byte(g.payload), &row); err != nil {
				return err
			}
			have[row.Bidder] += row.Bids
		}
		if !maps.Equal(have, want) {
			return fmt.Errorf("%d bidders of %d add up", len(have), len(want))
		}
		return nil
	})
	return got, "each bidder's sum is the same", err
}
