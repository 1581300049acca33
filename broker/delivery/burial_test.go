package delivery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// fakeLetters is topics that keep letters, and know how far each consumer has come.
type fakeLetters struct {
	mu     sync.Mutex
	keeper topics.TopicID          // 0: none
	at     map[string]topics.Place // by topic and consumer
	bodies map[topics.TopicID][]string
	sent   int
	before func(p *Parcel) error // refuses it as it is
	lose   func() bool           // the question, or the answer
}

var errLost = errors.New("lost on the way")

func (l *fakeLetters) Keeper(string, string) (topics.TopicID, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keeper, l.keeper != 0
}

func (l *fakeLetters) Send(_ context.Context, p *Parcel) (Fate, error) {
	return l.decide(p, true)
}

func (l *fakeLetters) Close(_ context.Context, p *Parcel) (Fate, error) {
	return l.decide(p, false)
}

func (l *fakeLetters) decide(p *Parcel, send bool) (Fate, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	if l.lose != nil && l.lose() {
		return Unknown, errLost
	}
	k := fmt.Sprint(p.To, " ", p.Consumer)
	if l.at == nil {
		l.at, l.bodies = map[string]topics.Place{}, map[topics.TopicID][]string{}
	}
	if l.at[k].Epoch < p.Number {
		if send && l.before != nil {
			if err := l.before(p); err != nil {
				return Refused, err
			}
		}
		l.at[k] = topics.Place{Epoch: p.Number, Seq: topics.LetterClosed}
		if send {
			l.at[k] = topics.Place{Epoch: p.Number, Seq: topics.LetterStored}
			for _, m := range p.Letters {
				l.bodies[p.To] = append(l.bodies[p.To], string(m.Payload))
			}
		}
	}
	if l.lose != nil && l.lose() {
		return Unknown, errLost
	}
	if at := l.at[k]; at.Epoch != p.Number || at.Seq != topics.LetterStored {
		p.Behind = at.Epoch
		return Closed, nil
	}
	return Stored, nil
}

func (l *fakeLetters) with(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// times counts the letters of each message.
func (l *fakeLetters) times() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[string]int{}
	for _, list := range l.bodies {
		for _, b := range list {
			n[b]++
		}
	}
	return n
}

// mortal makes a consumer whose messages die after one delivery, and has n of them die.
func mortal(w *world, l *fakeLetters, n int) {
	w.e.o.Letters = l
	w.consumer("c", topics.ConsumerConfig{
		AckWait: time.Second, MaxDeliver: 1, MaxAckPending: 1000, Metadata: map[string]string{consumer.KeyDeadSubject: "dead"},
	})
	for range n {
		w.publish("a")
	}
	w.pull("c", "in", fmt.Sprintf(`{"batch":%d,"expires":1000000000}`, n))
	w.pass(2 * time.Second)
	w.take("in")
}

func (w *world) pending() int {
	w.topic.mu.RLock()
	defer w.topic.mu.RUnlock()
	return w.topic.consumers["c"].NumAckPending()
}

// refuses returns a topic's refusal of some letters.
func refuses(bodies ...string) func(*Parcel) error {
	return func(p *Parcel) error {
		for _, m := range p.Letters {
			for _, b := range bodies {
				if string(m.Payload) == b {
					return errors.New(b + " is too large")
				}
			}
		}
		return nil
	}
}

func TestManyLettersLeaveInFewParcels(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		l := &fakeLetters{keeper: 3}
		mortal(w, l, 300)
		w.pass(time.Second)
		if n := len(l.times()); n != 300 || w.pending() != 0 || l.sent > 5 {
			t.Errorf("%d letters in %d parcels, %d pending", n, l.sent, w.pending())
		}
		if d := w.info("c").Dead; d.Moved != 300 || d.Waiting != 0 || d.Failed != 0 {
			t.Errorf("stats %+v", d)
		}
	})
}

