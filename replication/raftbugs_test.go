package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/fault"
)

// The open bugs of hashicorp/raft 1.8.0 that need several voters, each over real
// connections. Those that one node shows are in the tests of guard and stable.

// bulk commits n entries of some size.
func (l *lab) bulk(what string, n, size int) {
	l.t.Helper()
	for done := 0; done < n; {
		g := l.leader().g
		var ps []*Proposal
		for i := range min(n-done, 64) {
			ps = append(ps, g.Propose(fmt.Appendf(nil, "%s %d %s", what, done+i, strings.Repeat(".", size))))
		}
		for _, p := range ps {
			if _, _, err := p.Result(); err == nil {
				done++
			}
		}
	}
}

func (l *lab) isolate(name string) {
	for _, other := range l.names {
		if other != name {
			l.net.Cut(name, other)
		}
	}
}

// diverge leaves the leader with entries that nobody else has, elects another one and
// lets its log move on until it begins behind them. It returns the old leader.
func (l *lab) diverge() *labNode {
	l.t.Helper()
	l.bulk("before", 10, 10)
	old := l.leader()
	l.isolate(old.name)
	var lost []*Proposal
	for i := range 20 {
		lost = append(lost, old.g.Propose(fmt.Appendf(nil, "lost %d", i)))
	}
	for _, p := range lost {
		if _, _, err := p.Result(); !errors.Is(err, ErrOutcomeUnknown) && !errors.Is(err, ErrNotLeader) {
			l.t.Errorf("without a majority: %v", err)
		}
	}
	tail := old.g.LastIndex()
	l.await("another leader", func() bool { return l.leader() != old })
	l.bulk("after", 400, 4<<10)
	l.await("a log that begins later", func() bool { return l.leader().g.Stats().First > tail+1 })
	return old
}

// TestDivergedFollowerTakesASnapshot697: a follower with a diverging end that installs
// a snapshot must take entries again.
func TestDivergedFollowerTakesASnapshot697(t *testing.T) {
	t.Parallel()
	tune := func(_ string, c *Config) { c.CatalogBytes = 32 << 10 }
	l := newLab(t, 0, tune, "a", "b", "c")
	old := l.diverge()
	began := time.Now()
	l.net.HealAll()
	l.propose("healed")
	l.await("the old leader to follow", func() bool { return old.g.Stats().Applied >= l.leader().g.Committed() })
	took := time.Since(began)
	t.Logf("healed in %v", took)
	if took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	l.awaitSame("healed")
	if old.list.restores == 0 {
		t.Error("no snapshot was installed")
	}
	// Its vote counts.
	for _, name := range l.names {
		if name != old.name && name != l.leader().name {
			l.stop(name)
			break
		}
	}
	l.propose("with two")
}

// TestLeaderWithAHungDiskIsReplaced503: raft's heartbeats go on while the disk hangs,
// and nobody is elected; here the write deadline ends the process.
func TestLeaderWithAHungDiskIsReplaced503(t *testing.T) {
	t.Parallel()
	disks := map[string]*fault.Inject{}
	fatals := make(chan error, 3)
	tune := func(name string, c *Config) {
		if disks[name] == nil {
			disks[name] = fault.NewInject(disk.OS{})
		}
		c.FS = disks[name]
		c.Fatal = func(err error) { fatals <- err }
	}
	l := newLab(t, 1, tune, "a", "b", "c")
	l.propose("one")
	leader := l.leader()
	release := make(chan struct{})
	disks[leader.name].On(func(op fault.Op, _ string) error {
		if op == fault.OpSync {
			<-release
		}
		return nil
	})
	began := time.Now()
	p := leader.g.Propose([]byte("hangs"))
	if err := <-fatals; !errors.Is(err, ErrDiskHung) {
		t.Fatalf("fatal: %v", err)
	}
	l.net.Kill(leader.name) // as the end of the process does
	g := leader.g
	leader.g = nil
	l.propose("two")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("%v from the hang to an entry elsewhere", took)
	}
	close(release)
	<-p.Done()
	disks[leader.name].On(nil)
	leader.g = g
	l.stop(leader.name)
}

