package state

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// fakeLog holds what was proposed until the test lets it end.
type fakeLog struct{ all []*fakeProposal }

type fakeProposal struct {
	entry  []byte
	done   chan struct{}
	result any
	err    error
}

func (l *fakeLog) Propose(entry []byte) proposal {
	p := &fakeProposal{entry: entry, done: make(chan struct{})}
	l.all = append(l.all, p)
	return p
}

func (p *fakeProposal) Done() <-chan struct{}              { return p.done }
func (p *fakeProposal) Result() (topics.Index, any, error) { return 1, p.result, p.err }

// end ends proposal i: with err, or as if its publishes had been stored from seq on.
func (l *fakeLog) end(i int, err error) {
	p := l.all[i]
	p.err = err
	if err == nil {
		r := &results{}
		_, n, _ := topics.ParseEntryHeader(p.entry)
		for off := topics.EntryHeader; n > 0; n-- {
			kind, _, next, e := topics.NextRecord(p.entry, off)
			if e != nil {
				panic(e)
			}
			if kind == topics.RecordPublish {
				r.publishes = append(r.publishes, topics.PublishResult{Sequence: topics.Sequence(off)})
			} else {
				r.others = append(r.others, fmt.Sprint("record at ", off))
			}
			off = next
		}
		p.result = r
	}
	close(p.done)
	synctest.Wait()
}

// queueBench is a queue between a fake log and a replier that notes the acks.
type queueBench struct {
	*testing.T
	*queue
	log   *fakeLog
	acks  []string
	flush int
	clock topics.Nanos
	top   *Topic
	full  bool
	stuck bool
}

func (b *queueBench) Deliver(to, _, _ string, header, payload []byte) bool {
	b.acks = append(b.acks, strings.TrimSpace(fmt.Sprintf("%s %s%s", to, header, payload)))
	return true
}

func (b *queueBench) Answer(_, reply string, header, payload []byte) {
	b.Deliver(reply, reply, "", header, payload)
}

func (b *queueBench) Flush() { b.flush++ }

func newQueueBench(t *testing.T, cap int) *queueBench {
	b := &queueBench{T: t, log: &fakeLog{}, clock: 1000, top: &Topic{id: 1, name: "S", account: "A", ackHead: ackHead("S")}}
	a := &acker{replier: func(*front.Account) Replier { return b }}
	b.queue = newQueue(&queue{
		log: b.log, cap: cap, most: 3, now: func() topics.Nanos { return b.clock },
		find:    func(id topics.TopicID) (*Topic, bool) { return b.top, id == 1 },
		pressed: func() bool { return b.full }, stalled: func() bool { return b.stuck },
		answer: func(x *batch, result any, err error) {
			r, _ := result.(*results)
			a.answer(x, r, err)
		},
	})
	b.start()
	return b
}

func (b *queueBench) publish(names ...string) {
	var all []front.Captured
	for _, n := range names {
		all = append(all, front.Captured{Topic: 1, Subject: []byte("s"), Reply: []byte(n), Payload: make([]byte, 80)})
	}
	b.capture(all, origin{})
}

// sizes returns the number of records of each entry proposed.
func (b *queueBench) sizes() []int {
	b.mu.Lock() // a batch that was held back is proposed by a timer
	defer b.mu.Unlock()
	var n []int
	for _, p := range b.log.all {
		_, k, err := topics.ParseEntryHeader(p.entry)
		if err != nil {
			b.Fatal(err)
		}
		n = append(n, int(k))
	}
	return n
}

func (b *queueBench) wantSizes(want ...int) {
	b.Helper()
	if got := b.sizes(); !slices.Equal(got, want) {
		b.Fatalf("entries of %v records, want %v", got, want)
	}
}

func TestABatchGoesAtOnceAtIdleAndGathersOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newQueueBench(t, 1000)
		b.publish("a")
		b.wantSizes(1)
		b.publish("b", "c")
		b.publish("d")
		b.wantSizes(1)
		b.log.end(0, nil)
		b.wantSizes(1, 3)
		if b.flush != 1 || !slices.Equal(b.acks, []string{`a {"stream":"S","seq":16}`}) {
			t.Fatalf("acks %q in %d flushes", b.acks, b.flush)
		}
		b.log.end(1, nil)
		if want := []string{`b {"stream":"S","seq":16}`, `c {"stream":"S","seq":117}`, `d {"stream":"S","seq":218}`}; !slices.Equal(b.acks[1:], want) {
			t.Fatalf("acks %q, want %q", b.acks[1:], want)
		}
		b.stop()
	})
}

func TestAFullBatchGoesBesideOthersUpToABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newQueueBench(t, 200) // two publishes fill it
		for range 2 {
			b.publish("a", "b")
		}
		b.publish("c")
		b.wantSizes(2)
		b.publish("d") // twice full
		b.wantSizes(2, 4)
		b.publish("e", "f", "g", "h")
		b.wantSizes(2, 4, 4)
		b.publish("i", "j", "k", "l") // three are in flight: it waits
		b.wantSizes(2, 4, 4)
		entered := false
		go func() {
			b.publish("m")
			entered = true
		}()
		synctest.Wait()
		if entered {
			t.Fatal("a publisher got in although twice the cap is waiting")
		}
		b.log.end(0, nil)
		if !entered {
			t.Fatal("the publisher is still kept out")
		}
		b.wantSizes(2, 4, 4, 4)
		for i := 1; i < 5; i++ {
			b.log.end(i, nil)
		}
		b.wantSizes(2, 4, 4, 4, 1)
		if len(b.acks) != 15 {
			t.Fatalf("%d acks: %q", len(b.acks), b.acks)
		}
		b.stop()
	})
}

func TestTimeOfEntriesNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newQueueBench(t, 1000)
		b.resume(2000)
		for i, now := range []topics.Nanos{1500, 3000, 2500, 3500} {
			b.clock = now
			b.publish("a")
			b.log.end(i, nil)
		}
		var got []topics.Nanos
		for _, p := range b.log.all {
			at, _, err := topics.ParseEntryHeader(p.entry)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, at)
		}
		if want := []topics.Nanos{2000, 3000, 3000, 3500}; !slices.Equal(got, want) {
			t.Fatalf("times %v, want %v", got, want)
		}
		b.stop()
	})
}

func TestHowAProposalEndsIsToldHonestly(t *testing.T) {
	for _, c := range []struct {
		err  error
		ack  string
		done error
	}{
		{replication.ErrNoSpace, `a {"error":{"code":500,"err_code":10047,"description":"insufficient storage resources available"},"stream":"S","seq":0}`, faultNoSpace},
		{replication.ErrBusy, `a {"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"},"stream":"S","seq":0}`, ErrBusy},
		{replication.ErrNotLeader, "a NATS/1.0 503", replication.ErrNotLeader},
		{replication.ErrOutcomeUnknown, "", ErrUnknown},
		{replication.ErrClosed, "", ErrClosed},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newQueueBench(t, 1000)
			b.publish("first")
			b.publish("a")
			var got error
			b.submit(topics.RecordExpire, []byte("x"), func(_ any, err error) { got = err })
			b.log.end(0, nil)
			b.acks = nil
			b.log.end(1, fmt.Errorf("wrapped: %w", c.err))
			if s := strings.Join(b.acks, "|"); s != c.ack {
				t.Errorf("%v: ack %q, want %q", c.err, s, c.ack)
			}
			if !errors.Is(got, c.done) {
				t.Errorf("%v: done got %v, want %v", c.err, got, c.done)
			}
			b.stop()
		})
	}
}

func TestSubmitsRideAlongAndAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newQueueBench(t, 100)
		var got []string
		note := func(name string) func(any, error) {
			return func(r any, err error) { got = append(got, fmt.Sprint(name, " ", r, " ", err)) }
		}
		b.submit(topics.RecordExpire, make([]byte, 8), note("one"))
		b.publish("a")
		b.submit(topics.RecordExpire, make([]byte, 8), nil)
		b.submit(topics.RecordExpire, make([]byte, 8), note("two"))
		b.publish("b")
		for len(b.open.buf) < submitBoundFactor*100 {
			b.submit(topics.RecordExpire, make([]byte, 100), nil)
		}
		b.submit(topics.RecordExpire, make([]byte, 8), note("over"))
		for i := 0; i < len(b.log.all); i++ {
			b.log.end(i, nil)
		}
		want := []string{"one record at 16 <nil>", "over <nil> " + ErrBusy.Error(), "two record at 29 <nil>"}
		slices.Sort(got)
		if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || !strings.HasPrefix(got[2], "two record at ") {
			t.Fatalf("got %q", got)
		}
		b.stop()
		b.submit(topics.RecordExpire, nil, note("late"))
		if got[3] != "late <nil> "+ErrClosed.Error() {
			t.Fatalf("got %q", got[3])
		}
	})
}

func TestAFullStoreHoldsPublishersBackAndAStalledOneRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newQueueBench(t, 1000)
		b.publish("a")
		b.full = true
		b.log.end(0, nil)
		entered := false
		go func() {
			b.publish("b")
			entered = true
		}()
		synctest.Wait()
		if entered {
			t.Fatal("a publisher got in although the store is full")
		}
		b.stuck = true
		b.relieve()
		synctest.Wait()
		if !entered || len(b.log.all) != 1 || !strings.Contains(b.acks[1], "10047") {
			t.Fatalf("entered %t, %d proposals, acks %q", entered, len(b.log.all), b.acks)
		}
		b.submit(topics.RecordPurge, nil, nil) // what makes room still goes
		if len(b.log.all) != 2 {
			t.Fatal("a purge was held back")
		}
		b.log.end(1, nil)
		b.full, b.stuck = false, false
		b.relieve()
		b.publish("c")
		b.log.end(2, nil)
		b.stop()
	})
}

func TestStopWaitsForWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newQueueBench(t, 1000)
		b.publish("a")
		b.publish("b")
		stopped := false
		go func() {
			b.stop()
			stopped = true
		}()
		synctest.Wait()
		b.publish("late")
		b.log.end(0, nil)
		if stopped {
			t.Fatal("stopped before b was answered")
		}
		b.log.end(1, nil)
		if !stopped || len(b.acks) != 2 {
			t.Fatalf("stopped %t, acks %q", stopped, b.acks)
		}
	})
}
