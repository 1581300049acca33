package observe

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/front"
)

type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func bench() (*Account, *clock) {
	c := &clock{at: time.Unix(1e9, 0)}
	return New(c.now, nil), c
}

// publish counts one message as a session would.
func publish(t *testing.T, a *Account, subject string, client uint64) {
	t.Helper()
	tallies, ok := a.Tallies(subject, false)
	if !ok {
		t.Fatalf("%s has no tallies", subject)
	}
	m := &front.Message{Subject: []byte(subject)}
	for _, x := range tallies {
		x.Offer(m)
		if x.Keyed() {
			x.Key(m)
		}
		x.Add(1, 10, client)
	}
}

func TestRatesAreOfTheLastMinuteAndHour(t *testing.T) {
	a, c := bench()
	x := a.Declare("x", Declared{Pattern: "a.*", Declares: true})
	for i := range 90 { // one a minute
		publish(t, a, fmt.Sprintf("a.%d", i), uint64(i%3+1))
		c.pass(time.Minute)
	}
	s := x.Stats()
	if s.Msgs != 90 || s.Bytes != 900 || s.Msgs1m != 0 || s.Msgs1h != 59 || s.Publishers != 3 {
		t.Errorf("%+v", s)
	}
	publish(t, a, "a.b", 9)
	c.pass(-10 * time.Minute) // the clock is set back
	publish(t, a, "a.b", 9)
	if s = x.Stats(); s.Msgs1m != 2 || s.Msgs != 92 {
		t.Errorf("after the clock was set back: %+v", s)
	}
	c.pass(time.Hour)
	if s = x.Stats(); s.Publishers != 0 {
		t.Errorf("%d publishers are left after an hour", s.Publishers)
	}
}

func TestWhatIsDeclaredIsNotUndeclared(t *testing.T) {
	a, _ := bench()
	for range 3 {
		publish(t, a, "a.1", 1)
		publish(t, a, "b.2f9c1e77aa01.x", 1)
		publish(t, a, "$SYS.x", 1)
		publish(t, a, "_INBOX.x", 1)
	}
	patterns := func() (out []string) {
		for _, s := range a.Undeclared() {
			out = append(out, fmt.Sprint(s.Pattern, " ", s.Msgs))
		}
		return out
	}
	if got := fmt.Sprint(patterns()); got != "[a.* 3 b.*.x 3]" {
		t.Errorf("undeclared %s", got)
	}
	a.Declare("reads", Declared{Pattern: "b.>"})
	a.Declare("x", Declared{Pattern: "a.*", Declares: true})
	publish(t, a, "a.1", 1)
	publish(t, a, "b.2f9c1e77aa01.x", 1)
	if got := fmt.Sprint(patterns()); got != "[b.*.x 4]" {
		t.Errorf("undeclared %s", got)
	}
	if n := a.Of("reads").Stats().Msgs; n != 1 {
		t.Errorf("the reader's advertisement counted %d", n)
	}
	a.Withdraw("x")
	publish(t, a, "a.1", 1)
	if got := fmt.Sprint(patterns()); got != "[a.* 1 b.*.x 4]" {
		t.Errorf("after it was withdrawn: %s", got)
	}
}

func TestUndeclaredPatternsAreBoundedAndTheHeavyOnesStay(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: many, and one after the other; without -short it runs")
	}
	a, _ := bench()
	heavy := 0
	for i := range 40_000 {
		publish(t, a, "light.one-"+words(i), 1)
		if i%50 == 0 {
			publish(t, a, "heavy", 1)
			heavy++
		}
	}
	all := a.Undeclared()
	if len(all) > undeclaredMax {
		t.Fatalf("%d patterns are counted", len(all))
	}
	for _, s := range all {
		if s.Pattern == "heavy" {
			if s.Msgs < int64(heavy)*9/10 {
				t.Errorf("heavy has %d of %d messages", s.Msgs, heavy)
			}
			return
		}
	}
	t.Error("one with 1/51 of the messages has no counter")
}

// words writes a number in letters.
func words(n int) string {
	b := []byte{}
	for n++; n > 0; n /= 26 {
		b = append(b, byte('g'+n%20))
	}
	return string(b)
}