// TestFollowerWhoseDiskFailsGoesDown612: raft goes on with a wrong idea of its log.
func TestFollowerWhoseDiskFailsGoesDown612(t *testing.T) {
	disks := map[string]*fault.Inject{}
	fatals := make(chan error, 3)
	tune := func(name string, c *Config) {
		disks[name] = fault.NewInject(disk.OS{})
		c.FS = disks[name]
		c.Fatal = func(err error) { fatals <- err }
	}
	l := newLab(t, 1, tune, "a", "b", "c")
	l.propose("one")
	l.awaitSame("one")
	follower := l.nodes["a"]
	if follower == l.leader() {
		follower = l.nodes["b"]
	}
	broken := errors.New("input/output error")
	disks[follower.name].On(func(op fault.Op, name string) error {
		if op == fault.OpWrite && strings.HasSuffix(name, ".seg") || op == fault.OpWrite && strings.HasSuffix(name, ".free") {
			return broken
		}
		return nil
	})
	l.propose("two") // the others are a majority
	if err := <-fatals; !errors.Is(err, broken) {
		t.Fatalf("fatal: %v", err)
	}
	l.stop(follower.name)
	l.restart(follower.name, "a", "b", "c")
	l.propose("three")
	l.awaitSame("one", "two", "three")
}

// TestPausedLeaderReadsNothingOld: what was on the wire before a leader was stopped
// must not tell it afterwards that it still leads.
func TestCutOffLeaderReadsNothingOld(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, nil, "a", "b", "c")
	l.propose("one")
	old := l.leader()
	l.isolate(old.name)
	l.await("another leader", func() bool {
		for _, ln := range l.running() {
			if _, leads := ln.g.Leader(); leads && ln != old {
				_, _, err := ln.g.Propose([]byte("two")).Result()
				return err == nil
			}
		}
		// Whatever the old one answers to a read until then, it is from before "two".
		return false
	})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := old.g.Linearize(ctx); err == nil {
		t.Error("a leader that was replaced reads")
	}
}

// TestDamagedReplicaIsReset damages one node's write-ahead log: the replica joins
// anew, and nothing that was there is deleted.
func TestDamagedReplicaIsReset(t *testing.T) {
	l := newLab(t, 1, nil, "a", "b", "c")
	l.bulk("some", 50, 1000)
	l.awaitSame()
	ln := l.nodes["b"]
	l.stop("b")
	segments, err := filepath.Glob(filepath.Join(ln.dir, "wal", "*.seg"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	flipByte(t, segments[0], []byte("some 7 "))
	ln = l.open("b")
	_, err = ln.node.StartGroup(1, &list{}, StartOptions{})
	var damage *CorruptError
	if !errors.As(err, &damage) {
		t.Fatalf("started: %v", err)
	}
	l.net.WaitConnected("a", "b", "c")
	ctx, cancel := context.WithTimeout(context.Background(), labWait)
	defer cancel()
	moved, err := ln.node.ResetGroup(ctx, 1, err)
	if err != nil {
		t.Fatal(err)
	}
	if files, err := filepath.Glob(filepath.Join(moved, "*")); err != nil || len(files) == 0 {
		t.Errorf("nothing was moved to %s: %v", moved, err)
	}
	ln.list = &list{}
	if ln.g, err = ln.node.StartGroup(1, ln.list, StartOptions{}); err != nil {
		t.Fatal(err)
	}
	l.members("a", "b", "c")
	l.propose("after")
	l.awaitSame("after")
	l.awaitVoters("a", "b", "c")
}

func flipByte(t *testing.T, name string, at []byte) {
	t.Helper()
	f, err := disk.OS{}.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := disk.ReadFile(disk.OS{}, name)
	if err != nil {
		t.Fatal(err)
	}
	i := bytes.Index(b, at)
	if i < 0 {
		t.Fatalf("%q is not in %s", at, name)
	}
	if _, err := f.WriteAt([]byte{b[i] ^ 1}, int64(i)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOnlyReplicaIsNotReset: without another one the files stay where they are.
func TestOnlyReplicaIsNotReset(t *testing.T) {
	l := newLab(t, 1, nil, "a", "+b")
	l.propose("one")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := l.nodes["a"].node.ResetGroup(ctx, 1, errors.New("a test")); !errors.Is(err, ErrOnlyReplica) {
		t.Errorf("reset: %v", err)
	}
	l.propose("two")
}
