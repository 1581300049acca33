package catalogue

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/heraldmq/herald/topics"
)

func apply(t *testing.T, c *Catalogue, cmd Command) Result {
	t.Helper()
	r, err := c.Apply(&cmd)
	if err != nil {
		t.Fatalf("%s: %v", cmd.Op, err)
	}
	return r
}

// A node of a cluster whose first group is still to be founded must not place a topic in
// one that nobody begins; a node alone needs no table.
func TestNoTopicIsPlacedBeforeTheClustersFirstGroup(t *testing.T) {
	for _, c := range []struct {
		groups int
		fault  *topics.Fault
		group  topics.GroupID
	}{{GroupsPlanned, FaultNoGroup, 0}, {0, nil, 1}, {2, nil, 1}} {
		cmd := Command{Op: OpCreateTopic, Account: "A", Config: &topics.Config{Name: "T", Replicas: 1}, Groups: c.groups}
		b, err := cmd.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeCommand(b)
		if err != nil {
			t.Fatal(err)
		}
		r := apply(t, New(), *back)
		if r.Fault != c.fault || r.Topic != nil && r.Topic.Group != c.group || (r.Topic == nil) != (c.fault != nil) {
			t.Errorf("%d groups: %+v", c.groups, r)
		}
	}
}

func TestTablesOfNodesAndGroups(t *testing.T) {
	c := New()
	apply(t, c, Command{Op: OpPutNode, Time: 5, Node: &Node{Name: "a", Addr: "h:1"}})
	apply(t, c, Command{Op: OpPutNode, Time: 6, Node: &Node{Name: "a", Addr: "h:2"}})
	if n, _ := c.Node("a"); !reflect.DeepEqual(n, Node{"a", "h:2", Active, 5, nil}) {
		t.Errorf("node %v", n)
	}
	if r := apply(t, c, Command{Op: OpPutNode, Node: &Node{Name: "x", State: Draining}}); r.Fault != FaultNodeNotFound {
		t.Errorf("an unknown node is drained: %v", r.Fault)
	}
	apply(t, c, Command{Op: OpPutNode, Node: &Node{Name: "a", State: Removed}})
	if n, _ := c.Node("a"); n.State != Removed || n.Addr != "h:2" {
		t.Errorf("node %v", n)
	}
	put := func(g Group) *topics.Fault { return apply(t, c, Command{Op: OpPutGroup, Group: &g}).Fault }
	if f := put(Group{ID: 4, Replicas: 3, Nodes: []string{"a", "b", "c"}, Revision: 1}); f != nil {
		t.Fatal(f)
	}
	if f := put(Group{ID: 4, Replicas: 3, Nodes: []string{"d"}, Revision: 1}); f != FaultStale {
		t.Errorf("a stale change: %v", f)
	}
	create := func(name string, replicas int) Result {
		return apply(t, c, Command{Op: OpCreateTopic, Account: "A", Config: &topics.Config{Name: name, Replicas: replicas}})
	}
	if r := create("T", 3); r.Fault != FaultNoGroup {
		t.Errorf("a group that isn't open takes a topic: %v", r)
	}
	if f := put(Group{ID: 4, Replicas: 3, Nodes: []string{"b", "c", "d"}, Leaving: []string{"a"}, Founded: true, Open: true, Revision: 2}); f != nil {
		t.Fatal(f)
	}
	if r := create("T", 3); r.Fault != nil || r.Topic.Group != 4 {
		t.Errorf("%v", r)
	}
	if r := create("U", 1); r.Fault != FaultNoGroup {
		t.Errorf("%v", r)
	}
	if g := c.Group(4); !g.Holds("a") || !g.Holds("b") || g.Holds("e") || len(g.Holders()) != 4 || c.Load(4) != 1 {
		t.Errorf("group %v", g)
	}
	if _, err := c.Apply(&Command{Op: OpPutGroup, Group: &Group{ID: 0, Replicas: 1, Nodes: []string{"a"}, Revision: 1}}); !errors.Is(err, topics.ErrBadEntry) {
		t.Errorf("group 0 is put: %v", err)
	}

	b, err := c.Freeze().AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	back := New()
	if err := back.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back.Nodes(), c.Nodes()) || !reflect.DeepEqual(back.Groups(), c.Groups()) || back.Load(4) != 1 {
		t.Errorf("restored %v %v", back.Nodes(), back.Groups())
	}
}

