package replication

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
	"go.uber.org/goleak"
)

// The tests of several nodes wait more than they work: more of them run at once than
// there are processors, unless -parallel says how many.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // a flag that testing has, and a number
	goleak.VerifyTestMain(m)
}

// list is a state machine that remembers what it was given.
type list struct {
	mu       sync.Mutex
	entries  []string
	indexes  []topics.Index
	applied  topics.Index // what Applied answers
	restores int
	fail     error // of Restore
	forgets  bool  // keeps nothing, for benchmarks
}

func (l *list) Apply(entries []Entry) []any {
	l.mu.Lock()
	defer l.mu.Unlock()
	results := make([]any, len(entries))
	if l.forgets {
		return results
	}
	for i, e := range entries {
		l.entries = append(l.entries, string(e.Data))
		l.indexes = append(l.indexes, e.Index)
		results[i] = len(l.entries)
	}
	return results
}

func (l *list) Applied() topics.Index { return l.applied }

func (l *list) Snapshot() (Snapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return listSnapshot(slices.Clone(l.entries)), nil
}

func (l *list) Restore(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.restores++
	if l.fail != nil {
		return l.fail
	}
	l.entries, l.indexes = nil, nil
	for len(b) > 0 {
		n := binary.LittleEndian.Uint32(b)
		l.entries = append(l.entries, string(b[4:4+n]))
		b = b[4+n:]
	}
	return nil
}

func (l *list) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries)
}

type listSnapshot []string

func (s listSnapshot) Persist(w io.Writer) error {
	var b bytes.Buffer
	for _, e := range s {
		b.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(e))))
		b.WriteString(e)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (listSnapshot) Release() {}

func openNode(t testing.TB, cfg Config) *Node {
	t.Helper()
	if cfg.Fatal == nil {
		cfg.Fatal = func(err error) { t.Errorf("fatal: %v", err) }
	}
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeNode(t, n) })
	return n
}

func closeNode(t testing.TB, n *Node) {
	t.Helper()
	if err := n.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func startGroup(t testing.TB, n *Node, id topics.GroupID, sm StateMachine) *Group {
	t.Helper()
	g, err := n.Start(id, sm)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func propose(t testing.TB, g *Group, data string) topics.Index {
	t.Helper()
	i, _, err := g.Propose([]byte(data)).Result()
	if err != nil {
		t.Fatalf("propose %.20q: %v", data, err)
	}
	return i
}

func TestGroupKeepsWhatItAnswered(t *testing.T) {
	for _, id := range []topics.GroupID{0, 1} {
		t.Run(fmt.Sprint(id), func(t *testing.T) {
			dir := t.TempDir()
			var want []string
			for round := range 3 {
				n := openNode(t, Config{Dir: dir})
				sm := &list{}
				g := startGroup(t, n, id, sm)
				if got := sm.all(); !slices.Equal(got, want) {
					t.Fatalf("round %d: after Start the machine holds %q, want %q", round, got, want)
				}
				var proposals []*Proposal
				for i := range 200 {
					data := fmt.Sprintf("%d.%d", round, i)
					want = append(want, data)
					proposals = append(proposals, g.Propose([]byte(data)))
				}
				var last topics.Index
				for i, p := range proposals {
					index, result, err := p.Result()
					if err != nil || index <= last || result != len(want)-200+i+1 {
						t.Fatalf("proposal %d: index %d after %d, result %v, error %v", i, index, last, result, err)
					}
					last = index
				}
				if id, leads := g.Leader(); id != n.ID() || !leads {
					t.Errorf("leader %q, %t", id, leads)
				}
				if lead := <-g.LeaderChanges(); !lead {
					t.Error("the last change says that it doesn't lead")
				}
				closeNode(t, n)
				if _, _, err := g.Propose([]byte("x")).Result(); !errors.Is(err, ErrClosed) {
					t.Errorf("propose to a closed group: %v", err)
				}
			}
		})
	}
}

func TestGroupsStartFast(t *testing.T) {
	best := time.Hour
	for range 5 {
		n, err := Open(Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		startGroup(t, n, 1, &list{})
		best = min(best, time.Since(begin))
		closeNode(t, n)
	}
	t.Logf("a new group leads after %s", best)
	if best > 250*time.Millisecond { // 20 ms on an idle disk
		t.Errorf("a new group leads only after %s", best)
	}
}

// flushing is a machine whose files hold an entry before Apply has returned.
type flushing struct {
	list
	flush func(topics.Index)
}

func (f *flushing) Apply(entries []Entry) []any {
	results := f.list.Apply(entries)
	if f.flush != nil {
		f.flush(entries[len(entries)-1].Index)
	}
	return results
}

// TestFlushBeforeApplyReturns: a machine flushes on a goroutine of its own, which
// may be done before the group has noted that Apply is.
func TestFlushBeforeApplyReturns(t *testing.T) {
	sm := &flushing{}
	g := startGroup(t, openNode(t, Config{Dir: t.TempDir()}), 1, sm)
	flushed := make(chan error, 1)
	sm.flush = func(i topics.Index) { flushed <- g.Flushed(i) }
	last := propose(t, g, "one")
	if err := <-flushed; err != nil {
		t.Fatal(err)
	}
	if s := g.Stats(); s.Flushed != last {
		t.Fatalf("flushed up to %d, want %d", s.Flushed, last)
	}
}
