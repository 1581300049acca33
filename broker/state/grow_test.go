package state

import (
	"os"
	"path/filepath"
	"testing"
)

// TestANodeAloneGetsPeers opens the directory of a node that was alone as that of a
// cluster's first node, to which others come.
func TestANodeAloneGetsPeers(t *testing.T) {
	t.Parallel()
	f := &fleet{TB: t, dir: t.TempDir(), nodes: map[string]*member{}, acks: map[string]chan string{}}
	t.Cleanup(f.stopAll)
	dir := filepath.Join(f.dir, "a")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	n := openOnly(t, dir) // under a random name
	if err := n.Start(Hooks{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.CreateTopic(timed(t), "A", conf("OLD", "old")); err != nil {
		t.Fatal(err)
	}
	n.close()
	f.seeds = []string{freeAddr(t)}
	f.join("a")
	f.notAny("OLD")
	if a := f.publish("a", "OLD", "old", "", "x"); a != `{"stream":"OLD","seq":1}` {
		t.Errorf("answer %q", a)
	}
	f.join("b")
	f.join("c")
	f.create("b", replicated(3, "NEW", "new"))
	f.notLeading("NEW")
	f.notLeading("OLD")
	if a := f.publish("c", "OLD", "old", "", "x"); a != `{"stream":"OLD","seq":2}` {
		t.Errorf("answer %q", a)
	}
	if a := f.publish("c", "NEW", "new", "", "x"); a != `{"stream":"NEW","seq":1}` {
		t.Errorf("answer %q", a)
	}
}

// notAny waits until a topic's group has a leader that all nodes know.
func (f *fleet) notAny(topic string) {
	f.Helper()
	f.wait("all know "+topic+" and its leader", func() (bool, string) {
		for _, n := range f.names() {
			if t, ok := f.nodes[n].Topic("A", topic); !ok || t.Group().Leader() == "" {
				return false, n
			}
		}
		return true, ""
	})
}
