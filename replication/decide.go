package replication

import (
	"slices"
	"time"
)

// server is a replica in a group's configuration, and what its leader knows of it.
type server struct {
	id, node string
	voter    bool
	// healthy: it reported a moment ago, as this very replica, and is not far behind.
	healthy bool
	// caughtUp: besides, it has practically everything.
	caughtUp bool
}

// view is what the leader decides by.
type view struct {
	self    string   // its own replica id
	node    string   // and name
	servers []server // the configuration
	set     bool     // voters and others have been said
	voters  []string
	others  []string
	joiners map[string]string // replicas that ask to be let in, by node
	leaving map[string]bool   // replicas that ask to be taken out
}

// action is the next step.
type action struct {
	what     actionKind
	id, node string
}

type actionKind int

const (
	nothing  actionKind = iota
	wait                // something is to be done, but not yet
	add                 // as a non-voter
	promote             // make it a voter
	demote              // make it a non-voter
	takeOut             // take it out of the configuration
	handOver            // let a voter on another node lead
	readdr              // write down the node's name
)

func (k actionKind) String() string {
	return [...]string{"nothing", "wait", "add", "promote", "demote", "remove", "hand over", "readdress"}[k]
}

// decide returns the next step from a configuration to the one that is wanted. One
// change at a time, each of which leaves a majority of healthy voters.
//
// A replica that lost its files comes back under a new id, so the old one is gone for
// good: it is taken out first. That costs nothing: of 2n+1 voters with one gone, as of
// the 2n that are left, n+1 make a majority of the first, and n+1 of the second.
func decide(v *view) action {
	for _, s := range v.servers {
		if s.id == v.self && s.node != v.node {
			return action{readdr, s.id, v.node}
		}
	}
	waiting := false
	for _, step := range []func(*view) (action, bool){replaced, joining, catching, left, unwanted} {
		a, later := step(v)
		if a.what != nothing {
			return a
		}
		waiting = waiting || later
	}
	if waiting {
		return action{what: wait}
	}
	return action{}
}

func (v *view) find(node string) (server, bool) {
	for _, s := range v.servers {
		if s.node == node {
			return s, true
		}
	}
	return server{}, false
}

// votes tells whether a node shall have a vote, holds whether it shall have a copy.
func (v *view) votes(node string) bool { return v.set && slices.Contains(v.voters, node) }

func (v *view) holds(node string) bool {
	return v.votes(node) || v.set && slices.Contains(v.others, node)
}

// spare tells whether a voter can go: the others must have a healthy majority.
func (v *view) spare(id string) bool {
	voters, healthy := 0, 0
	for _, s := range v.servers {
		if !s.voter || s.id == id {
			continue
		}
		voters++
		if s.healthy || s.id == v.self {
			healthy++
		}
	}
	return voters > 0 && healthy >= voters/2+1
}

// replaced takes out a replica of a node that has another one now.
func replaced(v *view) (action, bool) {
	later := false
	for _, s := range v.servers {
		now := v.joiners[s.node]
		if now == "" || now == s.id || s.id == v.self || !v.holds(s.node) {
			continue
		}
		if s.voter && !v.spare(s.id) {
			later = true
			continue
		}
		return action{takeOut, s.id, s.node}, false
	}
	return action{}, later
}

// joining lets replicas in that ask for it.
func joining(v *view) (action, bool) {
	var nodes []string
	for node := range v.joiners {
		nodes = append(nodes, node)
	}
	slices.Sort(nodes)
	for _, node := range nodes {
		if _, in := v.find(node); !in && v.holds(node) {
			return action{add, v.joiners[node], node}, false
		}
	}
	return action{}, false
}

// catching makes voters of those who have caught up.
func catching(v *view) (action, bool) {
	later := false
	for _, s := range v.servers {
		if s.voter || !v.votes(s.node) || v.leaving[s.id] {
			continue
		}
		if s.caughtUp {
			return action{promote, s.id, s.node}, false
		}
		later = true
	}
	return action{}, later
}

// left takes the vote of those who ask for it, or takes them out.
func left(v *view) (action, bool) {
	later := false
	for _, s := range v.servers {
		if !v.leaving[s.id] || s.id == v.self {
			continue
		}
		if !s.voter || v.spare(s.id) {
			return action{takeOut, s.id, s.node}, false
		}
		later = true
	}
	return action{}, later
}

// unwanted takes out members that shall not hold the group. Voters go when all that
// shall vote do, so that there are never fewer than there were; those that are dead go
// as soon as that is safe.
func unwanted(v *view) (action, bool) {
	if !v.set || len(v.voters) == 0 {
		return action{}, false
	}
	complete := true
	for _, node := range v.voters {
		s, in := v.find(node)
		complete = complete && in && s.voter
	}
	later := false
	self := action{}
	for _, s := range v.servers {
		switch {
		case v.votes(s.node):
		case !s.voter && !v.holds(s.node):
			return action{takeOut, s.id, s.node}, false
		case !s.voter:
		case s.id == v.self:
			self = action{handOver, "", ""}
		case (complete || !s.healthy) && v.spare(s.id):
			if v.holds(s.node) && s.healthy {
				return action{demote, s.id, s.node}, false
			}
			return action{takeOut, s.id, s.node}, false
		default:
			later = true
		}
	}
	if self.what == nothing {
		return action{}, later
	}
	// Last, and to one who stays.
	for _, node := range v.voters {
		if s, in := v.find(node); complete && in && s.voter && s.healthy {
			return action{handOver, s.id, s.node}, false
		}
	}
	return action{}, true
}

const (
	healthyMax = 3 * time.Second // since the last report
	caughtUpBy = 64              // entries
)
