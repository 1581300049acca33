package jetstream_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Every message dies; the lead changes all the while. Each dead letter is there once.
func TestDeadLettersAreStoredOnceAcrossLeaderChanges(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	js := nodes[0].js
	for _, dead := range []jetstream.StreamConfig{ // in another group, and in the same
		{Name: "DEAD1", Subjects: []string{"dead1"}, Replicas: 1, Duplicates: 100 * time.Millisecond},
		{Name: "DEAD3", Subjects: []string{"dead3"}, Replicas: 3, Duplicates: 100 * time.Millisecond},
	} {
		t.Run(dead.Name, func(t *testing.T) {
			must[jetstream.Stream](t)(js.CreateStream(ctx, dead))
			from := "FROM" + dead.Name
			must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: from, Subjects: []string{from + ".>"}, Replicas: 3}))
			cfg := deadConsumer("worker", dead.Subjects[0])
			cfg.MaxDeliver, cfg.AckWait = 1, 100*time.Millisecond
			c := must[jetstream.Consumer](t)(nodes[1].js.CreateConsumer(ctx, from, cfg))
			const total = 400
			for i := range total {
				must[*jetstream.PubAck](t)(js.Publish(ctx, fmt.Sprintf("%s.%d", from, i), nil))
			}
			for round := 0; ; round++ {
				if b, err := c.Fetch(40, jetstream.FetchMaxWait(300*time.Millisecond)); err == nil {
					n := 0
					for m := range b.Messages() {
						if n++; n%2 == 0 {
							_ = m.Term()
						}
					}
				}
				if round < 6 {
					_, _ = nodes[2].nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+from, nil, patience)
				}
				info, err := c.Info(ctx)
				if round >= 6 && err == nil && info.AckFloor.Stream == total && info.NumAckPending == 0 {
					break
				}
				if ctx.Err() != nil {
					t.Fatalf("not all died: %+v, %v", info, err)
				}
			}
			times := map[string]int{}
			for _, l := range kept(t, js, dead.Name) {
				times[l.Header.Get("Herald-Dead-Sequence")]++
			}
			for seq := 1; seq <= total; seq++ {
				if n := times[fmt.Sprint(seq)]; n != 1 {
					t.Errorf("message %d has %d dead letters", seq, n)
				}
			}
		})
	}
}

func TestKeysStayInOrderAcrossLeaderChanges(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	js := nodes[0].js
	must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "K", Subjects: []string{"k"}, Replicas: 3}))
	cfg := jetstream.ConsumerConfig{
		Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 32, AckWait: 2 * time.Second, Metadata: map[string]string{"herald.key": "header:Key"},
	}
	must[jetstream.Consumer](t)(js.CreateConsumer(ctx, "K", cfg))
	const keys, each = 5, 60
	for n := range each {
		for k := range keys {
			m := &nats.Msg{Subject: "k", Header: nats.Header{"Key": {fmt.Sprint(k)}}, Data: fmt.Appendf(nil, "%d %d", k, n)}
			must[*jetstream.PubAck](t)(js.PublishMsg(ctx, m))
		}
	}
	changes, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(changes)
		for range 5 {
			select {
			case <-stop:
				return
			case <-time.After(300 * time.Millisecond):
				_, _ = nodes[2].nc.Request("$JS.API.CONSUMER.LEADER.STEPDOWN.K.c", nil, patience)
			}
		}
	}()
	byKeyCheck(ctx, t, []jetstream.JetStream{nodes[0].js, nodes[1].js, nodes[2].js}, "K", "c", keys*each, true)
	close(stop)
	<-changes
}
