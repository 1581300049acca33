package replication

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
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

// heldDisk is a disk that can lose power, and whose syncs of the write-ahead log a test
// can hold or fail.
type heldDisk struct {
	*fault.Disk
	hold atomic.Pointer[chan struct{}] // closed to go on; nil: syncs aren't held
	held atomic.Int32                  // syncs that wait

	mu   sync.RWMutex // held for reading during a sync
	fail error        // what syncs of the write-ahead log end with
}

var (
	errPower = errors.New("the power is cut")
	errIO    = errors.New("input/output error")
)

type heldFile struct {
	disk.File
	d   *heldDisk
	wal bool
}

func (d *heldDisk) wrap(f disk.File, err error, name string) (disk.File, error) {
	if err != nil {
		return nil, err
	}
	return &heldFile{f, d, strings.Contains(name, "/wal/")}, nil
}

func (d *heldDisk) Open(name string) (disk.File, error) {
	f, err := d.Disk.Open(name)
	return d.wrap(f, err, name)
}

func (d *heldDisk) Create(name string) (disk.File, error) {
	f, err := d.Disk.Create(name)
	return d.wrap(f, err, name)
}

// MkdirAll makes a real directory as well: the lock on it is real.
func (d *heldDisk) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o700) }

func (f *heldFile) Datasync() error {
	if c := f.d.hold.Load(); c != nil && f.wal {
		f.d.held.Add(1)
		<-*c
		f.d.held.Add(-1)
	}
	f.d.mu.RLock()
	defer f.d.mu.RUnlock()
	if f.d.fail != nil && f.wal {
		return f.d.fail
	}
	return f.File.Datasync()
}

// breaks lets syncs of the write-ahead log fail from now on, and returns what is on the disk then.
func (d *heldDisk) breaks(err error, r *rand.Rand) *fault.Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
	return d.Crash(r)
}

// stall holds syncs until the function it returns is called.
func (d *heldDisk) stall() (release func()) {
	c := make(chan struct{})
	d.hold.Store(&c)
	return sync.OnceFunc(func() {
		d.hold.Store(nil)
		close(c)
	})
}

// heldLab is three nodes on such disks.
type heldLab struct {
	*lab
	disks map[string]*heldDisk
}

func newHeldLab(t testing.TB, tune func(*Config)) *heldLab {
	t.Helper()
	h := &heldLab{disks: map[string]*heldDisk{}}
	for _, name := range []string{"a", "b", "c"} {
		h.disks[name] = &heldDisk{Disk: fault.NewDisk()}
	}
	h.lab = newLab(t, 1, func(name string, c *Config) {
		c.FS = h.disks[name]
		c.WriteDeadline, c.SlowWrite, c.SegmentBytes = labWait, labWait, 1<<20
		complain := c.Fatal
		c.Fatal = func(err error) {
			if !errors.Is(err, errPower) && !errors.Is(err, errIO) {
				complain(err)
			}
		}
		if tune != nil {
			tune(c)
		}
	}, "a", "b", "c")
	return h
}

// quiet waits until all nodes have the same log and the leader's pipelines run.
func (h *heldLab) quiet() *labNode {
	h.t.Helper()
	h.propose("before")
	h.awaitSame("before")
	leader := h.leader()
	for i := 0; ; i++ { // until entries are sent ahead: after a start the first ones aren't
		p := leader.g.Propose(fmt.Appendf(nil, "warm up %d", i))
		if _, _, err := p.Result(); err != nil {
			h.t.Fatal(err)
		}
		release := h.disks[leader.name].stall()
		p = leader.g.Propose(fmt.Appendf(nil, "ahead %d", i))
		last := leader.g.LastIndex() + 1
		sent := false
		for range 200 {
			if sent = h.have(last, leader.name); sent {
				break
			}
			linger(time.Millisecond)
		}
		release()
		if _, _, err := p.Result(); err != nil {
			h.t.Fatal(err)
		}
		if sent {
			return leader
		}
	}
}

// have tells whether all running nodes but one have an entry in their logs.
func (h *heldLab) have(index topics.Index, but string) bool {
	for _, ln := range h.running() {
		if ln.name != but && ln.g.LastIndex() < index {
			return false
		}
	}
	return true
}

// cut ends a node by a power cut. Nobody hears of it any more; then what is on its disk
// is kept, and the syncs that a test holds fail.
func (h *heldLab) cut(name string, release func(), r *rand.Rand) {
	h.t.Helper()
	h.net.Kill(name)
	after := h.disks[name].breaks(errPower, r)
	release()
	h.end(name)
	h.disks[name] = &heldDisk{Disk: after}
}

