package state

import (
	"fmt"
	"io"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// window is a publisher that keeps a number of messages without ack.
type window struct {
	mu    sync.Mutex
	moved sync.Cond
	acked int
	fresh int // acks not yet flushed
}

func (w *window) Deliver(_, _, _ string, _, _ []byte) bool { w.fresh++; return true }

func (w *window) Answer(_, reply string, header, payload []byte) {
	w.Deliver(reply, reply, "", header, payload)
}

func (w *window) Flush() {
	w.mu.Lock()
	w.acked += w.fresh
	w.mu.Unlock()
	w.fresh = 0
	w.moved.Broadcast()
}

// run publishes n messages in read batches of a 64 KiB buffer.
func (w *window) run(n, size int, read []front.Captured, capture func([]front.Captured)) {
	for sent := 0; sent < n; {
		w.mu.Lock()
		for sent-w.acked > size-len(read) && sent != w.acked {
			w.moved.Wait()
		}
		w.mu.Unlock()
		k := min(len(read), n-sent)
		capture(read[:k])
		sent += k
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.acked < n {
		w.moved.Wait()
	}
}

// cpu returns the processor time this process has used, in nanoseconds: what a
// message costs even on a machine that is busy with other things.
func cpu(b *testing.B) int64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkPublish is durable publishing of 128-byte messages by one fake session
// over the real log and store. BenchmarkLogAlone is what to compare it with.
func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{1, 500, 5000, 20000} {
		b.Run(fmt.Sprintf("window=%d", size), func(b *testing.B) {
			w := &window{}
			w.moved.L = &w.mu
			n := open(b, b.TempDir(), func(o *Options) { o.Replier = func(*front.Account) Replier { return w } })
			cfg := conf("bench", "bench.>")
			cfg.MaxBytes = 64 << 20
			top := n.create(cfg)
			read := make([]front.Captured, min(450, max(size/2, 1)))
			for i := range read {
				read[i] = front.Captured{
					Topic: top.ID(), Subject: []byte("bench.a"), Reply: []byte("_INBOX.abcdefghijklmnopqrstuv.01234567"),
					Payload: make([]byte, 128), Account: someAccount,
				}
			}
			w.run(min(200*size, 300000), size, read, top.Group().Capture) // warm up
			w.acked = 0
			b.ReportAllocs()
			before := cpu(b)
			b.ResetTimer()
			w.run(b.N, size, read, top.Group().Capture)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/msg")
		})
	}
}

// nothing is a state machine that does nothing.
type nothing struct{}

func (nothing) Apply(entries []replication.Entry) []any { return make([]any, len(entries)) }
func (nothing) Applied() topics.Index                   { return 0 }
func (nothing) Snapshot() (replication.Snapshot, error) { return nothingAtAll{}, nil }
func (nothing) Restore(io.Reader) error                 { return nil }

type nothingAtAll struct{}

func (nothingAtAll) Persist(io.Writer) error { return nil }
func (nothingAtAll) Release()                {}

// BenchmarkLogAlone is the log without the rest: entries as big as the batches of
// BenchmarkPublish are, in messages of 128 bytes per second.
func BenchmarkLogAlone(b *testing.B) {
	p := topics.Publish{Topic: 1, Subject: []byte("bench.a"), Payload: make([]byte, 128)}
	for _, kib := range []int{64, 256, 512} {
		b.Run(fmt.Sprintf("entry=%dKiB", kib), func(b *testing.B) {
			node, err := replication.Open(replication.Config{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := node.Close(); err != nil {
					b.Error(err)
				}
			}()
			g, err := node.Start(1, nothing{})
			if err != nil {
				b.Fatal(err)
			}
			per := kib << 10 / p.Size()
			propose := func(n int) {
				flight := make(chan *replication.Proposal, 1)
				go func() {
					for range (n + per - 1) / per {
						flight <- g.Propose(make([]byte, per*p.Size()))
					}
					close(flight)
				}()
				for pr := range flight {
					if _, _, err := pr.Result(); err != nil {
						b.Error(err)
					}
				}
			}
			propose(300000)
			before := cpu(b)
			b.ResetTimer()
			propose(b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/msg")
		})
	}
}

// BenchmarkPubAck is the encoding of one answer.
func BenchmarkPubAck(b *testing.B) {
	top := &Topic{ackHead: ackHead("orders")}
	r := topics.PublishResult{Sequence: 123456789}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = appendPubAck(buf[:0], top, "", &r)
	}
}

// BenchmarkCreateTopic is the whole creation of a topic, both groups and their
// disks, one after the other.
func BenchmarkCreateTopic(b *testing.B) {
	n := open(b, b.TempDir())
	i := 0
	for b.Loop() {
		n.create(conf(fmt.Sprint("t", i), fmt.Sprint("s.", i)))
		i++
	}
}

// BenchmarkOpen is starting a node that has a topic, and stopping it.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	n := open(b, dir)
	n.create(conf("t", "t"))
	n.close()
	for b.Loop() {
		n := openOnly(b, dir)
		if err := n.Start(Hooks{}); err != nil {
			b.Fatal(err)
		}
		n.close()
	}
}
