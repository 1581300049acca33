package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/tests/harness"
)

// load publishes from several clients until it is stopped, each message under an
// id of its own, and tries again what got no answer.
type load struct {
	acked  sync.Map // id → sequence
	count  atomic.Int64
	failed atomic.Int64 // tries without an acknowledgement
	worst  atomic.Int64 // ns until a message was acknowledged
	stop   context.CancelFunc
	wg     sync.WaitGroup
	fault  atomic.Pointer[string]
	log    sync.Map // id → what went wrong last
}

// publish puts load on a stream, through connections that may use any node.
func (w *world) publish(stream string, writers int, try time.Duration) *load {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{stop: cancel}
	for i := range writers {
		nodes := append(append([]*harness.Node{}, w.Nodes[i%len(w.Nodes):]...), w.Nodes[:i%len(w.Nodes)]...)
		js := w.js(w.connect(nodes...))
		l.wg.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				l.one(ctx, js, stream, fmt.Sprintf("%d-%d", i, k), try)
			}
		})
	}
	w.t.Cleanup(func() { cancel(); l.wg.Wait() })
	return l
}

func (l *load) one(ctx context.Context, js jetstream.JetStream, stream, id string, try time.Duration) {
	began := time.Now()
	for ctx.Err() == nil {
		through := js.Conn().ConnectedUrl()
		once, cancel := context.WithTimeout(ctx, try)
		ack, err := js.Publish(once, stream+"."+id, []byte(id), jetstream.WithMsgID(id))
		cancel()
		if err == nil {
			l.acked.Store(id, ack.Sequence)
			l.count.Add(1)
			for took := int64(time.Since(began)); took > l.worst.Load(); {
				l.worst.Store(took)
			}
			return
		}
		if ctx.Err() == nil {
			text := fmt.Sprintf("%v (%s at %s, until %s, sent to %s, now at %s)",
				err, id, began.Format("05.000"), time.Now().Format("05.000"), through, js.Conn().ConnectedUrl())
			l.log.Store(id, text)
			l.fault.Store(&text)
			l.failed.Add(1)
		}
	}
}

// reached waits until so many more are acknowledged.
func (w *world) reached(l *load, more int64) {
	w.t.Helper()
	want := l.count.Load() + more
	why := ""
	w.eventually(fmt.Sprintf("%d more acknowledgements", more), func() bool {
		if p := l.fault.Load(); p != nil {
			why = *p
		}
		return l.count.Load() >= want
	}, &why)
}

