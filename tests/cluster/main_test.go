// Package cluster_test starts real brokerd processes that form clusters, and asks
// of them what users and operators expect: every node serves everything, nobody
// loses an acknowledged message when one goes, and nodes come and go under load.
//
// Several clusters run at once: they wait for elections and timers more than they work.
// HERALD_LONG=1 takes longer over some. tests/chaos disturbs clusters harder.
package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/tests/harness"
)

// patience bounds every wait.
const patience = time.Minute

// world is a cluster under test.
type world struct {
	*harness.Cluster
	t *testing.T
}

// form starts a cluster of n nodes and waits until all are ready.
func form(t *testing.T, n int) *world {
	t.Helper()
	w := prepare(t, harness.ClusterOptions{Nodes: n})
	w.start(w.Nodes...)
	return w
}

func prepare(t *testing.T, o harness.ClusterOptions) *world {
	t.Helper()
	o.Wire = harness.WirePlain
	return &world{harness.NewCluster(t, o), t}
}

// start starts nodes and waits until they are ready.
func (w *world) start(nodes ...*harness.Node) {
	w.t.Helper()
	for _, n := range nodes {
		if err := n.Start(); err != nil {
			w.t.Fatal(err)
		}
	}
	w.ready(nodes...)
}

// ready waits until nodes say that they serve everything.
func (w *world) ready(nodes ...*harness.Node) {
	w.t.Helper()
	for _, n := range nodes {
		var why string
		w.eventually(n.Name+" to be ready", func() bool {
			status, text, err := get(n, "/readyz")
			why = fmt.Sprint(text, err)
			return err == nil && status == http.StatusOK
		}, &why)
	}
}

// eventually polls what other processes bring about.
func (w *world) eventually(what string, ok func() bool, why ...*string) {
	w.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			text := ""
			for _, s := range why {
				text += ": " + *s
			}
			w.t.Fatalf("waited in vain for %s%s", what, text)
		}
	}
}

// get asks a node's monitoring port.
func get(n *harness.Node, path string) (status int, text string, err error) {
	c := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get(fmt.Sprintf("http://%s:%d%s", n.Host, n.HTTPPort, path))
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return r.StatusCode, string(b), err
}

// page decodes a monitoring page.
func (w *world) page(n *harness.Node, path string) map[string]any {
	w.t.Helper()
	_, text, err := get(n, path)
	var v map[string]any
	if err == nil {
		err = json.Unmarshal([]byte(text), &v)
	}
	if err != nil {
		w.t.Fatalf("%s of %s: %v: %s", path, n.Name, err, text)
	}
	return v
}

// connect connects to nodes, in that order; one that goes is replaced by the next.
func (w *world) connect(nodes ...*harness.Node) *nats.Conn {
	w.t.Helper()
	nc, err := nats.Connect(w.URLs(nodes...), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ReconnectJitter(0, 0), nats.DontRandomize(), nats.Timeout(patience), nats.RetryOnFailedConnect(false))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	return nc
}

func (w *world) js(nc *nats.Conn) jetstream.JetStream {
	w.t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	return js
}

// within is a context of the usual patience.
func (w *world) within() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.t.Cleanup(cancel)
	return ctx
}

// stream makes a stream and waits until it has a leader and its replicas.
func (w *world) stream(js jetstream.JetStream, name string, replicas int) jetstream.Stream {
	w.t.Helper()
	s, err := js.CreateStream(w.within(), jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, Replicas: replicas})
	if err != nil {
		w.t.Fatalf("create stream %s of %d replicas: %v", name, replicas, err)
	}
	return s
}

// leader returns the node that leads a stream.
func (w *world) leader(s jetstream.Stream) *harness.Node {
	w.t.Helper()
	var n *harness.Node
	w.eventually("a leader", func() bool {
		// A question on its way to a node that is killed is lost, and nats.go waits for its answer
		// for as long as it may.
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		i, err := s.Info(ctx)
		if err != nil || i.Cluster == nil {
			return false
		}
		n = w.Node(i.Cluster.Leader)
		return n != nil
	})
	return n
}

// others are the nodes but one.
func (w *world) others(not ...*harness.Node) []*harness.Node {
	var out []*harness.Node
next:
	for _, n := range w.Nodes {
		for _, x := range not {
			if n == x {
				continue next
			}
		}
		out = append(out, n)
	}
	return out
}

// ops is an operator's connection to a node.
func (w *world) ops(n *harness.Node) *client.Client {
	w.t.Helper()
	c, err := client.Connect(n.URL(), client.Timeout(patience))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// status waits until the cluster, as a node sees it, is as ok wants it.
func (w *world) status(n *harness.Node, what string, ok func(*client.ClusterStatus) bool) *client.ClusterStatus {
	w.t.Helper()
	c := w.ops(n)
	var s *client.ClusterStatus
	var why string
	w.eventually(what, func() bool {
		var err error
		if s, err = c.ClusterStatus(w.within()); err != nil {
			why = err.Error()
			return false
		}
		why = strings.Join(s.Advice, "; ")
		return ok(s)
	}, &why)
	return s
}

func healthy(s *client.ClusterStatus) bool { return s.Healthy }
