package replication

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/replication/peer/peertest"
	"github.com/heraldmq/herald/topics"
)

// lab is a cluster of nodes in this process, on real connections.
type lab struct {
	t     testing.TB
	net   *peertest.Cluster
	names []string
	nodes map[string]*labNode
	group topics.GroupID
	tune  func(name string, c *Config)
}

type labNode struct {
	name string
	dir  string
	node *Node
	list *list
	g    *Group
}

const labWait = 60 * time.Second

// newLab starts the nodes; the first founds the group, the others join it. Those whose
// name begins with a plus are started later.
func newLab(t testing.TB, group topics.GroupID, tune func(string, *Config), names ...string) *lab {
	t.Helper()
	var now []string
	for _, name := range names {
		if !strings.HasPrefix(name, "+") {
			now = append(now, name)
		}
	}
	l := prepareLab(t, group, tune, names...)
	for i, name := range now {
		l.start(name, i == 0)
	}
	l.members(now...)
	l.awaitVoters(now...)
	return l
}

// prepareLab starts none of the nodes.
func prepareLab(t testing.TB, group topics.GroupID, tune func(string, *Config), names ...string) *lab {
	t.Helper()
	var all []string
	for _, name := range names {
		all = append(all, strings.TrimPrefix(name, "+"))
	}
	names = all
	l := &lab{t: t, net: peertest.NewUnopened(t, names...), names: names, nodes: map[string]*labNode{}, group: group, tune: tune}
	for _, name := range names {
		l.nodes[name] = &labNode{name: name, dir: filepath.Join(t.TempDir(), name)}
	}
	t.Cleanup(func() {
		l.net.HealAll()
		for _, name := range names {
			l.stop(name)
		}
	})
	return l
}

// start opens a node and starts the group there.
func (l *lab) start(name string, found bool) *labNode {
	l.t.Helper()
	ln := l.open(name)
	ln.list = &list{}
	g, err := ln.node.StartGroup(l.group, ln.list, StartOptions{Found: found})
	if err != nil {
		l.t.Fatal(err)
	}
	ln.g = g
	return ln
}

func (l *lab) open(name string) *labNode {
	l.t.Helper()
	ln := l.nodes[name]
	net := l.net.Reopen(name)
	cfg := Config{Dir: ln.dir, Network: net, Fatal: func(err error) { l.t.Errorf("fatal on %s: %v", name, err) }}
	if l.tune != nil {
		l.tune(name, &cfg)
	}
	var err error
	if ln.node, err = Open(cfg); err != nil {
		l.t.Fatal(err)
	}
	net.Start()
	return ln
}

// stop ends a node as if its process were killed: its connections end first.
func (l *lab) stop(name string) {
	l.t.Helper()
	ln := l.nodes[name]
	if ln.node == nil {
		return
	}
	l.net.Kill(name)
	if err := ln.node.Close(); err != nil {
		l.t.Errorf("close %s: %v", name, err)
	}
	ln.node, ln.g = nil, nil
}

// wipe loses a stopped node's disk.
func (l *lab) wipe(name string) {
	l.t.Helper()
	if err := os.RemoveAll(l.nodes[name].dir); err != nil {
		l.t.Fatal(err)
	}
}

// restart starts a stopped node again, and tells it the members.
func (l *lab) restart(name string, members ...string) *labNode {
	l.t.Helper()
	ln := l.start(name, false)
	ln.g.SetMembers(members, nil)
	return ln
}

// members says on every node who shall hold the group.
func (l *lab) members(voters ...string) {
	for _, ln := range l.running() {
		ln.g.SetMembers(voters, nil)
	}
}

func (l *lab) running() []*labNode {
	var running []*labNode
	for _, name := range l.names {
		if ln := l.nodes[name]; ln != nil && ln.g != nil {
			running = append(running, ln)
		}
	}
	return running
}

func (l *lab) await(what string, cond func() bool) {
	l.t.Helper()
	for end := time.Now().Add(labWait); !cond(); linger(5 * time.Millisecond) {
		if time.Now().After(end) {
			for _, ln := range l.running() {
				l.t.Logf("%s: %+v members %+v", ln.name, ln.g.Stats(), ln.g.Members())
			}
			l.t.Fatalf("still waiting: %s", what)
		}
	}
}

// leader returns the node that leads, once exactly one does.
func (l *lab) leader() *labNode {
	l.t.Helper()
	var leader *labNode
	l.await("a leader", func() bool {
		n := 0
		for _, ln := range l.running() {
			if _, leads := ln.g.Leader(); leads {
				leader = ln
				n++
			}
		}
		return n == 1
	})
	return leader
}

// awaitVoters waits until these nodes, and no others, are members and vote.
func (l *lab) awaitVoters(names ...string) {
	l.t.Helper()
	want := slices.Sorted(slices.Values(names))
	l.await(fmt.Sprintf("voters %v", want), func() bool {
		for _, ln := range l.running() {
			if _, leads := ln.g.Leader(); leads && slices.Equal(l.votersOf(ln.g), want) && len(ln.g.Members()) == len(want) {
				return true
			}
		}
		return false
	})
}

