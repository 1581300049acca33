// Package soak does everything at once to a real broker: publishers of every
// kind, readers of every kind, key-value writers, purges and deletes, while the
// broker is killed, stopped, paused and has its power cut. Then it holds what is
// left against what was answered.
//
// Nothing of the broker is looked into: the checks are about what a client was
// told and what a client can read.
package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/tests/harness"
)

// world is a broker with all that is done to it.
type world struct {
	t      *testing.T
	seed   uint64
	broker *harness.Broker
	disk   *harness.Disk // nil where the power can't be cut
	began  time.Time
	stop   chan struct{} // closed: nothing new is begun
	silent chan struct{} // closed: nothing new comes
	actors sync.WaitGroup

	publishers []*publisher
	readers    []*reader
	cells      *cells
	remover    *remover

	delivered, redelivered, confirmed atomic.Int64

	mu   sync.Mutex
	seen map[string]int // faults by kind
}

// bad reports a fault; of a kind that comes often only the first few.
func (w *world) bad(kind, format string, args ...any) {
	w.mu.Lock()
	w.seen[kind]++
	n := w.seen[kind]
	w.mu.Unlock()
	if n <= 5 {
		w.t.Errorf("%6.2fs %s: %s", time.Since(w.began).Seconds(), kind, fmt.Sprintf(format, args...))
	} else {
		w.t.Fail()
	}
}

// random returns an actor's own source of randomness.
func (w *world) random(actor string) *rand.Rand { return rand.New(rand.NewPCG(w.seed, hash(actor))) }

func (w *world) stopped() bool { return closed(w.stop) }

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// rest waits for about d, or until nothing new is to be begun.
func (w *world) rest(r *rand.Rand, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-w.stop:
	case <-time.After(time.Duration(r.Int64N(int64(2*d) + 1))):
	}
}

