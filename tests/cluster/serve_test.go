package cluster_test

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/tests/harness"
)

// TestThree asks one cluster of three for everything that doesn't disturb it.
func TestThree(t *testing.T) {
	t.Parallel()
	w := form(t, 3)
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"every node serves", everyNodeServes},
		{"every node serves buckets", everyNodeServesBuckets},
		{"requests and queue groups", requestsAndQueues},
		{"clients learn of all nodes", clientsLearn},
		{"pages", pages},
		{"nats command", natsCommand},
		{"waiting pull hears of a change", pullHearsOfChange},
		{"transfers", transfers},
		{"client port is not for nodes", clientPort},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, &world{w.Cluster, t}) })
	}
}

// everyNodeServes publishes through each node, and reads all of it through each.
func everyNodeServes(t *testing.T, w *world) {
	s := w.stream(w.js(w.connect(w.Nodes[0])), "EVERY", 3)
	const each = 20
	for _, n := range w.Nodes {
		js := w.js(w.connect(n))
		for i := range each {
			if _, err := js.Publish(w.within(), fmt.Sprintf("EVERY.%s.%d", n.Name, i), []byte(n.Name)); err != nil {
				t.Fatalf("publish through %s: %v", n.Name, err)
			}
		}
	}
	want := uint64(each * len(w.Nodes))
	if i, err := s.Info(w.within()); err != nil || i.State.Msgs != want || i.Config.Replicas != 3 || len(i.Cluster.Replicas) != 2 {
		t.Errorf("info %+v, %v", i, err)
	}
	for _, n := range w.Nodes {
		js := w.js(w.connect(n))
		for _, durable := range []string{"", "d-" + n.Name} {
			c, err := js.CreateOrUpdateConsumer(w.within(), "EVERY", jetstream.ConsumerConfig{Durable: durable, AckPolicy: jetstream.AckExplicitPolicy})
			if err != nil {
				t.Fatalf("consumer through %s: %v", n.Name, err)
			}
			batch, err := c.Fetch(int(want), jetstream.FetchMaxWait(patience))
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			for m := range batch.Messages() {
				got++
				if err := m.DoubleAck(w.within()); err != nil {
					t.Fatalf("ack through %s: %v", n.Name, err)
				}
			}
			if got != int(want) || batch.Error() != nil {
				t.Errorf("through %s: %d of %d messages, %v", n.Name, got, want, batch.Error())
			}
		}
		st, err := js.Stream(w.within(), "EVERY")
		if err != nil {
			t.Fatal(err)
		}
		if m, err := st.GetMsg(w.within(), want); err != nil || m.Sequence != want {
			t.Errorf("get through %s: %v", n.Name, err)
		}
	}
}

func everyNodeServesBuckets(t *testing.T, w *world) {
	kv, err := w.js(w.connect(w.Nodes[0])).CreateKeyValue(w.within(), jetstream.KeyValueConfig{Bucket: "B", Replicas: 3, History: 5})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := kv.WatchAll(w.within())
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range w.Nodes {
		here, err := w.js(w.connect(n)).KeyValue(w.within(), "B")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := here.Put(w.within(), "k", []byte(n.Name)); err != nil {
			t.Fatal(err)
		}
		for _, m := range w.Nodes { // what was put is read everywhere, at once
			there, err := w.js(w.connect(m)).KeyValue(w.within(), "B")
			if err != nil {
				t.Fatal(err)
			}
			if e, err := there.Get(w.within(), "k"); err != nil || string(e.Value()) != n.Name {
				t.Errorf("put through %s (%d), got through %s: %v %v", n.Name, i, m.Name, e, err)
			}
		}
	}
	seen := 0
	for e := range watch.Updates() {
		if e != nil {
			seen++
		}
		if seen == len(w.Nodes) {
			break
		}
	}
}

