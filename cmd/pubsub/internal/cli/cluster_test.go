package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/client"
)

// alone is a cluster of one node.
func alone(t *testing.T) *world {
	t.Helper()
	o := config.Defaults()
	o.Port, o.ServerName, o.JetStream.Enabled = -1, "n1", true
	o.Cluster.Port, o.Cluster.Name = -1, "test"
	w := newWorldOf(t, broker.Config{Options: o})
	w.must("cluster", "status", "--wait", "--timeout", "20s")
	return w
}

func TestClusterStatus(t *testing.T) {
	t.Parallel()
	w := alone(t)
	out := w.must("cluster", "status")
	for _, want := range []string{"NODE", "n1", "active", "catalogue", "n1*"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	var s client.ClusterStatus
	if err := json.Unmarshal([]byte(w.must("cluster", "status", "-o", "json")), &s); err != nil || !s.Healthy || s.Cluster != "test" ||
		len(s.Nodes) != 1 || s.Nodes[0].Name != "n1" || len(s.Groups) < 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if out := w.must("cluster", "status", "--template", "{{.cluster}}"); out != "test\n" {
		t.Errorf("template: %q", out)
	}
	if out := w.must("cluster", "status", "-o", "csv"); !strings.HasPrefix(out, "node,state,ready,") {
		t.Errorf("csv: %s", out)
	}
}

func TestClusterRefusals(t *testing.T) {
	t.Parallel()
	w := alone(t)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"drain n1", exitConflict, "the only one that holds topics"},
		{"drain n7", exitNotFound, "no node is called"},
		{"remove n1 --yes", exitConflict, "the only one that holds topics"},
		{"remove n1", exitUsage, "--yes"},
		{"remove", exitUsage, "needs NODE"},
		{"transfer", exitUsage, "needs --group or --from"},
		{"transfer --group x", exitUsage, "neither a number"},
		{"transfer --group 99", exitNotFound, "there is no group 99"},
		{"transfer --from n1 --to n2", exitUsage, "--to goes with --group"},
		{"scrub --group y", exitUsage, "neither a number"},
		{"dev --nodes 0", exitUsage, "1 to 9"},
		{"statsu", exitUsage, `did you mean "status"`},
	} {
		if o := w.run(append([]string{"cluster"}, strings.Fields(c.args)...)...); o.code != c.code || !strings.Contains(o.err, c.want) {
			t.Errorf("cluster %s: exit code %d (want %d): %s", c.args, o.code, c.code, o.err)
		}
	}
	if o := w.run("cluster", "drain", "n1", "--dry-run"); o.code != 0 || !strings.Contains(o.err, "would drain node n1") {
		t.Errorf("dry run: %d %s", o.code, o.err)
	}
	if o := newWorld(t).run("cluster", "status"); o.code != exitNoResponder || !strings.Contains(o.err, "not part of a cluster") {
		t.Errorf("without a cluster: %d %s", o.code, o.err)
	}
}

func TestClusterCompletion(t *testing.T) {
	t.Parallel()
	w := alone(t)
	lines := strings.Split(w.must("__complete", "cluster", "drain", ""), "\n")
	if !slices.Contains(lines, "n1") {
		t.Errorf("completion gives %q", lines)
	}
}

// TestClusterDev runs the developer's cluster, publishes to it and ends it.
func TestClusterDev(t *testing.T) {
	t.Parallel()
	w := nowhere(t)
	b := w.start("cluster", "dev", "--port", "0", "--dir", t.TempDir(), "-o", "json")
	b.until(&b.out, "]")
	var all []struct{ Name, URL string }
	if err := json.Unmarshal([]byte(b.out.String()), &all); err != nil || len(all) != 3 {
		t.Fatalf("%v: %s", err, b.out.String())
	}
	w.url = all[2].URL
	w.must("topic", "create", "orders", "--replicas", "3")
	w.must("pub", "--durable", "orders.1", "x")
	w.url = all[0].URL
	if out := w.must("topic", "get", "orders", "1", "-o", "raw"); out != "x\n" {
		t.Errorf("got %q", out)
	}
	b.cancel()
	if o := b.wait(); o.code != exitInterrupted && o.code != exitOK {
		t.Errorf("exit code %d: %s", o.code, o.err)
	}
}
