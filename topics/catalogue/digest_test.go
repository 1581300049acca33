package catalogue

import (
	"slices"
	"testing"

	"github.com/heraldmq/herald/topics"
)

// TestDigestsFollowEveryChange takes a topic through all that can happen to it. The digest
// changes with each step, is that of a catalogue restored from a snapshot, and what is kept
// up to date beside the topics is what looking through all of them gives.
func TestDigestsFollowEveryChange(t *testing.T) {
	c := New()
	digest := func(c *Catalogue) uint64 {
		t.Helper()
		d, err := c.Summary().Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	seen := map[uint64]string{digest(c): "empty"}
	step := func(what string, cmd Command) {
		t.Helper()
		if r := mustApply(t, c, cmd); r.Fault != nil {
			t.Fatalf("%s: %v", what, r.Fault)
		}
		d := digest(c)
		if before, had := seen[d]; had {
			t.Errorf("the digest after %q is that after %q", what, before)
		}
		seen[d] = what
		b, err := c.Freeze().AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		other := New()
		if err := other.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		if got := digest(other); got != d {
			t.Errorf("%s: restored %x, want %x", what, got, d)
		}
		var open []topics.TopicID
		for _, top := range c.Topics() {
			if !top.Settled() {
				open = append(open, top.ID)
			}
		}
		if got := c.Unsettled(); !slices.Equal(got, open) {
			t.Errorf("%s: unsettled %v, want %v", what, got, open)
		}
	}
	for id := topics.GroupID(1); id <= 2; id++ {
		step("a group", Command{Op: OpPutGroup, Group: &Group{ID: id, Replicas: int(id), Nodes: []string{"n"}, Founded: true, Open: true, Revision: 1}})
	}
	cfg := config("orders", "orders.>")
	cfg.Replicas, cfg.Metadata = 1, map[string]string{"a": "b"}
	step("created", Command{Op: OpCreateTopic, Account: "A", Config: cfg, Time: 5})
	id := c.Find("A", "orders").ID
	step("live", Command{Op: OpSyncedTopic, Topic: id, Revision: 1})
	next := *cfg
	next.Replicas = 2
	step("updated", Command{Op: OpUpdateTopic, Account: "A", Config: &next})
	step("live again", Command{Op: OpSyncedTopic, Topic: id, Revision: 2})
	if len(c.Moving()) != 1 {
		step("moving", Command{Op: OpMoveTopic, Topic: id, Step: MoveStart, Target: 2})
	}
	if all := c.Moving(); len(all) != 1 || all[0].ID != id {
		t.Fatalf("moving: %v", all)
	}
	n := c.Topic(id).Move.Number
	step("switched", Command{Op: OpMoveTopic, Topic: id, Step: MoveSwitch, Revision: n})
	step("moved", Command{Op: OpMoveTopic, Topic: id, Step: MoveDone, Revision: n})
	if all := c.Moving(); len(all) != 0 || len(c.open) != 0 {
		t.Errorf("still moving: %v, open %v", all, c.open)
	}
	step("deleted", Command{Op: OpDeleteTopic, Account: "A", Name: "orders"})
	step("forgotten", Command{Op: OpForgetTopic, Topic: id})
	if c.sum != 0 || len(c.open) != 0 {
		t.Errorf("nothing is left but the sum %x and %v", c.sum, c.open)
	}
}
