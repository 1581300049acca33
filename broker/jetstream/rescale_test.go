package jetstream_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestReplicasOfAStreamThatIsUsed changes the replicas of a stream to and fro under
// publishers and a consumer that acknowledges: all is delivered, nothing twice but what
// was under way, and who asks is answered at once.
func TestReplicasOfAStreamThatIsUsed(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	cfg := jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Replicas: 1, Duplicates: time.Hour, AllowDirect: true}
	s := nodes[0].create(t, cfg)
	consumer := must[jetstream.Consumer](t)(s.CreateConsumer(deadline(t), jetstream.ConsumerConfig{
		Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 3 * time.Second, MaxAckPending: 500,
	}))
	var mu sync.Mutex
	got := map[string]int{}
	reading, err := consumer.Consume(func(m jetstream.Msg) {
		mu.Lock()
		got[m.Subject()]++
		mu.Unlock()
		_ = m.Ack()
	}, jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		if !errors.Is(err, jetstream.ErrConsumerLeadershipChanged) {
			t.Logf("consumer: %v", err)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Stop()
	var stop atomic.Bool
	var sent atomic.Int64
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				subject := fmt.Sprintf("s.%s.%d", n.name, i)
				_, err := n.js.Publish(deadline(t), subject, nil, jetstream.WithMsgID(subject), jetstream.WithRetryAttempts(20))
				if err != nil {
					t.Errorf("publish %s: %v", subject, err)
					return
				}
				sent.Add(1)
				<-time.After(2 * time.Millisecond)
			}
		})
	}
	for i, r := range []int{3, 1, 3} {
		cfg.Replicas = r
		began := time.Now()
		var info jetstream.Stream
		var err error
		within(t, time.Minute, "the end of the move before", func() bool {
			began = time.Now()
			info, err = nodes[i].js.UpdateStream(deadline(t), cfg)
			var busy *jetstream.APIError
			return !errors.As(err, &busy) || busy.ErrorCode != 10124
		})
		if err != nil {
			t.Fatalf("to %d replicas: %v", r, err)
		}
		t.Logf("to %d replicas: answered after %s", r, time.Since(began))
		if n := info.CachedInfo().Config.Replicas; n != r {
			t.Errorf("the answer says %d replicas, want %d", n, r)
		}
		within(t, time.Minute, "the stream to have its replicas", func() bool {
			for _, n := range nodes {
				s, err := n.js.Stream(deadline(t), "S")
				if err != nil || s.CachedInfo().Cluster == nil || len(s.CachedInfo().Cluster.Replicas) != r-1 {
					return false
				}
			}
			return true
		})
	}
	stop.Store(true)
	wg.Wait()
	st := must[jetstream.Stream](t)(nodes[1].js.Stream(deadline(t), "S")).CachedInfo().State
	if st.Msgs != uint64(sent.Load()) {
		t.Errorf("%d messages are stored, %d were acknowledged", st.Msgs, sent.Load())
	}
	within(t, time.Minute, "all to be delivered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) == int(sent.Load())
	})
	within(t, time.Minute, "all to be acknowledged", func() bool {
		info, err := consumer.Info(deadline(t))
		return err == nil && info.NumAckPending == 0 && info.NumPending == 0
	})
	twice := 0
	for _, n := range got {
		twice += n - 1
	}
	t.Logf("%d messages, %d delivered again", sent.Load(), twice)
}
