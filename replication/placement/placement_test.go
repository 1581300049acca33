package placement

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/heraldmq/herald/topics"
)

func nodes(names ...string) []Node {
	var all []Node
	for _, n := range names {
		all = append(all, Node{Name: n})
	}
	return all
}

// kinds are those of groups without tags.
func kinds(replicas ...int) map[Kind]bool {
	all := map[Kind]bool{}
	for _, r := range replicas {
		all[KindOf(r, nil)] = true
	}
	return all
}

// settle plans and carries out until nothing is left to do.
func settle(t interface{ Fatalf(string, ...any) }, ns []Node, gs []Group, want map[Kind]bool) (after []Group, moves int) {
	for range 200 {
		changes := Plan(ns, gs, want)
		if len(changes) == 0 {
			return gs, moves
		}
		seen := map[topics.GroupID]bool{}
		for _, c := range changes {
			if seen[c.Group] {
				t.Fatalf("two changes of group %d at once: %v", c.Group, changes)
			}
			seen[c.Group] = true
			if c.New {
				gs = append(gs, Group{ID: c.Group, Replicas: c.Replicas, Tags: c.Tags, Nodes: c.Nodes})
				continue
			}
			i := slices.IndexFunc(gs, func(g Group) bool { return g.ID == c.Group })
			for _, n := range c.Nodes {
				if !slices.Contains(gs[i].Nodes, n) {
					moves++
				}
			}
			gs[i].Nodes = c.Nodes
		}
	}
	t.Fatalf("no end of changes: %v", Plan(ns, gs, want))
	return nil, 0
}

func counts(ns []Node, gs []Group) (held, leads map[string]int) {
	held, leads = map[string]int{}, map[string]int{}
	for _, n := range ns {
		if n.State == Active {
			held[n.Name], leads[n.Name] = 0, 0
		}
	}
	for _, g := range gs {
		for _, n := range g.Nodes {
			held[n]++
		}
		leads[g.Nodes[0]]++
	}
	return held, leads
}

func spread(of map[string]int) int {
	if len(of) == 0 {
		return 0
	}
	all := slices.Sorted(maps.Values(of))
	return all[len(all)-1] - all[0]
}