// TestLettersThatAreRefusedHoldUpNoOthers: they are found, wait, and are stored in the end.
func TestLettersThatAreRefusedHoldUpNoOthers(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		l := &fakeLetters{keeper: 3, before: refuses("m7", "m8", "m90")}
		mortal(w, l, 100)
		w.pass(5 * time.Second)
		if n := len(l.times()); n != 97 || w.pending() != 3 || l.sent > 300 {
			t.Fatalf("%d letters, %d pending, after %d questions", n, w.pending(), l.sent)
		}
		d := w.info("c").Dead
		if d.Waiting != 3 || d.Failed == 0 || !strings.Contains(d.LastError, "too large") {
			t.Errorf("stats %+v", d)
		}
		w.publish("a") // which dies behind them
		w.pull("c", "in", `{"batch":1,"expires":1000000000}`)
		w.pass(40 * time.Second)
		if l.times()["m101"] != 1 {
			t.Error("the next one waits for those that are refused")
		}
		l.with(func() { l.before = refuses("m8") })
		w.pass(40 * time.Second)
		if w.pending() != 1 { // a lone one, which is sent as it is
			t.Errorf("%d pending", w.pending())
		}
		l.with(func() { l.before, l.sent = nil, 0 })
		w.pass(40 * time.Second)
		for body, n := range l.times() {
			if n != 1 {
				t.Errorf("%s has %d letters", body, n)
			}
		}
		if n := len(l.times()); n != 101 || w.pending() != 0 || l.sent != 1 {
			t.Errorf("%d letters, %d pending, %d parcels for the last", n, w.pending(), l.sent)
		}
	})
}

// TestLettersFollowTheirSubjectToAnotherTopic: what the topic before has stored, though
// nobody knows, is not stored by the next one; what it has not, it never does.
func TestLettersFollowTheirSubjectToAnotherTopic(t *testing.T) {
	for name, had := range map[string]bool{"stored": true, "not stored": false} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				l := &fakeLetters{keeper: 3}
				asked := 0
				l.lose = func() bool { asked++; return !had || asked%2 == 0 }
				mortal(w, l, 3)
				w.pass(time.Second)
				l.with(func() { l.keeper = 0 })
				w.pass(20 * time.Second)
				l.with(func() { l.keeper, l.lose = 4, nil })
				w.pass(20 * time.Second)
				want := map[topics.TopicID]int{3: 3}
				if !had {
					want = map[topics.TopicID]int{4: 3}
				}
				l.with(func() {
					if len(l.bodies[3]) != want[3] || len(l.bodies[4]) != want[4] || w.pending() != 0 {
						t.Errorf("letters %v, %d pending", l.bodies, w.pending())
					}
				})
			})
		})
	}
}

// TestALetterWhoseMessageIsGoneDoesNotHoldUpTheParcel: it was purged after the parcel began.
func TestALetterWhoseMessageIsGoneDoesNotHoldUpTheParcel(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		l := &fakeLetters{keeper: 3, lose: func() bool { return true }}
		mortal(w, l, 3)
		w.remove(2)
		l.with(func() { l.lose, l.sent = nil, 0 })
		w.pass(20 * time.Second)
		if n := l.times(); n["m1"] != 1 || n["m2"] != 0 || n["m3"] != 1 || w.pending() != 0 || l.sent != 1 {
			t.Errorf("letters %v, %d pending, after %d questions", n, w.pending(), l.sent)
		}
	})
}

// TestDeadLettersAreStoredOnceWhateverIsLost: leaders go in every state of a parcel, with
// what is not written yet; questions and answers are lost, and letters refused for a while.
func TestDeadLettersAreStoredOnceWhateverIsLost(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				rnd, fate := rand.New(rand.NewPCG(seed, 7)), rand.New(rand.NewPCG(seed, 8))
				l := &fakeLetters{keeper: 3}
				l.lose = func() bool { return fate.IntN(4) == 0 }
				l.before = func(*Parcel) error {
					if fate.IntN(4) == 0 {
						return errors.New("not now")
					}
					return nil
				}
				const total = 40
				mortal(w, l, total)
				var resume func()
				for range 60 {
					switch n := rnd.IntN(8); {
					case n == 0 && resume == nil:
						resume = w.stop()
					case n == 1 && resume != nil:
						resume()
						resume = nil
					case n == 2:
						w.depose(resume)
						resume = nil
					case n == 3:
						l.with(func() { l.keeper = topics.TopicID(3 + rnd.IntN(2)) })
					}
					w.pull("c", "in", fmt.Sprintf(`{"batch":%d,"expires":100000000}`, total))
					w.pass(time.Duration(rnd.IntN(300)) * time.Millisecond)
				}
				if resume != nil {
					resume()
				}
				l.with(func() { l.lose, l.before = nil, nil })
				for range 20 {
					w.pull("c", "in", fmt.Sprintf(`{"batch":%d,"expires":100000000}`, total))
					w.pass(5 * time.Second)
				}
				times := l.times()
				for i := range total {
					if n := times[fmt.Sprint("m", i+1)]; n != 1 {
						t.Errorf("message %d has %d letters", i+1, n)
					}
				}
				if w.pending() != 0 {
					t.Errorf("%d are pending", w.pending())
				}
			})
		})
	}
}
