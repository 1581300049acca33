package state

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

func TestTopicsAreServedByEveryNode(t *testing.T) {
	t.Parallel()
	for _, r := range []int{1, 3} {
		t.Run(fmt.Sprintf("R%d", r), func(t *testing.T) {
			t.Parallel()
			if testing.Short() && r == 1 {
				t.Skip("the other tests have some of these")
			}
			f := startFleet(t, 3)
			for i, on := range f.names() {
				name := "T" + strings.ToUpper(on)
				f.create(on, replicated(r, name, name+".>"))
				for j, from := range f.names() {
					f.wait(from+" knows "+name, func() (bool, string) {
						_, ok := f.nodes[from].Topic("A", name)
						return ok, ""
					})
					want := fmt.Sprintf(`{"stream":"%s","seq":%d}`, name, j+1)
					if got := f.publish(from, name, name+".x", "", "hello"); got != want {
						t.Errorf("topic %d from %s: %q, want %q", i, from, got, want)
					}
				}
				f.same(name)
			}
			f.calm()
		})
	}
}

func TestChangesWorkOnEveryNode(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	f.create("a", replicated(3, "T", "t.>"))
	for i, on := range f.names() {
		m := f.nodes[on]
		f.wait(on+" knows T", func() (bool, string) { _, ok := m.Topic("A", "T"); return ok, "" })
		topic, _ := m.Topic("A", "T")
		name := "c" + on
		if _, err := m.CreateConsumer(timed(t), topic, name, topics.ConsumerConfig{Name: name, Durable: name}); err != nil {
			t.Fatalf("create consumer on %s: %v", on, err)
		}
		if topic.Data().Consumer(name) == nil {
			t.Errorf("%s doesn't know the consumer it made", on)
		}
		cfg := replicated(3, "T", "t.>", fmt.Sprintf("u%d.>", i))
		topic, err := m.UpdateTopic(timed(t), "A", cfg)
		if err != nil {
			t.Fatalf("update on %s: %v", on, err)
		}
		if got := topic.Config().Subjects; !slices.Equal(got, cfg.Subjects) {
			t.Errorf("%s: subjects %q after the update", on, got)
		}
		if ok, err := m.DeleteConsumer(timed(t), topic, name); err != nil || !ok {
			t.Errorf("delete consumer on %s: %t, %v", on, ok, err)
		}
	}
	if err := f.nodes["c"].DeleteTopic(timed(t), "A", "T"); err != nil {
		t.Fatal(err)
	}
	for _, on := range f.names() {
		f.wait(on+" forgets T", func() (bool, string) { _, ok := f.nodes[on].Topic("A", "T"); return !ok, "" })
	}
	_, _, err := f.nodes["b"].CreateTopic(timed(t), "A", replicated(5, "F", "f"))
	if err == nil || !strings.Contains(err.Error(), "10005") {
		t.Errorf("five replicas on three nodes: %v", err)
	}
}

func TestANodeThatIsKilledIsReplacedAndComesBack(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	topic := f.create("a", replicated(3, "T", "t.>"))
	f.notLeading("T")
	for range 10 {
		f.publish("b", "T", "t.x", "", "before")
	}
	dead := ""
	f.wait("a leader to kill", func() (bool, string) { // on a busy machine one may have just given up
		dead = topic.Group().Leader()
		return dead != "", ""
	})
	f.kill(dead)
	others := f.names()
	began := time.Now()
	stored := 10
	f.wait("messages are stored again", func() (bool, string) {
		a := f.publish(others[0], "T", "t.x", "NATS/1.0\r\nNats-Msg-Id: first\r\n\r\n", "after")
		return strings.Contains(a, "seq"), a
	})
	stored++
	t.Logf("stored again after %s", time.Since(began))
	for range 10 {
		if a := f.publish(others[1], "T", "t.x", "", "after"); !strings.Contains(a, "seq") {
			t.Fatalf("answer %q", a)
		}
		stored++
	}
	f.join(dead)
	f.same("T")
	back, _ := f.nodes[dead].Topic("A", "T")
	if n := back.Data().State().Messages; n != uint64(stored) {
		t.Errorf("%d messages, want %d", n, stored)
	}
	f.wait("the lead goes back", func() (bool, string) {
		g := back.Group()
		return g.Leader() == g.Nodes()[0], g.Leader()
	})
}

func TestNodesJoinAreDrainedAndRemoved(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	for i := range 4 {
		name := fmt.Sprintf("T%d", i)
		f.create("a", replicated(3, name, name))
		f.notLeading(name)
		f.publish("a", name, name, "", "x")
	}
	f.calm()
	f.join("d")
	f.wait("d holds replicas", func() (bool, string) { return len(f.nodes["d"].Groups()) >= 2, "" })
	f.calm()
	if err := f.nodes["d"].DrainNode(timed(t), "a"); err != nil {
		t.Fatal(err)
	}
	f.wait("a holds nothing", func() (bool, string) {
		return len(f.nodes["a"].Groups()) == 0, fmt.Sprint(len(f.nodes["a"].Groups()))
	})
	f.calm()
	for i := range 4 {
		name := fmt.Sprintf("T%d", i)
		if got, want := f.publish("a", name, name, "", "y"), fmt.Sprintf(`{"stream":"%s","seq":2}`, name); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		f.same(name)
	}
	if err := f.nodes["b"].RemoveNode(timed(t), "a"); err != nil {
		t.Fatal(err)
	}
	f.wait("a is refused", func() (bool, string) {
		_, ok := f.nodes["b"].net.Peer("a")
		return !ok, ""
	})
	f.wait("everybody knows that a is removed", func() (bool, string) {
		for _, on := range []string{"b", "c", "d"} {
			for _, n := range f.nodes[on].Nodes() {
				if (n.State == catalogue.Removed) != (n.Name == "a") {
					return false, fmt.Sprintf("to %s, node %s is %s", on, n.Name, n.State)
				}
			}
		}
		return true, ""
	})
}
