package cluster_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// keyed is what the readers of a consumer with a key have in hand.
type keyed struct {
	hold sync.RWMutex // held while nobody gets done with what is in work

	mu                      sync.Mutex
	busy                    map[string]uint64 // by subject, the sequence in work
	next                    map[string]int    // of each subject
	seen                    map[uint64]bool
	atOnce, disordered, all int
}

func (k *keyed) begin(m jetstream.Msg, seq uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if other := k.busy[m.Subject()]; other != 0 && other != seq {
		k.atOnce++
	}
	k.busy[m.Subject()] = seq
	if k.seen[seq] {
		return
	}
	k.seen[seq] = true
	k.all++
	if string(m.Data()) != fmt.Sprint(k.next[m.Subject()]) {
		k.disordered++
	}
	k.next[m.Subject()]++
}

func (k *keyed) end(m jetstream.Msg, seq uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy[m.Subject()] == seq {
		delete(k.busy, m.Subject())
	}
}

func (k *keyed) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all
}

// TestOneOfAKeyAcrossLeaders has several clients share a consumer with a key and kills the
// leader under them: of no key are two messages in work at once, and each key's come in
// order. Acknowledgements want no answer, so that a kill may lose some; what is in work
// then stays so until the next leader has gone on.
func TestOneOfAKeyAcrossLeaders(t *testing.T) {
	t.Parallel()
	w := form(t, 3)
	js := w.js(w.connect(w.Nodes...))
	s := w.stream(js, "S", 3)
	const messages, keys = 3000, 3
	for i := range messages {
		if _, err := js.PublishAsync(fmt.Sprintf("S.%d", i%keys), []byte(fmt.Sprint(i/keys))); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	_, err := s.CreateConsumer(w.within(), jetstream.ConsumerConfig{
		Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 6 * time.Second, MaxAckPending: 500, Metadata: map[string]string{"herald.key": "token:2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	k := &keyed{busy: map[string]uint64{}, next: map[string]int{}, seen: map[uint64]bool{}}
	for range 3 * keys { // so that some have nothing in work
		c, err := w.js(w.connect(w.Nodes...)).Consumer(w.within(), "S", "c")
		if err != nil {
			t.Fatal(err)
		}
		consuming, err := c.Consume(func(m jetstream.Msg) {
			at, err := m.Metadata()
			if err != nil {
				t.Error(err)
				return
			}
			k.begin(m, at.Sequence.Stream)
			k.hold.RLock()
			k.end(m, at.Sequence.Stream)
			_ = m.Ack()
			k.hold.RUnlock()
		}, jetstream.PullMaxMessages(2), jetstream.PullExpiry(2*time.Second), jetstream.PullHeartbeat(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer consuming.Stop()
	}
	for i := range 3 {
		leader := w.leader(s)
		w.eventually("messages to come", func() bool { return k.count() > (i+1)*messages/5 })
		k.hold.Lock()
		leader.Kill()
		w.leader(s)
		<-time.After(2 * time.Second) // the readers ask again, and the new leader may do wrong
		k.hold.Unlock()
		w.start(leader)
	}
	w.eventually("all messages to come", func() bool { return k.count() == messages })
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.atOnce+k.disordered > 0 {
		t.Errorf("%d messages came while another of their key was in work, %d out of order", k.atOnce, k.disordered)
	}
}
