package wal

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/fault"
)

var errIO = errors.New("input/output error")

// caught returns a Fatal and the channel with what it was called with.
func caught() (func(error), <-chan error) {
	c := make(chan error, 8)
	return func(err error) { c <- err }, c
}

func entry(i uint64, size int) *raft.Log {
	return &raft.Log{Index: i, Term: 1, Data: make([]byte, size)}
}

func TestFailedWriteIsFatalAndNeverRetried(t *testing.T) {
	for _, op := range []fault.Op{fault.OpWrite, fault.OpSync} {
		t.Run(string(op), func(t *testing.T) {
			fsys := fault.NewInject(fault.NewDisk())
			fatal, fatals := caught()
			l := mustOpen(t, small(fsys, fatal))
			defer l.Close()
			g := l.Group(1)
			if err := g.StoreLog(entry(1, 10)); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			tries := 0
			fsys.On(func(o fault.Op, name string) error {
				mu.Lock()
				defer mu.Unlock()
				if o == op && !strings.HasSuffix(name, "marker") {
					tries++
					return errIO
				}
				return nil
			})
			var stores sync.WaitGroup
			for id := uint32(1); id <= 3; id++ {
				stores.Go(func() {
					g := l.Group(id)
					last, _ := g.LastIndex()
					if err := g.StoreLog(entry(last+1, 10)); !errors.Is(err, errIO) {
						t.Errorf("store while the disk fails: %v", err)
					}
				})
			}
			stores.Wait()
			if err := <-fatals; !errors.Is(err, errIO) {
				t.Errorf("fatal: %v", err)
			}
			fsys.On(nil)
			if err := g.StoreLog(entry(2, 10)); !errors.Is(err, errIO) {
				t.Errorf("store after the failure: %v", err)
			}
			if last, _ := g.LastIndex(); last != 1 {
				t.Errorf("last index %d", last)
			}
			var e raft.Log
			if err := g.GetLog(1, &e); err != nil {
				t.Errorf("reads don't go on: %v", err)
			}
			if tries != 1 {
				t.Errorf("%d tries", tries)
			}
		})
	}
}

func TestHungDiskIsFatal(t *testing.T) {
	fsys := fault.NewInject(fault.NewDisk())
	fatal, fatals := caught()
	o := small(fsys, fatal)
	o.Deadline = 20 * time.Millisecond
	l := mustOpen(t, o)
	defer l.Close()
	free := make(chan struct{})
	fsys.On(func(op fault.Op, name string) error {
		if op == fault.OpSync {
			<-free
		}
		return nil
	})
	stored := make(chan error, 1)
	go func() { stored <- l.Group(1).StoreLog(entry(1, 10)) }()
	if err := <-fatals; !errors.Is(err, disk.ErrHung) {
		t.Errorf("fatal: %v", err)
	}
	close(free)
	if err := <-stored; !errors.Is(err, disk.ErrHung) {
		t.Errorf("store: %v", err)
	}
}

// TestFullDisk fills the disk: NoSpace says so while there is still room for what
// is on its way; more than that waits, and goes through when there is space again.
func TestFullDisk(t *testing.T) {
	d := fault.NewDisk()
	l := mustOpen(t, small(d, nil))
	defer mustClose(t, l)
	g := l.Group(1)
	if err := g.StoreLog(entry(1, 10)); err != nil {
		t.Fatal(err)
	}
	d.Limit(0)
	stored := make(chan error, 1)
	go func() { // certainly more than there is room for
		for i := uint64(2); i <= 100; i++ {
			if err := g.StoreLog(entry(i, 200)); err != nil {
				stored <- err
				return
			}
		}
		stored <- nil
	}()
	await(t, "the full disk is noticed", l.NoSpace)
	var e raft.Log
	if err := g.GetLog(1, &e); err != nil {
		t.Errorf("reads don't go on: %v", err)
	}
	select {
	case err := <-stored:
		t.Fatalf("stored without space: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	d.Limit(-1)
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	await(t, "space is noticed", func() bool { return !l.NoSpace() })
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
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

// TestManyGroupsShareOneSync counts the syncs of many stores at once.
func TestManyGroupsShareOneSync(t *testing.T) {
	fsys := fault.NewInject(fault.NewDisk())
	o := small(fsys, nil)
	o.FirstBytes, o.SegmentBytes = 1<<20, 1<<20
	l := mustOpen(t, o)
	defer mustClose(t, l)
	var mu sync.Mutex
	syncs := 0
	hold := make(chan struct{})
	held := make(chan struct{}, 1)
	fsys.On(func(op fault.Op, name string) error {
		if op == fault.OpSync && strings.HasSuffix(name, ".free") { // the name it was made under
			mu.Lock()
			syncs++
			first := syncs == 1
			mu.Unlock()
			if first {
				held <- struct{}{}
				<-hold
			}
		}
		return nil
	})
	var stores sync.WaitGroup
	store := func(id uint32) {
		stores.Go(func() {
			if err := l.Group(id).StoreLogs([]*raft.Log{entry(1, 10), entry(2, 10)}); err != nil {
				t.Error(err)
			}
		})
	}
	store(1)
	<-held
	for id := uint32(2); id <= 20; id++ {
		store(id)
	}
	for waiting := 0; waiting < 20; {
		l.queueMu.Lock()
		waiting = len(l.queue)
		l.queueMu.Unlock()
	}
	close(hold)
	stores.Wait()
	if syncs != 2 {
		t.Errorf("20 stores took %d syncs, want 2", syncs)
	}
}

// TestManyAtOnce has groups store, read and trim at the same time.
func TestManyAtOnce(t *testing.T) {
	l := mustOpen(t, small(fault.NewDisk(), nil))
	defer mustClose(t, l)
	var work sync.WaitGroup
	for id := uint32(1); id <= 4; id++ {
		g := l.Group(id)
		done := make(chan struct{})
		work.Go(func() {
			defer close(done)
			for i := uint64(1); i <= 300; i++ {
				if err := g.StoreLog(&raft.Log{Index: i, Term: uint64(id), Data: []byte{byte(i)}}); err != nil {
					t.Error(err)
					return
				}
				if i%40 == 0 {
					if err := g.DeleteRange(0, i-20); err != nil {
						t.Error(err)
					}
					g.Release(i - 10)
				}
			}
		})
		work.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				first, _ := g.FirstIndex()
				last, _ := g.LastIndex()
				for i := first; i <= last && i > 0; i++ {
					var e raft.Log
					err := g.GetLog(i, &e)
					if errors.Is(err, raft.ErrLogNotFound) {
						continue // trimmed meanwhile
					}
					if err != nil || e.Index != i || e.Term != uint64(id) || e.Data[0] != byte(i) {
						t.Errorf("entry %d of group %d: %+v, %v", i, id, e, err)
						return
					}
				}
			}
		})
	}
	work.Wait()
}
