package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// notLeading returns a node that doesn't lead a topic's group.
func (f *fleet) notLeading(topic string) string {
	f.Helper()
	away := ""
	f.wait("all know "+topic+" and its leader", func() (bool, string) {
		for _, n := range f.names() {
			t, ok := f.nodes[n].Topic("A", topic)
			if !ok || t.Group().Leader() == "" {
				return false, n
			}
			if t.Group().Leader() != n {
				away = n
			}
		}
		return true, ""
	})
	return away
}

func TestBatchesWorkFromEveryNode(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	cfg := replicated(3, "T", "t.>")
	cfg.AllowAtomic, cfg.AllowBatched = true, true
	f.create("a", cfg)
	f.notLeading("T")
	for i, from := range f.names() {
		head := func(place, more string) string {
			return fmt.Sprintf("NATS/1.0\r\nNats-Batch-Id: b%d\r\nNats-Batch-Sequence: %s\r\n%s\r\n", i, place, more)
		}
		if a := f.publish(from, "T", "t.1", head("1", ""), "x"); a != "" {
			t.Errorf("%s: first of a batch: %q", from, a)
		}
		if a := f.publish(from, "T", "t.2", head("2", ""), "y"); a != "" {
			t.Errorf("%s: second of a batch: %q", from, a)
		}
		want := fmt.Sprintf(`{"stream":"T","seq":%d,"batch":"b%d","count":3}`, 3*(i+1), i)
		if a := f.publish(from, "T", "t.3", head("3", "Nats-Batch-Commit: 1\r\n"), "z"); a != want {
			t.Errorf("%s: commit: %q, want %q", from, a, want)
		}
	}
	f.same("T")
}

func TestLargeMessagesAreForwardedWhole(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	f.create("a", replicated(3, "T", "t.>"))
	from := f.notLeading("T")
	for i, n := range []int{100, 300 << 10, 3 << 20, 1} {
		if a, want := f.publish(from, "T", "t.x", "", strings.Repeat("x", n)), fmt.Sprintf(`{"stream":"T","seq":%d}`, i+1); a != want {
			t.Errorf("%d bytes: %q", n, a)
		}
	}
	f.same("T")
}

