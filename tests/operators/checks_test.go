package operators_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/client"
)

// counter is a running count, of which each record gives a result.
var counter = fmt.Sprintf(head, "COUNT", "steps: [{key: k}, {aggregate: {n: count(), total: sum(v)}}]")

// counted holds the counter's results against all records.
func (w *world) counted() {
	w.t.Helper()
	all := events(w.t, w.read("IN", w.sent["IN"]))
	got := w.read("COUNT", len(all))
	w.same("COUNT and what was computed from all events at once", batchCount(all), payloads(got), false)
	w.once("COUNT", got)
}

func payloads(rows []output) (all []string) {
	for _, o := range rows {
		all = append(all, o.payload)
	}
	return all
}

// some publishes n records.
func (w *world) some(n int) {
	w.t.Helper()
	var all [][]byte
	for range n {
		all = append(all, record(w.rng, w.sent["IN"]+len(all)).json())
	}
	w.publish("IN", all...)
}

// Test10 pauses a primary until another has taken over and given results, in full also
// across a week by the others' clocks, and lets it go on: nothing of its epoch comes out.
func Test10AZombieGivesNothing(t *testing.T) {
	w := begin(t)
	w.topic("IN")
	w.deploy("COUNT", counter)
	rounds := pick(2, 10)
	for i := range rounds {
		w.some(50)
		zombie := w.primary("COUNT")
		before := w.sent["IN"]
		zombie.Pause()
		if i == rounds-1 { // for those that go on, a week goes by
			for _, n := range w.Nodes {
				if n == zombie {
					continue
				}
				n.Kill()
				n.Env = []string{"HERALD_TEST_CLOCK_OFFSET=168h"}
				if err := n.Start(); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.some(50)
		w.eventually("another primary's results", func() (bool, string) {
			n, err := w.messages("COUNT")
			return n > before, fmt.Sprint(n, " of more than ", before, ", ", err)
		})
		zombie.Resume()
		w.some(50)
		w.eventually("one primary, another one", func() (bool, string) {
			in, err := w.info("COUNT")
			leads := 0
			for _, r := range in.Replicas {
				if r.Leads {
					leads++
				}
			}
			return err == nil && leads == 1 && len(in.Replicas) == 3, fmt.Sprint(leads, " lead, ", err)
		})
	}
	w.counted()
}

func (w *world) messages(topic string) (n int, err error) {
	err = within(5*time.Second, func(ctx context.Context) error {
		s, err := w.js.Stream(ctx, topic)
		if err == nil {
			n = int(s.CachedInfo().State.Msgs)
		}
		return err
	})
	return n, err
}

// Test20 kills the primary of an operator with very many keys: the next one goes on where
// it was, without reading anything again.
func Test20TakeoverWithManyKeys(t *testing.T) {
	w := begin(t)
	keys := pick(20_000, 1_000_000)
	w.topic("IN")
	w.deploy("COUNT", strings.Replace(counter, "[{topic: IN}]", "[{topic: IN}]\nstate: {max: 4GiB}", 1))
	for i := 0; i < keys; i += 1000 {
		var all [][]byte
		for k := range 1000 {
			all = append(all, event{K: fmt.Sprintf("key %d", i+k), V: 1, At: start, N: i + k}.json())
		}
		w.publish("IN", all...)
	}
	want := keys
	w.eventually("the results", func() (bool, string) {
		n, err := w.messages("COUNT")
		return n == want, fmt.Sprint(n, " of ", want, ", ", err)
	})
	for range pick(2, 5) {
		n := w.primary("COUNT")
		n.Kill()
		killed := time.Now()
		k := w.rng.IntN(keys)
		w.publish("IN", event{K: fmt.Sprintf("key %d", k), V: 1, At: start, N: w.sent["IN"]}.json())
		want++
		w.eventually("the first result", func() (bool, string) {
			n, err := w.messages("COUNT")
			return n == want, fmt.Sprint(n, " of ", want, ", ", err)
		})
		took := time.Since(killed)
		i, err := w.info("COUNT")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range i.Replicas {
			if !r.Leads {
				continue
			}
			t.Logf("%d keys, %d MB: killed to first result %s; elected after %s, ready in %s, first result in %s", r.Keys, r.Bytes>>20,
				took.Round(time.Millisecond), r.Stats.Elect.Round(time.Millisecond), r.Stats.Apply.Round(100*time.Microsecond), r.Stats.FirstOutput.Round(time.Millisecond))
			if r.Stats.Rebuilt > 0 || r.Stats.Again > 0 || r.Stats.In > uint64(want) {
				t.Errorf("%s read records or state again: %+v", r.Node, r.Stats)
			}
			if r.Stats.Since.Before(killed) {
				t.Errorf("%s says that it leads since %s, before %s was killed", r.Node, r.Stats.Since, n.Name)
			}
		}
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		w.eventually(n.Name+" to be back", func() (bool, string) {
			i, err := w.info("COUNT")
			return err == nil && len(i.Replicas) == 3, fmt.Sprint(len(i.Replicas), " replicas, ", err)
		})
	}
	w.counted()
}

// Test21 sums up what went in: it is in the results, among the late, or in windows that
// are open.
func Test21NothingThatIsLateIsLostSilently(t *testing.T) {
	w := begin(t)
	w.inputs()
	w.topic("LATE")
	w.deploy("WINDOW", strings.NewReplacer("disorder: 4s", "disorder: 500ms").Replace(fmt.Sprintf(head, "WINDOW",
		"steps: [{key: k}, {window: {tumble: 1s, late: {to: late}}}, {aggregate: {n: count()}}]")))
	stop := w.load()
	for range pick(2, 20) {
		<-time.After(2 * time.Second)
		n := w.primary("WINDOW")
		n.Kill()
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	in, open := w.sent["IN"], 1 // the last record's window
	late, counted := 0, 0
	w.eventually("all records to be accounted for", func() (bool, string) {
		all := w.read("LATE", 0)
		got := map[string]int{} // by key and window: records in results and late
		for _, o := range all {
			got[window(t, o.payload)]++
		}
		late, counted = len(all), 0
		for _, o := range w.read("WINDOW", 0) {
			var r struct {
				K     string
				N     int
				Start time.Time `json:"window_start"`
			}
			if err := json.Unmarshal([]byte(o.payload), &r); err != nil {
				t.Fatal(err)
			}
			counted += r.N
			got[fmt.Sprint(r.K, " ", r.Start.Unix())] += r.N
		}
		if in == counted+late+open {
			return true, ""
		}
		var wrong []string
		want := map[string][]string{}
		for _, o := range w.read("IN", in) {
			id := window(t, o.payload)
			want[id] = append(want[id], o.payload)
		}
		for id, records := range want {
			if n := got[id]; n != len(records) && len(wrong) < 10 {
				wrong = append(wrong, fmt.Sprintf("\n%d of %s: %s", n, id, strings.Join(records, " ")))
			}
		}
		return false, fmt.Sprintf("%d records, %d in results, %d late, %d open%s", in, counted, late, open, strings.Join(wrong, ""))
	})
	if late == 0 || counted == 0 {
		t.Errorf("nothing is shown: %d in results, %d late", counted, late)
	}
	t.Logf("%d records: %d in results, %d late, %d open", in, counted, late, open)
}

// window is the key and the window, a second, of a record.
func window(t *testing.T, payload string) string {
	t.Helper()
	var r event
	if err := json.Unmarshal([]byte(payload), &r); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(r.K, " ", r.At/1000)
}

// An input that is idle isn't waited for; one whose operator stands still is not idle.
func Test21IdleAndBlockedInputs(t *testing.T) {
	w := begin(t)
	w.topic("IN")
	w.topic("RIGHT")
	full := func(max int64) func(*jetstream.StreamConfig) {
		return func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = max, jetstream.DiscardNew }
	}
	w.topic("WINDOW", full(1))
	w.topic("LATE")
	w.deploy("WINDOW", `
operator: WINDOW
time: {event: at, unit: ms, disorder: 0s, idle_after: 2s, max_future: 0s}
inputs: [{topic: IN}, {topic: RIGHT}]
steps:
  - union: [IN, RIGHT]
  - key: k
  - window: {tumble: 1s, late: {to: late}}
  - aggregate: {n: count()}
outputs: [{topic: WINDOW}]
`)
	at := func(s int) []byte { return event{K: "a", V: 1, At: start + int64(s)*1000, N: s}.json() }
	// RIGHT is idle: what IN says closes windows all the same.
	w.publish("IN", at(0), at(10))
	w.eventually("a window to be closed though RIGHT is idle", func() (bool, string) {
		n, err := w.messages("WINDOW")
		return n == 1, fmt.Sprint(n, ", ", err)
	})
	// Now both have records, and the output is full: the operator stands still for longer than
	// inputs are waited for, while old records wait in RIGHT.
	w.publish("RIGHT", at(10))
	w.publish("IN", at(20))
	w.publish("RIGHT", at(20))
	w.eventually("the operator to be blocked", func() (bool, string) {
		i, err := w.info("WINDOW")
		for _, r := range i.Replicas {
			if r.Leads && r.Blocked != "" {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%v, %+v", err, i)
	})
	for s := 21; s < 40; s++ {
		w.publish("IN", at(s))
	}
	for s := 21; s < 40; s++ {
		w.publish("RIGHT", at(s))
	}
	<-time.After(4 * time.Second)
	w.topic("WINDOW", full(-1))
	w.eventually("the other windows", func() (bool, string) {
		n, err := w.messages("WINDOW")
		return n == 22, fmt.Sprint(n, " of 22, ", err)
	})
	if late := w.read("LATE", 0); len(late) > 0 {
		t.Errorf("%d records were taken for late while the operator stood still: %v", len(late), payloads(late))
	}
}

// Test21 deletes the input of an operator that runs, and makes it anew: the operator stops
// with its reason, and goes on with the new one from its beginning.
func Test21AnInputThatIsDeleted(t *testing.T) {
	w := begin(t)
	w.topic("IN")
	w.deploy("COUNT", counter)
	w.some(200)
	w.eventually("the results", func() (bool, string) {
		n, err := w.messages("COUNT")
		return n == 200, fmt.Sprint(n, ", ", err)
	})
	first := events(t, w.read("IN", 200))
	w.eventually("the input to be deleted", func() (bool, string) {
		err := within(10*time.Second, func(ctx context.Context) error { return w.js.DeleteStream(ctx, "IN") })
		return err == nil || errors.Is(err, jetstream.ErrStreamNotFound), fmt.Sprint(err)
	})
	w.topic("IN")
	w.some(100)
	w.eventually("the operator to stop", func() (bool, string) {
		i, err := w.info("COUNT")
		return err == nil && i.Operator.State == "failed" && strings.Contains(i.Operator.Error, "topic IN was deleted"), fmt.Sprintf("%v %+v", err, i.Operator)
	})
	w.primary("COUNT").Kill()
	w.eventually("it to be resumed", func() (bool, string) {
		err := w.ask("RESUME", client.OperatorRequest{Name: "COUNT"})
		return err == nil, fmt.Sprint(err)
	})
	all := append(first, events(t, w.read("IN", 100))...)
	w.same("COUNT and what was computed of both topics", batchCount(all), payloads(w.read("COUNT", len(all))), false)
}

// Test22 changes the number of instances while records come and primaries are killed.
func Test22RescalingLosesNothing(t *testing.T) {
	w := begin(t)
	w.inputs()
	w.deploy("COUNT", strings.Replace(counter, "[{topic: IN}]", "[{topic: IN}]\npartitions: 3", 1))
	stop := w.load()
	for _, n := range pick([]int{7, 2}, []int{7, 2, 3, 7, 2, 3, 7, 2, 3, 7, 2, 3, 7, 2, 1, 3}) {
		<-time.After(time.Second)
		w.eventually("rescaling to be taken", func() (bool, string) {
			err := w.rescale(n)
			return err == nil, fmt.Sprint(err)
		})
		if w.rng.IntN(2) == 0 {
			w.fail("COUNT")
			w.heal()
		}
		w.eventually(fmt.Sprintf("%d instances", n), func() (bool, string) {
			i, err := w.info("COUNT")
			return err == nil && i.Operator.Next == nil && i.Operator.Partitions() == n, fmt.Sprintf("%v %+v", err, i.Operator)
		})
	}
	stop()
	w.eachInOrder()
}

// Test22 kills processes in the middle of a rescaling: at a moment after it was taken, the
// primary of an instance, or whoever leads the catalogue, and sometimes calls it off.
func Test22KilledWhileInstancesAreReplaced(t *testing.T) {
	w := begin(t)
	w.inputs()
	w.deploy("COUNT", strings.Replace(counter, "[{topic: IN}]", "[{topic: IN}]\npartitions: 3", 1))
	stop := w.load()
	inMiddle, revoked := 0, 0
	for range pick(4, 40) {
		n := 1 + w.rng.IntN(8)
		w.eventually("rescaling to be taken", func() (bool, string) {
			err := w.rescale(n)
			return err == nil, fmt.Sprint(err)
		})
		<-time.After(time.Duration(w.rng.IntN(60)) * time.Millisecond)
		victim := w.Nodes[w.rng.IntN(len(w.Nodes))]
		if i, err := w.info("COUNT"); err == nil && i.Operator.Next != nil {
			inMiddle++
		}
		victim.Kill()
		if w.rng.IntN(4) == 0 {
			w.eventually("it to be called off, or over", func() (bool, string) {
				err := w.ask("CANCEL", client.OperatorRequest{Name: "COUNT"})
				if err == nil {
					revoked++
				}
				return err == nil || strings.Contains(err.Error(), "nothing is under way"), fmt.Sprint(err)
			})
		}
		<-time.After(time.Duration(w.rng.IntN(500)) * time.Millisecond)
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		w.eventually("nothing to be under way", func() (bool, string) {
			i, err := w.info("COUNT")
			return err == nil && i.Operator.Next == nil && i.Operator.State == "running", fmt.Sprintf("%v %+v", err, i.Operator)
		})
	}
	stop()
	w.eachInOrder()
	t.Logf("%d kills while instances were being replaced, %d times called off", inMiddle, revoked)
}

func (w *world) ask(verb string, r client.OperatorRequest) error {
	return within(10*time.Second, func(ctx context.Context) error {
		var to client.OperatorChange
		return w.c.Operators(ctx, verb, r, &to)
	})
}

func (w *world) rescale(n int) error {
	return w.ask("RESCALE", client.OperatorRequest{Name: "COUNT", Partitions: n})
}

// eachInOrder holds the counter's results against all records: instances interleave their
// keys, and each key's results are in order.
func (w *world) eachInOrder() {
	w.t.Helper()
	t := w.t
	all := events(t, w.read("IN", w.sent["IN"]))
	got := w.read("COUNT", len(all))
	w.same("COUNT and what was computed from all events at once", batchCount(all), payloads(got), true)
	last := map[string]int{}
	for _, o := range got {
		var r struct {
			K string
			N int
		}
		if err := json.Unmarshal([]byte(o.payload), &r); err != nil {
			t.Fatal(err)
		}
		if r.N != last[r.K]+1 {
			t.Errorf("%s counts %d after %d", r.K, r.N, last[r.K])
		}
		last[r.K] = r.N
	}
}
