package operators_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/tests/harness"
)

var seedFlag = flag.Uint64("seed", 0, "`seed` of a run to repeat")

// patience bounds every wait for what other processes bring about.
const patience = 2 * time.Minute

func long() bool { return os.Getenv("HERALD_LONG") != "" }

func pick[T any](short, full T) T {
	if long() {
		return full
	}
	return short
}

// world is three nodes with operators, and what was published.
type world struct {
	*harness.Cluster
	t    *testing.T
	seed uint64
	rng  *rand.Rand
	nc   *nats.Conn
	js   jetstream.JetStream
	c    *client.Client
	sent map[string]int // by topic: messages that were acknowledged
	down *harness.Node  // killed, and not started again yet
	done map[string]int // kinds of failures
}

// always are the checks that run when nobody asks for any.
var always = []string{"Test09", "Test20", "Test22"}

func asked(t *testing.T) bool {
	return long() || os.Getenv("HERALD_CHAOS") != "" || flag.Lookup("test.run").Value.String() != "" || slices.Contains(always, t.Name()[:len("Test09")])
}

func begin(t *testing.T) *world {
	t.Helper()
	if !asked(t) {
		t.Skip("SKIPPED: not one of the few; -run names it, HERALD_CHAOS=1 runs all in their short form, HERALD_LONG=1 in full")
	}
	t.Parallel()                                       // they wait for elections and timers more than they work
	bin := harness.Build(t, "tests/operators/brokerd") // with the example's process function
	w := &world{t: t, seed: *seedFlag, sent: map[string]int{}, done: map[string]int{}}
	if w.seed == 0 {
		w.seed = uint64(time.Now().UnixNano())
	}
	w.rng = rand.New(rand.NewPCG(w.seed, 1))
	t.Logf("repeat with: %sgo test -count=1 ./tests/operators -run '^%s$' -seed %d", pick("", "HERALD_LONG=1 "), t.Name(), w.seed)
	w.Cluster = harness.NewCluster(t, harness.ClusterOptions{Program: bin, Wire: harness.WireHosts})
	err := w.Start()
	if err != nil {
		t.Fatal(err)
	}
	w.nc, err = nats.Connect(w.URLs(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1),
		nats.Timeout(2*time.Second), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2), nats.IgnoreDiscoveredServers(), nats.RetryOnFailedConnect(true),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.nc.Close)
	if w.js, err = jetstream.New(w.nc); err != nil {
		t.Fatal(err)
	}
	w.c, err = client.Connect(w.URLs(), client.Reconnects(-1), client.ReconnectWait(50*time.Millisecond), client.NATS(nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.c.Close() })
	return w
}

// eventually polls what other processes bring about.
func (w *world) eventually(what string, ok func() (bool, string)) {
	w.t.Helper()
	last := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(30 * time.Millisecond) {
		good, why := ok()
		if good {
			return
		}
		last = why
	}
	w.t.Fatalf("waited in vain for %s: %s", what, last)
}

func within(d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return f(ctx)
}

// topic makes a topic of three replicas, whatever happens meanwhile.
func (w *world) topic(name string, with ...func(*jetstream.StreamConfig)) {
	w.t.Helper()
	cfg := jetstream.StreamConfig{Name: name, Subjects: []string{strings.ToLower(name)}, Replicas: 3, Duplicates: 10 * time.Minute}
	for _, f := range with {
		f(&cfg)
	}
	w.eventually("topic "+name, func() (bool, string) {
		err := within(10*time.Second, func(ctx context.Context) error {
			_, err := w.js.CreateOrUpdateStream(ctx, cfg)
			return err
		})
		return err == nil, fmt.Sprint(err)
	})
}

// inputs makes the input topics.
func (w *world) inputs() {
	for _, name := range []string{"IN", "RIGHT", "NAMES"} {
		w.topic(name)
	}
}

