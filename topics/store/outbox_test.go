package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heraldmq/herald/topics"
)

// TestWhatAnOutboxSendsIsStoredOnceWhereverTheTopicIs sends an outbox's numbers again and
// again, in any order, to both stores that a topic moves between: each is stored once.
func TestWhatAnOutboxSendsIsStoredOnceWhereverTheTopicIs(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := &mover{T: t, rng: rand.New(rand.NewPCG(seed, 2))}
			m.from, m.to = openFeeder(t, t.TempDir()), openFeeder(t, t.TempDir())
			cfg := topics.Config{
				Name: "T", Subjects: []string{"t.>"}, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPer: -1,
				Retention: topics.RetainLimits, Storage: topics.StoreFile, Discard: topics.DiscardOld,
			}
			m.from.do(func() { _ = m.from.s.CreateTopic(movedTopic, "A", cfg, m.from.now) })
			const box = topics.OutboxBit | 9
			send := func(f *feeder, epoch, seq uint64) topics.GuardResult {
				g := topics.Guard{Producer: box, Partition: 3, Epoch: epoch, Seq: seq, Records: 1}
				f.index++
				return guarded(f.s, f.now, g, []topics.Publish{pub(movedTopic, "t.x", "", fmt.Sprint(epoch, ":", seq))})
			}
			var want []string
			epoch, seq := uint64(1), uint64(0)
			for range 6 {
				for range 30 {
					e, n := epoch, max(seq+uint64(m.rng.IntN(4)), 2)-2
					if m.rng.IntN(12) == 0 {
						e, n = epoch+1, uint64(m.rng.IntN(3))
					}
					verdict := topics.GuardRefused
					switch {
					case e == epoch && n == seq+1, e == epoch+1 && n == 1:
						verdict, epoch, seq = topics.GuardNext, e, n
						want = append(want, fmt.Sprint(e, ":", n))
					case e == epoch && n > 0 && n <= seq:
						verdict = topics.GuardDone
					}
					if r := send(m.from, e, n); r.Verdict != verdict || r.At.Seq != seq && seq > 0 {
						t.Fatalf("%d/%d: %+v, wanted %d behind %d/%d", e, n, r, verdict, epoch, seq)
					}
					if r := send(m.to, epoch, seq+1); r.Verdict != topics.GuardRefused || r.Fault == nil {
						t.Fatalf("taken where the topic is not: %+v", r)
					}
				}
				m.moveWithout(m.rng.IntN(2) == 0)
			}
			tp := m.from.s.Topic(movedTopic)
			messages, _, err := tp.Read(nil, 1, 1<<20, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range messages {
				got = append(got, string(x.Payload))
			}
			if !slices.Equal(got, want) {
				t.Errorf("stored %v, wanted %v", got, want)
			}
			if at := tp.OutboxPlace(box, 3); at != (topics.Place{Epoch: epoch, Seq: seq}) {
				t.Errorf("it has come to %+v", at)
			}
			listed := false
			m.from.s.Producers(func(id, _ uint64) bool { listed = listed || id == box; return true })
			if !listed {
				t.Error("the outbox is not among the producers")
			}
			m.from.do(func() { m.from.s.Declare(box, 0) })
			if at := tp.OutboxPlace(box, 3); at.Epoch != 0 {
				t.Errorf("after it was removed it is at %+v", at)
			}
		})
	}
}

// moveWithout moves the topic once, without any other change on the way.
func (m *mover) moveWithout(reopen bool) {
	m.number++
	m.pass++
	m.step(m.from, m.pass, MoveFreeze, nil)
	m.copy(true)
	if reopen {
		m.to = m.reopen(m.to)
	}
	m.finish()
}
