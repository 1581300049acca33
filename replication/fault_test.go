package replication

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/fault"
	"github.com/heraldmq/herald/topics"
)

func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited too long until %s", what)
		}
	}
}

// TestFailingDiskEndsTheNode: the proposal on its way has an unknown outcome,
// Fatal is called once, and nothing more is taken.
func TestFailingDiskEndsTheNode(t *testing.T) {
	for _, part := range []string{"wal", "stable"} {
		t.Run(part, func(t *testing.T) {
			errIO := errors.New("input/output error")
			fsys := fault.NewInject(disk.OS{})
			fatals := make(chan error, 8)
			dir := t.TempDir()
			n := openNode(t, Config{Dir: dir, FS: fsys, Fatal: func(err error) { fatals <- err }})
			fail := func(op fault.Op, name string) error {
				if op == fault.OpSync && strings.Contains(name, "/"+part+"/") {
					return errIO
				}
				return nil
			}
			if part == "stable" {
				// The vote is written when the group starts.
				started := make(chan struct{})
				go func() {
					defer close(started)
					fsys.On(fail)
					if _, err := n.Start(1, &list{}); err == nil {
						t.Error("the group started without a vote")
					}
				}()
				<-started
				return
			}
			g := startGroup(t, n, 1, &list{})
			propose(t, g, "good")
			fsys.On(fail)
			_, _, err := g.Propose([]byte("bad")).Result()
			if !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("the proposal ended with %v", err)
			}
			if err := <-fatals; !errors.Is(err, errIO) {
				t.Errorf("fatal: %v", err)
			}
			fsys.On(nil)
			if _, _, err := g.Propose([]byte("after")).Result(); err == nil {
				t.Error("a proposal was taken after the failure")
			}
			if err := n.Close(); err != nil {
				t.Log(err)
			}
			if len(fatals) > 0 {
				t.Errorf("fatal was called again: %v", <-fatals)
			}
		})
	}
}

func TestHungDiskEndsTheNode(t *testing.T) {
	fsys := fault.NewInject(disk.OS{})
	fatals := make(chan error, 1)
	n := openNode(t, Config{Dir: t.TempDir(), FS: fsys, WriteDeadline: 300 * time.Millisecond, Fatal: func(err error) { fatals <- err }})
	g := startGroup(t, n, 1, &list{})
	free := make(chan struct{})
	fsys.On(func(op fault.Op, name string) error {
		if op == fault.OpSync && strings.Contains(name, "/wal/") {
			<-free
		}
		return nil
	})
	p := g.Propose([]byte("x"))
	if err := <-fatals; !errors.Is(err, ErrDiskHung) {
		t.Errorf("fatal: %v", err)
	}
	select {
	case <-p.Done():
		t.Error("the proposal ended while the disk hangs")
	default:
	}
	close(free)
	if _, _, err := p.Result(); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("the proposal ended with %v", err)
	}
}

// crowded is a file system whose free space a test sets.
type crowded struct {
	disk.FS
	free atomic.Int64
}

func (c *crowded) Free(string) (int64, error) { return c.free.Load(), nil }

func TestFullDiskRefusesUntilThereIsSpace(t *testing.T) {
	t.Parallel()
	fsys := &crowded{FS: disk.OS{}}
	fsys.free.Store(1 << 40)
	n := openNode(t, Config{Dir: t.TempDir(), FS: fsys})
	groups := []*Group{startGroup(t, n, 0, &list{}), startGroup(t, n, 1, &list{})}
	// Before the disk is full: the log may notice that before anything is proposed.
	if _, _, err := groups[1].Propose([]byte("x")).Result(); err != nil {
		t.Fatal(err)
	}
	fsys.free.Store(1 << 20)
	await(t, "proposals are refused", func() bool {
		_, _, err := groups[1].Propose([]byte("x")).Result()
		return errors.Is(err, ErrNoSpace)
	})
	if _, _, err := groups[0].Propose([]byte("x")).Result(); !errors.Is(err, ErrNoSpace) {
		t.Errorf("group 0: %v", err)
	}
	if data, ok := groups[1].Entry(groups[1].Committed()); !ok || string(data) != "x" {
		t.Error("reads don't go on")
	}
	fsys.free.Store(1 << 40)
	await(t, "proposals are taken again", func() bool {
		_, _, err := groups[1].Propose([]byte("x")).Result()
		return err == nil
	})
}

// slow is a machine that waits in Apply.
type slow struct {
	list
	gate chan struct{}
}

func (s *slow) Apply(entries []Entry) []any {
	<-s.gate
	return s.list.Apply(entries)
}