// deploy deploys an operator.
func (w *world) deploy(name, text string) {
	w.t.Helper()
	w.eventually("operator "+name+" to be deployed", func() (bool, string) {
		err := within(10*time.Second, func(ctx context.Context) error {
			var to client.OperatorChange
			return w.c.Operators(ctx, "DEPLOY", client.OperatorRequest{Spec: text}, &to)
		})
		return err == nil, fmt.Sprint(err)
	})
}

func (w *world) info(name string) (i client.OperatorInfo, err error) {
	err = within(5*time.Second, func(ctx context.Context) error {
		return w.c.Operators(ctx, "INFO", client.OperatorRequest{Name: name}, &i)
	})
	return i, err
}

// took returns how many records the primary of an operator has read since it was started.
func (w *world) took(name string) (n uint64, err error) {
	i, err := w.info(name)
	for _, r := range i.Replicas {
		if r.Leads {
			n += r.Stats.In
		}
	}
	return n, err
}

// primary waits until somebody leads an operator.
func (w *world) primary(name string) (n *harness.Node) {
	w.t.Helper()
	w.eventually("a primary of "+name, func() (bool, string) {
		i, err := w.info(name)
		n = w.Node(i.Leader)
		return n != nil, fmt.Sprint(err, i.Operator.State, i.Operator.Error)
	})
	return n
}

// publish publishes records until all are acknowledged. Their ids see to it that each is
// there once.
func (w *world) publish(topic string, payloads ...[]byte) {
	w.t.Helper()
	if err := w.send(topic, payloads...); err != nil {
		w.t.Fatal(err)
	}
}

// send is publish for other goroutines than the test's.
func (w *world) send(topic string, payloads ...[]byte) error {
	first := w.sent[topic]
	missing := make([]int, len(payloads))
	for i := range missing {
		missing[i] = i
	}
	for deadline := time.Now().Add(patience); ; {
		if missing = w.round(topic, first, payloads, missing); len(missing) == 0 {
			w.sent[topic] += len(payloads)
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d messages for %s were not acknowledged", len(missing), len(payloads), topic)
		}
		<-time.After(30 * time.Millisecond)
	}
}

// round publishes what is missing and returns what still is.
func (w *world) round(topic string, first int, payloads [][]byte, missing []int) []int {
	box := nats.NewInbox()
	answers := make(chan *nats.Msg, len(missing))
	sub, err := w.nc.ChanSubscribe(box+".*", answers)
	if err != nil {
		return missing
	}
	defer func() { _ = sub.Unsubscribe() }()
	out := 0
	for _, i := range missing {
		err := w.nc.PublishMsg(&nats.Msg{
			Subject: strings.ToLower(topic), Reply: fmt.Sprintf("%s.%d", box, i), Data: payloads[i],
			Header: nats.Header{"Nats-Msg-Id": {fmt.Sprint(topic, first+i)}},
		})
		if err != nil {
			break
		}
		out++
	}
	late := time.After(3 * time.Second)
	acked := map[int]bool{}
	for range out {
		select {
		case m := <-answers:
			if i, ok := acknowledged(m); ok {
				acked[i] = true
			}
			continue
		case <-late:
		}
		break
	}
	return slices.DeleteFunc(missing, func(i int) bool { return acked[i] })
}

func acknowledged(m *nats.Msg) (i int, ok bool) {
	if !strings.Contains(string(m.Data), `"seq"`) || strings.Contains(string(m.Data), `"error"`) {
		return 0, false
	}
	_, err := fmt.Sscan(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], &i)
	return i, err == nil
}

// start is the event time of the first record.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

// record is the i-th of a topic: event time goes on by 50 ms each, up to two seconds in
// disorder, and leaves gaps.
func record(rng *rand.Rand, i int) event {
	at := start + int64(i)*50 + int64(i/400)*7000 + rng.Int64N(2000)
	return event{K: fmt.Sprintf("k%d", rng.IntN(24)), V: rng.Int64N(1000), At: at, N: i}
}

