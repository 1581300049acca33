package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// fillClients are the numbers of clients that topics are made with: which of them a
// program is fastest with is its own affair.
var fillClients = []int{32, 64, 128, 256}

// thousandTopics makes 1,000 topics of three replicas with a consumer each, on both
// programs, and compares what they cost: how fast they are made each with the number of
// clients that suits it best, in a new cluster for each; what they cost then in the
// first of these.
func thousandTopics(herald, peer, dir string) (string, error) {
	const total = 1000
	type cost struct {
		best  float64
		rates []string
		mem   int64
		idle  float64
	}
	var costs []cost
	for _, p := range []program{{"thousand-herald", herald, ""}, {"thousand-nats", peer, ""}} {
		var all cost
		for i, clients := range fillClients {
			q := p
			q.name = fmt.Sprintf("%s-%d", p.name, clients)
			c, err := q.startCluster(dir)
			if err != nil {
				return "", err
			}
			rate, err := c.fill(total, clients)
			if err == nil && i == 0 {
				all.mem, all.idle = c.rest()
			}
			c.stop()
			if err != nil {
				return "", fmt.Errorf("%s: %w", q.name, err)
			}
			all.best = max(all.best, rate)
			all.rates = append(all.rates, fmt.Sprintf("%.0f", rate))
		}
		costs = append(costs, all)
	}
	h, n := costs[0], costs[1]
	return fmt.Sprintf("1,000 topics of three replicas with a consumer each: made at %.0f pairs/s against %.1f: %.0f× (wanted ≥ 50×), each with as many clients as suit it best (with %v clients: %s against %s); idle %.2f %% of a processor for all three nodes against %.1f %%: 1/%.0f (wanted ≤ 1/20); %d MiB resident against %d: 1/%.1f (wanted ≤ 1/3)",
		h.best, n.best, h.best/n.best, fillClients, strings.Join(h.rates, ", "), strings.Join(n.rates, ", "),
		100*h.idle, 100*n.idle, n.idle/max(h.idle, 1e-6), h.mem>>20, n.mem>>20, float64(n.mem)/float64(h.mem)), nil
}

// fill makes topics with a consumer each and returns pairs per second. The clients are
// connected before: that is no part of making topics.
func (c *cluster) fill(total, clients int) (rate float64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	made := make([]jetstream.JetStream, clients)
	for w := range made {
		nc, js, err := dial(c.servers[w%len(c.servers)].url)
		if err != nil {
			return 0, err
		}
		defer nc.Close()
		made[w] = js
	}
	began := time.Now()
	errs := make(chan error, clients)
	for w, js := range made {
		go func() { errs <- makeTopics(ctx, js, w, clients, total) }()
	}
	for range clients {
		if e := <-errs; e != nil {
			err = e
		}
	}
	return float64(total) / time.Since(began).Seconds(), err
}

// rest returns memory, and the share of a processor that is used while nothing happens,
// some time after something did.
func (c *cluster) rest() (mem int64, idle float64) {
	<-time.After(15 * time.Second)
	mem, before := c.resident()
	<-time.After(15 * time.Second)
	_, after := c.resident()
	return mem, float64(after-before) / float64(15*time.Second)
}

// makeTopics makes every workers-th topic from w on; a refusal for want of time is tried
// again, as users do, which is as good the second time. nats.go's CreateOrUpdateStream
// isn't used: it asks for an update first, which for a new stream is one more request
// that is only refused.
func makeTopics(ctx context.Context, js jetstream.JetStream, w, workers, total int) error {
	for i := w; i < total; i += workers {
		name := fmt.Sprintf("T%d", i)
		for try := 0; ; try++ {
			_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{"many." + name}, Replicas: clusterNodes})
			if err == nil {
				_, err = js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
			}
			if err == nil {
				break
			}
			if try == 20 {
				return fmt.Errorf("topic %d: %w", i, err)
			}
		}
	}
	return nil
}

// manyClusterTopics does the same with 100,000, which only Herald is asked for, and looks at
// what is done with so many: lists, a publish, the restart of a node.
func manyClusterTopics(herald, _, dir string) (string, error) {
	const total = 100_000
	c, err := program{"many3", herald, ""}.startCluster(dir)
	if err != nil {
		return "", err
	}
	defer func() { c.stop() }()
	rate, err := c.fill(total, 64)
	if err != nil {
		return "", err
	}
	mem, idle := c.rest()
	nc, js, err := dial(c.servers[0].url)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	began := time.Now()
	if _, err := nc.Request("$JS.API.STREAM.NAMES", nil, time.Minute); err != nil {
		return "", err
	}
	listed := time.Since(began)
	began = time.Now()
	if _, err := nc.Request("$JS.API.STREAM.LIST", []byte(`{"offset":50000}`), time.Minute); err != nil {
		return "", err
	}
	described := time.Since(began)
	if _, err := js.Publish(context.Background(), "many.T77777", []byte("x")); err != nil {
		return "", err
	}
	last := c.servers[clusterNodes-1]
	began = time.Now()
	last.stop()
	stopped := time.Since(began)
	began = time.Now()
	if err := last.run(); err != nil {
		return "", err
	}
	if err := publishThrough(last.url, "many.T77778"); err != nil {
		return "", err
	}
	return fmt.Sprintf("100,000 topics of three replicas with a consumer each: made at %.0f pairs/s, %d MiB resident a node, %.2f %% of a processor when idle, all three nodes together; the first page of names in %v, a page of infos from the middle in %v; a node stopped in %v, and %v after its start a publish through it was acknowledged",
		rate, mem>>20/clusterNodes, 100*idle, listed.Round(time.Millisecond), described.Round(time.Millisecond),
		stopped.Round(time.Millisecond), time.Since(began).Round(time.Millisecond)), nil
}

// publishThrough publishes once through a node that has just been started.
func publishThrough(url, subject string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	for end := time.Now().Add(2 * time.Minute); ; {
		m, err := nc.Request(subject, []byte("x"), time.Second)
		if err == nil && strings.Contains(string(m.Data), `"seq"`) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("publish to %s through %s: no acknowledgement: %w", subject, url, err)
		}
	}
}
