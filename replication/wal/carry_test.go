package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/fault"
)

// busy writes to a group, of which little is wanted, and to another now and then.
type busy struct {
	t    *testing.T
	l    *Log
	mu   sync.Mutex // of the models; fault.Inject's function looks at them
	idle slice
	work slice
	asks []*raft.Log // of work, being stored
}

func (b *busy) store(n int) {
	b.t.Helper()
	g := b.l.Group(2)
	for range n {
		b.mu.Lock()
		next := b.work.last() + 1
		b.asks = []*raft.Log{entry(next, 300), entry(next+1, 700)}
		asks := b.asks
		b.mu.Unlock()
		if err := g.StoreLogs(asks); err != nil {
			b.t.Fatal(err)
		}
		b.mu.Lock()
		b.work.store(asks)
		b.asks = nil
		if last := b.work.last(); last > 6 {
			b.work.deleteRange(1, last-4)
		}
		last := b.work.last()
		b.mu.Unlock()
		if last > 6 {
			if err := g.DeleteRange(1, last-4); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

// check compares an opened log.
func (b *busy) check(l *Log) {
	b.t.Helper()
	compare(b.t, l.Group(1), &b.idle, true)
	last, _ := l.Group(2).LastIndex()
	m := b.work.clone()
	for _, e := range b.asks {
		if e.Index <= last {
			m.store([]*raft.Log{e})
		}
	}
	compare(b.t, l.Group(2), &m, true)
}

func newBusy(t *testing.T, l *Log) *busy {
	b := &busy{t: t, l: l}
	for i := range uint64(5) {
		logs := []*raft.Log{entry(i+1, 50)}
		if err := l.Group(1).StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
		b.idle.store(logs)
	}
	return b
}

// TestAnIdleGroupDoesNotKeepTheLog: its few entries are carried forward, so that what
// others have written behind them is recycled.
func TestAnIdleGroupDoesNotKeepTheLog(t *testing.T) {
	d := fault.NewDisk()
	l := mustOpen(t, small(d, nil))
	b := newBusy(t, l)
	for round := range 10 {
		b.store(30) // some eight segments
		await(t, "the log to become short", func() bool { return l.Stats().Segments <= carryFrom })
		b.check(l)
		if round%3 == 2 {
			mustClose(t, l)
			d = d.Kill()
			l = mustOpen(t, small(d, nil))
			b.l = l
			b.check(l)
			logs := []*raft.Log{entry(b.idle.last()+1, 50)} // it goes on
			if err := l.Group(1).StoreLogs(logs); err != nil {
				t.Fatal(err)
			}
			b.idle.store(logs)
		}
	}
	l.mu.RLock()
	first := l.segments[0].head.number
	l.mu.RUnlock()
	if first < 20 {
		t.Errorf("the oldest segment is number %d", first)
	}
	mustClose(t, l)
}

// TestPowerCutWhileEntriesAreCarried cuts the power before every write and sync.
func TestPowerCutWhileEntriesAreCarried(t *testing.T) {
	d := fault.NewDisk()
	fsys := fault.NewInject(d)
	rnd := rand.New(rand.NewPCG(1, 2))
	l := mustOpen(t, small(fsys, nil))
	b := newBusy(t, l)
	cuts := 0
	fsys.On(func(op fault.Op, _ string) error {
		if op != fault.OpWrite && op != fault.OpSync && op != fault.OpRename && op != fault.OpSyncDir && op != fault.OpRemove {
			return nil
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		cuts++
		after := mustOpen(t, small(d.Crash(rnd), nil))
		b.check(after)
		if err := after.Group(1).StoreLog(entry(b.idle.last()+1, 10)); err != nil {
			t.Error(err)
		}
		mustClose(t, after)
		return nil
	})
	for range 6 {
		b.store(15)
		await(t, "the log to become short", func() bool { return l.Stats().Segments <= carryFrom && !l.carrying.Load() })
	}
	fsys.On(nil)
	mustClose(t, l)
	t.Logf("%d power cuts", cuts)
}

// TestAGroupChangesWhileItIsCarried: between two pieces its end is cut off, it begins
// anew, or its beginning is trimmed.
func TestAGroupChangesWhileItIsCarried(t *testing.T) {
	for name, c := range map[string]struct {
		change func(g *Group, m *slice) error
		moved  bool
	}{
		"nothing": {func(*Group, *slice) error { return nil }, true},
		"stored": {func(g *Group, m *slice) error {
			logs := []*raft.Log{entry(9, 20)}
			m.store(logs)
			return g.StoreLogs(logs)
		}, true},
		"trimmed": {func(g *Group, m *slice) error { m.deleteRange(1, 3); return g.DeleteRange(1, 3) }, true},
		"cut off": {func(g *Group, m *slice) error {
			logs := []*raft.Log{{Index: 5, Term: 7, Data: []byte("another")}}
			m.deleteRange(5, 8)
			m.store(logs)
			if err := g.DeleteRange(5, 8); err != nil {
				return err
			}
			return g.StoreLogs(logs)
		}, false},
		"cut off behind": {func(g *Group, m *slice) error { m.deleteRange(8, 8); return g.DeleteRange(8, 8) }, false},
		"anew": {func(g *Group, m *slice) error {
			logs := []*raft.Log{entry(100, 20)}
			m.store(logs)
			return g.StoreLogs(logs)
		}, false},
		"dropped": {func(g *Group, m *slice) error { *m = slice{}; return g.Drop() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := fault.NewDisk()
			l := mustOpen(t, Options{Dir: testDir, Node: "a", FS: d})
			g := l.Group(1)
			var m slice
			var logs []*raft.Log
			for i := range uint64(8) {
				logs = append(logs, entry(i+1, 20))
			}
			if err := g.StoreLogs(logs); err != nil {
				t.Fatal(err)
			}
			m.store(logs)
			moving := &carried{epoch: g.epoch, first: 1}
			piece := func(from, to int, begin, end bool) {
				t.Helper()
				if err := l.submit(&request{group: g, logs: logs[from:to], carried: moving, begin: begin, end: end}); err != nil {
					t.Fatal(err)
				}
			}
			piece(0, 3, true, false)
			if err := c.change(g, &m); err != nil {
				t.Fatal(err)
			}
			piece(3, 7, false, true)
			compare(t, g, &m, false)
			if at := g.refs; at.len() > 0 && (at.at(0).offset > 600) != c.moved && name != "anew" {
				t.Errorf("the first entry is at %d", at.at(0).offset)
			}
			g.Release(1000) // read from disk
			if m.last() > 0 {
				compare(t, g, &m, false)
			}
			mustClose(t, l)
			for _, after := range []*fault.Disk{d, d.Kill()} {
				l := mustOpen(t, Options{Dir: testDir, Node: "a", FS: after})
				compare(t, l.Group(1), &m, true)
				mustClose(t, l)
			}
		})
	}
}

// TestManyIdleGroups of different ages.
func TestManyIdleGroups(t *testing.T) {
	d := fault.NewDisk()
	l := mustOpen(t, small(d, nil))
	b := newBusy(t, l)
	models := map[uint32]*slice{}
	for id := uint32(3); id < 9; id++ {
		m := &slice{}
		models[id] = m
		logs := []*raft.Log{entry(10, 30), entry(11, 30)}
		if err := l.Group(id).StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
		m.store(logs)
		b.store(25)
	}
	b.store(25)
	await(t, "the log to become short", func() bool { return l.Stats().Segments <= carryFrom+1 })
	same := func() {
		t.Helper()
		for id, m := range models {
			compare(t, l.Group(id), m, true)
		}
		b.check(l)
	}
	same()
	mustClose(t, l)
	l = mustOpen(t, small(d.Kill(), nil))
	same()
	if n := fmt.Sprint(l.Damage(3)); n != "<nil>" {
		t.Error(n)
	}
	mustClose(t, l)
}

func TestReadsAfterCloseFindNothing(t *testing.T) {
	l := mustOpen(t, small(fault.NewDisk(), nil))
	g := l.Group(1)
	if err := g.StoreLogs([]*raft.Log{entry(1, 10), entry(2, 10)}); err != nil {
		t.Fatal(err)
	}
	g.Release(1)
	mustClose(t, l)
	var e raft.Log
	if err := g.GetLog(1, &e); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("read after close: %v", err)
	}
}
