package replication

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/replication/fault"
	"github.com/heraldmq/herald/topics"
)

// TestAFullLeaderMakesWay fills the leader's disk: others take the lead, and nobody is
// told that there is no space. With all disks full everybody is, until there is space. Not
// beside others: who is to take the lead must have caught up by then.
func TestAFullLeaderMakesWay(t *testing.T) {
	for _, group := range []int{0, 1} {
		disks := map[string]*crowded{}
		l := newLab(t, topics.GroupID(group), func(name string, c *Config) {
			d := &crowded{FS: disk.OS{}}
			d.free.Store(1 << 40)
			disks[name] = d
			c.FS = d
		}, "a", "b", "c")
		l.propose("one")
		for range 2 { // the next leader too
			full := l.leader()
			disks[full.name].free.Store(1 << 20)
			l.await("another node leads", func() bool {
				_, _, err := full.g.Propose([]byte("x")).Result()
				if errors.Is(err, ErrNoSpace) {
					t.Errorf("%s refuses, though others have space", full.name)
				}
				return l.leader() != full
			})
			l.propose("x")
		}
		last := l.leader()
		disks[last.name].free.Store(1 << 20)
		l.await("all are full, and say so", func() bool {
			_, _, err := l.leader().g.Propose([]byte("x")).Result()
			return errors.Is(err, ErrNoSpace)
		})
		for _, d := range disks {
			d.free.Store(1 << 40)
		}
		l.await("there is space again", func() bool {
			_, _, err := l.leader().g.Propose([]byte("y")).Result()
			return err == nil
		})
	}
}

// TestAHungLeaderIsReplaced hangs the leader's disk. It can't step down, but another
// one leads long before the write deadline.
func TestAHungLeaderIsReplaced(t *testing.T) {
	for _, group := range []int{0, 1} {
		disks := map[string]*fault.Inject{}
		l := newLab(t, topics.GroupID(group), func(name string, c *Config) {
			disks[name] = fault.NewInject(disk.OS{})
			c.FS, c.WriteDeadline, c.SlowWrite = disks[name], time.Minute, 300*time.Millisecond
		}, "a", "b", "c")
		l.propose("one")
		hung := l.leader()
		free := make(chan struct{})
		disks[hung.name].On(func(op fault.Op, name string) error {
			if op == fault.OpSync && (strings.Contains(name, "/wal/") || strings.Contains(name, "/stable/")) {
				<-free
			}
			return nil
		})
		if group == 0 {
			hung.node.slowed(1) // its log isn't reached by the file system of tests
		}
		p := hung.g.Propose([]byte("two"))
		l.await("another node leads", func() bool {
			for _, ln := range l.running() {
				if _, leads := ln.g.Leader(); leads && ln != hung {
					return true
				}
			}
			return false
		})
		if group == 0 {
			hung.node.slowed(-1)
		}
		close(free)
		<-p.Done()
		l.await("there is one leader", func() bool {
			_, leads := hung.g.Leader()
			return !leads
		})
		l.propose("three")
	}
}