// connect returns a connection that comes back whenever the broker does. What is
// published while there is none fails at once: nothing is sent behind our back.
func (w *world) connect(name string) (*nats.Conn, jetstream.JetStream) {
	nc, err := nats.Connect(w.broker.URL, nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ReconnectJitter(10*time.Millisecond, 0), nats.ReconnectBufSize(-1), nats.Timeout(5*time.Second), nats.RetryOnFailedConnect(true),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	return nc, js
}

// create makes a topic from what is particular about it.
func (w *world) create(nc *nats.Conn, name string, subjects []string, with map[string]any) {
	cfg := map[string]any{
		"name": name, "subjects": subjects, "retention": "limits", "storage": "file", "num_replicas": 1,
		"max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "duplicate_window": time.Hour, "allow_direct": true,
	}
	if subjects == nil {
		delete(cfg, "subjects")
	}
	for k, v := range with {
		cfg[k] = v
	}
	body, err := json.Marshal(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := nc.Request("$JS.API.STREAM.CREATE."+name, body, 5*time.Second)
	if err != nil {
		w.t.Fatalf("create %s: %v", name, err)
	}
	var r struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &r); err != nil || r.Error != nil {
		w.t.Fatalf("create %s: %v %v", name, err, r.Error)
	}
}

// setUp makes the topics and those who use them.
func (w *world) setUp() {
	nc, js := w.connect("setup")
	w.create(nc, "LOG", []string{"log.>"}, nil)
	w.create(nc, "CHAIN", []string{"chain.>"}, nil)
	w.create(nc, "LINE", []string{"line"}, nil)
	w.create(nc, "QUEUE", []string{"queue.>"}, map[string]any{"retention": "workqueue"})
	w.create(nc, "WANTED", []string{"wanted.>"}, map[string]any{"retention": "interest"})
	w.create(nc, "RECENT", []string{"recent.>"}, map[string]any{"max_msgs": 500})
	w.create(nc, "FULL", []string{"full.>"}, map[string]any{"max_msgs": 400, "discard": "new"})
	w.create(nc, "EACH", []string{"each.>"}, map[string]any{"max_msgs_per_subject": 3})
	w.create(nc, "SHRINK", []string{"shrink.>"}, nil)
	w.create(nc, "SUM", []string{"sum.>"}, map[string]any{"allow_msg_counter": true})
	w.create(nc, "BRIEF", []string{"brief.>"}, map[string]any{"allow_msg_ttl": true})

	w.create(nc, "MIRROR", nil, map[string]any{"mirror": map[string]any{"name": "LOG"}})
	w.create(nc, "SOURCED", nil, map[string]any{"sources": []map[string]any{{"name": "CHAIN"}, {"name": "LINE"}}})
	w.create(nc, "DRAINED", nil, map[string]any{"retention": "workqueue", "sources": []map[string]any{{"name": "CHAIN"}}})

	three := []string{"a", "b", "c"}
	w.publisher("log1", "LOG", under("log", three), func(p *publisher) { p.ids, p.window = true, 200 })
	w.publisher("log2", "LOG", under("log", three), func(p *publisher) { p.ids, p.window = true, 1 })
	w.publisher("log3", "LOG", under("log", three), func(p *publisher) { p.window = 50 })
	w.publisher("chain", "CHAIN", under("chain", three), func(p *publisher) { p.ids, p.expect = true, expectSubject })
	w.publisher("line", "LINE", []string{"line"}, func(p *publisher) { p.ids, p.expect = true, expectTopic })
	w.publisher("queue", "QUEUE", under("queue", []string{"a.x", "a.y", "b.x"}), func(p *publisher) { p.ids, p.window = true, 60 })
	w.publisher("wanted", "WANTED", under("wanted", three), func(p *publisher) { p.ids, p.window = true, 60 })
	w.publisher("recent", "RECENT", under("recent", three), func(p *publisher) { p.ids, p.window = true, 100 })
	w.publisher("full", "FULL", under("full", three), func(p *publisher) { p.ids, p.window, p.refusable = true, 20, true })
	w.publisher("each", "EACH", under("each", []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"}), func(p *publisher) { p.ids, p.window = true, 30 })
	w.publisher("shrink", "SHRINK", under("shrink", three), func(p *publisher) { p.ids, p.window = true, 50 })
	w.publisher("sum", "SUM", under("sum", three), func(p *publisher) { p.ids, p.counts = true, true })
	w.publisher("brief", "BRIEF", under("brief", three), func(p *publisher) { p.ids, p.window, p.brief = true, 20, true })

	w.reader(js, "LOG", "strict", func(r *reader) { r.strict, r.workers = true, 1 })
	w.reader(js, "LOG", "loose", func(r *reader) { r.workers, r.filter = 2, "log.*" })
	w.reader(js, "LOG", "pushed", func(r *reader) { r.push = true })
	w.reader(js, "QUEUE", "qa", func(r *reader) { r.workers, r.filter = 2, "queue.a.*" })
	w.reader(js, "QUEUE", "qb", func(r *reader) { r.workers, r.filter = 1, "queue.b.*" })
	w.reader(js, "DRAINED", "dr", func(r *reader) { r.workers = 1 })
	w.reader(js, "WANTED", "wx", func(r *reader) { r.workers = 1 })
	w.reader(js, "WANTED", "wy", func(r *reader) { r.workers = 2 })
	w.cells = newCells(w, js)
	w.remover = newRemover(w)
}

func under(root string, leaves []string) []string {
	var all []string
	for _, l := range leaves {
		all = append(all, root+"."+l)
	}
	return all
}

// run lets everybody work for a while and be disturbed, and waits until all that
// was begun has ended.
func (w *world) run(d time.Duration) *nemesis {
	for _, p := range w.publishers {
		w.actors.Go(p.run)
	}
	var readers sync.WaitGroup
	for _, r := range w.readers {
		readers.Go(r.run)
	}
	w.cells.run()
	w.actors.Go(w.remover.run)
	w.actors.Go(w.passers)
	n := &nemesis{w: w, rng: w.random("nemesis")}
	n.run(d)
	close(w.stop)
	w.actors.Wait()
	close(w.silent)
	readers.Wait()
	return n
}

// passers come to an interest topic, want its messages, read none and go again.
func (w *world) passers() {
	_, js := w.connect("passer")
	rng := w.random("passer")
	for i := 0; !w.stopped(); i++ {
		w.rest(rng, 500*time.Millisecond)
		name := fmt.Sprintf("passer%d", i)
		_, _ = w.retry(func(ctx context.Context) error {
			_, err := js.CreateOrUpdateConsumer(ctx, "WANTED", jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy})
			return err
		})
		w.rest(rng, 500*time.Millisecond)
		_, err := w.retry(func(ctx context.Context) error {
			err := js.DeleteConsumer(ctx, "WANTED", name)
			if errors.Is(err, jetstream.ErrConsumerNotFound) {
				return nil
			}
			return err
		})
		if err != nil {
			w.bad("consumer stays", "%s: %v", name, err)
		}
	}
}

// retry tries for a minute: what the broker's absence does to a request is no
// fault. It returns how often.
func (w *world) retry(f func(context.Context) error) (tries int, err error) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		tries++
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		err = f(ctx)
		cancel()
		var api *jetstream.APIError
		if err == nil || errors.As(err, &api) && api.Code != 503 {
			return tries, err
		}
		<-time.After(30 * time.Millisecond)
	}
	return tries, err
}

func long() bool { return os.Getenv("HERALD_LONG") != "" }

func TestSoak(t *testing.T) {
	duration := 8 * time.Second
	if long() {
		duration = 10 * time.Minute
	}
	if s := os.Getenv("HERALD_SOAK"); s != "" {
		var err error
		if duration, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, seed: uint64(time.Now().UnixNano()), stop: make(chan struct{}), silent: make(chan struct{}), began: time.Now(), seen: map[string]int{}}
	if s := os.Getenv("HERALD_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &w.seed); err != nil {
			t.Fatal(errors.Join(errors.New("HERALD_SEED is not a number"), err))
		}
	}
	t.Logf("repeat with HERALD_SEED=%d HERALD_SOAK=%s go test -count=1 -run '^TestSoak$' ./tests/soak/", w.seed, duration)
	store := "store"
	disk, err := harness.NewDisk(t, 6000)
	if err != nil {
		t.Logf("without power cuts: %v", err)
	} else {
		w.disk, store = disk, filepath.Join(disk.Dir, "store")
	}
	w.broker = harness.New(t, fmt.Sprintf("server_name: n1\njetstream { enabled: true, store_dir: %q }\n", store))
	if err := w.broker.Run(); err != nil {
		t.Fatal(err)
	}
	w.setUp()
	n := w.run(duration)
	w.settle()
	w.check()
	w.restart(store)
	t.Logf("%s; %s; %s", n, w.counts(), w.cells)
	for kind, times := range w.seen {
		t.Errorf("%s: %d times", kind, times)
	}
}
