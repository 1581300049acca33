package guard

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tests play leader to a real raft follower, and show each flaw on the bare
// library before they show that it is gone behind the wrapper. When the first half
// of a test fails, the library has been repaired, and its wrapper can go.

type nothing struct{}

func (nothing) Apply(*raft.Log) any                 { return nil }
func (nothing) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.ErrUnsupported }
func (nothing) Restore(r io.ReadCloser) error       { _, err := io.Copy(io.Discard, r); return err }

var members = raft.Configuration{Servers: []raft.Server{{ID: "l", Address: "l"}, {ID: "f", Address: "f"}, {ID: "x", Address: "x"}}}

func header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: 3, ID: []byte("l"), Addr: []byte("l")}
}

// follower starts a follower named f and returns the transport of its leader l.
func follower(t *testing.T, logs raft.LogStore, stable raft.StableStore, snaps raft.SnapshotStore) (*raft.InmemTransport, func()) {
	t.Helper()
	conf := raft.DefaultConfig()
	conf.LocalID = "f"
	conf.HeartbeatTimeout, conf.ElectionTimeout = time.Minute, time.Minute
	conf.Logger = hclog.NewNullLogger()
	_, mine := raft.NewInmemTransport("f")
	_, leaders := raft.NewInmemTransport("l")
	mine.Connect("l", leaders)
	leaders.Connect("f", mine)
	r, err := raft.NewRaft(conf, nothing{}, logs, stable, snaps, mine)
	if err != nil {
		t.Fatal(err)
	}
	return leaders, func() {
		if err := r.Shutdown().Error(); err != nil {
			t.Error(err)
		}
	}
}

// history returns the configuration and n-1 commands of one term.
func history(n, term uint64) []*raft.Log {
	logs := []*raft.Log{{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(members)}}
	for i := uint64(2); i <= n; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: term, Type: raft.LogCommand, Data: []byte("a")})
	}
	return logs
}

func appendTo(t *testing.T, l *raft.InmemTransport, req raft.AppendEntriesRequest) raft.AppendEntriesResponse {
	t.Helper()
	req.RPCHeader = header()
	var resp raft.AppendEntriesResponse
	if err := l.AppendEntries("f", "f", &req, &resp); err != nil {
		t.Fatal(err)
	}
	return resp
}

// watched tells the anchor about installed snapshots, as package snapshot does.
type watched struct {
	*raft.InmemSnapshotStore
	anchor *Anchor
}

func (w watched) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, tr raft.Transport) (raft.SnapshotSink, error) {
	if w.anchor != nil {
		w.anchor.Set(index, term)
	}
	return w.InmemSnapshotStore.Create(v, index, term, c, ci, tr)
}

// TestAnchor697: a follower with a diverging tail installs a snapshot.
func TestAnchor697(t *testing.T) {
	run := func(t *testing.T, wrapped bool) bool {
		store := raft.NewInmemStore()
		var logs raft.LogStore = store
		snaps := watched{InmemSnapshotStore: raft.NewInmemSnapshotStore()}
		if wrapped {
			snaps.anchor = &Anchor{LogStore: store}
			logs = snaps.anchor
		}
		l, stop := follower(t, logs, store, snaps)
		defer stop()
		if r := appendTo(t, l, raft.AppendEntriesRequest{Term: 1, Entries: history(10, 1), LeaderCommitIndex: 5}); !r.Success {
			t.Fatal("the first entries were refused")
		}
		data := []byte("snapshot")
		var ir raft.InstallSnapshotResponse
		err := l.InstallSnapshot("f", "f", &raft.InstallSnapshotRequest{
			RPCHeader: header(), SnapshotVersion: 1, Term: 2, LastLogIndex: 8, LastLogTerm: 2,
			Configuration: raft.EncodeConfiguration(members), ConfigurationIndex: 1, Size: int64(len(data)), Leader: []byte("l"),
		}, &ir, bytes.NewReader(data))
		if err != nil || !ir.Success {
			t.Fatalf("install: %v %+v", err, ir)
		}
		return appendTo(t, l, raft.AppendEntriesRequest{
			Term: 2, PrevLogEntry: 8, PrevLogTerm: 2, LeaderCommitIndex: 9,
			Entries: []*raft.Log{{Index: 9, Term: 2, Type: raft.LogCommand, Data: []byte("b")}},
		}).Success
	}
	if run(t, false) {
		t.Error("the bare library takes the append: the wrapper is not needed any more")
	}
	if !run(t, true) {
		t.Error("with the anchor the append behind the snapshot is still refused")
	}
}

// flaky fails one StoreLogs.
type flaky struct {
	*raft.InmemStore
	fail atomic.Bool
}

func (f *flaky) StoreLogs(l []*raft.Log) error {
	if f.fail.CompareAndSwap(true, false) {
		return disk.ErrNoSpace
	}
	return f.InmemStore.StoreLogs(l)
}