// load publishes to IN and RIGHT until stop is called, and then a record that lets event
// time pass everything.
func (w *world) load() (stop func()) {
	rng := rand.New(rand.NewPCG(w.seed, 2))
	ended, done := make(chan struct{}), make(chan struct{})
	var last int
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond):
			}
			var left, right [][]byte
			for range 40 {
				left = append(left, record(rng, last).json())
				if last%4 == 0 {
					right = append(right, record(rng, last).json())
				}
				last++
			}
			if err := errors.Join(w.send("IN", left...), w.send("RIGHT", right...)); err != nil {
				w.t.Error(err)
				return
			}
		}
	}()
	return func() {
		w.t.Helper()
		close(ended)
		<-done
		end := event{K: "end", At: record(rng, last).At + 3_600_000, N: last}
		w.publish("IN", end.json())
		end.At += 1_000_000
		w.publish("RIGHT", end.json())
	}
}

// fail makes the primary of an operator fail, in one of three ways.
func (w *world) fail(name string) {
	w.restart()
	i, err := w.info(name)
	n := w.Node(i.Leader)
	if err != nil || n == nil || !n.Running() {
		w.done["nobody led"]++
		return
	}
	kinds := 2
	if w.CanCut() == nil {
		kinds++
	}
	switch w.rng.IntN(kinds) {
	case 0:
		w.done["killed"]++
		n.Kill()
		w.down = n
		if w.rng.IntN(2) == 0 {
			w.restart() // at once, so that it may well lead again
		}
	case 1:
		w.done["paused"]++
		n.Pause()
		<-time.After(time.Duration(500+w.rng.IntN(4500)) * time.Millisecond)
		n.Resume()
	case 2:
		w.done["cut off"]++
		if err := w.Allow(func(a, b *harness.Node) bool { return a != n && b != n }); err != nil {
			w.t.Error(err)
		}
		<-time.After(time.Duration(500+w.rng.IntN(3500)) * time.Millisecond)
		if err := w.Heal(); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *world) restart() {
	if w.down == nil {
		return
	}
	if err := w.down.Start(); err != nil {
		w.t.Error(err)
	}
	w.down = nil
}

func (w *world) heal() {
	w.restart()
	if err := w.Heal(); err != nil {
		w.t.Error(err)
	}
}

// output is a message of a topic.
type output struct{ op, origin, subject, payload string }

func header(block, name string) string {
	for line := range strings.SplitSeq(block, "\r\n") {
		if v, ok := strings.CutPrefix(line, name+": "); ok {
			return v
		}
	}
	return ""
}

// read waits until a topic has n messages and has had no more for a while, and reads it in full.
func (w *world) read(topic string, n int) (rows []output) {
	w.t.Helper()
	var have uint64
	since := time.Now()
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		var msgs uint64
		err := within(5*time.Second, func(ctx context.Context) error {
			s, err := w.js.Stream(ctx, topic)
			if err == nil {
				msgs = s.CachedInfo().State.Msgs
			}
			return err
		})
		if err == nil && msgs != have {
			have, since = msgs, time.Now()
		}
		if err == nil && have >= uint64(n) && time.Since(since) > pick(300*time.Millisecond, 2*time.Second) {
			break
		}
		<-time.After(50 * time.Millisecond)
	}
	for try := 0; ; try++ {
		rows = rows[:0]
		err := within(time.Minute, func(ctx context.Context) error {
			c, err := w.js.OrderedConsumer(ctx, topic, jetstream.OrderedConsumerConfig{})
			if err != nil {
				return err
			}
			for uint64(len(rows)) < have {
				b, err := c.Fetch(int(min(have-uint64(len(rows)), 500)), jetstream.FetchMaxWait(5*time.Second))
				if err != nil {
					return err
				}
				for m := range b.Messages() {
					h := m.Headers()
					rows = append(rows, output{h.Get("Herald-Op"), h.Get("Herald-Origin"), m.Subject(), string(m.Data())})
				}
				if ctx.Err() != nil {
					return errors.Join(ctx.Err(), b.Error())
				}
			}
			return nil
		})
		if err == nil {
			return rows
		}
		if try == 5 {
			w.t.Fatalf("read %s: %v after %d messages", topic, err, len(rows))
		}
	}
}
