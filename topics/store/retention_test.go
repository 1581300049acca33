package store

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// work drives one consumer: a live copy reads, delivers and acknowledges, and
// what it did is applied.
func (w *world) work(rt *rapid.T, id topics.TopicID, name string) {
	tp := w.s.Topic(id)
	c := tp.Consumer(name)
	c.Lead(tp)
	var delivered []topics.Sequence
	for range rapid.IntRange(1, 20).Draw(rt, "deliveries") {
		seq, ok := c.Next(w.now)
		if !ok {
			break
		}
		c.Deliver(seq, w.now)
		delivered = append(delivered, seq)
	}
	for _, seq := range delivered {
		if rapid.IntRange(0, 2).Draw(rt, "ack") > 0 {
			c.Ack(seq, w.now)
		}
	}
	for _, r := range c.Records(nil) {
		w.entry(func(s *Store) any {
			if r.Kind == topics.RecordDelivered {
				return s.Delivered(id, c.ID(), r.Body)
			}
			return s.Acked(id, c.ID(), r.Body)
		})
	}
}

func (w *world) publishPlain(rt *rapid.T, id topics.TopicID) {
	n := rapid.IntRange(1, 30).Draw(rt, "n")
	entry := topics.AppendEntryHeader(nil, w.now)
	for range n {
		p := pub(id, rapid.SampledFrom(testSubjects).Draw(rt, "subject"), "", "payload")
		entry = topics.AppendPublish(entry, &p)
	}
	topics.SetRecords(entry, uint32(n))
	w.entryOf(entry)
}

// checkInterest checks that a topic holds exactly what its consumers need.
func (w *world) checkInterest(tp *Topic) {
	var all []*consumer.Consumer
	tp.Consumers(func(c *consumer.Consumer) bool { all = append(all, c); return true })
	msgs, _, err := tp.Read(nil, 0, 1<<20, 0, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range msgs {
		if !slices.ContainsFunc(all, func(c *consumer.Consumer) bool {
			return c.Filter().Match(m.Subject) && c.Needs(m.Sequence)
		}) {
			w.t.Fatalf("message %d on %s is kept and no consumer needs it", m.Sequence, m.Subject)
		}
	}
}

func TestRetentionByConsumers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: rt, dir: t.TempDir(), models: make(map[topics.TopicID]*model), now: 1000 * second}
		w.open()
		mirror, err := Open(Options{Dir: filepath.Join(t.TempDir(), "mirror"), FlushInterval: time.Hour, FlushBytes: 1 << 30, TailBytes: 1 << 31})
		if err != nil {
			rt.Fatal(err)
		}
		w.mirror = mirror
		defer func() { _ = w.mirror.Close(); _ = w.s.Close() }()
		const queue, interest = topics.TopicID(1), topics.TopicID(2)
		created := w.now
		w.entry(func(s *Store) any {
			return s.CreateTopic(queue, "A", topics.Config{Name: "Q", Retention: topics.RetainWorkQueue}, created)
		})
		w.entry(func(s *Store) any {
			return s.CreateTopic(interest, "A", topics.Config{Name: "I", Retention: topics.RetainInterest}, created)
		})
		names := map[topics.TopicID][]string{}
		filters := []string{"", "a", "a.*", "b.>"}
		rt.Repeat(map[string]func(*rapid.T){
			"publish":  func(rt *rapid.T) { w.publishPlain(rt, queue); w.publishPlain(rt, interest) },
			"publish2": func(rt *rapid.T) { w.publishPlain(rt, queue); w.publishPlain(rt, interest) },
			"create": func(rt *rapid.T) {
				id := rapid.SampledFrom([]topics.TopicID{queue, interest}).Draw(rt, "topic")
				w.consumer++
				name := fmt.Sprint("c", w.consumer)
				cfg := topics.ConsumerConfig{
					Durable: name, AckPolicy: topics.AckExplicit, MaxDeliver: -1, MaxAckPending: -1,
					DeliverPolicy: topics.DeliverAll, AckWait: 30 * time.Second,
					FilterSubject: rapid.SampledFrom(filters).Draw(rt, "filter"),
				}
				if id == interest && rapid.Bool().Draw(rt, "new") {
					cfg.DeliverPolicy = topics.DeliverNew
				}
				if id == interest && rapid.IntRange(0, 3).Draw(rt, "none") == 0 {
					cfg.AckPolicy = topics.AckNone
				}
				ok := w.entry(func(s *Store) any {
					cid, f := s.CreateConsumer(id, name, cfg)
					if f != nil {
						return f.ErrCode
					}
					return cid
				})
				if _, made := ok.(topics.ConsumerID); made {
					names[id] = append(names[id], name)
				}
			},
			"drop": func(rt *rapid.T) {
				id := rapid.SampledFrom([]topics.TopicID{queue, interest}).Draw(rt, "topic")
				if len(names[id]) == 0 || rapid.IntRange(0, 2).Draw(rt, "really") > 0 {
					rt.Skip("none")
				}
				i := rapid.IntRange(0, len(names[id])-1).Draw(rt, "which")
				name := names[id][i]
				w.entry(func(s *Store) any { return s.DeleteConsumer(id, name) })
				names[id] = slices.Delete(slices.Clone(names[id]), i, i+1)
			},
			"work": func(rt *rapid.T) {
				for _, id := range []topics.TopicID{queue, interest} {
					for _, name := range names[id] {
						w.work(rt, id, name)
					}
				}
			},
			"time":   func(rt *rapid.T) { w.now += topics.Nanos(rapid.IntRange(0, 40).Draw(rt, "seconds")) * second },
			"flush":  func(rt *rapid.T) { mustFlush(rt, w.s) },
			"flush2": func(rt *rapid.T) { mustFlush(rt, w.s) },
			"kill":   func(*rapid.T) { w.kill(t) },
			"": func(*rapid.T) {
				w.check()
				w.checkInterest(w.s.Topic(interest))
			},
		})
	})
}

func mustFlush(t rapid.TB, s *Store) {
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
}
