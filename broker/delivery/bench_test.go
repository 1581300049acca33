package delivery

import (
	"fmt"
	"testing"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// bench is a world in which everything happens at once: messages come from
// memory, are acknowledged when they are flushed, and records apply immediately.
type bench struct {
	e        *Engine
	topic    *fakeTopic
	replica  *consumer.Consumer
	staged   []byte // ack subjects, one behind the other
	ends     []int
	got      int
	want     int
	batch    int
	ask      []byte
	noAck    bool
	finished chan struct{}
	records  chan func()
}

func (b *bench) HasInterest(string) bool                        { return true }
func (b *bench) QueueInterest(string, string) bool              { return true }
func (b *bench) WatchInterest(string, func(bool)) (stop func()) { return func() {} }
func (b *bench) NewPublisher() Publisher                        { return b }
func (b *bench) SetStall(bool)                                  {}
func (b *bench) Publish(_, _ string, _, _ []byte) bool          { return true }

func (b *bench) Deliver(_, _, reply string, _, _ []byte) bool {
	b.staged = append(b.staged, reply...)
	b.ends = append(b.ends, len(b.staged))
	return true
}

func (b *bench) Flush() {
	start := 0
	for _, end := range b.ends {
		if end > start {
			if !b.noAck {
				b.e.Ack("A", b.staged[start:end], nil, nil)
			}
			b.got++
			if b.got == b.want {
				close(b.finished)
			}
			if b.got%b.batch == 0 && b.ask != nil && b.got < b.want {
				b.e.Pull(7, "c", "_INBOX.x.y", nil, b.ask)
			}
		}
		start = end
	}
	b.staged, b.ends = b.staged[:0], b.ends[:0]
}

// Submit has records applied on one goroutine, in order.
func (b *bench) Submit(kind topics.RecordKind, body []byte, done func(any, error)) {
	b.records <- func() {
		_, _, rest, err := topics.ParseConsumerRecord(body)
		if err == nil {
			b.topic.mu.Lock()
			if kind == topics.RecordDelivered {
				err = b.replica.ApplyDelivered(rest, nil)
			} else {
				err = b.replica.ApplyAcks(rest, nil)
			}
			b.topic.mu.Unlock()
		}
		done(nil, err)
	}
}

func benchmarkConsume(b *testing.B, cfg topics.ConsumerConfig, batch int) {
	const stored = 1 << 20
	t := &fakeTopic{id: 7, cfg: topics.Config{Name: "S"}, consumers: map[string]*consumer.Consumer{}}
	payload := make([]byte, 128)
	t.msgs = make([]topics.Message, max(b.N, stored))
	for i := range t.msgs {
		t.msgs[i] = topics.Message{Sequence: topics.Sequence(i + 1), Time: 1_700_000_000_000_000_000, Subject: "orders.new", Payload: payload}
	}
	w := &bench{topic: t, want: b.N, batch: batch, finished: make(chan struct{}), records: make(chan func(), 4096)}
	if cfg.DeliverSubject == "" {
		w.ask = fmt.Appendf(nil, `{"batch":%d,"expires":60000000000}`, batch)
	}
	w.noAck = cfg.AckPolicy == topics.AckNone
	w.e = New(Options{
		Topic:          func(topics.TopicID) Topic { return t },
		Topics:         func(f func(Topic) bool) { f(t) },
		Account:        func(string) Account { return w },
		Proposer:       w,
		DeleteConsumer: func(topics.TopicID, string) {},
		Workers:        1, // so that the publisher is on one goroutine
	})
	applied := make(chan struct{})
	go func() {
		defer close(applied)
		for f := range w.records {
			f()
		}
	}()
	defer func() {
		w.e.Close()
		close(w.records)
		<-applied
	}()
	w.replica = consumer.New(1, "c", cfg, 1, t)
	t.consumers["c"] = w.replica
	b.ReportAllocs()
	b.ResetTimer()
	w.e.Lead(true)
	if w.ask != nil {
		w.e.Pull(7, "c", "_INBOX.x.y", nil, w.ask)
	}
	<-w.finished
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mmsg/s")
}

func BenchmarkPullExplicitAck(b *testing.B) {
	for _, batch := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint("batch=", batch), func(b *testing.B) {
			benchmarkConsume(b, topics.ConsumerConfig{Durable: "c", AckPolicy: topics.AckExplicit, MaxAckPending: 10000}, batch)
		})
	}
}

func BenchmarkPushNoAck(b *testing.B) {
	benchmarkConsume(b, topics.ConsumerConfig{Durable: "c", AckPolicy: topics.AckNone, DeliverSubject: "d"}, 1<<40)
}

func BenchmarkParseAck(b *testing.B) {
	subject := []byte("$JS.ACK.ORDERS.worker.1.123456.123460.1700000000000000000.42")
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := parseAck(subject); !ok {
			b.Fatal("not an ack subject")
		}
	}
}

func TestParseAckDoesNotAllocate(t *testing.T) {
	subject := []byte("$JS.ACK.ORDERS.worker.1.123456.123460.1700000000000000000.42")
	if n := testing.AllocsPerRun(100, func() { parseAck(subject) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
