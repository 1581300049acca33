package state

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/heraldmq/herald/topics"
)

// TestAClusterOfOneServesTopics: its first group is founded when the first topic asks for one.
func TestAClusterOfOneServesTopics(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1)
	_, _, err := f.nodes["a"].CreateTopic(timed(t), "A", replicated(3, "T3", "t3.>"))
	if fault := (*topics.Fault)(nil); !errors.As(err, &fault) || fault.ErrCode != 10005 {
		t.Errorf("three replicas on one node: %v", err)
	}
	f.create("a", replicated(1, "T", "t.>"))
	f.create("a", replicated(1, "U", "u.>"))
	if a := f.publish("a", "T", "t.x", "", "1"); a != `{"stream":"T","seq":1}` {
		t.Error(a)
	}
	f.calm()
	f.kill("a")
	f.join("a")
	if a := f.publish("a", "T", "t.x", "", "2"); a != `{"stream":"T","seq":2}` {
		t.Errorf("after a restart: %s", a)
	}
}

// TestTopicsLiveOnNodesWithTheTagsTheyAskFor: a group is made for them, of nodes that have all
// the tags; where there are too few, nats-server's refusal says which tags are missing; and a
// topic that asks for something else moves.
func TestTopicsLiveOnNodesWithTheTagsTheyAskFor(t *testing.T) {
	t.Parallel()
	tags := map[string][]string{"a": {"EU", "ssd"}, "b": {"eu", "SSD"}, "c": {"us"}}
	f := startFleet(t, 3, func(o *Options) { o.Tags = tags[o.Network.Name()] })
	f.wait("the tags are known", func() (bool, string) {
		for _, n := range f.nodes["a"].Nodes() {
			if len(n.Tags) == 0 {
				return false, n.Name
			}
		}
		return true, ""
	})
	asking := func(replicas int, tags ...string) topics.Config {
		cfg := replicated(replicas, "T", "t.>")
		if len(tags) > 0 {
			cfg.Placement = &topics.Placement{Tags: tags}
		}
		return cfg
	}
	for _, c := range []struct {
		cfg  topics.Config
		text string
	}{
		{asking(3, "eu"), "no suitable peers for placement, tags not matched ['eu']"},
		{asking(1, "eu", "us"), "no suitable peers for placement, tags not matched ['us', 'eu']"}, // no node has both
		{asking(2, "mars"), "no suitable peers for placement, tags not matched ['mars']"},
	} {
		_, _, err := f.nodes["c"].CreateTopic(timed(t), "A", c.cfg)
		var fault *topics.Fault
		if !errors.As(err, &fault) || fault.ErrCode != 10005 {
			t.Errorf("%v: %v", c.cfg.Placement, err)
		} else if fault.Text != c.text {
			t.Errorf("%v: %q, want %q", c.cfg.Placement, fault.Text, c.text)
		}
	}
	topic := f.create("c", asking(2, "ssd", "Eu"))
	if on := slices.Sorted(slices.Values(topic.Group().Nodes())); !slices.Equal(on, []string{"a", "b"}) {
		t.Errorf("it lives on %v", on)
	}
	f.notLeading("T")
	if a := f.publish("c", "T", "t.x", "", "1"); a != `{"stream":"T","seq":1}` {
		t.Error(a)
	}
	move := func(want []string, cfg topics.Config) {
		t.Helper()
		f.wait("the move is decided", func() (bool, string) {
			_, err := f.nodes["b"].UpdateTopic(timed(t), "A", cfg)
			return err == nil, fmt.Sprint(err)
		})
		f.settled("T", cfg.Replicas)
		at, _ := f.nodes["b"].Topic("A", "T")
		if on := slices.Sorted(slices.Values(at.Group().Nodes())); !slices.Equal(on, want) {
			t.Errorf("with %+v it lives on %v", cfg.Placement, on)
		}
		f.same("T")
	}
	move([]string{"c"}, asking(1, "us"))
	move([]string{"a", "b", "c"}, asking(3))
	if a := f.publish("a", "T", "t.x", "", "2"); a != `{"stream":"T","seq":2}` {
		t.Error(a)
	}
}