// votersOf returns the nodes whose replicas that run now vote.
func (l *lab) votersOf(g *Group) []string {
	var names []string
	for _, m := range g.Members() {
		if ln := l.nodes[m.Node]; m.Voter && ln.g != nil && ln.g.replica == m.Replica {
			names = append(names, m.Node)
		}
	}
	return names
}

// propose commits an entry through whoever leads.
func (l *lab) propose(data string) {
	l.t.Helper()
	l.await("entry "+data, func() bool {
		for _, ln := range l.running() {
			if _, leads := ln.g.Leader(); leads {
				_, _, err := ln.g.Propose([]byte(data)).Result()
				return err == nil
			}
		}
		return false
	})
}

// awaitSame waits until all running nodes hold the same, which includes data.
func (l *lab) awaitSame(data ...string) {
	l.t.Helper()
	l.await("the same on all nodes", func() bool {
		running := l.running()
		first := running[0].list.all()
		for _, d := range data {
			if !slices.Contains(first, d) {
				return false
			}
		}
		for _, ln := range running[1:] {
			if !slices.Equal(ln.list.all(), first) {
				return false
			}
		}
		return true
	})
}

func TestThreeNodesAgreeAndSurviveAKill(t *testing.T) {
	l := newLab(t, 1, nil, "a", "b", "c")
	l.propose("one")
	l.awaitSame("one")
	first := l.leader()
	l.stop(first.name)
	began := time.Now()
	l.propose("two")
	t.Logf("an entry %v after the leader's process ended", time.Since(began))
	l.awaitSame("one", "two")
	l.restart(first.name, "a", "b", "c")
	l.propose("three")
	l.awaitSame("one", "two", "three")
	if name, _ := l.nodes["b"].g.Leader(); l.nodes[name] == nil {
		t.Errorf("the leader is called %q", name)
	}
}

func TestCatalogueGroupOfThree(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0, nil, "a", "b", "c")
	l.propose("one")
	for _, name := range []string{"a", "b", "c"} {
		l.stop(name)
		l.propose("without " + name)
		l.restart(name, "a", "b", "c")
		l.awaitSame("without " + name)
	}
}

func TestWipedNodeComesBackAsAnother(t *testing.T) {
	l := newLab(t, 1, nil, "a", "b", "c")
	l.propose("one")
	l.awaitSame("one")
	before := l.nodes["b"].g.replica
	l.stop("b")
	l.wipe("b")
	l.propose("two")
	if after := l.restart("b", "a", "b", "c").g.replica; after == before {
		t.Fatalf("the replica is still called %s", after)
	}
	l.awaitSame("one", "two")
	l.awaitVoters("a", "b", "c")
	for _, m := range l.leader().g.Members() {
		if m.Replica == before {
			t.Errorf("%s is still a member", before)
		}
	}
	// And it counts: with another one gone there is still a majority.
	l.stop("c")
	l.propose("three")
}

func TestNodeIsReplaced(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, nil, "a", "b", "c", "+d")
	l.propose("one")
	gone := l.leader().name
	l.start("d", false)
	want := slices.DeleteFunc([]string{"a", "b", "c", "d"}, func(n string) bool { return n == gone })
	l.members(want...)
	l.awaitVoters(want...)
	l.propose("two")
	// The one that was taken out disturbs nobody.
	old, leader := l.nodes[gone], l.leader()
	term := leader.g.Term()
	old.g.Campaign()
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); linger(50 * time.Millisecond) {
		if now := leader.g.Term(); now != term {
			t.Fatalf("the term went from %d to %d", term, now)
		}
	}
	if err := old.node.RemoveGroup(1); err != nil {
		t.Fatal(err)
	}
	old.g = nil
	l.awaitSame("one", "two")
}

func TestLinearizeAndTransfer(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, nil, "a", "b", "c")
	ctx, cancel := context.WithTimeout(context.Background(), labWait)
	defer cancel()
	l.propose("one")
	leader := l.leader()
	if err := leader.g.Linearize(ctx); err != nil {
		t.Fatal(err)
	}
	for _, ln := range l.running() {
		if ln != leader {
			if err := ln.g.Linearize(ctx); !errors.Is(err, ErrNotLeader) {
				t.Errorf("%s: %v", ln.name, err)
			}
		}
	}
	to := "a"
	if leader.name == to {
		to = "b"
	}
	if err := leader.g.Transfer(ctx, to); err != nil {
		t.Fatal(err)
	}
	l.await("the lead of "+to, func() bool { return l.leader().name == to })
	// Cut off, it can't read.
	for _, name := range l.names {
		if name != to {
			l.net.Cut(to, name)
		}
	}
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := l.nodes[to].g.Linearize(short); err == nil {
		t.Error("a leader without a majority reads")
	}
}

// linger lets real time pass, where a disturbance should last for a while or a
// condition is looked at again.
func linger(d time.Duration) { <-time.After(d) }
