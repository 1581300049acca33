package eventtime_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/heraldmq/herald/operators/eventtime"
	"github.com/heraldmq/herald/operators/stream"
)

const second = stream.Time(time.Second)

func cfg() eventtime.Config {
	return eventtime.Config{Disorder: 4 * time.Second, IdleAfter: 30 * time.Second, MaxFuture: time.Minute}
}

func never(int) bool { return false }

func advance(t *testing.T, tr *eventtime.Tracker, clock, want stream.Time) {
	t.Helper()
	if got, _ := tr.Advance(clock); got != want {
		t.Errorf("at clock %d the watermark is %d, wanted %d", clock/second, got/second, want/second)
	}
}

func TestWatermarkIsTheSlowestInputs(t *testing.T) {
	tr := eventtime.New(cfg(), 2, 100*second)
	tr.Observe(0, 90*second, 100*second)
	advance(t, tr, 100*second, stream.TimeMin) // the other has said nothing
	tr.Observe(1, 80*second, 101*second)
	advance(t, tr, 101*second, 76*second)
	tr.Observe(0, 200*second, 150*second)
	advance(t, tr, 150*second, 76*second)
	tr.Observe(1, 70*second, 151*second)
	advance(t, tr, 151*second, 76*second) // it never goes back
	if v := tr.Observe(1, 75*second, 152*second); v != eventtime.Behind {
		t.Errorf("what is older than the watermark is %d", v)
	}
	if v := tr.Observe(1, 76*second, 152*second); v != eventtime.InTime {
		t.Errorf("what is as old as the watermark is %d", v)
	}
}

func TestFutureIsNotBelieved(t *testing.T) {
	tr := eventtime.New(cfg(), 1, 100*second)
	tr.Observe(0, 100*second, 100*second)
	if v := tr.Observe(0, 161*second, 100*second); v != eventtime.Suspect {
		t.Errorf("a minute and a second ahead is %d", v)
	}
	advance(t, tr, 100*second, 96*second)
	if v := tr.Observe(0, 160*second, 100*second); v != eventtime.InTime {
		t.Errorf("a minute ahead is %d", v)
	}
}

func TestIdleInputsAreLeftOut(t *testing.T) {
	tr := eventtime.New(cfg(), 2, 0)
	tr.Observe(0, 100*second, 50*second)
	if flips := tr.Decide(29*second, never); flips != nil {
		t.Errorf("after 29 s: %v", flips)
	}
	if got := tr.Next(); got != 30*second {
		t.Errorf("the next decision is due at %d s", got/second)
	}
	if flips := tr.Decide(30*second, func(i int) bool { return i == 1 }); flips != nil {
		t.Errorf("an input with records waiting is called idle: %v", flips)
	}
	flips := tr.Decide(30*second, never)
	if len(flips) != 1 || flips[0] != (eventtime.Flip{Input: 1, Idle: true}) {
		t.Fatalf("after 30 s: %v", flips)
	}
	tr.Flip(flips[0], 30*second)
	advance(t, tr, 50*second, 96*second)
	tr.Observe(1, 97*second, 60*second) // back again
	if tr.Idle(1) {
		t.Error("an input that gave a record is idle")
	}
	tr.Observe(0, 300*second, 61*second)
	advance(t, tr, 61*second, 96*second)
}

// With every input quiet, time goes on with the clock, from the newest record.
func TestAllIdleFollowsTheClock(t *testing.T) {
	c := cfg()
	c.MaxFuture = 0
	tr := eventtime.New(c, 2, 0)
	tr.Observe(0, 1000*second, 10*second)
	tr.Observe(1, 990*second, 10*second)
	for _, f := range tr.Decide(40*second, never) {
		tr.Flip(f, 40*second)
	}
	advance(t, tr, 40*second, 1000*second)
	if got := tr.Due(1060 * second); got != 100*second {
		t.Errorf("1060 is reached at clock %d, wanted 100", got/second)
	}
	advance(t, tr, 100*second, 1060*second)
	tr.Observe(0, 1061*second, 101*second)
	advance(t, tr, 200*second, 1060*second)
	if got := tr.Due(2000 * second); got != stream.TimeMax {
		t.Errorf("with an input awake 2000 is reached at %d", got)
	}
}

// A tracker that is written down and read at any point goes on as if nothing had been.
func TestStateIsComplete(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 7))
		a := eventtime.New(cfg(), 3, 0)
		b := eventtime.New(cfg(), 3, 0)
		clock := stream.Time(0)
		for range 200 {
			clock += stream.Time(rng.Int64N(int64(20 * second)))
			in, at := rng.IntN(3), clock-stream.Time(rng.Int64N(int64(100*second)))
			quiet := rng.IntN(3) == 0
			var verdicts []eventtime.Verdict
			for _, tr := range []*eventtime.Tracker{a, b} {
				if !quiet {
					verdicts = append(verdicts, tr.Observe(in, at, clock))
				}
				for _, f := range tr.Decide(clock, never) {
					tr.Flip(f, clock)
				}
				tr.Advance(clock)
			}
			if len(verdicts) == 2 && verdicts[0] != verdicts[1] || !bytes.Equal(a.AppendTo(nil), b.AppendTo(nil)) {
				t.Fatalf("seed %d: they differ", seed)
			}
			b = eventtime.New(cfg(), 3, 12345)
			if err := b.Load(a.AppendTo(nil), clock); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestLoadRefusesRubbish(t *testing.T) {
	good := eventtime.New(cfg(), 2, 5).AppendTo(nil)
	for cut := range good {
		if err := eventtime.New(cfg(), 2, 5).Load(good[:cut], 0); err == nil {
			t.Errorf("%d of %d bytes were taken", cut, len(good))
		}
	}
	tr := eventtime.New(cfg(), 3, 5)
	if err := tr.Load(good, 77*second); err != nil {
		t.Errorf("an input more: %v", err)
	}
	if got := tr.Next(); got != 30*second+5 {
		t.Errorf("next is %d", got)
	}
}
