package replication

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// parseView reads a configuration: "a/1" votes and is well, "a/1-" doesn't vote, "!"
// behind it is ill, "~" well but behind.
func parseView(servers, voters, others, joiners string) *view {
	v := &view{self: "a/1", node: "a", joiners: map[string]string{}, leaving: map[string]bool{}}
	for _, f := range strings.Fields(servers) {
		s := server{id: strings.TrimRight(f, "-!~"), voter: !strings.Contains(f, "-")}
		s.node, _, _ = strings.Cut(s.id, "/")
		s.healthy = !strings.Contains(f, "!")
		s.caughtUp = s.healthy && !strings.Contains(f, "~")
		v.servers = append(v.servers, s)
	}
	v.voters, v.others = strings.Fields(voters), strings.Fields(others)
	v.set = len(v.voters) > 0
	for _, id := range strings.Fields(joiners) {
		node, _, _ := strings.Cut(id, "/")
		v.joiners[node] = id
	}
	return v
}

func TestDecide(t *testing.T) {
	for _, c := range []struct{ what, servers, voters, others, joiners, want string }{
		{"nothing said", "a/1", "", "", "b/1", "nothing"},
		{"all is well", "a/1 b/1 c/1", "a b c", "", "", "nothing"},
		{"one asks", "a/1", "a b c", "", "b/1", "add b/1"},
		{"an unwanted one asks", "a/1", "a b c", "", "d/1", "nothing"},
		{"caught up", "a/1 b/1-", "a b", "", "", "promote b/1"},
		{"behind", "a/1 b/1-~", "a b", "", "", "wait"},
		{"a non-voter stays one", "a/1 b/1-", "a", "b", "", "nothing"},
		{"back under a new id", "a/1 b/1! c/1", "a b c", "", "b/2", "take out b/1"},
		{"back, but another is ill", "a/1 b/1! c/1!", "a b c", "", "b/2", "wait"},
		{"the new id is let in", "a/1 c/1", "a b c", "", "b/2", "add b/2"},
		{"moved: first the new one", "a/1 b/1 c/1", "a b d", "", "d/1", "add d/1"},
		{"moved: then the vote", "a/1 b/1 c/1 d/1-", "a b d", "", "", "promote d/1"},
		{"moved: then the old one goes", "a/1 b/1 c/1 d/1", "a b d", "", "", "take out c/1"},
		{"moved: or only its vote", "a/1 b/1 c/1 d/1", "a b d", "c", "", "demote c/1"},
		{"moved: not before", "a/1 b/1 c/1", "a b d", "", "", "wait"},
		{"a dead one may go before", "a/1 b/1 c/1!", "a b d", "", "", "take out c/1"},
		{"but not if the rest is ill", "a/1 b/1! c/1!", "a b d", "", "", "wait"},
		{"the leader goes last", "a/1 b/1 c/1 d/1", "b c d", "", "", "hand over b/1"},
		{"the leader goes after the others", "a/1 e/1 b/1 c/1 d/1", "b c d", "", "", "take out e/1"},
		{"an unwanted non-voter goes", "a/1 b/1 c/1-", "a b", "", "", "take out c/1"},
	} {
		a := decide(parseView(c.servers, c.voters, c.others, c.joiners))
		got := a.what.String()
		if a.id != "" {
			got += " " + a.id
		}
		if got != strings.Replace(c.want, "take out", takeOut.String(), 1) {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
	v := parseView("a/1 b/1 c/1", "a b c", "", "")
	v.leaving["c/1"] = true
	if a := decide(v); a.what != takeOut || a.id != "c/1" {
		t.Errorf("one that leaves: %v", a)
	}
	v = parseView("a/1", "a", "", "")
	v.servers[0].node = "before"
	if a := decide(v); a.what != readdr || a.node != "a" {
		t.Errorf("a node with another name: %v", a)
	}
}

// TestDecideKeepsAMajority takes steps from random configurations. After each there
// must be a healthy majority of voters if there was one before; and when everybody is
// well and asks to be let in, what is wanted is reached.
func TestDecideKeepsAMajority(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		names := []string{"a", "b", "c", "d", "e", "f"}
		v := &view{self: "a/1", node: "a", set: true, joiners: map[string]string{}, leaving: map[string]bool{}}
		v.servers = []server{{id: "a/1", node: "a", voter: true, healthy: true, caughtUp: true}}
		for _, n := range names[1:] {
			if r.IntN(2) == 0 {
				v.servers = append(v.servers, server{id: n + "/1", node: n, voter: r.IntN(3) > 0, healthy: r.IntN(4) > 0})
			}
			if r.IntN(2) == 0 {
				v.voters = append(v.voters, n)
			} else if r.IntN(3) == 0 {
				v.others = append(v.others, n)
			}
		}
		v.voters = append(v.voters, "a")
		for step := 0; ; step++ {
			if step > 100 {
				t.Fatalf("seed %d: no end: %+v", seed, v)
			}
			before := majority(v)
			if step > 20 {
				for i := range v.servers {
					v.servers[i].healthy, v.servers[i].caughtUp = true, true
				}
				for _, n := range names[1:] {
					if _, in := v.find(n); !in {
						v.joiners[n] = n + "/2"
					}
				}
			}
			a := decide(v)
			if a.what == nothing && step > 20 {
				break
			}
			take(v, a)
			if step > 20 {
				before = true
			}
			if before && !majority(v) {
				t.Fatalf("seed %d: %v leaves no majority: %+v", seed, a, v.servers)
			}
		}
		for _, n := range names {
			s, in := v.find(n)
			if in != v.holds(n) || in && s.voter != v.votes(n) {
				t.Fatalf("seed %d: %s: wanted %v %v, is %v", seed, n, v.voters, v.others, fmt.Sprint(v.servers))
			}
		}
	}
}

func majority(v *view) bool {
	voters, healthy := 0, 0
	for _, s := range v.servers {
		if s.voter {
			voters++
			if s.healthy {
				healthy++
			}
		}
	}
	return healthy > voters/2
}

func take(v *view, a action) {
	for i := range v.servers {
		if v.servers[i].id != a.id {
			continue
		}
		switch a.what {
		case promote:
			v.servers[i].voter = true
		case demote:
			v.servers[i].voter = false
		case takeOut:
			v.servers = append(v.servers[:i:i], v.servers[i+1:]...)
			return
		}
	}
	if a.what == add {
		v.servers = append(v.servers, server{id: a.id, node: a.node})
		delete(v.joiners, a.node)
	}
}
