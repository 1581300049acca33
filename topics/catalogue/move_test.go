package catalogue

import (
	"testing"

	"github.com/heraldmq/herald/topics"
)

// TestATopicMoves goes through the steps of a move, and those that must be refused.
func TestATopicMoves(t *testing.T) {
	c := New()
	do := func(cmd Command) Result {
		t.Helper()
		r, err := c.Apply(&cmd)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for i, r := range []int{1, 3, 3, 5} {
		g := &Group{ID: topics.GroupID(i + 1), Replicas: r, Nodes: []string{"a", "b", "c", "d", "e"}[:r], Open: r < 5, Founded: true, Revision: 1}
		do(Command{Op: OpPutGroup, Group: g})
	}
	cfg := func(r int) *topics.Config { return &topics.Config{Name: "T", Subjects: []string{"t"}, Replicas: r} }
	update := func(r int) Result { return do(Command{Op: OpUpdateTopic, Account: "A", Config: cfg(r)}) }
	id := do(Command{Op: OpCreateTopic, Account: "A", Config: cfg(1)}).Topic.ID
	if f := update(3).Fault; f != FaultMoving {
		t.Errorf("moved before it was made: %v", f)
	}
	do(Command{Op: OpSyncedTopic, Topic: id, Revision: 1})
	if f := update(5).Fault; f != FaultNoGroup {
		t.Errorf("moved to a group that isn't open: %v", f)
	}
	step := func(n uint64, s MoveStep, to topics.GroupID) Result {
		return do(Command{Op: OpMoveTopic, Topic: id, Revision: n, Step: s, Target: to})
	}
	check := func(what string, group topics.GroupID, move *Move) {
		t.Helper()
		now := c.Find("A", "T")
		if now.Group != group || (now.Move == nil) != (move == nil) || move != nil && *now.Move != *move || c.Topic(id) != now {
			t.Fatalf("%s: in group %d, move %+v", what, now.Group, now.Move)
		}
		for _, g := range c.Groups() {
			if n := c.Load(g.ID); (n == 1) != (g.ID == group) {
				t.Fatalf("%s: group %d has %d topics", what, g.ID, n)
			}
		}
	}
	update(3)
	check("begun", 1, &Move{Number: 1, Other: 2})
	update(1)
	check("cancelled", 1, &Move{Number: 1, Other: 2, Cancelled: true})
	if f := update(3).Fault; f != FaultMoving {
		t.Errorf("begun anew while it is being given up: %v", f)
	}
	if f := step(1, MoveSwitch, 0).Fault; f != FaultStale {
		t.Errorf("switched although cancelled: %v", f)
	}
	step(1, MoveDone, 0)
	check("given up", 1, nil)
	update(3)
	check("begun again", 1, &Move{Number: 2, Other: 2})
	step(1, MoveSwitch, 0)
	check("a step of an earlier move", 1, &Move{Number: 2, Other: 2})
	b, err := c.Freeze().AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	c = New()
	if err := c.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	check("restored", 1, &Move{Number: 2, Other: 2})
	step(2, MoveSwitch, 0)
	check("switched", 2, &Move{Number: 2, Other: 1, Switched: true})
	if f := update(1).Fault; f != FaultMoving {
		t.Errorf("back before it has ended: %v", f)
	}
	if len(c.Moving()) != 1 {
		t.Error("nothing moves")
	}
	step(2, MoveDone, 0)
	check("done", 2, nil)
	if f := step(0, MoveStart, 1).Fault; f != FaultStale {
		t.Errorf("moved to a group of another size: %v", f)
	}
	step(0, MoveStart, 3)
	check("to another of that size", 2, &Move{Number: 3, Other: 3})
	do(Command{Op: OpDeleteTopic, Account: "A", Name: "T"})
	if len(c.Moving()) != 0 {
		t.Error("what is to be deleted moves")
	}
	do(Command{Op: OpForgetTopic, Topic: id})
	if c.Load(2) != 0 {
		t.Error("forgotten, but still counted")
	}
}