// check ends the load and reads the stream through a node: everything that was
// acknowledged is there once, where the acknowledgement said.
func (w *world) check(l *load, stream string, through *harness.Node) {
	w.t.Helper()
	l.stop()
	l.wg.Wait()
	js := w.js(w.connect(through))
	s, err := js.Stream(w.within(), stream)
	if err != nil {
		w.t.Fatal(err)
	}
	info, err := s.Info(w.within())
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := js.OrderedConsumer(w.within(), stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		w.t.Fatal(err)
	}
	found := map[string]uint64{}
	it, err := c.Messages()
	if err != nil {
		w.t.Fatal(err)
	}
	defer it.Stop()
	for uint64(len(found)) < info.State.Msgs {
		m, err := it.Next(jetstream.NextMaxWait(patience))
		if err != nil {
			w.t.Fatalf("after %d of %d messages: %v", len(found), info.State.Msgs, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			w.t.Fatal(err)
		}
		if seq, twice := found[string(m.Data())]; twice {
			w.t.Fatalf("%s is stored twice: at %d and %d", m.Data(), seq, meta.Sequence.Stream)
		}
		found[string(m.Data())] = meta.Sequence.Stream
	}
	lost := 0
	l.acked.Range(func(id, seq any) bool {
		if found[id.(string)] != seq {
			lost++
		}
		return true
	})
	if lost > 0 {
		w.t.Errorf("%d of %d acknowledged messages are not where they should be", lost, l.count.Load())
	}
	w.t.Logf("%d acknowledged, %d tries in vain, the longest took %s", l.count.Load(), l.failed.Load(), time.Duration(l.worst.Load()).Round(time.Millisecond))
}

// TestLeaderKilled kills the leader of a stream under load. Clients connected to it
// and to others go on by themselves.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	w := form(t, 3)
	js := w.js(w.connect(w.Nodes...))
	s := w.stream(js, "S", 3)
	c, err := s.CreateConsumer(w.within(), jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	var consumed atomic.Int64
	consuming, err := c.Consume(func(m jetstream.Msg) {
		consumed.Add(1)
		_ = m.Ack()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer consuming.Stop()
	l := w.publish("S", 6, 2*time.Second)
	w.reached(l, 200)
	rounds := 1
	if os.Getenv("HERALD_LONG") != "" {
		rounds = 5
	}
	for range rounds {
		leader := w.leader(s)
		leader.Kill()
		w.reached(l, 200)
		seen := consumed.Load()
		w.eventually("the consumer to go on", func() bool { return consumed.Load() > seen+50 })
		w.start(leader)
		w.reached(l, 100)
	}
	w.status(w.Nodes[0], "a healthy cluster", healthy)
	w.check(l, "S", w.Nodes[0])
	w.eventually("everything to be consumed", func() bool { return consumed.Load() >= l.count.Load() })
}

// TestRollingRestart stops and starts every node in turn, by SIGTERM, under load.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	w := form(t, 3)
	js := w.js(w.connect(w.Nodes...))
	w.stream(js, "S", 3)
	kv, err := js.CreateKeyValue(w.within(), jetstream.KeyValueConfig{Bucket: "B", Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	l := w.publish("S", 4, 10*time.Second) // that every try is answered is the point, not when
	w.reached(l, 100)
	for _, n := range w.Nodes {
		t.Logf("%s stops %s (%s)", time.Now().Format("05.000"), n.Name, n.URL())
		if !n.Stop() {
			t.Errorf("%s did not stop", n.Name)
		}
		t.Logf("%s stopped", time.Now().Format("05.000"))
		w.reached(l, 50)
		if _, err := kv.Put(w.within(), n.Name, []byte("stopped")); err != nil {
			t.Errorf("put while %s is down: %v", n.Name, err)
		}
		w.start(n)
		t.Logf("%s started", time.Now().Format("05.000"))
		w.status(n, "a healthy cluster", healthy)
		t.Logf("%s healthy", time.Now().Format("05.000"))
	}
	w.reached(l, 100)
	// What a client has sent when its node stops is read, and answered where it is then.
	l.log.Range(func(_, text any) bool {
		t.Errorf("a publish failed: %v", text)
		return true
	})
	if n := l.failed.Load(); n > 0 {
		t.Errorf("%d publishes failed", n)
	}
	w.check(l, "S", w.Nodes[1])
}

// TestNodesComeAndGo: a fourth node joins, an old one is drained and removed, another
// is lost with its disk and replaced, all under load.
func TestNodesComeAndGo(t *testing.T) {
	t.Parallel()
	w := form(t, 3)
	js := w.js(w.connect(w.Nodes...))
	s := w.stream(js, "S", 3)
	l := w.publish("S", 3, 5*time.Second)
	w.reached(l, 100)

	fourth, err := w.Add()
	if err != nil {
		t.Fatal(err)
	}
	w.start(fourth)
	st := w.status(fourth, "four nodes", func(s *client.ClusterStatus) bool { return s.Healthy && len(s.Nodes) == 4 })
	if n := node(st, fourth.Name); n == nil || n.State != "active" {
		t.Errorf("nodes %+v", st.Nodes)
	}
	w.reached(l, 50)

	ops := w.ops(fourth)
	leaving := w.leader(s)
	if _, err := ops.DrainNode(w.within(), leaving.Name); err != nil {
		t.Fatalf("drain %s: %v", leaving.Name, err)
	}
	w.status(fourth, leaving.Name+" to be drained", func(s *client.ClusterStatus) bool {
		n := node(s, leaving.Name)
		return n != nil && n.State == "drained" && n.Leads == 0
	})
	w.reached(l, 50)
	leaving.Stop()
	if _, err := ops.RemoveNode(w.within(), leaving.Name, false); err != nil {
		t.Fatalf("remove %s: %v", leaving.Name, err)
	}
	w.status(fourth, "a healthy cluster without it", healthy)
	w.reached(l, 50)

	// Another loses its disk.
	lost := w.others(leaving, fourth)[0]
	lost.Kill()
	if err := os.RemoveAll(lost.Store); err != nil {
		t.Fatal(err)
	}
	w.reached(l, 50)
	w.start(lost)
	w.status(fourth, "the wiped node to be refilled", healthy)
	w.reached(l, 50)
	if i, err := s.Info(w.within()); err != nil || len(i.Cluster.Replicas) != 2 {
		t.Errorf("%+v %v", i, err)
	}
	for _, g := range w.status(fourth, "a healthy cluster", healthy).Groups {
		for _, m := range g.Members {
			if m.Node == leaving.Name {
				t.Errorf("group %d still has %s", g.ID, m.Node)
			}
		}
	}
	w.check(l, "S", lost)
	// Who was removed is refused until it is added again.
	if err := leaving.Start(); err != nil {
		t.Fatal(err)
	}
	if err := leaving.Ready(patience); err == nil {
		if status, text, _ := get(leaving, "/readyz"); status == 200 {
			t.Errorf("a removed node is ready: %s", text)
		}
	}
	if _, err := ops.AddNode(w.within(), leaving.Name); err != nil {
		t.Fatalf("add %s: %v", leaving.Name, err)
	}
	w.ready(leaving)
}

func node(s *client.ClusterStatus, name string) *client.ClusterNode {
	for i := range s.Nodes {
		if s.Nodes[i].Name == name {
			return &s.Nodes[i]
		}
	}
	return nil
}

// TestMinority: a node without a majority says so and acknowledges nothing.
func TestMinority(t *testing.T) {
	t.Parallel()
	w := form(t, 3)
	js := w.js(w.connect(w.Nodes[0]))
	w.stream(js, "S", 3)
	if _, err := js.Publish(w.within(), "S.1", nil); err != nil {
		t.Fatal(err)
	}
	w.Nodes[1].Kill()
	w.Nodes[2].Kill()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	if ack, err := js.Publish(ctx, "S.2", nil, jetstream.WithRetryAttempts(0)); err == nil {
		t.Errorf("a node alone acknowledged %+v", ack)
	}
	w.eventually("the node to say that it has no leader", func() bool {
		status, text, err := get(w.Nodes[0], "/readyz")
		return err == nil && status == 503 && strings.Contains(text, "leader")
	})
	if status, _, err := get(w.Nodes[0], "/livez"); status != 200 || err != nil {
		t.Errorf("livez: %d %v", status, err)
	}
	st := w.status(w.Nodes[0], "advice", func(s *client.ClusterStatus) bool { return !s.Healthy && len(s.Advice) > 0 })
	if !strings.Contains(strings.Join(st.Advice, "\n"), "has no leader") {
		t.Errorf("advice %q", st.Advice)
	}
	// Live messages don't need a majority.
	nc := w.connect(w.Nodes[0])
	sub, err := nc.SubscribeSync("live")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Publish("live", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.NextMsg(patience); err != nil && !errors.Is(err, nats.ErrTimeout) {
		t.Error(err)
	}
	w.start(w.Nodes[1])
	if _, err := js.Publish(w.within(), "S.3", nil); err != nil {
		t.Errorf("with two of three: %v", err)
	}
}