func TestWhatNobodyTakesIsHeldThenRefused(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	topic := f.create("a", replicated(3, "T", "t.>"))
	f.wait("somebody leads", func() (bool, string) { return topic.Group().Leader() != "", "" })
	f.kill("b")
	f.kill("c")
	f.wait("nobody leads", func() (bool, string) { return topic.Group().Leader() == "", topic.Group().Leader() })
	began := time.Now()
	if a := f.publish("a", "T", "t.x", "", "x"); !strings.Contains(a, "503") {
		t.Errorf("answer %q", a)
	}
	if d := time.Since(began); d < forwardHold-time.Second || d > forwardHold+3*time.Second {
		t.Errorf("refused after %s", d)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, _, err := f.nodes["a"].CreateTopic(ctx, "A", replicated(3, "U", "u")); err == nil {
		t.Error("a topic was made without a majority")
	}
	if ready, why := f.nodes["a"].Ready(); ready {
		t.Error("ready without a majority")
	} else {
		t.Log(why)
	}
	held := make(chan string)
	go func() { held <- f.publish("a", "T", "t.x", "", "held") }()
	f.join("b")
	if a := <-held; !strings.Contains(a, "seq") && !strings.Contains(a, "503") {
		t.Errorf("answer %q", a)
	}
}

func TestClocksThatAreOffDecideNothing(t *testing.T) {
	if os.Getenv("HERALD_LONG") == "" {
		t.Skip("SKIPPED: takes half a minute; set HERALD_LONG=1 (tests/chaos sets clocks of real processes)")
	}
	for _, offsets := range []map[string]time.Duration{
		{"a": time.Hour, "b": -time.Hour},
		{"a": time.Hour},
		{"a": -time.Hour},
	} {
		t.Run(fmt.Sprint(offsets), func(t *testing.T) {
			if testing.Short() && len(offsets) == 1 {
				t.Skip("takes a while, and the other one is worse")
			}
			f := &fleet{TB: t, dir: t.TempDir(), nodes: map[string]*member{}, acks: map[string]chan string{}, offset: offsets}
			t.Cleanup(f.stopAll)
			f.startMany(3)
			cfg := replicated(3, "T", "t.>")
			cfg.MaxAge, cfg.Duplicates = 8*time.Second, 30*time.Minute
			topic := f.create("c", cfg)
			f.notLeading("T")
			if a := f.publish("a", "T", "t.first", "NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n", "x"); a != `{"stream":"T","seq":1}` {
				t.Fatalf("answer %q", a)
			}
			stored := time.Now()
			last := topics.Nanos(0)
			for i, to := range []string{"a", "b", "c", "a"} {
				f.wait(to+" leads", func() (bool, string) {
					if topic.Group().Leader() == to {
						return true, ""
					}
					err := topic.Group().Transfer(timed(t), to)
					return false, fmt.Sprint(err)
				})
				if a := f.publish("b", "T", "t.again", "NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n", "x"); !strings.Contains(a, `"duplicate":true`) {
					t.Errorf("under %s the id is forgotten: %q", to, a)
				}
				if a := f.publish("b", "T", "t.more", "", "x"); !strings.Contains(a, fmt.Sprintf(`"seq":%d}`, i+2)) {
					t.Errorf("under %s: %q", to, a)
				}
				f.same("T")
				st := topic.Data().State()
				off := time.Duration(st.LastTime - topics.NanosOf(time.Now()))
				if off.Abs() > 2*time.Second && offsets["b"] == 0 || st.LastTime < last {
					t.Errorf("under %s entries are %s off, or go back", to, off)
				}
				last = st.LastTime
				if time.Since(stored) < 6*time.Second && st.First != 1 {
					t.Errorf("under %s the first message is gone after %s", to, time.Since(stored))
				}
			}
			f.wait("all messages have expired", func() (bool, string) {
				return topic.Data().State().Messages == 0, fmt.Sprint(topic.Data().State())
			})
			if d := time.Since(stored); d < 6*time.Second || d > 30*time.Second {
				t.Errorf("they expired after %s", d)
			}
		})
	}
}

func TestLimitsHoldAcrossGroups(t *testing.T) {
	t.Parallel()
	limits := catalogue.Limits{FileBytes: 100_000, Consumers: 3}
	f := startFleet(t, 3, func(o *Options) { o.Limits = func(string) catalogue.Limits { return limits } })
	for i := range 3 {
		name := fmt.Sprintf("T%d", i)
		f.create("a", replicated(1, name, name))
		f.notLeading(name)
	}
	stored := 0
	f.wait("the account is full", func() (bool, string) {
		a := f.publish("b", fmt.Sprintf("T%d", stored%3), fmt.Sprintf("T%d", stored%3), "", strings.Repeat("x", 10_000))
		if strings.Contains(a, "seq\":0") {
			return true, ""
		}
		stored++
		<-time.After(usageFresh / 2)
		return false, a
	})
	if stored < 7 || stored > 12 {
		t.Errorf("%d messages of 10 kB fit into 100 kB", stored)
	}
	made := 0
	f.wait("there are as many consumers as there may be", func() (bool, string) {
		name := fmt.Sprintf("c%d", made)
		topic, _ := f.nodes["a"].Topic("A", fmt.Sprintf("T%d", made%3))
		_, err := f.nodes["a"].CreateConsumer(timed(t), topic, name, topics.ConsumerConfig{Name: name, Durable: name})
		if err != nil {
			return true, ""
		}
		made++
		<-time.After(usageFresh + usageFresh/2)
		return false, ""
	})
	if made != 3 {
		t.Errorf("%d consumers, want 3", made)
	}
}

func TestRestartOfAll(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	for i := range 3 {
		name := fmt.Sprintf("T%d", i)
		f.create("b", replicated(1+i%2*2, name, name))
		f.notLeading(name)
		for range 5 {
			f.publish("c", name, name, "", "x")
		}
	}
	f.calm()
	var gone sync.WaitGroup
	nodes := f.nodes
	for _, n := range f.names() {
		gone.Go(func() { f.kill(n) })
	}
	gone.Wait()
	_ = nodes
	for _, n := range []string{"a", "b", "c"} {
		f.open(f.network(n, f.seeds[n[0]-'a']))
	}
	f.ready()
	for i := range 3 {
		name := fmt.Sprintf("T%d", i)
		f.notLeading(name)
		if a, want := f.publish("a", name, name, "", "x"), fmt.Sprintf(`{"stream":"%s","seq":6}`, name); a != want {
			t.Errorf("%q, want %q", a, want)
		}
		f.same(name)
	}
}

func TestFiveNodes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("five nodes are slow to start on few cores")
	}
	f := startFleet(t, 5)
	f.create("e", replicated(5, "T", "t"))
	f.notLeading("T")
	for i, n := range f.names() {
		if a, want := f.publish(n, "T", "t", "", "x"), fmt.Sprintf(`{"stream":"T","seq":%d}`, i+1); a != want {
			t.Errorf("%s: %q", n, a)
		}
	}
	topic, _ := f.nodes["a"].Topic("A", "T")
	lead := topic.Group().Leader()
	f.kill(lead)
	second := f.names()[0]
	f.kill(f.names()[1])
	f.wait("messages are stored by three of five", func() (bool, string) {
		a := f.publish(second, "T", "t", "NATS/1.0\r\nNats-Msg-Id: m\r\n\r\n", "x")
		return strings.Contains(a, `"seq":6`), a
	})
	f.same("T")
}

// TestManyTopics measures how fast topics are made.
func TestManyTopics(t *testing.T) {
	t.Parallel()
	many := 1000
	if testing.Short() {
		many = 50
	}
	f := startFleet(t, 3)
	f.create("a", replicated(3, "first", "first"))
	f.calm()
	on := ""
	for _, n := range f.names() {
		if !f.nodes[n].IsCatalogueLeader() {
			on = n
		}
	}
	began := time.Now()
	var errs [64]error
	var all sync.WaitGroup
	for w := range errs {
		all.Go(func() {
			for i := w; i < many; i += len(errs) {
				name := fmt.Sprintf("T%d", i)
				topic, _, err := f.nodes[on].CreateTopic(timed(t), "A", replicated(3, name, name))
				if err == nil {
					_, err = f.nodes[on].CreateConsumer(timed(t), topic, "c", topics.ConsumerConfig{Name: "c", Durable: "c"})
				}
				errs[w] = errors.Join(errs[w], err)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d topics of three replicas with a consumer each: %s", many, time.Since(began))
}
