package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/fault"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testDir = "/wal"

// small are options under which everything happens often: rolling, recycling,
// eviction from memory.
func small(fsys disk.FS, fatal func(error)) Options {
	return Options{
		Dir: testDir, Node: "a", FS: fsys, Fatal: fatal,
		FirstBytes: 1024, SegmentBytes: 4096, Pool: 2, TailBytes: 1500, ReserveBytes: 1,
	}
}

type fataler interface {
	Helper()
	Errorf(string, ...any)
	Fatalf(string, ...any)
}

func mustOpen(t fataler, o Options) *Log {
	t.Helper()
	if o.Fatal == nil {
		o.Fatal = func(err error) { t.Errorf("fatal: %v", err) }
	}
	l, err := Open(o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return l
}

func mustClose(t fataler, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// slice is the model of a group's log: entry i is at entries[i-first].
type slice struct {
	first   uint64
	entries []raft.Log
}

func (s *slice) last() uint64 {
	if len(s.entries) == 0 {
		return 0
	}
	return s.first + uint64(len(s.entries)) - 1
}

func (s *slice) store(logs []*raft.Log) {
	if len(s.entries) == 0 || logs[0].Index != s.last()+1 {
		s.first, s.entries = logs[0].Index, nil
	}
	for _, l := range logs {
		s.entries = append(s.entries, *l)
	}
}

func (s *slice) deleteRange(from, to uint64) {
	switch {
	case len(s.entries) == 0 || to < s.first || from > s.last():
	case to >= s.last():
		s.entries = s.entries[:max(from, s.first)-s.first]
	default:
		s.entries = s.entries[to+1-s.first:]
		s.first = to + 1
	}
}

func (s *slice) clone() slice { return slice{s.first, slices.Clone(s.entries)} }

func sameEntry(a, b *raft.Log) bool {
	return a.Index == b.Index && a.Term == b.Term && a.Type == b.Type && string(a.Data) == string(b.Data) &&
		string(a.Extensions) == string(b.Extensions) && a.AppendedAt.Equal(b.AppendedAt)
}

// compare checks a group against its model. After a crash or a reopening the
// beginning may reach further back: trims are not durable.
func compare(t fataler, g *Group, want *slice, reopened bool) {
	t.Helper()
	first, _ := g.FirstIndex()
	last, _ := g.LastIndex()
	if last != want.last() {
		t.Fatalf("last index %d, want %d", last, want.last())
	}
	if len(want.entries) == 0 {
		return
	}
	if first > want.first || first != want.first && !reopened {
		t.Fatalf("first index %d, want %d", first, want.first)
	}
	for i := range want.entries {
		var got raft.Log
		if err := g.GetLog(want.first+uint64(i), &got); err != nil {
			t.Fatalf("entry %d: %v", want.first+uint64(i), err)
		}
		if !sameEntry(&got, &want.entries[i]) {
			t.Fatalf("entry %d is %+v, want %+v", want.first+uint64(i), got, want.entries[i])
		}
	}
	var l raft.Log
	for _, i := range []uint64{first - 1, last + 1} {
		if err := g.GetLog(i, &l); !errors.Is(err, raft.ErrLogNotFound) {
			t.Fatalf("entry %d outside of %d..%d: %v", i, first, last, err)
		}
	}
}

func someLogs(t *rapid.T, next, term uint64) []*raft.Log {
	n := rapid.IntRange(1, 5).Draw(t, "entries")
	logs := make([]*raft.Log, n)
	for i := range logs {
		logs[i] = &raft.Log{
			Index: next + uint64(i), Term: term,
			Type: rapid.SampledFrom([]raft.LogType{raft.LogCommand, raft.LogNoop, raft.LogConfiguration}).Draw(t, "type"),
			Data: make([]byte, rapid.SampledFrom([]int{0, 1, 7, 100, 700, 2500, 5000}).Draw(t, "size")),
		}
		for j := range logs[i].Data {
			logs[i].Data[j] = byte(int(logs[i].Index) + int(term) + j)
		}
		if rapid.Bool().Draw(t, "more") {
			logs[i].Extensions = []byte("extension")
			logs[i].AppendedAt = time.Unix(1700000000, int64(i)*1000)
		}
	}
	return logs
}

// TestLogAgainstSlice does random things to a log and to a slice, with crashes in
// between, at which everything acknowledged must be there and nothing be called
// damaged.
func TestLogAgainstSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := fault.NewDisk()
		l := mustOpen(t, small(d, nil))
		models := map[uint32]*slice{1: {}, 2: {}}
		reopened := map[uint32]bool{}
		term := uint64(1)
		defer func() { l.Close() }()
		reopen := func(t *rapid.T, after *fault.Disk) {
			mustClose(t, l)
			d = after
			l = mustOpen(t, small(d, nil))
			reopened[1], reopened[2] = true, true
		}
		pick := func(t *rapid.T) (uint32, *Group, *slice) {
			id := rapid.SampledFrom([]uint32{1, 2}).Draw(t, "group")
			return id, l.Group(id), models[id]
		}
		t.Repeat(map[string]func(*rapid.T){
			"store": func(t *rapid.T) {
				_, g, m := pick(t)
				logs := someLogs(t, m.last()+1, term)
				if err := g.StoreLogs(logs); err != nil {
					t.Fatal(err)
				}
				m.store(logs)
			},
			"restart": func(t *rapid.T) {
				id, g, m := pick(t)
				logs := someLogs(t, m.last()+uint64(rapid.IntRange(2, 50).Draw(t, "gap")), term)
				if err := g.StoreLogs(logs); err != nil {
					t.Fatal(err)
				}
				m.store(logs)
				delete(reopened, id)
			},
			"truncate": func(t *rapid.T) {
				_, g, m := pick(t)
				if len(m.entries) == 0 {
					return
				}
				from := m.first + uint64(rapid.IntRange(0, len(m.entries)-1).Draw(t, "from"))
				if first, _ := g.FirstIndex(); from == m.first {
					from = first // all of it
				}
				term++
				if err := g.DeleteRange(from, m.last()); err != nil {
					t.Fatal(err)
				}
				m.deleteRange(from, m.last())
			},
			"trim": func(t *rapid.T) {
				id, g, m := pick(t)
				if len(m.entries) < 2 {
					return
				}
				to := m.first + uint64(rapid.IntRange(0, len(m.entries)-2).Draw(t, "to"))
				first, _ := g.FirstIndex()
				if err := g.DeleteRange(first, to); err != nil {
					t.Fatal(err)
				}
				m.deleteRange(m.first, to)
				delete(reopened, id)
			},
			"carry": func(t *rapid.T) {
				_, g, _ := pick(t)
				l.mu.RLock()
				segments := slices.Clone(l.segments)
				l.mu.RUnlock()
				if len(segments) == 0 {
					return
				}
				if err := g.carry(segments[rapid.IntRange(0, len(segments)-1).Draw(t, "segment")]); err != nil {
					t.Fatal(err)
				}
				l.retire()
			},
			"release": func(t *rapid.T) {
				_, g, m := pick(t)
				g.Release(m.last())
			},
			"close":     func(t *rapid.T) { reopen(t, d) },
			"kill":      func(t *rapid.T) { reopen(t, d.Kill()) },
			"power cut": func(t *rapid.T) { reopen(t, d.Crash(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))) },
			"": func(t *rapid.T) {
				for id, m := range models {
					compare(t, l.Group(id), m, reopened[id])
				}
			},
		})
	})
}