func TestQueueIsBounded(t *testing.T) {
	n := openNode(t, Config{Dir: t.TempDir(), QueueMax: 100, QueueBytesMax: 10000})
	sm := &slow{gate: make(chan struct{})}
	g := startGroup(t, n, 1, sm)
	var proposals []*Proposal
	for range 100 {
		proposals = append(proposals, g.Propose([]byte("x")))
	}
	if _, _, err := g.Propose([]byte("y")).Result(); !errors.Is(err, ErrBusy) {
		t.Errorf("the 101st: %v", err)
	}
	close(sm.gate)
	for i, p := range proposals {
		if _, _, err := p.Result(); err != nil {
			t.Fatalf("proposal %d: %v", i, err)
		}
	}
	if _, _, err := g.Propose(make([]byte, 20000)).Result(); err != nil {
		t.Errorf("an entry above the bound that is alone: %v", err)
	}
	if _, _, err := g.Propose(nil).Result(); !errors.Is(err, ErrBadProposal) {
		t.Errorf("an empty entry: %v", err)
	}
}

// TestStuckProposalEndsTheNode stands for hashicorp/raft #696 and #498, which end in
// a leader that never answers.
func TestStuckProposalEndsTheNode(t *testing.T) {
	fatals := make(chan error, 1)
	n := openNode(t, Config{Dir: t.TempDir(), StuckDeadline: 20 * time.Millisecond, Fatal: func(err error) { fatals <- err }})
	sm := &slow{gate: make(chan struct{})}
	g := startGroup(t, n, 1, sm)
	p := g.Propose([]byte("x"))
	if err := <-fatals; !errors.Is(err, ErrStuck) {
		t.Errorf("fatal: %v", err)
	}
	close(sm.gate)
	<-p.Done()
}

// TestThreeNodes runs the same code with three voters on TCP: everybody applies
// the same, a leader that is cut off refuses or says that it doesn't know, and
// nothing acknowledged is lost.
func TestThreeNodes(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}
	trans := map[string]*raft.NetworkTransport{}
	var voters []raft.Server
	for _, name := range names {
		tr, err := raft.NewTCPTransport("127.0.0.1:0", nil, 2, time.Second, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		trans[name] = tr
		voters = append(voters, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(name), Address: tr.LocalAddr()})
	}
	nodes, groups, machines := map[string]*Node{}, map[string]*Group{}, map[string]*list{}
	var mu sync.Mutex
	var starting sync.WaitGroup
	for _, name := range names {
		n := openNode(t, Config{
			Dir: t.TempDir(), NodeID: name, Voters: voters, HeartbeatTimeout: 300 * time.Millisecond,
			Transport: func(_ topics.GroupID, node string) (raft.Transport, error) { return trans[node], nil },
		})
		nodes[name] = n
		starting.Go(func() {
			sm := &list{}
			g, err := n.Start(1, sm)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			groups[name], machines[name] = g, sm
		})
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	leader := func() string {
		var id string
		await(t, "somebody leads", func() bool {
			for name, g := range groups {
				if _, leads := g.Leader(); leads {
					id = name
					return true
				}
			}
			return false
		})
		return id
	}
	acked := map[string]bool{}
	for i := range 30 {
		data := fmt.Sprint(i)
		if _, _, err := groups[leader()].Propose([]byte(data)).Result(); err == nil {
			acked[data] = true
		} else if !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("proposal %d: %v", i, err)
		}
	}
	first := leader()
	follower := names[0]
	if follower == first {
		follower = names[1]
	}
	if _, _, err := groups[follower].Propose([]byte("x")).Result(); !errors.Is(err, ErrNotLeader) {
		t.Errorf("propose to a follower: %v", err)
	}
	closeNode(t, nodes[first])
	trans[first].CloseStreams()
	delete(groups, first)
	for i := range 30 {
		data := fmt.Sprint("second ", i)
		if _, _, err := groups[leader()].Propose([]byte(data)).Result(); err == nil {
			acked[data] = true
		}
	}
	if len(acked) < 40 {
		t.Errorf("only %d proposals were acknowledged", len(acked))
	}
	last := groups[leader()].Committed()
	for name, g := range groups {
		await(t, name+" has caught up", func() bool { return g.Stats().Applied >= last })
		has := map[string]bool{}
		for _, e := range machines[name].all() {
			has[e] = true
		}
		for e := range acked {
			if !has[e] {
				t.Errorf("node %s lacks %q, which was acknowledged", name, e)
			}
		}
	}
	for name := range groups {
		trans[name].CloseStreams()
		closeNode(t, nodes[name])
		trans[name].CloseStreams()
	}
}