func requestsAndQueues(t *testing.T, w *world) {
	got := map[string]*atomic.Int64{}
	for _, n := range w.Nodes {
		c := &atomic.Int64{}
		got[n.Name] = c
		nc := w.connect(n)
		if _, err := nc.QueueSubscribe("ask", "workers", func(m *nats.Msg) {
			c.Add(1)
			_ = m.Respond([]byte(n.Name))
		}); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	const asked = 60
	for _, n := range w.Nodes {
		nc := w.connect(n)
		w.eventually("the others to be heard of", func() bool {
			m, err := nc.Request("ask", nil, patience)
			return err == nil && string(m.Data) != n.Name
		})
		before := total(got)
		for range asked {
			if _, err := nc.Request("ask", nil, patience); err != nil {
				t.Fatalf("request through %s: %v", n.Name, err)
			}
		}
		if after := total(got); after != before+asked {
			t.Errorf("through %s: %d answers to %d requests", n.Name, after-before, asked)
		}
	}
	for name, c := range got {
		if c.Load() == 0 {
			t.Errorf("the member at %s was never asked", name)
		}
	}
	if _, err := w.connect(w.Nodes[0]).Request("nobody", nil, patience); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a request to nobody: %v", err)
	}
}

func total(m map[string]*atomic.Int64) (n int64) {
	for _, c := range m {
		n += c.Load()
	}
	return n
}

func clientsLearn(t *testing.T, w *world) {
	nc := w.connect(w.Nodes[0])
	w.eventually("all URLs", func() bool { return len(nc.DiscoveredServers()) >= len(w.Nodes)-1 })
	for _, n := range w.Nodes[1:] {
		if !slices.Contains(nc.DiscoveredServers(), n.URL()) {
			t.Errorf("clients of n1 don't hear of %s: %v", n.URL(), nc.DiscoveredServers())
		}
	}
	if nc.ConnectedClusterName() != "chaos" {
		t.Errorf("cluster %q", nc.ConnectedClusterName())
	}
}

func pages(t *testing.T, w *world) {
	w.stream(w.js(w.connect(w.Nodes[0])), "PAGES", 3)
	w.status(w.Nodes[0], "a healthy cluster", healthy)
	leaders := 0
	for _, n := range w.Nodes {
		v := w.page(n, "/varz")
		cluster, _ := v["cluster"].(map[string]any)
		if v["routes"] != 2.0 || cluster["name"] != "chaos" || len(cluster["urls"].([]any)) < 2 {
			t.Errorf("varz of %s: routes %v, cluster %v", n.Name, v["routes"], cluster)
		}
		r := w.page(n, "/routez")
		if list, _ := r["routes"].([]any); r["num_routes"] != 2.0 || len(list) != 2 || list[0].(map[string]any)["remote_name"] == "" {
			t.Errorf("routez of %s: %v", n.Name, r)
		}
		meta, _ := w.page(n, "/jsz")["meta_cluster"].(map[string]any)
		if meta["cluster_size"] != 3.0 || w.Node(fmt.Sprint(meta["leader"])) == nil {
			t.Errorf("jsz of %s: %v", n.Name, meta)
		}
		if meta["leader"] == n.Name {
			if _, text, _ := get(n, "/metrics"); !strings.Contains(text, `herald_group_lag_entries{group="0"`) {
				t.Errorf("metrics of the leader don't tell how far its replicas are behind")
			}
			leaders++
			if list, _ := meta["replicas"].([]any); len(list) != 2 {
				t.Errorf("the leader tells of replicas %v", list)
			}
		}
		if status, text, err := get(n, "/healthz"); status != 200 || err != nil {
			t.Errorf("healthz of %s: %d %s %v", n.Name, status, text, err)
		}
		_, text, _ := get(n, "/metrics")
		for _, want := range []string{
			`herald_group_term{group="1"}`, `herald_group_unapplied_entries{group="1"}`, `herald_link_up{peer="`, `herald_link_rtt_seconds{peer="`,
			`herald_link_pending_bytes{peer="`, `herald_group_voters{group="0"} 3`, `herald_log_sync_seconds_bucket`, `herald_replica_damaged{group="0"} 0`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("metrics of %s have no %s", n.Name, want)
			}
		}
	}
	if leaders != 1 {
		t.Errorf("%d nodes say that they lead the catalogue", leaders)
	}
}

