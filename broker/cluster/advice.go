package cluster

import (
	"fmt"
	"strings"
)

// lagMax is by how many entries a replica may be behind before it is worth a word.
const lagMax = 10_000

// advise says what an operator should do, most urgent first; nothing is well.
func advise(s *Status) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, g := range s.Groups {
		if g.Leader == "" {
			say("%s has no leader: %s; a majority of its voters must run", name(g), whoIsDown(&g))
		}
	}
	for _, d := range s.Damage {
		if d.Action == "" {
			say("%s on %s is damaged (%s) and no other replica can refill it: restore it from a backup, or repair the disk", name(Group{ID: d.Group}), d.Node, d.What)
		}
	}
	for _, n := range s.Nodes {
		switch {
		case n.State == Removed:
		case !n.Online:
			say("node %s can't be reached: start it, or if it is lost for good: pubsub cluster remove %s", n.Name, n.Name)
		case n.State == Joining:
			say("node %s is joining: wait; if it stays so, look at its log", n.Name)
		case !n.Ready:
			say("node %s is not ready: %s", n.Name, strings.Join(n.Reasons, "; "))
		case n.State == Draining:
			say("node %s is being drained: %d replicas are left on it", n.Name, n.Groups)
		case n.State == Drained:
			say("node %s is drained: stop it and then: pubsub cluster remove %s, or take it back: pubsub cluster add %s", n.Name, n.Name, n.Name)
		}
	}
	for _, g := range s.Groups {
		if g.Leader == "" {
			continue
		}
		voters := 0
		for _, m := range g.Members {
			if m.Voter {
				voters++
			}
			if m.Online && m.Lag > lagMax {
				say("%s on %s is %d entries behind: it is catching up, or its disk is too slow", name(g), m.Node, m.Lag)
			}
		}
		if voters < g.Replicas {
			say("%s has %d of %d voters: it survives fewer failures than it should until it is filled up", name(g), voters, g.Replicas)
		}
	}
	return out
}

func name(g Group) string {
	if g.ID == 0 {
		return "the catalogue"
	}
	return fmt.Sprintf("group %d", g.ID)
}

func whoIsDown(g *Group) string {
	var down []string
	for _, m := range g.Members {
		if !m.Online {
			down = append(down, m.Node)
		}
	}
	switch len(down) {
	case 0:
		return "its voters are online and may be electing one"
	case 1:
		return down[0] + " is not online"
	}
	return strings.Join(down, ", ") + " are not online"
}
