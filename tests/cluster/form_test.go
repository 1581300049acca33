package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/tests/harness"
)

// rewrite changes a node's configuration file.
func (w *world) rewrite(n *harness.Node, old, with string) {
	w.t.Helper()
	text, err := os.ReadFile(n.Conf)
	if err != nil {
		w.t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		w.t.Fatalf("%s has no %q", n.Conf, old)
	}
	if err := os.WriteFile(n.Conf, []byte(strings.Replace(string(text), old, with, 1)), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// route replaces the routes of a node.
func (w *world) route(n *harness.Node, to ...*harness.Node) {
	w.t.Helper()
	text, err := os.ReadFile(n.Conf)
	if err != nil {
		w.t.Fatal(err)
	}
	var routes []string
	for _, m := range to {
		routes = append(routes, fmt.Sprintf("nats://chaos:secret@%s:%d", m.Host, m.ClusterPort))
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(strings.TrimSpace(line), "routes:") {
			w.rewrite(n, line, "  routes: [ "+strings.Join(routes, ", ")+" ]\n")
		}
	}
}

// TestANodeAloneIsACluster: with a cluster block and no other node, or none in its routes at
// all, it serves streams, also when it starts again.
func TestANodeAloneIsACluster(t *testing.T) {
	t.Parallel()
	for _, routes := range []bool{true, false} {
		t.Run(fmt.Sprintf("routes=%t", routes), func(t *testing.T) {
			t.Parallel()
			w := prepare(t, harness.ClusterOptions{Nodes: 1})
			n := w.Nodes[0]
			if !routes {
				w.route(n)
			}
			w.start(n)
			js := w.js(w.connect(n))
			s := w.stream(js, "S", 1)
			if _, err := js.Publish(w.within(), "S.1", nil); err != nil {
				t.Fatal(err)
			}
			n.Kill()
			w.start(n)
			w.eventually("another message is stored", func() bool {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_, err := js.Publish(ctx, "S.2", nil, jetstream.WithMsgID("2"))
				return err == nil
			})
			if i, err := s.Info(w.within()); err != nil || i.State.Msgs != 2 {
				t.Errorf("the stream after a restart: %+v, %v", i, err)
			}
		})
	}
}

// TestFormsInAnyOrder starts the nodes one after another, with time between them,
// in an order drawn at random.
func TestFormsInAnyOrder(t *testing.T) {
	t.Parallel()
	w := prepare(t, harness.ClusterOptions{Nodes: 3})
	order := rand.Perm(3)
	t.Logf("order %v", order)
	for i, k := range order {
		n := w.Nodes[k]
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		if i < 2 { // it takes clients, and knows that it can't serve all of them yet
			if err := n.Ready(patience); err != nil {
				t.Fatal(err)
			}
			if status, text, err := get(n, "/readyz"); status != 503 || err != nil {
				t.Errorf("%s is ready alone: %d %s %v", n.Name, status, text, err)
			}
			// The last steps of a start come behind the listener for clients.
			for deadline := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
				status, text, err := get(n, "/startupz")
				if status == 200 && err == nil {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%s has not started, for want of the others: %d %s %v", n.Name, status, text, err)
				}
			}
		}
	}
	w.ready(w.Nodes...)
	js := w.js(w.connect(w.Nodes[order[2]]))
	w.stream(js, "S", 3)
	if _, err := js.Publish(w.within(), "S.1", nil); err != nil {
		t.Error(err)
	}
}

// TestSeedsOnly: it is enough that everybody knows the first node.
func TestSeedsOnly(t *testing.T) {
	t.Parallel()
	w := prepare(t, harness.ClusterOptions{Nodes: 3})
	w.route(w.Nodes[0])
	for _, n := range w.Nodes[1:] {
		w.route(n, w.Nodes[0])
	}
	w.start(w.Nodes...)
	w.status(w.Nodes[2], "three nodes", func(s *client.ClusterStatus) bool { return s.Healthy && len(s.Nodes) == 3 })
	s := w.stream(w.js(w.connect(w.Nodes[1])), "S", 3)
	if i, err := s.Info(w.within()); err != nil || len(i.Cluster.Replicas) != 2 {
		t.Errorf("%+v %v", i, err)
	}
}

// TestStrangersAreRefused: without the secret, or under a name that is taken, a node
// stays outside and the cluster undisturbed.
func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	w := form(t, 2)
	stranger, err := w.Add()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(stranger.Conf)
	if err != nil {
		t.Fatal(err)
	}
	wrong := strings.NewReplacer("chaos:secret@", "chaos:wrong@", "password: secret", "password: wrong").Replace(string(text))
	if err := os.WriteFile(stranger.Conf, []byte(wrong), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	if err := stranger.Ready(patience); err != nil {
		t.Fatal(err)
	}
	w.eventually("the refusal to be logged", func() bool {
		log := strings.ToLower(stranger.Output() + w.Nodes[0].Output())
		return strings.Contains(log, "secret") || strings.Contains(log, "refused")
	})
	if s := w.status(w.Nodes[0], "a healthy cluster", healthy); len(s.Nodes) != 2 {
		t.Errorf("nodes %+v", s.Nodes)
	}
	if status, _, err := get(stranger, "/readyz"); status == 200 || err != nil {
		t.Errorf("a stranger is ready: %d %v", status, err)
	}
	for _, n := range w.Nodes {
		if strings.Contains(n.Output(), "secret@") || strings.Contains(n.Output(), "chaos:secret") {
			t.Errorf("%s logs the secret", n.Name)
		}
	}
	// What speaks no peer protocol at all is closed and disturbs nobody.
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", w.Nodes[0].ClusterPort))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "CONNECT {}\r\nPING\r\n")
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if strings.Contains(string(buf[:n]), "PONG") {
			t.Fatal("the cluster port speaks to clients")
		}
		if err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Error("a stranger's connection is kept open")
			}
			break
		}
	}
}

