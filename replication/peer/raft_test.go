package peer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/replication/peer/peertest"
)

// list is a state machine that keeps every entry.
type list struct {
	mu      sync.Mutex
	entries [][]byte
}

func (l *list) Apply(e *raft.Log) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, e.Data)
	return len(l.entries)
}

func (l *list) Snapshot() (raft.FSMSnapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &listSnapshot{bytes.Join(l.entries, []byte{0})}, nil
}

func (l *list) Restore(r io.ReadCloser) error {
	b, err := io.ReadAll(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = bytes.Split(b, []byte{0})
	return err
}

func (l *list) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

type listSnapshot struct{ b []byte }

func (s *listSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(s.b); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (s *listSnapshot) Release() {}

// member is a replica with everything in memory.
type member struct {
	*raft.Raft
	list  *list
	trans *peer.Transport
}

func (m *member) stop(t testing.TB) {
	t.Helper()
	_ = m.trans.Close()
	if err := m.Shutdown().Error(); err != nil {
		t.Error(err)
	}
}

func startMember(t testing.TB, n *peer.Network, replica string, change func(*raft.Config, *peer.Transport)) *member {
	t.Helper()
	cfg := raft.DefaultConfig()
	cfg.LocalID = raft.ServerID(replica)
	// Long enough for a machine that has other things to do.
	cfg.HeartbeatTimeout, cfg.ElectionTimeout = 1500*time.Millisecond, 1500*time.Millisecond
	cfg.LeaderLeaseTimeout = time.Second
	cfg.TrailingLogs = 10
	cfg.Logger = hclog.NewNullLogger()
	m := &member{list: &list{}, trans: n.Transport(1, replica)}
	if change != nil {
		change(cfg, m.trans)
	}
	store := raft.NewInmemStore()
	var err error
	m.Raft, err = raft.NewRaft(cfg, m.list, store, store, raft.NewInmemSnapshotStore(), m.trans)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func servers(replicas map[string]string) raft.Configuration {
	var c raft.Configuration
	for node, replica := range replicas {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(replica), Address: raft.ServerAddress(node)})
	}
	return c
}

// startRaft runs a group of three, a1, b1 and c1 on a, b and c.
func startRaft(t testing.TB, c *peertest.Cluster) map[string]*member {
	t.Helper()
	replicas := map[string]string{"a": "a1", "b": "b1", "c": "c1"}
	out := map[string]*member{}
	for node, replica := range replicas {
		out[node] = startMember(t, c.Net(node), replica, nil)
	}
	if err := out["a"].BootstrapCluster(servers(replicas)).Error(); err != nil {
		t.Fatal(err)
	}
	return out
}

func leader(c *peertest.Cluster, members map[string]*member) (node string, m *member) {
	c.Wait("a leader", func() bool {
		for node, m = range members {
			if m.State() == raft.Leader && m.VerifyLeader().Error() == nil {
				return true
			}
		}
		return false
	})
	return node, m
}

func apply(t testing.TB, m *member, n, size int) {
	t.Helper()
	var futures []raft.ApplyFuture
	for i := range n {
		data := append(make([]byte, 0, size+8), fmt.Sprintf("%08d", i)...)
		futures = append(futures, m.Apply(append(data, bytes.Repeat([]byte("x"), size)...), 10*time.Second))
	}
	for _, f := range futures {
		if err := f.Error(); err != nil {
			t.Fatal(err)
		}
	}
}

func waitLen(c *peertest.Cluster, m *member, n int) {
	c.Wait(fmt.Sprintf("%d entries", n), func() bool { return m.list.len() >= n })
}

func TestRaftCommitsAndFailsOver(t *testing.T) {
	t.Parallel()
	c := peertest.New(t, "a", "b", "c")
	c.Start()
	members := startRaft(t, c)
	first, m := leader(c, members)
	apply(t, m, 500, 10_000)
	for _, m := range members {
		waitLen(c, m, 500)
	}
	for i, e := range m.list.entries {
		if want := fmt.Sprintf("%08d", i); string(e[:8]) != want || len(e) != 10_008 {
			t.Fatalf("entry %d is %q, %d bytes", i, e[:8], len(e))
		}
	}

	c.Kill(first)
	m.stop(t)
	delete(members, first)
	second, m := leader(c, members)
	apply(t, m, 10, 10)

	// A new process of the old leader: its memory is gone, and so is its replica.
	c.Reopen(first).Start()
	c.WaitConnected("a", "b", "c")
	again := startMember(t, c.Net(first), first+"2", nil)
	var resp raft.RequestVoteResponse
	err := members[second].trans.RequestVote(raft.ServerID(first+"1"), raft.ServerAddress(first), &raft.RequestVoteRequest{Term: 1000}, &resp)
	if !errors.Is(err, peer.ErrWrongReplica) || resp.Granted {
		t.Fatalf("the new replica answers for the old one: %v", err)
	}
	if err := m.AddVoter(raft.ServerID(first+"2"), raft.ServerAddress(first+"/2"), 0, 10*time.Second).Error(); err != nil {
		t.Fatal(err)
	}
	if err := m.RemoveServer(raft.ServerID(first+"1"), 0, 10*time.Second).Error(); err != nil {
		t.Fatal(err)
	}
	waitLen(c, again, 510)

	if err := m.LeadershipTransferToServer(raft.ServerID(first+"2"), raft.ServerAddress(first+"/2")).Error(); err != nil {
		t.Fatal(err)
	}
	members[first] = again
	_, m = leader(c, members)
	apply(t, m, 10, 10)
	for _, m := range members {
		m.stop(t)
	}
}

func TestASnapshotReachesAFollowerThatLacksIt(t *testing.T) {
	t.Parallel()
	c := peertest.New(t, "a", "b")
	c.Start()
	a := startMember(t, c.Net("a"), "a1", nil)
	if err := a.BootstrapCluster(servers(map[string]string{"a": "a1"})).Error(); err != nil {
		t.Fatal(err)
	}
	_, _ = leader(c, map[string]*member{"a": a})
	apply(t, a, 300, 10_000)
	if err := a.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	apply(t, a, 20, 10)
	var tries atomic.Int32
	b := startMember(t, c.Net("b"), "b1", func(_ *raft.Config, tr *peer.Transport) {
		tr.Prefetch = func(_ context.Context, from string, manifest []byte) error {
			if from != "a" || len(manifest) < 300*10_000 {
				return fmt.Errorf("%d bytes from %s", len(manifest), from)
			}
			if tries.Add(1) == 1 {
				return errors.New("try again")
			}
			return nil
		}
	})
	if err := a.AddNonvoter("b1", "b", 0, 10*time.Second).Error(); err != nil {
		t.Fatal(err)
	}
	waitLen(c, b, 320)
	if tries.Load() != 2 {
		t.Errorf("%d tries", tries.Load())
	}
	a.stop(t)
	b.stop(t)
}

func TestHeartbeatsOvertakeWhatIsLarge(t *testing.T) {
	c := peertest.New(t, "a", "b", "c")
	c.Net("b").HandleChannel(100, 100, func(string, peer.Channel, []byte) {})
	endless := func(_ context.Context, _ string, _ []byte, w io.Writer) error {
		for b := make([]byte, 1<<20); ; {
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		c.Net(name).HandleStream("endless", endless)
	}
	c.Start()
	members := startRaft(t, c)
	node, m := leader(c, members)
	term := m.CurrentTerm()
	// Every follower pulls from the leader, and the leader from them.
	ctx, cancel := context.WithCancel(context.Background())
	var pullers sync.WaitGroup
	var pulled atomic.Int64
	for other := range members {
		for _, way := range [][2]string{{node, other}, {other, node}} {
			if other == node {
				continue
			}
			r, err := c.Net(way[0]).OpenStream(ctx, way[1], "endless", nil)
			if err != nil {
				t.Fatal(err)
			}
			pullers.Go(func() {
				defer r.Close()
				for b := make([]byte, 64<<10); ; {
					n, err := r.Read(b)
					pulled.Add(int64(n))
					if err != nil {
						return
					}
				}
			})
		}
	}
	var times []time.Duration
	for pulled.Load() < 200<<20 {
		start := time.Now()
		apply(t, m, 1, 100)
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	if half := times[len(times)/2]; half > time.Second { // one alone may be the machine's doing
		t.Errorf("half of the small entries took more than %v", half)
	}
	cancel()
	pullers.Wait()
	if m.CurrentTerm() != term {
		t.Errorf("the term went from %d to %d", term, m.CurrentTerm())
	}
	for _, m := range members {
		m.stop(t)
	}
}
