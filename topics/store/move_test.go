package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// mover copies a topic between the stores of two feeders, as two groups would.
type mover struct {
	*testing.T
	rng      *rand.Rand
	from, to *feeder
	number   uint64
	pass     uint64
}

const movedTopic = topics.TopicID(7)

func (m *mover) step(f *feeder, pass uint64, step MoveStep, body []byte) (did Moved, fault *topics.Fault) {
	m.Helper()
	f.do(func() {
		var err error
		if did, fault, err = f.s.Move(movedTopic, m.number, pass, step, body); err != nil {
			m.Fatal(err)
		}
	})
	return did, fault
}

// copy copies what there is; the last time the rest too.
func (m *mover) copy(last bool) {
	m.Helper()
	pass := m.pass
	err := m.from.s.Depart(movedTopic, pass, last, m.to.s.Arriving(movedTopic, m.number), func(s MoveStep, body []byte) error {
		if _, f := m.step(m.to, pass, s, body); f != nil {
			return f
		}
		if m.rng.IntN(4) == 0 {
			_, _ = m.step(m.to, pass, s, body) // again, which must do no harm, or is refused
		}
		return nil
	})
	if err != nil {
		m.Fatalf("pass %d: %v", pass, err)
	}
}

// churn does something to the topic.
func (m *mover) churn(f *feeder) {
	r := m.rng
	f.now += topics.Nanos(r.IntN(int(200 * time.Millisecond)))
	tp := f.s.Topic(movedTopic)
	first, last := tp.Bounds()
	some := first + topics.Sequence(r.IntN(max(int(last)-int(first), 1)))
	switch r.IntN(12) {
	default:
		for range r.IntN(40) {
			head := ""
			switch r.IntN(6) {
			case 0:
				head = fmt.Sprintf("NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n", r.IntN(100))
			case 1:
				head = fmt.Sprintf("NATS/1.0\r\nNats-TTL: %ds\r\n\r\n", 1+r.IntN(5))
			case 2:
				head = "NATS/1.0\r\nX: y\r\n\r\n"
			}
			f.publish(pub(movedTopic, fmt.Sprintf("t.%d", r.IntN(9)), head, fmt.Sprint(r.IntN(1000))))
		}
	case 0:
		f.do(func() { f.s.DeleteMessage(movedTopic, some) })
	case 1:
		f.do(func() { f.s.Expire(movedTopic) })
	case 2:
		f.do(func() { f.s.Purge(movedTopic, Purge{Subject: "t.3", Keep: 1}) })
	case 3:
		f.do(func() { f.s.SkipTo(movedTopic, last+topics.Sequence(r.IntN(9000))) })
	case 4:
		if r.IntN(3) == 0 {
			f.do(func() { f.s.Purge(movedTopic, Purge{Sequence: some}) })
		}
	case 5:
		name := fmt.Sprintf("c%d", r.IntN(4))
		f.do(func() {
			if !f.s.DeleteConsumer(movedTopic, name) {
				f.s.CreateConsumer(movedTopic, name, topics.ConsumerConfig{Name: name, AckPolicy: topics.AckExplicit, AckWait: time.Minute, MaxAckPending: 100})
			}
		})
	case 6, 7:
		tp.Consumers(func(c *consumer.Consumer) bool {
			id := c.ID()
			c.Lead(tp)
			for range r.IntN(10) {
				if seq, ok := c.Next(f.now); ok {
					c.Deliver(seq, f.now)
					if r.IntN(2) == 0 {
						c.Ack(seq, f.now)
					}
				}
			}
			for _, rec := range c.Records(nil) {
				f.do(func() {
					apply := f.s.Delivered
					if rec.Kind == topics.RecordAcked {
						apply = f.s.Acked
					}
					if err := apply(movedTopic, id, rec.Body); err != nil {
						m.Error(err)
					}
				})
			}
			return true
		})
	case 8:
		if err := f.s.Flush(); err != nil {
			m.Fatal(err)
		}
	}
}

// TestATopicThatMovesIsTheSame moves a topic to and fro between two stores while
// everything happens to it, opens them again now and then, and compares.
func TestATopicThatMovesIsTheSame(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := &mover{T: t, rng: rand.New(rand.NewPCG(seed, 1))}
			m.from, m.to = openFeeder(t, t.TempDir()), openFeeder(t, t.TempDir())
			cfg := topics.Config{
				Name: "T", Subjects: []string{"t.>"}, MaxMsgs: []int64{-1, 400}[seed%2], MaxBytes: -1, MaxMsgsPer: []int64{-1, 30, -1}[seed%3],
				Retention: []topics.Retention{topics.RetainLimits, topics.RetainLimits, topics.RetainWorkQueue}[seed%3],
				Storage:   topics.StoreFile, Discard: topics.DiscardOld, Duplicates: 3 * time.Second, AllowMsgTTL: true, AllowRollup: true,
			}
			if cfg.Retention == topics.RetainWorkQueue {
				cfg.MaxConsumers = 1
			}
			m.from.do(func() { _ = m.from.s.CreateTopic(movedTopic, "A", cfg, m.from.now) })
			for range 4 {
				m.moveOnce()
			}
		})
	}
}

