package cluster_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/tests/harness"
)

// TestRemovedNode removes a node that runs on, through that very node: whoever asked
// is answered, its clients go elsewhere, it takes none and says why, until it is added
// again.
func TestRemovedNode(t *testing.T) {
	t.Parallel()
	w := form(t, 4)
	js := w.js(w.connect(w.Nodes[1:]...))
	leaving := w.Nodes[0]
	s := w.stream(js, "S", 3)
	nc := w.connect(w.Nodes...) // to the one that leaves
	ops := w.ops(leaving)
	if _, err := ops.DrainNode(w.within(), leaving.Name); err != nil {
		t.Fatalf("drain: %v", err)
	}
	w.status(w.Nodes[1], leaving.Name+" to be drained", func(s *client.ClusterStatus) bool {
		n := node(s, leaving.Name)
		return n != nil && n.State == "drained"
	})
	// A drained node forwards everything.
	if _, err := w.js(nc).Publish(w.within(), "S.1", nil); err != nil {
		t.Errorf("publish through a drained node: %v", err)
	}
	if _, err := ops.RemoveNode(w.within(), leaving.Name, false); err != nil {
		t.Fatalf("remove a node through itself: %v", err)
	}
	w.eventually("the client to go elsewhere", func() bool {
		return nc.IsConnected() && nc.ConnectedUrl() != leaving.URL()
	})
	if _, err := w.js(nc).Publish(w.within(), "S.2", nil); err != nil {
		t.Errorf("publish once the node is removed: %v", err)
	}
	if i, err := s.Info(w.within()); err != nil || i.State.Msgs != 2 {
		t.Errorf("%+v %v", i, err)
	}
	status, text, err := get(leaving, "/readyz")
	if err != nil || status != http.StatusServiceUnavailable || !strings.Contains(text, "removed") {
		t.Errorf("readyz of a removed node: %d %s %v", status, text, err)
	}
	if takes(leaving) {
		t.Error("a removed node takes clients")
	}
	// Also when it starts again and was not told.
	leaving.Kill()
	if err := leaving.Start(); err != nil {
		t.Fatal(err)
	}
	w.eventually("it to say that it is removed", func() bool {
		status, text, err := get(leaving, "/readyz")
		return err == nil && status == http.StatusServiceUnavailable && strings.Contains(text, "removed")
	})
	if _, err := w.ops(w.Nodes[1]).AddNode(w.within(), leaving.Name); err != nil {
		t.Fatalf("add: %v", err)
	}
	w.ready(leaving)
	w.eventually("it to take clients again", func() bool { return takes(leaving) })
}

// takes says whether a node keeps a client that comes to it. One that it sends away may
// be at another node when Connect returns: it is told their addresses.
func takes(n *harness.Node) bool {
	one, err := nats.Connect(n.URL())
	if err != nil {
		return false
	}
	defer one.Close()
	return one.ConnectedUrl() == n.URL()
}