// TestLogs612: storing fails once, right after a diverging tail was deleted.
func TestLogs612(t *testing.T) {
	store := &flaky{InmemStore: raft.NewInmemStore()}
	var fatal atomic.Value
	logs := &Logs{LogStore: store, What: "group 1", Fatal: func(err error) { fatal.Store(err) }}
	l, stop := follower(t, logs, store.InmemStore, raft.NewInmemSnapshotStore())
	appendTo(t, l, raft.AppendEntriesRequest{Term: 1, Entries: history(10, 1), LeaderCommitIndex: 5})
	store.fail.Store(true)
	good := raft.AppendEntriesRequest{
		Term: 2, PrevLogEntry: 5, PrevLogTerm: 1, LeaderCommitIndex: 7,
		Entries: []*raft.Log{{Index: 6, Term: 2, Type: raft.LogCommand}, {Index: 7, Term: 2, Type: raft.LogCommand}},
	}
	if appendTo(t, l, good).Success {
		t.Fatal("the failing store succeeded")
	}
	// The flaw: its idea of its log is now wrong for good.
	if appendTo(t, l, good).Success {
		t.Error("the library recovers by itself: the wrapper is not needed any more")
	}
	if err, _ := fatal.Load().(error); !errors.Is(err, disk.ErrNoSpace) {
		t.Errorf("the wrapper did not end the process: %v", err)
	}
	stop()
	l, stop = follower(t, store, store.InmemStore, raft.NewInmemSnapshotStore())
	defer stop()
	if !appendTo(t, l, good).Success {
		t.Error("a restart does not cure it")
	}
}

// TestLogs503: a disk that hangs.
func TestLogs503(t *testing.T) {
	free := make(chan struct{})
	fatal := make(chan error, 2)
	logs := &Logs{LogStore: hung{raft.NewInmemStore(), free}, Deadline: 10 * time.Millisecond, Fatal: func(err error) { fatal <- err }}
	stable := &Stable{StableStore: hung{raft.NewInmemStore(), free}, Deadline: 10 * time.Millisecond, Fatal: func(err error) { fatal <- err }}
	done := make(chan error, 2)
	go func() { done <- logs.StoreLog(&raft.Log{Index: 1}) }()
	go func() { done <- stable.SetUint64([]byte("CurrentTerm"), 1) }()
	for range 2 {
		if err := <-fatal; !errors.Is(err, disk.ErrHung) {
			t.Errorf("fatal: %v", err)
		}
	}
	close(free)
	<-done
	<-done
}

type hung struct {
	*raft.InmemStore
	free chan struct{}
}

func (h hung) StoreLog(l *raft.Log) error           { <-h.free; return h.InmemStore.StoreLog(l) }
func (h hung) SetUint64(key []byte, v uint64) error { <-h.free; return h.InmemStore.SetUint64(key, v) }

// TestTransport695: the fast path is how a heartbeat gets to raft on another
// goroutine than the main one.
func TestTransport695(t *testing.T) {
	trans, err := raft.NewTCPTransport("127.0.0.1:0", nil, 1, time.Second, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer trans.Close()
	other, err := raft.NewTCPTransport("127.0.0.1:0", nil, 1, time.Second, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	defer other.CloseStreams()
	beat := func() (fast bool) {
		done := make(chan error, 1)
		go func() {
			var resp raft.AppendEntriesResponse
			// A heartbeat is an append without entries, position or commit index.
			done <- other.AppendEntries("f", trans.LocalAddr(), &raft.AppendEntriesRequest{RPCHeader: header(), Term: 1}, &resp)
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return true
		case rpc := <-trans.Consumer(): // the main goroutine's way
			rpc.Respond(&raft.AppendEntriesResponse{}, nil)
			<-done
			return false
		}
	}
	handler := func(rpc raft.RPC) { rpc.Respond(&raft.AppendEntriesResponse{}, nil) }
	Transport{Transport: trans}.SetHeartbeatHandler(handler)
	if beat() {
		t.Error("behind the wrapper a heartbeat took the fast path")
	}
	trans.SetHeartbeatHandler(handler)
	if !beat() {
		t.Error("the bare transport has no fast path: the wrapper is not needed any more")
	}
}

func TestAnchorAnswersOnlyItsIndex(t *testing.T) {
	store := raft.NewInmemStore()
	if err := store.StoreLogs(history(10, 1)); err != nil {
		t.Fatal(err)
	}
	a := &Anchor{LogStore: store}
	a.Set(8, 2)
	var l raft.Log
	if err := a.GetLog(8, &l); err != nil || l.Term != 2 || l.Type != raft.LogNoop {
		t.Errorf("entry 8: %+v %v", l, err)
	}
	if err := a.GetLog(7, &l); err != nil || l.Term != 1 {
		t.Errorf("entry 7: %+v %v", l, err)
	}
	a.Set(5, 1)
	if err := a.GetLog(5, &l); err != nil || string(l.Data) != "a" {
		t.Errorf("entry 5, which is the snapshot's own: %+v %v", l, err)
	}
	if err := a.GetLog(11, &l); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("entry 11: %v", err)
	}
}
