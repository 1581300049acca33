package broker

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/broker/front"
)

// deafNode is a node that can be kept from hearing what clients of others listen to.
type deafNode struct {
	*Broker
	gate atomic.Pointer[chan struct{}] // closed to make it hear again
	deaf atomic.Int64                  // peers of which it hears nothing
}

// deafen makes the node hear nothing of the one that nc is connected to, until hear is
// called, which may be called again.
func (n *deafNode) deafen(t *testing.T, name string, nc *nats.Conn) (hear func()) {
	t.Helper()
	gate := make(chan struct{})
	n.gate.Store(&gate)
	for end := time.Now().Add(time.Minute); n.deaf.Load() == 0; <-time.After(20 * time.Millisecond) {
		if err := nc.Publish("deaf."+name, nil); err != nil || time.Now().After(end) {
			t.Fatalf("%s still hears: %v", name, err)
		}
	}
	return sync.OnceFunc(func() { close(gate) })
}

// deafNodes starts a cluster whose nodes hear nothing more of a node from when one of its
// clients publishes to deaf.<name>: the mesh handles one chunk of a peer at a time.
func deafNodes(t *testing.T) map[string]*deafNode {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	nodes := map[string]*deafNode{}
	var routes []string
	for _, name := range []string{"a", "b", "c"} {
		path := filepath.Join(t.TempDir(), "test.conf")
		text := fmt.Sprintf("port: -1\nserver_name: %s\njetstream { store_dir: %q }\ncluster { name: three, port: -1, routes: [%s] }\n",
			name, t.TempDir(), strings.Join(routes, ", "))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := config.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := New(Config{Options: o, StoreDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- b.Run(context.Background()) }()
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if err := <-ran; err != nil {
				t.Error(err)
			}
		})
		<-b.Ready()
		u, err := url.Parse(b.ClusterURL())
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, fmt.Sprintf("%q", "nats-route://"+u.Host))
		n := &deafNode{Broker: b}
		if _, err := b.front.Account(config.GlobalAccount).Subscribe("deaf."+name, "", func(m *front.Message) {
			if gate := n.gate.Load(); m.Forwarded != "" && gate != nil {
				n.deaf.Add(1)
				<-*gate
				n.deaf.Add(-1)
			}
		}); err != nil {
			t.Fatal(err)
		}
		nodes[name] = n
	}
	return nodes
}

func (n *deafNode) connect(t *testing.T) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(n.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// early is something that is asked of a stream's leader, or of who serves there.
type early struct {
	name, subject, body, want string
	header                    nats.Header
	queue                     bool // a queue group waits for the answer
	captured                  bool // what is asked is a publish
}

func earlies(stream, leader string) []early {
	return []early{
		{name: "publish", subject: stream + ".x", want: `"seq":`, captured: true},
		{name: "publish of a queue group", subject: stream + ".x", want: `"seq":`, captured: true, queue: true},
		{name: "publish that is refused", subject: stream + ".x", want: "10071", captured: true, header: nats.Header{"Nats-Expected-Last-Sequence": {"999"}}},
		{name: "atomic batch", subject: stream + ".x", want: `"batch":"b"`, captured: true, header: nats.Header{
			"Nats-Batch-Id": {"b"}, "Nats-Batch-Sequence": {"1"}, "Nats-Batch-Commit": {"1"},
		}},
		{name: "fast batch", subject: stream + ".x", want: `"type":"ack"`, captured: true},
		{name: "API request", subject: "$JS.API.STREAM.INFO." + stream, want: `"config"`},
		{name: "message get", subject: "$JS.API.STREAM.MSG.GET." + stream, body: `{"seq":1}`, want: `"message"`},
		{name: "direct get", subject: "$JS.API.DIRECT.GET." + stream, body: `{"seq":1}`, want: "before"},
		{name: "pull", subject: "$JS.API.CONSUMER.MSG.NEXT." + stream + ".c", want: "before"},
		{name: "double ack", body: "+ACK"},
		{name: "$HERALD request", subject: "$HERALD.CLUSTER.STATUS", want: `"nodes"`},
		{name: "service", subject: "service." + leader, want: "served"},
	}
}

// ask asks from a client of node by, of which leader hears nothing else meanwhile.
func (c *early) ask(t *testing.T, by, leader *deafNode, name, stream string) {
	asker := by.connect(t)
	if c.subject == "" {
		m, err := asker.Request("$JS.API.CONSUMER.MSG.NEXT."+stream+".c", nil, 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		c.subject = m.Reply
	}
	hear := leader.deafen(t, name, asker)
	defer func() {
		hear()
		for leader.deaf.Load() > 0 {
			<-time.After(time.Millisecond)
		}
	}()
	inbox, reply := nats.NewInbox(), ""
	if reply = inbox; c.name == "fast batch" {
		reply = inbox + ".f.10.fail.1.0.$FI"
	}
	queue := ""
	if c.queue {
		queue = "q"
	}
	got := make(chan *nats.Msg, 10)
	for _, subject := range []string{inbox, inbox + ".>"} {
		if _, err := asker.QueueSubscribe(subject, queue, func(m *nats.Msg) { got <- m }); err != nil {
			t.Fatal(err)
		}
	}
	if err := asker.PublishMsg(&nats.Msg{Subject: c.subject, Reply: reply, Data: []byte(c.body), Header: c.header}); err != nil {
		t.Fatal(err)
	}
	if !c.captured {
		if err := asker.Flush(); err != nil {
			t.Fatal(err)
		}
		hear()
	}
	select {
	case m := <-got:
		if text := string(m.Data); !strings.Contains(text, c.want) {
			t.Errorf("answered %s %v, want %s", text, m.Header, c.want)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("not answered")
	}
	hear()
	select {
	case m := <-got:
		t.Errorf("answered again: %s", m.Data)
	case <-time.After(100 * time.Millisecond):
	}
}

// TestAnAnswerFindsWhoAskedBeforeTheyAreHeardOf has clients ask for the first time where the
// node that answers hasn't heard of them: what subscribes and then asks gets its answer. What
// is captured is answered meanwhile, since it goes another way; the rest waits behind the
// interest.
func TestAnAnswerFindsWhoAskedBeforeTheyAreHeardOf(t *testing.T) {
	t.Parallel()
	nodes := deafNodes(t)
	js, err := jetstream.New(nodes["a"].connect(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for name, n := range nodes {
		if _, err := n.connect(t).Subscribe("service."+name, func(m *nats.Msg) { _ = m.Respond([]byte("served")) }); err != nil {
			t.Fatal(err)
		}
	}
	for _, replicas := range []int{3, 1} {
		stream := fmt.Sprint("s", replicas)
		leader := ""
		for leader == "" {
			s, err := js.CreateStream(ctx, jetstream.StreamConfig{
				Name: stream, Subjects: []string{stream + ".>"}, Replicas: replicas,
				AllowDirect: true, AllowAtomicPublish: true, AllowBatchPublish: true,
			})
			if err == nil {
				leader = s.CachedInfo().Cluster.Leader
			} else if ctx.Err() != nil {
				t.Fatal(err)
			}
			<-time.After(20 * time.Millisecond)
		}
		if _, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := js.Publish(ctx, stream+".before", []byte("before")); err != nil {
				t.Fatal(err)
			}
		}
		by := "a"
		if leader == by {
			by = "b"
		}
		for _, c := range earlies(stream, leader) {
			t.Run(fmt.Sprintf("%s of %d replicas", c.name, replicas), func(t *testing.T) {
				c.ask(t, nodes[by], nodes[leader], leader, stream)
			})
		}
	}
}