func (m *mover) moveOnce() {
	m.number++
	for range m.rng.IntN(30) {
		m.churn(m.from)
	}
	m.pass++
	m.copy(false)
	if m.rng.IntN(3) == 0 {
		m.to = m.reopen(m.to)
	}
	for range m.rng.IntN(20) {
		m.churn(m.from)
	}
	m.pass++
	m.copy(false)
	for range 1 + m.rng.IntN(2) { // a pass that is given up, now and then
		for range m.rng.IntN(10) {
			m.churn(m.from)
		}
		m.pass++
		if did, f := m.step(m.from, m.pass, MoveFreeze, nil); did != MovedAway || f != nil {
			m.Fatalf("freeze: %d, %v", did, f)
		}
		if m.from.s.Topic(movedTopic) != nil || m.from.publish(pub(movedTopic, "t.x", "", ""))[0].Fault == nil {
			m.Fatal("a frozen topic is served")
		}
		m.copy(true)
		if m.rng.IntN(2) == 0 {
			break
		}
		if did, _ := m.step(m.from, m.pass-1, MoveThaw, nil); did != MovedNothing {
			m.Fatal("a thaw of an earlier pass had an effect")
		}
		if did, _ := m.step(m.from, m.pass, MoveThaw, nil); did != MovedHere {
			m.Fatal("not thawed")
		}
		if err := m.from.s.Depart(movedTopic, m.pass, true, MoveCursor{}, nil); !errors.Is(err, ErrNotFrozen) {
			m.Fatalf("a copy was made whole of a topic that is not frozen: %v", err)
		}
	}
	if m.from.s.Topic(movedTopic) != nil {
		m.pass++
		m.step(m.from, m.pass, MoveFreeze, nil)
		m.copy(true)
	}
	m.finish()
}

func (m *mover) finish() {
	if m.rng.IntN(2) == 0 {
		m.to, m.from = m.reopen(m.to), m.reopen(m.from)
	}
	if c := m.to.s.Arriving(movedTopic, m.number); c.Complete != m.pass {
		m.Fatalf("the copy says %+v, want complete with %d", c, m.pass)
	}
	was := m.from.s.topics[movedTopic]
	want, err := was.Digest()
	if err != nil {
		m.Fatal(err)
	}
	state := was.State()
	if did, f := m.step(m.to, m.pass, MoveOpen, nil); did != MovedHere || f != nil {
		m.Fatalf("open: %d, %v", did, f)
	}
	if did, f := m.step(m.to, m.pass, MoveOpen, nil); did != MovedNothing || f != nil {
		m.Fatalf("open again: %d, %v", did, f)
	}
	if did, _ := m.step(m.to, m.pass, MoveDrop, nil); did != MovedNothing {
		m.Fatal("what is live was dropped")
	}
	if did, f := m.step(m.from, m.pass, MoveDrop, nil); did != MovedOut || f != nil {
		m.Fatalf("drop: %d, %v", did, f)
	}
	if m.rng.IntN(2) == 0 {
		m.to = m.reopen(m.to)
	}
	now := m.to.s.Topic(movedTopic)
	got, err := now.Digest()
	if err != nil {
		m.Fatal(err)
	}
	if st := now.State(); got != want || !reflect.DeepEqual(st, state) {
		m.Fatalf("move %d: digest %x, want %x; state %+v, want %+v", m.number, got, want, st, state)
	}
	m.to.now = max(m.to.now, m.from.now)
	m.from, m.to = m.to, m.from
}

func openFeeder(t *testing.T, dir string) *feeder {
	s, err := Open(Options{Dir: dir, FlushInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	f := &feeder{t: t, s: s, now: 1_000_000_000, index: s.Applied()}
	t.Cleanup(func() {
		if err := f.s.Close(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	return f
}

func (m *mover) reopen(f *feeder) *feeder {
	if err := f.s.Close(); err != nil {
		m.Fatal(err)
	}
	n := openFeeder(m.T, f.s.Dir())
	n.now = f.now
	return n
}