// end ends a node whose disk fails.
func (h *heldLab) end(name string) {
	ln := h.nodes[name]
	h.net.Kill(name)
	_ = ln.node.Close()
	ln.node, ln.g = nil, nil
}

// TestFollowersWriteWhileTheLeaderWrites, and the leader counts nobody until it has
// written itself.
func TestFollowersWriteWhileTheLeaderWrites(t *testing.T) {
	h := newHeldLab(t, nil)
	leader := h.quiet()
	release := h.disks[leader.name].stall()
	defer release()
	last, committed := leader.g.LastIndex(), leader.g.Committed()
	p := leader.g.Propose([]byte("ahead"))
	h.await("the followers to have it", func() bool { return h.have(last+1, leader.name) })
	linger(100 * time.Millisecond) // their answers are there
	select {
	case <-p.Done():
		t.Fatal("a proposal has ended that the leader has not written")
	default:
	}
	if leader.g.LastIndex() != last || leader.g.Committed() != committed {
		t.Errorf("the log is at %d, committed %d, before the leader has written", leader.g.LastIndex(), leader.g.Committed())
	}
	for _, ln := range h.running() {
		if ln.name != leader.name && ln.g.Committed() > committed {
			t.Errorf("%s believes that %d is committed", ln.name, ln.g.Committed())
		}
	}
	release()
	if i, _, err := p.Result(); err != nil || i != last+1 {
		t.Errorf("entry %d: %v", i, err)
	}
	h.awaitSame("ahead")
}

func TestWriteFirst(t *testing.T) {
	h := newHeldLab(t, func(c *Config) { c.WriteFirst = true })
	h.propose("one")
	h.awaitSame("one")
	leader := h.leader()
	release := h.disks[leader.name].stall()
	defer release()
	last := leader.g.LastIndex()
	p := leader.g.Propose([]byte("two"))
	h.await("the write", func() bool { return h.disks[leader.name].held.Load() > 0 })
	linger(100 * time.Millisecond)
	for _, ln := range h.running() {
		if ln.g.LastIndex() > last {
			t.Errorf("%s has entry %d, which the leader has not written", ln.name, ln.g.LastIndex())
		}
	}
	release()
	if _, _, err := p.Result(); err != nil {
		t.Error(err)
	}
}

// TestALeaderLosesPowerBeforeItHasWritten what its followers have: whoever leads next
// has it or not, and the old leader comes back with less than it sent.
func TestALeaderLosesPowerBeforeItHasWritten(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, alone := range []bool{false, true} {
		t.Run(fmt.Sprintf("one follower only %v", alone), func(t *testing.T) {
			h := newHeldLab(t, nil)
			leader := h.quiet()
			others := slices.DeleteFunc(slices.Clone(h.names), func(n string) bool { return n == leader.name })
			if alone {
				h.net.Cut(leader.name, others[1])
			}
			release := h.disks[leader.name].stall()
			last := leader.g.LastIndex()
			p := leader.g.Propose([]byte("unwritten"))
			h.await("a follower to have it", func() bool { return h.nodes[others[0]].g.LastIndex() > last })
			h.cut(leader.name, release, r)
			h.net.HealAll()
			if _, _, err := p.Result(); !errors.Is(err, ErrOutcomeUnknown) && !errors.Is(err, ErrClosed) {
				t.Errorf("the proposal ended with %v", err)
			}
			h.propose("next")
			h.restart(leader.name, h.names...)
			h.awaitVoters(h.names...)
			h.propose("last")
			h.awaitSame("before", "next", "last")
			sameLogs(t, h.lab)
		})
	}
}

// TestALeaderWhoseDiskFailsAhead: what it sent and could not write may be committed by
// the others.
func TestALeaderWhoseDiskFailsAhead(t *testing.T) {
	h := newHeldLab(t, nil)
	leader := h.quiet()
	last := leader.g.LastIndex()
	after := h.disks[leader.name].breaks(errIO, rand.New(rand.NewPCG(3, 4)))
	if _, _, err := leader.g.Propose([]byte("unwritten")).Result(); err == nil {
		t.Error("a proposal was acknowledged that the leader could not write")
	}
	h.await("the followers to have it", func() bool { return h.have(last+1, leader.name) })
	h.end(leader.name) // as its Fatal would
	h.disks[leader.name] = &heldDisk{Disk: after}
	h.propose("next")
	h.restart(leader.name, h.names...)
	h.awaitVoters(h.names...)
	h.awaitSame("unwritten", "next") // both of those that went on had it
	sameLogs(t, h.lab)
}