func TestOneNodeGetsOneGroup(t *testing.T) {
	got := Plan(nodes("a"), nil, kinds(1, 3))
	want := []Change{{Group: 1, New: true, Replicas: 1, Nodes: []string{"a"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestThreeNodesLeadOneGroupEach(t *testing.T) {
	ns := nodes("c", "a", "b")
	gs, moves := settle(t, ns, nil, kinds(3))
	if held, leads := counts(ns, gs); len(gs) != 3 || spread(held) != 0 || spread(leads) != 0 || moves != 0 {
		t.Errorf("%v after %d moves", gs, moves)
	}
}

func TestANodeThatJoinsGetsItsShareWithFewMoves(t *testing.T) {
	want := kinds(3)
	gs, _ := settle(t, nodes("a", "b", "c"), nil, want)
	ns := nodes("a", "b", "c", "d")
	gs, moves := settle(t, ns, gs, want)
	held, leads := counts(ns, gs)
	if len(gs) != 4 || spread(held) > 1 || spread(leads) > 1 || moves > 2 {
		t.Errorf("%v after %d moves: held %v, leads %v", gs, moves, held, leads)
	}
}

func TestDrainedNodesAreRelieved(t *testing.T) {
	for _, state := range []NodeState{Draining, Removed} {
		want := kinds(1, 3)
		gs, _ := settle(t, nodes("a", "b", "c", "d"), nil, want)
		ns := nodes("a", "b", "c", "d")
		ns[0].State = state
		gs, _ = settle(t, ns, gs, want)
		for _, g := range gs {
			if slices.Contains(g.Nodes, "a") || len(g.Nodes) != g.Replicas {
				t.Errorf("state %d: group %v", state, g)
			}
		}
	}
}

func TestGroupsShrinkRatherThanStayOnRemovedNodes(t *testing.T) {
	gs, _ := settle(t, nodes("a", "b", "c"), nil, kinds(3))
	ns := nodes("a", "b", "c")
	ns[2].State = Removed
	gs, _ = settle(t, ns, gs, kinds(3))
	for _, g := range gs {
		if len(g.Nodes) != 2 || slices.Contains(g.Nodes, "c") {
			t.Errorf("group %v", g)
		}
	}
	ns = nodes("a", "b", "d")
	gs, _ = settle(t, ns, gs, kinds(3))
	for _, g := range gs {
		if len(g.Nodes) != 3 {
			t.Errorf("group %v is not filled up", g)
		}
	}
}

func TestTheLastCopyStays(t *testing.T) {
	ns := nodes("a")
	ns[0].State = Removed
	if got := Plan(ns, []Group{{ID: 1, Replicas: 1, Nodes: []string{"a"}}}, nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestNothingNewGoesToNodesThatAreAway(t *testing.T) {
	ns := nodes("a", "b", "c")
	ns[1].Offline = true
	if got := Plan(ns, nil, kinds(3)); len(got) != 0 {
		t.Errorf("%v", got)
	}
	gs := []Group{{ID: 1, Replicas: 3, Nodes: []string{"b", "a", "c"}}}
	if got := Plan(ns, gs, nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// tags draws some of two tags, mostly none.
var tags = rapid.SampledFrom([][]string{nil, nil, nil, {"eu"}, {"ssd"}, {"eu", "ssd"}})

func TestPlansKeepTheRules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var ns []Node
		for i := range rapid.IntRange(1, 8).Draw(rt, "nodes") {
			ns = append(ns, Node{Name: fmt.Sprintf("n%d", i), Tags: tags.Draw(rt, "tags")})
		}
		want := map[Kind]bool{}
		for _, r := range rapid.SliceOfN(rapid.IntRange(1, 5), 0, 3).Draw(rt, "want") {
			want[KindOf(r, tags.Draw(rt, "asked"))] = true
		}
		var gs []Group
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			gs, _ = settle(rt, ns, gs, want)
			if again := Plan(ns, slices.Clone(gs), want); len(again) != 0 {
				rt.Fatalf("not settled: %v", again)
			}
			check(rt, ns, gs)
			i := rapid.IntRange(0, len(ns)-1).Draw(rt, "node")
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0:
				ns = append(ns, Node{Name: fmt.Sprintf("m%d", len(ns))})
			case 1:
				ns[i].State = Draining
			case 2:
				ns[i].State = Removed
			case 3:
				ns[i].State = Active
			case 4:
				ns[i].Tags = tags.Draw(rt, "other tags")
			}
		}
	})
}

func check(rt *rapid.T, ns []Node, gs []Group) {
	of := map[string]Node{}
	for _, n := range ns {
		of[n.Name] = n
	}
	for _, g := range gs {
		if len(g.Nodes) == 0 || len(g.Nodes) > g.Replicas {
			rt.Fatalf("group %v", g)
		}
		distinct := slices.Compact(slices.Sorted(slices.Values(g.Nodes)))
		if len(distinct) != len(g.Nodes) {
			rt.Fatalf("two replicas on one node: %v", g)
		}
		fit := 0
		for _, n := range ns {
			if n.State == Active && Carries(n.Tags, g.Tags) {
				fit++
			}
		}
		if fit >= g.Replicas {
			for _, n := range g.Nodes {
				if of[n].State != Active || !Carries(of[n].Tags, g.Tags) {
					rt.Fatalf("group %v is on %s, which is to be left", g, n)
				}
			}
			if len(g.Nodes) != g.Replicas {
				rt.Fatalf("group %v lacks replicas", g)
			}
		}
	}
}

func TestPlansAreDeterministic(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ns := nodes("a", "b", "c", "d", "e")
		gs, _ := settle(rt, ns[:rapid.IntRange(1, 5).Draw(rt, "first")], nil, kinds(1, 2, 3))
		one := Plan(ns, gs, kinds(3, 5))
		shuffledN, shuffledG := rapid.Permutation(ns).Draw(rt, "nodes"), rapid.Permutation(gs).Draw(rt, "groups")
		if two := Plan(shuffledN, shuffledG, kinds(5, 3)); !reflect.DeepEqual(one, two) {
			rt.Fatalf("%v and %v", one, two)
		}
	})
}

func TestWhatWasAskedForIsNotSpread(t *testing.T) {
	gs := []Group{
		{ID: 1, Replicas: 3, Nodes: []string{"a", "b", "c"}, Pinned: true},
		{ID: 2, Replicas: 3, Nodes: []string{"a", "b", "c"}},
		{ID: 3, Replicas: 3, Nodes: []string{"c", "b", "a"}},
	}
	gs, _ = settle(t, nodes("a", "b", "c"), gs, kinds(3))
	if gs[0].Nodes[0] != "a" || gs[1].Nodes[0] != "b" {
		t.Errorf("%v", gs)
	}
}

func TestGroupsOfTagsKeepToTheirNodes(t *testing.T) {
	ns := nodes("a", "b", "c", "d", "e")
	for i := range 3 {
		ns[i].Tags = []string{"eu", "ssd"}
	}
	ns[3].Tags = []string{"eu"}
	want := kinds(1, 3)
	want[KindOf(3, []string{"eu", "ssd"})] = true
	want[KindOf(2, []string{"us"})] = true // nobody has it
	gs, _ := settle(t, ns, nil, want)
	tagged := 0
	for _, g := range gs {
		if len(g.Tags) == 0 {
			continue
		}
		tagged++
		if got := slices.Sorted(slices.Values(g.Nodes)); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("group %v", g)
		}
	}
	if tagged != 3 {
		t.Errorf("%d groups of three nodes with the tags, which could lead one each", tagged)
	}
	// A tag goes to another node: so do the replicas.
	ns[0].Tags, ns[4].Tags = nil, []string{"ssd", "eu"}
	gs, _ = settle(t, ns, gs, want)
	for _, g := range gs {
		if len(g.Tags) > 0 && slices.Contains(g.Nodes, "a") {
			t.Errorf("group %v is where the tags are no more", g)
		}
	}
	// Nobody else has it: better where it was than nowhere.
	ns[1].Tags = nil
	gs, _ = settle(t, ns, gs, want)
	for _, g := range gs {
		if len(g.Tags) > 0 && len(g.Nodes) != 3 {
			t.Errorf("group %v", g)
		}
	}
}