func TestSnapshotsOfNodesAloneAreAsBefore(t *testing.T) {
	c := New()
	apply(t, c, Command{Op: OpCreateTopic, Account: "A", Config: &topics.Config{Name: "T"}, Groups: 1})
	b, err := c.Freeze().AppendBinary(nil)
	if err != nil || b[len(snapshotMagic)] != snapshotVersion {
		t.Errorf("version %d, %v", b[len(snapshotMagic)], err)
	}
}

func TestResultsGoToOtherNodes(t *testing.T) {
	c := New()
	body := []byte(`{"name":"n","owner":{"type":"user","id":"u"},"subjects":["a"]}`)
	var results []Result
	results = append(results,
		apply(t, c, Command{Op: OpCreateTopic, Account: "A", Config: &topics.Config{Name: "T"}, Groups: 1}),
		apply(t, c, Command{Op: OpDeleteTopic, Account: "A", Name: "x"}),
		apply(t, c, Command{Op: OpAdvertise, Account: "A", ID: "i", Body: body}),
	)
	for _, r := range results {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var back Result
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(back)
		if err != nil || string(again) != string(b) {
			t.Errorf("%s came back as %s, %v", b, again, err)
		}
	}
}

// TestTopicsGoWhereTheyAskFor: a group with tags takes those that ask for exactly these, and
// a change of what is asked for moves a topic.
func TestTopicsGoWhereTheyAskFor(t *testing.T) {
	c := New()
	put := func(id topics.GroupID, tags ...string) {
		apply(t, c, Command{Op: OpPutGroup, Group: &Group{ID: id, Replicas: 1, Tags: tags, Nodes: []string{"a"}, Open: true, Revision: 1}})
	}
	put(1)
	put(2, "eu", "ssd")
	config := func(tags ...string) *topics.Config {
		cfg := &topics.Config{Name: "T", Subjects: []string{"t"}, Replicas: 1}
		if len(tags) > 0 {
			cfg.Placement = &topics.Placement{Tags: tags}
		}
		return cfg
	}
	create := func(tags ...string) Result {
		return apply(t, c, Command{Op: OpCreateTopic, Account: "A", Config: config(tags...)})
	}
	if r := create("eu"); r.Fault != FaultNoGroup {
		t.Errorf("a group with more tags was taken: %+v", r)
	}
	r := create("SSD", "eu", "ssd")
	if r.Fault != nil || r.Topic.Group != 2 {
		t.Fatalf("%+v", r)
	}
	apply(t, c, Command{Op: OpSyncedTopic, Topic: r.Topic.ID, Revision: r.Topic.Revision})
	r = apply(t, c, Command{Op: OpUpdateTopic, Account: "A", Config: config()})
	if r.Fault != nil || r.Topic.Move == nil || r.Topic.Move.Other != 1 {
		t.Errorf("it doesn't move to where there are no tags: %+v", r)
	}
}

func TestANodeSaysItsTagsWithItsAddress(t *testing.T) {
	c := New()
	say := func(n Node) []string {
		apply(t, c, Command{Op: OpPutNode, Node: &n})
		got, _ := c.Node("a")
		return got.Tags
	}
	for _, s := range []struct {
		node Node
		want []string
	}{
		{Node{Name: "a", Addr: "h:1", Tags: []string{"eu"}}, []string{"eu"}},
		{Node{Name: "a", State: Draining}, []string{"eu"}},
		{Node{Name: "a", Addr: "h:1"}, nil},
	} {
		if got := say(s.node); !reflect.DeepEqual(got, s.want) {
			t.Errorf("%+v: %v", s.node, got)
		}
	}
}
