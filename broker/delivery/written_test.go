package delivery

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heraldmq/herald/topics"
)

// stop has the log stand still; the function returned lets it go on.
func (w *world) stop() (resume func()) {
	halt := make(chan struct{})
	w.mu.Lock()
	w.halt = halt
	w.mu.Unlock()
	resume = sync.OnceFunc(func() {
		w.mu.Lock()
		w.halt = nil
		w.mu.Unlock()
		close(halt)
	})
	w.t.Cleanup(resume)
	return resume
}

// depose has another leader take over with what was written: what was not is lost.
func (w *world) depose(resume func()) {
	w.mu.Lock()
	w.lost = errors.New("another leads")
	w.mu.Unlock()
	w.e.Lead(false)
	if resume != nil {
		resume()
	}
	synctest.Wait()
	w.mu.Lock()
	w.lost = nil
	w.mu.Unlock()
	w.e.Lead(true)
}

func byToken(wait time.Duration) topics.ConsumerConfig {
	return topics.ConsumerConfig{AckWait: wait, MaxAckPending: 100, Metadata: map[string]string{"herald.key": "token:2"}}
}

func TestByKeyNothingIsSentBeforeItIsWritten(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.consumer("c", byToken(10*time.Second))
		w.publish("o.a", "o.a", "o.b")
		resume := w.stop()
		w.pull("c", "in", `{"batch":10,"expires":60000000000}`)
		w.pass(time.Second)
		w.want("in")
		resume()
		w.pass(time.Second)
		got := w.want("in", "m1", "m3")

		resume = w.stop()
		w.ack(got[0], "", "")
		w.pass(time.Second)
		w.want("in") // m2 would be with a client before it is written that m1 was acknowledged
		w.depose(resume)
		ends := brief(w.take("in")) // m2 doesn't come, nor does anything else
		slices.Sort(ends)           // one is of the request, one of what was held: by different goroutines
		if !slices.Equal(ends, []string{"408 Request Timeout", "409 Leadership Change"}) {
			t.Fatalf("to in: %q", ends)
		}
		w.pull("c", "next", `{"batch":10,"expires":60000000000}`)
		w.pass(6 * time.Second)
		w.want("next") // m1 may be with a client still
		w.pass(4 * time.Second)
		got = w.want("next", "m1", "m3")
		w.ack(got[0], "", "")
		w.pass(time.Second)
		w.want("next", "m2")
	})
}

func TestByKeyAnAnswerStaysBehindWhatWasHeld(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.consumer("c", byToken(10*time.Second))
		w.publish("o.a")
		resume := w.stop()
		w.pull("c", "in", `{"batch":2,"expires":1000000000}`)
		w.pass(2 * time.Second)
		w.want("in")
		resume()
		w.pass(time.Second)
		w.want("in", "m1", "408 Request Timeout")
	})
}

func TestByKeyWhatCantBeWrittenIsNotSent(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.consumer("c", byToken(10*time.Second))
		w.publish("o.a")
		w.mu.Lock()
		w.refuse = errors.New("no")
		w.mu.Unlock()
		w.pull("c", "in", `{"batch":1,"expires":60000000000}`)
		w.pass(100 * time.Millisecond)
		w.want("in", "408 Request Timeout") // the request has been taken for served
		w.mu.Lock()
		w.refuse = nil
		w.mu.Unlock()
		w.pass(time.Second)
		w.pull("c", "in", `{"batch":1,"expires":60000000000}`)
		w.pass(time.Second)
		got := w.want("in", "m1")
		if !strings.Contains(got[0].reply, ".1.1.") {
			t.Errorf("what was never sent counts: %s", got[0].reply)
		}
	})
}

func TestByKeyWhatIsWrittenTooLateIsNotSent(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.consumer("c", byToken(2*time.Second))
		w.publish("o.a", "o.a")
		resume := w.stop()
		w.pull("c", "in", `{"batch":1,"expires":1000000000}`)
		w.pass(3 * time.Second)
		resume()
		w.pass(time.Second)
		w.want("in", "408 Request Timeout")
		w.pull("c", "in", `{"batch":5,"expires":60000000000}`)
		w.pass(time.Second)
		got := w.want("in", "m1")
		w.ack(got[0], "", "")
		w.pass(time.Second)
		w.want("in", "m2")
	})
}

// Whatever is lost with a leader: of a key nothing is sent while another message of it may
// be in work, and nothing is passed over.
func TestByKeyNeverTwoOfAKeyAcrossLeaders(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) { neverTwoOfAKey(t, w, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func neverTwoOfAKey(t *testing.T, w *world, rnd *rand.Rand) {
	const wait, keys, each = 3 * time.Second, 3, 12
	w.consumer("c", byToken(wait))
	for i := range keys * each {
		w.publish(fmt.Sprintf("o.%d", i%keys))
	}
	type work struct {
		sent
		until time.Time // when it is no longer in flight
	}
	busy := map[string]map[string]work{} // by key and message
	done := map[string]int{}             // of each key, in order
	var resume func()
	over := 0
	for step := 0; over < keys*each; step++ {
		if step > 20000 {
			t.Fatalf("it stands still after %d: %v", over, done)
		}
		now := time.Now()
		for _, s := range w.take("in") {
			if s.status() != "" {
				continue
			}
			for m, x := range busy[s.subject] {
				if m != s.payload && now.Before(x.until) {
					t.Fatalf("%s of %s is sent while %s is in flight", s.payload, s.subject, m)
				}
			}
			if busy[s.subject] == nil {
				busy[s.subject] = map[string]work{}
			}
			busy[s.subject][s.payload] = work{s, now.Add(wait)}
		}
		switch n := rnd.IntN(10); {
		case n < 4: // somebody is done
			for key, list := range busy {
				for m, x := range list {
					delete(list, m)
					var seq, k int
					if _, err := fmt.Sscanf(m+" "+key, "m%d o.%d", &seq, &k); err != nil {
						t.Fatal(err)
					}
					if place := (seq - 1) / keys; place > done[key] {
						t.Fatalf("%s of %s comes before what precedes it: %d are done", m, key, done[key])
					} else if place == done[key] {
						done[key]++
						over++
					}
					if rnd.IntN(8) > 0 { // or it forgets to say so
						w.e.Ack("A", []byte(x.reply), nil, nil)
					}
					break
				}
				break
			}
		case n < 7:
			w.pull("c", "in", fmt.Sprintf(`{"batch":%d,"expires":%d}`, 1+rnd.IntN(4), time.Second))
		case n == 7 && resume == nil:
			resume = w.stop()
		case n == 8 && resume != nil:
			resume()
			resume = nil
		case n == 9 && rnd.IntN(3) == 0:
			w.depose(resume)
			resume = nil
		}
		w.pass(time.Duration(rnd.IntN(400)) * time.Millisecond)
	}
}
