package main

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const stream = "BENCH"

// dial connects to a server and its JetStream.
func dial(url string, opts ...jetstream.JetStreamOpt) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc, opts...)
	if err != nil {
		nc.Close()
	}
	return nc, js, err
}

// setup empties the server's stream and makes it anew.
func setup(url string) error {
	nc, js, err := dial(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_ = js.DeleteStream(ctx, stream)
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{"bench.js"}})
	return err
}

func addConsumer(url, name string, ack jetstream.AckPolicy) error {
	nc, js, err := dial(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err = js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: name, AckPolicy: ack, MaxAckPending: 100_000})
	return err
}

// goLive is rawLive with nats.go at both ends.
func goLive(url string, pubs, subs, size, total int) (float64, error) {
	var conns []*nats.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	var wg sync.WaitGroup
	for range subs {
		nc, err := nats.Connect(url)
		if err != nil {
			return 0, err
		}
		conns = append(conns, nc)
		wg.Add(1)
		n := 0
		sub, err := nc.Subscribe("bench.live", func(*nats.Msg) {
			if n++; n == total*pubs {
				wg.Done()
			}
		})
		if err != nil {
			return 0, err
		}
		if err := sub.SetPendingLimits(-1, -1); err != nil {
			return 0, err
		}
		if err := nc.Flush(); err != nil {
			return 0, err
		}
	}
	data := bytes.Repeat([]byte("x"), size)
	began := time.Now()
	for range pubs {
		nc, err := nats.Connect(url)
		if err != nil {
			return 0, err
		}
		conns = append(conns, nc)
		go func() {
			for range total {
				_ = nc.Publish("bench.live", data)
			}
			_ = nc.Flush()
		}()
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		return 0, fmt.Errorf("live %d→%d did not end in 2 minutes", pubs, subs)
	}
	return float64(total*pubs*subs) / time.Since(began).Seconds(), nil
}

// goDurable publishes with nats.go: window 1 is one outstanding publish at a
// time, otherwise asynchronously with that many unacknowledged.
func goDurable(url string, size, window, total int) (float64, error) {
	nc, js, err := dial(url, jetstream.WithPublishAsyncMaxPending(window))
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	data := bytes.Repeat([]byte("x"), size)
	began := time.Now()
	if window == 1 {
		for range total {
			if _, err := js.Publish(context.Background(), "bench.js", data); err != nil {
				return 0, err
			}
		}
		return float64(total) / time.Since(began).Seconds(), nil
	}
	var last jetstream.PubAckFuture
	for range total {
		if last, err = js.PublishAsync("bench.js", data, jetstream.WithStallWait(10*time.Second)); err != nil {
			return 0, err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		return 0, fmt.Errorf("%d acks missing after a minute", js.PublishAsyncPending())
	}
	select {
	case err := <-last.Err():
		return 0, err
	default:
	}
	return float64(total) / time.Since(began).Seconds(), nil
}

// goBatch publishes in batches: 500 asynchronously, then waits for all of them.
func goBatch(url string, size, total int) (float64, error) {
	nc, js, err := dial(url)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	data := bytes.Repeat([]byte("x"), size)
	began := time.Now()
	for sent := 0; sent < total; sent += 500 {
		for range 500 {
			if _, err := js.PublishAsync("bench.js", data); err != nil {
				return 0, err
			}
		}
		select {
		case <-js.PublishAsyncComplete():
		case <-time.After(time.Minute):
			return 0, fmt.Errorf("a batch was not acknowledged within a minute")
		}
	}
	return float64(total) / time.Since(began).Seconds(), nil
}

// goConsume reads total messages with nats.go with nats.go, from an ordered consumer or the one
// named.
func goConsume(url, how string, size, total int) (float64, error) {
	nc, js, err := dial(url)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var c jetstream.Consumer
	if how == "ordered" {
		c, err = js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{})
	} else {
		c, err = js.Consumer(ctx, stream, how)
	}
	if err != nil {
		return 0, err
	}
	began := time.Now()
	n := 0
	done := make(chan struct{})
	cc, err := c.Consume(func(m jetstream.Msg) {
		if how != "ordered" {
			_ = m.Ack()
		}
		if n++; n == total {
			close(done)
		}
	}, jetstream.PullMaxMessages(inFlight(size)))
	if err != nil {
		return 0, err
	}
	defer cc.Stop()
	select {
	case <-done:
	case <-ctx.Done():
		return 0, fmt.Errorf("%s: not all of %d messages within 2 minutes", how, total)
	}
	rate := float64(total) / time.Since(began).Seconds()
	return rate, nc.Flush()
}

// inFlight is how many messages of size bytes to ask for at a time: well below
// the 64 MiB that both brokers hold for a connection.
func inFlight(size int) int { return min(5000, 16<<20/size) }

// goFetch reads total messages of the consumer "c" by Fetch, 500 at a time where that
// many fit.
func goFetch(url string, size, total int) (float64, error) {
	nc, js, err := dial(url)
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	c, err := js.Consumer(context.Background(), stream, "c")
	if err != nil {
		return 0, err
	}
	began := time.Now()
	for n := 0; n < total; {
		batch, err := c.Fetch(min(500, inFlight(size), total-n), jetstream.FetchMaxWait(10*time.Second))
		if err != nil {
			return 0, err
		}
		before := n
		for m := range batch.Messages() {
			n++
			if err := m.Ack(); err != nil {
				return 0, err
			}
		}
		if n == before {
			return 0, fmt.Errorf("fetch gave nothing after %d of %d messages: %w", n, total, batch.Error())
		}
	}
	return float64(total) / time.Since(began).Seconds(), nc.Flush()
}
