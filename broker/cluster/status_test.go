package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
)

// three are the reports of three nodes: n1 leads the catalogue and group 1.
func three() []Report {
	table := []Node{{Name: "n1", State: Active}, {Name: "n2", State: Active}, {Name: "n3", State: Active}}
	member := func(name string, voter bool, applied topics.Index) Member {
		return Member{Node: name, Voter: voter, Applied: applied}
	}
	full := []Member{member("n1", true, 10), member("n2", true, 10), member("n3", true, 9)}
	own := func(name string) Report {
		return Report{
			Node: Node{Name: name, Ready: true}, Table: table,
			Groups: []Group{{ID: 1, Replicas: 3, Leader: "n1", Term: 4, Last: 11, Members: []Member{member(name, true, 11)}}},
		}
	}
	first := Report{Node: Node{Name: "n1", Ready: true}, Table: table, Groups: []Group{
		{ID: 0, Replicas: 3, Leader: "n1", Term: 2, Members: full},
		{ID: 1, Replicas: 3, Leader: "n1", Term: 4, Topics: 1, Last: 11, Members: full},
	}}
	return []Report{own("n2"), first, own("n3")}
}

func links(names ...string) map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, n := range names {
		out[n] = time.Millisecond
	}
	return out
}

func TestStatusOfAHealthyCluster(t *testing.T) {
	s := merge(three(), links("n1", "n3"))
	if !s.Healthy || len(s.Advice) != 0 || s.Server != "n2" {
		t.Errorf("healthy %t, advice %q, server %s", s.Healthy, s.Advice, s.Server)
	}
	if len(s.Nodes) != 3 || s.Nodes[0].Name != "n1" || s.Nodes[0].Leads != 1 || s.Nodes[2].Groups != 1 || s.Nodes[2].RTT != time.Millisecond {
		t.Errorf("nodes %+v", s.Nodes)
	}
	if len(s.Groups) != 2 || len(s.Groups[1].Members) != 3 || s.Groups[1].Topics != 1 || s.Groups[1].Members[2].Applied != 11 {
		t.Errorf("groups %+v", s.Groups)
	}
}

func TestStatusSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r []Report) ([]Report, map[string]time.Duration)
		want   string
	}{
		{"a node is down", func(r []Report) ([]Report, map[string]time.Duration) {
			return r[:2], links("n1")
		}, "node n3 can't be reached: start it, or if it is lost for good: pubsub cluster remove n3"},
		{"no leader", func(r []Report) ([]Report, map[string]time.Duration) {
			r[0].Groups[0].Leader = ""
			r[0].Groups[0].Members = three()[1].Groups[1].Members
			return r[:1], nil
		}, "group 1 has no leader: n1, n3 are not online; a majority of its voters must run"},
		{"too few voters", func(r []Report) ([]Report, map[string]time.Duration) {
			r[1].Groups[1].Members[2].Voter = false
			return r, links("n1", "n3")
		}, "group 1 has 2 of 3 voters"},
		{"damage", func(r []Report) ([]Report, map[string]time.Duration) {
			r[2].Damage = []Damage{{Node: "n3", Group: 1, What: "bad checksum"}}
			return r, links("n1", "n3")
		}, "group 1 on n3 is damaged (bad checksum)"},
		{"not ready", func(r []Report) ([]Report, map[string]time.Duration) {
			r[2].Node.Ready, r[2].Node.Reasons = false, []string{"group 1 is catching up"}
			return r, links("n1", "n3")
		}, "node n3 is not ready: group 1 is catching up"},
		{"joining", func(r []Report) ([]Report, map[string]time.Duration) {
			return r, links("n1", "n3", "n4")
		}, "node n4 is joining"},
		{"drained", func(r []Report) ([]Report, map[string]time.Duration) {
			for i := range r {
				r[i].Table = append([]Node{}, r[i].Table...)
				r[i].Table = append(r[i].Table, Node{Name: "n4", State: Draining})
			}
			return append(r, Report{Node: Node{Name: "n4", Ready: true}}), links("n1", "n3", "n4")
		}, "node n4 is drained"},
	} {
		s := merge(c.change(three()))
		if s.Healthy || !strings.Contains(strings.Join(s.Advice, "\n"), c.want) {
			t.Errorf("%s: healthy %t, advice %q", c.name, s.Healthy, s.Advice)
		}
	}
}