// sameLogs compares the logs, entry by entry, where all nodes have them: an index has
// one term and one content on all (log matching).
func sameLogs(t *testing.T, l *lab) {
	t.Helper()
	first, last := uint64(0), ^uint64(0)
	for _, ln := range l.running() {
		f, err := ln.g.logs.FirstIndex()
		if err != nil {
			t.Fatal(err)
		}
		e, err := ln.g.logs.LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		first, last = max(first, f), min(last, e)
	}
	for i := first; i <= last; i++ {
		var want raft.Log
		for k, ln := range l.running() {
			var e raft.Log
			if err := ln.g.logs.GetLog(i, &e); err != nil {
				t.Fatal(err)
			}
			if k == 0 {
				want = e
			}
			if e.Term != want.Term || e.Type != want.Type || string(e.Data) != string(want.Data) {
				t.Errorf("entry %d is %d %v %q on one node, %d %v %q on %s", i, want.Term, want.Type, want.Data, e.Term, e.Type, e.Data, ln.name)
			}
		}
	}
}

// TestLogsMatchUnderPowerCuts proposes while nodes lose power in the middle of writes,
// are cut off one or both ways, stall, and hand over the lead. Nothing acknowledged may
// be lost, and the logs must match. HERALD_LONG=1 takes longer, HERALD_SEED repeats.
func TestLogsMatchUnderPowerCuts(t *testing.T) {
	t.Parallel()
	rounds := 8
	if os.Getenv("HERALD_LONG") != "" {
		rounds = 80
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("HERALD_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &seed); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("HERALD_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 5))
	h := newHeldLab(t, func(c *Config) { c.HeartbeatTimeout = 300 * time.Millisecond })
	var mu sync.Mutex // held while nodes come and go
	leading := func() *Group {
		mu.Lock()
		defer mu.Unlock()
		for _, ln := range h.running() {
			if _, leads := ln.g.Leader(); leads {
				return ln.g
			}
		}
		return nil
	}
	var acks struct {
		sync.Mutex
		data []string
	}
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for w := range 3 { // each with two on their way
		writers.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(w)))
			var flying []*Proposal
			var names []string
			settle := func(n int) {
				for len(flying) > n {
					if _, _, err := flying[0].Result(); err == nil {
						acks.Lock()
						acks.data = append(acks.data, names[0])
						acks.Unlock()
					}
					flying, names = flying[1:], names[1:]
				}
			}
			defer settle(0)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				g := leading()
				if g == nil {
					linger(5 * time.Millisecond)
					continue
				}
				name := fmt.Sprintf("%d-%d", w, i)
				flying, names = append(flying, g.Propose([]byte(name))), append(names, name)
				settle(2)
				linger(time.Duration(rnd.IntN(1000)) * time.Microsecond)
			}
		})
	}
	for range rounds {
		name := h.names[r.IntN(3)]
		if leader := leading(); leader != nil && r.IntN(2) == 0 {
			name = leader.node.name()
		}
		other := h.names[r.IntN(3)]
		switch r.IntN(5) {
		case 0, 1: // a power cut, often while a write is on its way
			release := h.disks[name].stall()
			linger(time.Duration(r.IntN(40)) * time.Millisecond)
			mu.Lock()
			h.cut(name, release, r)
			mu.Unlock()
			linger(time.Duration(r.IntN(800)) * time.Millisecond)
			mu.Lock()
			h.restart(name, h.names...)
			mu.Unlock()
		case 2:
			release := h.disks[name].stall()
			linger(time.Duration(r.IntN(900)) * time.Millisecond)
			release()
		case 3:
			if name != other {
				h.net.CutOneWay(name, other)
			} else {
				h.isolate(name)
			}
			linger(time.Duration(r.IntN(1200)) * time.Millisecond)
			h.net.HealAll()
		case 4:
			if name != other {
				h.net.Delay(name, other, time.Duration(r.IntN(50))*time.Millisecond)
			}
			linger(time.Duration(r.IntN(500)) * time.Millisecond)
			h.net.HealAll()
		}
		linger(time.Duration(r.IntN(400)) * time.Millisecond)
	}
	close(stop)
	writers.Wait()
	h.awaitVoters(h.names...)
	h.propose("last")
	h.awaitSame("last")
	t.Logf("%d entries acknowledged, %d in the log", len(acks.data), len(h.nodes["a"].list.all()))
	sameLogs(t, h.lab)
	for _, ln := range h.running() {
		has := map[string]int{}
		for _, e := range ln.list.all() {
			has[e]++
		}
		for _, e := range acks.data {
			if has[e] != 1 {
				t.Errorf("%s has %q %d times, which was acknowledged", ln.name, e, has[e])
			}
		}
	}
}