// natsCommand runs the nats command line, where it is installed.
func natsCommand(t *testing.T, w *world) {
	s := w.stream(w.js(w.connect(w.Nodes[0])), "CLI", 3)
	bin := natsBinary(t)
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(bin, append([]string{"-s", w.Nodes[1].URL(), "--timeout", "10s"}, args...)...)
		cmd.Env = append(cmd.Environ(), "HOME="+t.TempDir(), "NO_COLOR=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("nats %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	before := w.leader(s)
	for _, want := range []string{"Leader: " + before.Name, "Replica: ", "current"} {
		if out := run("stream", "info", "CLI"); !strings.Contains(out, want) {
			t.Errorf("stream info has no %q:\n%s", want, out)
		}
	}
	if out := run("stream", "cluster", "step-down", "CLI"); !strings.Contains(out, "Leader: ") {
		t.Errorf("step-down:\n%s", out)
	}
	w.eventually("another leader", func() bool { return w.leader(s) != before })
	if out := run("stream", "report"); !strings.Contains(out, "CLI") {
		t.Errorf("stream report:\n%s", out)
	}
}

func natsBinary(t *testing.T) string {
	t.Helper()
	if p, err := exec.LookPath("nats"); err == nil {
		return p
	}
	if p, err := exec.LookPath("/work/bin/nats"); err == nil {
		return p
	}
	return harness.Tool(t, "nats", "github.com/nats-io/natscli/nats@v0.4.2")
}

// pullHearsOfChange: a pull request that waits is told when the lead moves, so that
// its client asks the new leader.
func pullHearsOfChange(t *testing.T, w *world) {
	nc := w.connect(w.Nodes[0])
	js := w.js(nc)
	s := w.stream(js, "PULL", 3)
	if _, err := s.CreateConsumer(w.within(), jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		t.Fatal(err)
	}
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.PULL.c", inbox, []byte(`{"batch":1,"expires":60000000000}`)); err != nil {
		t.Fatal(err)
	}
	w.eventually("the request to wait", func() bool {
		c, err := s.Consumer(w.within(), "c")
		return err == nil && c.CachedInfo().NumWaiting == 1
	})
	if _, err := nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.PULL", nil, patience); err != nil {
		t.Fatal(err)
	}
	m, err := sub.NextMsg(patience)
	if err != nil || m.Header.Get("Status") != "409" {
		t.Errorf("%v, %v", m, err)
	}
	if _, err := js.Publish(w.within(), "PULL.1", []byte("x")); err != nil {
		t.Fatal(err)
	}
	c, err := s.Consumer(w.within(), "c")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := c.Next(jetstream.FetchMaxWait(patience)); err != nil || string(m.Data()) != "x" {
		t.Errorf("after the change: %v, %v", m, err)
	}
}

// transfers moves leads by the operator's subjects.
func transfers(t *testing.T, w *world) {
	s := w.stream(w.js(w.connect(w.Nodes[0])), "MOVE", 3)
	ops := w.ops(w.Nodes[2])
	for _, to := range w.Nodes {
		st, err := ops.ClusterStatus(w.within())
		if err != nil {
			t.Fatal(err)
		}
		from := w.leader(s)
		for _, g := range st.Groups {
			if g.Leader == from.Name && to != from {
				began := time.Now()
				if _, err := ops.TransferGroup(w.within(), g.ID, to.Name); err != nil {
					t.Errorf("transfer of group %d to %s: %v", g.ID, to.Name, err)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("a transfer took %s", took)
				}
			}
		}
		w.eventually(to.Name+" to lead", func() bool { return w.leader(s) == to })
	}
	if _, err := ops.TransferGroup(w.within(), 4711, ""); err == nil {
		t.Error("a group that isn't there was transferred")
	}
	if _, err := ops.RemoveNode(w.within(), "nobody", false); err == nil {
		t.Error("a node that isn't there was removed")
	}
	if _, err := ops.RemoveNode(w.within(), "n1", false); err == nil {
		t.Error("a node that holds topics was removed")
	}
}

// clientPort: what nodes say to each other is refused where clients connect.
func clientPort(t *testing.T, w *world) {
	nc := w.connect(w.Nodes[0])
	if _, err := nc.Request("$HERALD.CLUSTER.STATUS", nil, patience); err != nil {
		t.Errorf("an open cluster hides its status: %v", err)
	}
	// Nothing of the peers' channels can be reached by subjects.
	for _, subject := range []string{"cluster.report", "$HERALD.PEER.>", "cluster.scrub"} {
		if _, err := nc.Request(strings.TrimSuffix(subject, ".>"), nil, patience); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s: %v", subject, err)
		}
	}
}