func TestKeysAreEstimated(t *testing.T) {
	for _, n := range []int{0, 1, 10, 1000, 50_000} {
		a, _ := bench()
		x := a.Declare("x", Declared{Pattern: "a.*.z", Declares: true, Key: Key{Token: 2}})
		y := a.Declare("y", Declared{Pattern: "a.>", Declares: true})
		for i := range n {
			publish(t, a, fmt.Sprintf("a.%d.z", i), 1)
			publish(t, a, fmt.Sprintf("a.%d.z", i/2), 1)
		}
		for _, tally := range []*Tally{x, y} {
			s := tally.Stats()
			if got := float64(s.Distinct()); math.Abs(got-float64(n)) > 0.12*float64(n) {
				t.Errorf("%d keys of %s are estimated as %.0f", n, tally.Pattern, got)
			}
		}
	}
}

func TestNodesAreSummed(t *testing.T) {
	a, _ := bench()
	b, _ := bench()
	x := a.Declare("x", Declared{Pattern: "a.*", Declares: true})
	y := b.Declare("x", Declared{Pattern: "a.*", Declares: true})
	for i := range 100 {
		publish(t, a, fmt.Sprintf("a.%d", i), 1)
		publish(t, b, fmt.Sprintf("a.%d", i+50), 2)
	}
	y.Checked(false)
	y.Checked(true)
	s, o := x.Stats(), y.Stats()
	s.Merge(&o)
	if s.Msgs != 200 || s.Publishers != 2 || s.Checked1h != 2 || s.Failed1h != 1 || s.Last.IsZero() {
		t.Errorf("%+v", s)
	}
	if n := s.Distinct(); n < 135 || n > 165 {
		t.Errorf("150 subjects are estimated as %d", n)
	}
}

func TestAChangedAdvertisementGoesOnCounting(t *testing.T) {
	a, _ := bench()
	a.Declare("x", Declared{Pattern: "a.*", Declares: true})
	publish(t, a, "a.1", 1)
	publish(t, a, "a.2", 1)
	for _, d := range []Declared{
		{Pattern: "a.*", Declares: true, Sampled: true},
		{Pattern: "a.*", Declares: true, Key: Key{Header: "K"}},
	} {
		s := a.Declare("x", d).Stats()
		if s.Msgs != 2 || s.Publishers != 1 || s.Last.IsZero() {
			t.Errorf("after the change to %+v: %+v", d, s)
		}
		if want := int64(2); d.Key == (Key{}) && s.Distinct() != want || d.Key != (Key{}) && s.Distinct() != 0 {
			t.Errorf("after the change to %+v there were %d subjects or keys", d, s.Distinct())
		}
	}
	if s := a.Declare("x", Declared{Pattern: "b.*", Declares: true}).Stats(); s.Msgs != 0 {
		t.Errorf("another pattern begins with %+v", s)
	}
}

func TestPrefixesAreServedWhereTheLastTokenMakesNoDifference(t *testing.T) {
	a, _ := bench()
	a.Declare("x", Declared{Pattern: "a.*", Declares: true})
	if list, ok := a.Tallies("a", true); !ok || len(list) != 1 {
		t.Errorf("of a.*: %v, %t", list, ok)
	}
	if _, ok := a.Tallies("b", true); ok {
		t.Error("an undeclared prefix is served")
	}
	a.Declare("y", Declared{Pattern: "a.b", Declares: true})
	if _, ok := a.Tallies("a", true); ok {
		t.Error("a prefix below which a literal is declared is served")
	}
	if list, ok := a.Tallies("_INBOX.x", true); !ok || len(list) != 0 {
		t.Error("inboxes are counted")
	}
}

func TestManyPublishersAtOnce(t *testing.T) {
	a, _ := bench()
	x := a.Declare("x", Declared{Pattern: "a.>", Declares: true})
	var wg sync.WaitGroup
	for client := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				publish(t, a, fmt.Sprintf("a.%d", i%7), uint64(client+1))
				publish(t, a, "u."+words(i*8+client), uint64(client+1))
			}
		})
	}
	wg.Wait()
	if s := x.Stats(); s.Msgs != 16000 || s.Publishers != 8 {
		t.Errorf("%+v", s)
	}
}