// TestMeshOnly: a cluster without durable topics.
func TestMeshOnly(t *testing.T) {
	t.Parallel()
	w := prepare(t, harness.ClusterOptions{Nodes: 2, Extra: ""})
	for _, n := range w.Nodes {
		w.rewrite(n, "jetstream {", "jetstream {\n  enabled: false")
	}
	w.start(w.Nodes...)
	a, b := w.connect(w.Nodes[0]), w.connect(w.Nodes[1])
	sub, err := a.SubscribeSync("x.*")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Flush(); err != nil {
		t.Fatal(err)
	}
	w.eventually("a message from the other node", func() bool {
		if err := b.Publish("x.1", []byte("hi")); err != nil {
			t.Fatal(err)
		}
		m, err := sub.NextMsg(20 * time.Millisecond)
		return err == nil && string(m.Data) == "hi"
	})
	if s := w.status(w.Nodes[0], "a healthy cluster", healthy); len(s.Groups) != 0 {
		t.Errorf("groups %+v", s.Groups)
	}
}

// TestFive places streams of every number of replicas on five nodes.
func TestFive(t *testing.T) {
	t.Parallel()
	w := form(t, 5)
	js := w.js(w.connect(w.Nodes[4]))
	for _, r := range []int{1, 3, 5} {
		for i := range 2 {
			name := fmt.Sprintf("R%dx%d", r, i)
			s := w.stream(js, name, r)
			for k := range 10 {
				if _, err := js.Publish(w.within(), fmt.Sprintf("%s.%d", name, k), nil); err != nil {
					t.Fatalf("publish to %s: %v", name, err)
				}
			}
			info, err := s.Info(w.within())
			if err != nil || info.State.Msgs != 10 || info.Cluster.Leader == "" || len(info.Cluster.Replicas) != r-1 {
				t.Errorf("%s: %+v, %v", name, info, err)
			}
		}
	}
	if _, err := js.CreateStream(w.within(), jetstream.StreamConfig{Name: "R6", Replicas: 6}); err == nil {
		t.Error("a stream of six replicas was made")
	}
	st := w.status(w.Nodes[0], "a healthy cluster", healthy)
	for _, g := range st.Groups {
		if g.ID != 0 && len(g.Members) != g.Replicas {
			t.Errorf("group %d has %d members, wants %d", g.ID, len(g.Members), g.Replicas)
		}
	}
	// Two of five down: what has three or five replicas goes on where a majority is left.
	dead := w.Nodes[:2]
	for _, n := range dead {
		n.Kill()
	}
	js = w.js(w.connect(w.Nodes[4]))
	w.eventually("a stream of five replicas to go on", func() bool {
		_, err := js.Publish(w.within(), "R5x0.after", nil)
		return err == nil
	})
}
