package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/broker/config"
)

// three is a cluster in this process, seen by each of its nodes.
func three(t *testing.T) (worlds []*world, stop func(i int)) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	var routes []string
	var closers []func()
	for i := range 3 {
		o := config.Defaults()
		o.Port, o.ServerName, o.JetStream.Enabled = -1, fmt.Sprintf("n%d", i+1), true
		o.Cluster.Port, o.Cluster.Name, o.Cluster.Routes = -1, "test", append([]string{}, routes...)
		b, err := broker.New(broker.Config{Options: o, StoreDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- b.Run(context.Background()) }()
		closed := false
		end := func() {
			if closed {
				return
			}
			closed = true
			if err := errors.Join(b.Close(), <-ended); err != nil {
				t.Error(err)
			}
		}
		closers = append(closers, end)
		t.Cleanup(end)
		<-b.Ready()
		u, err := url.Parse(b.ClusterURL())
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, u.Host)
		worlds = append(worlds, &world{t: t, url: b.ClientURL(), home: t.TempDir()})
	}
	worlds[0].must("cluster", "status", "--wait", "--timeout", "60s")
	return worlds, func(i int) { closers[i]() }
}

// patient runs a command that may be told, just after a change, that nobody leads.
func (w *world) patient(args ...string) string {
	w.t.Helper()
	for end := time.After(time.Minute); ; {
		o := w.run(args...)
		if o.code == 0 {
			return o.out
		}
		select {
		case <-end:
			w.t.Fatalf("pubsub %s: exit code %d: %s%s", strings.Join(args, " "), o.code, o.out, o.err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func TestBackupTopAndDoctorOnThreeNodes(t *testing.T) {
	t.Parallel()
	w, stop := three(t)
	// What is stored outlives a node unless somebody says otherwise; what is there stays as it is.
	w[0].patient("topic", "create", "orders", "--replicas", "3")
	w[0].must("topic", "create", "orders")
	w[0].must("topic", "create", "one", "--replicas", "1")
	w[0].must("topic", "create", "one")
	w[1].must("topic", "create", "made")
	w[2].must("pub", "--durable", "implied.x", "1")
	w[2].must("advertise", "put", "declared", "--subject", "declared.>", "--durable")
	for topic, want := range map[string]int{"orders": 3, "one": 1, "made": 3, "implied": 3, "declared": 3} {
		if got := w[1].must("topic", "info", topic, "--template", "{{.config.num_replicas}}"); strings.TrimSpace(got) != fmt.Sprint(want) {
			t.Errorf("%s has %s replicas, want %d", topic, got, want)
		}
		if topic != "orders" {
			w[1].must("topic", "rm", topic, "--yes")
		}
	}
	w[1].must("advertise", "rm", "declared")

	w[0].must("pub", "--durable", "orders.{{.Count}}", "{{.Count}}", "--expand", "--count", "200")
	w[1].patient("consumer", "create", "orders", "worker")

	// What one node is asked is true of the cluster.
	got := objects(t, w[2].must("top", "topics", "--once", "--every", "50ms", "-o", "json"))
	if len(got) != 1 || got[0]["messages"] != 200.0 || got[0]["consumers"] != 1.0 || !strings.HasPrefix(fmt.Sprint(got[0]["leader"]), "n") {
		t.Errorf("top topics: %v", got)
	}
	got = objects(t, w[1].must("top", "consumers", "--once", "--every", "50ms", "-o", "json"))
	if len(got) != 1 || got[0]["consumer"] != "orders/worker" || got[0]["pending"] != 200.0 {
		t.Errorf("top consumers: %v", got)
	}
	idle := w[1].start("sub", "nothing.here")
	idle.until(&idle.err, "nothing.here")
	got = objects(t, w[0].must("top", "connections", "--once", "--every", "50ms", "-o", "json"))
	nodes := map[any]bool{}
	for _, c := range got {
		nodes[c["node"]] = true
	}
	if !nodes["n1"] || !nodes["n2"] { // this command's, and the subscriber's
		t.Errorf("top connections: %v", got)
	}
	idle.cancel()
	idle.wait()

	var findings []struct{ Check, Verdict, Found string }
	if err := json.Unmarshal([]byte(w[1].must("doctor", "-o", "json")), &findings); err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Verdict == "fail" {
			t.Errorf("doctor: %+v", f)
		}
	}

	// Kept by one node, brought back by another, as a topic of three replicas.
	dir := filepath.Join(t.TempDir(), "backup")
	w[0].patient("backup", dir)
	w[0].must("verify", dir)
	w[1].patient("topic", "rm", "orders", "--yes")
	w[2].patient("restore", dir)
	w[0].patient("topic", "get", "orders", "200", "-o", "raw")
	if out := w[1].must("sub", "orders.>", "--all", "--to", "end", "-o", "raw"); strings.Count(out, "\n") != 200 || !strings.HasSuffix(out, "\n200\n") && !strings.HasSuffix(out, "\n199\n") {
		t.Errorf("%d messages came back", strings.Count(out, "\n"))
	}
	var topic struct {
		Config struct {
			Replicas int `json:"num_replicas"`
		}
		State struct{ Messages int }
	}
	if err := json.Unmarshal([]byte(w[1].must("topic", "info", "orders", "-o", "json")), &topic); err != nil || topic.Config.Replicas != 3 || topic.State.Messages != 200 {
		t.Errorf("%+v, %v", topic, err)
	}
	if out := w[2].must("consumer", "info", "orders", "worker", "-o", "json"); !strings.Contains(out, `"num_pending":200`) && !strings.Contains(out, `"num_pending": 200`) {
		t.Errorf("the consumer: %s", out)
	}

	// A node that is away is what a doctor finds, with what to do.
	stop(2)
	for end := time.After(time.Minute); ; {
		o := w[0].run("doctor", "--no-write")
		if o.code == exitUnhealthy && strings.Contains(o.out, "n3") {
			break
		}
		select {
		case <-end:
			t.Fatalf("doctor without n3: %+v", o)
		case <-time.After(50 * time.Millisecond):
		}
	}
	// And the others go on.
	w[0].patient("pub", "--durable", "orders.more", "x")
	if got = objects(t, w[1].patient("top", "topics", "--once", "--every", "50ms", "-o", "json")); len(got) != 1 || got[0]["messages"] != 201.0 {
		t.Errorf("with two nodes: %v", got)
	}
}