// TestPowerCutAtEveryWrite cuts the power before every single write and sync, and
// after it; several outcomes each.
func TestPowerCutAtEveryWrite(t *testing.T) {
	d := fault.NewDisk()
	fsys := fault.NewInject(d)
	rnd := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex // the keeper writes too
	var acked slice
	var asked []*raft.Log // being stored
	cuts := 0
	check := func() {
		mu.Lock()
		defer mu.Unlock()
		for range 4 {
			cuts++
			after := mustOpen(t, small(d.Crash(rnd), nil))
			g := after.Group(1)
			last, _ := g.LastIndex()
			m := acked.clone()
			for _, l := range asked { // these may be there, from the first on
				if l.Index <= last {
					m.store([]*raft.Log{l})
				}
			}
			compare(t, g, &m, true)
			next := &raft.Log{Index: m.last() + 1, Term: 9, Data: []byte("after the crash")}
			if err := g.StoreLog(next); err != nil {
				t.Fatal(err)
			}
			mustClose(t, after)
		}
	}
	l := mustOpen(t, small(fsys, nil))
	fsys.On(func(op fault.Op, _ string) error {
		if op == fault.OpWrite || op == fault.OpSync || op == fault.OpRename || op == fault.OpSyncDir {
			check()
		}
		return nil
	})
	for i := range 40 {
		data := make([]byte, []int{10, 600, 3000}[i%3])
		mu.Lock()
		next := acked.last() + 1
		logs := []*raft.Log{{Index: next, Term: 1, Data: data}, {Index: next + 1, Term: 1, Data: []byte("second")}}
		asked = logs
		mu.Unlock()
		if err := l.Group(1).StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		acked.store(logs)
		asked = nil
		mu.Unlock()
	}
	fsys.On(nil)
	mustClose(t, l)
	t.Logf("%d power cuts", cuts)
}

func ExampleLog() {
	d := fault.NewDisk()
	l, err := Open(Options{Dir: "/wal", Node: "a", FS: d, Fatal: func(err error) { panic(err) }})
	if err != nil {
		panic(err)
	}
	defer l.Close()
	g := l.Group(1)
	if err := g.StoreLog(&raft.Log{Index: 1, Term: 1, Data: []byte("hello")}); err != nil {
		panic(err)
	}
	data, inMemory := g.Entry(1)
	fmt.Printf("%s %t\n", data, inMemory)
	// Output: hello true
}
