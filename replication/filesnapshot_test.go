package replication

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
)

// TestDivergentFollowerMeetsASnapshot isolates a leader with entries that are never
// committed, lets the others go on until the log doesn't reach back any more, and
// joins them: the one that was away takes a snapshot over its own end of the log, and
// appends are taken at once (hashicorp/raft #697).
func TestDivergentFollowerMeetsASnapshot(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, func(_ string, c *Config) { c.SnapshotBytes, c.TrailingBytes = 1, 1 }, "a", "b", "c")
	for i := range 5 {
		l.propose(fmt.Sprint("before ", i))
	}
	l.awaitSame("before 4")
	odd := l.leader()
	var others []*labNode
	for _, ln := range l.running() {
		if ln != odd {
			l.net.Cut(odd.name, ln.name)
			others = append(others, ln)
		}
	}
	for i := range 10 {
		odd.g.Propose(fmt.Appendf(nil, "lost %d", i))
	}
	l.await("another leader", func() bool {
		for _, ln := range others {
			if _, leads := ln.g.Leader(); leads {
				return true
			}
		}
		return false
	})
	for i := range 60 {
		data := fmt.Sprint("meanwhile ", i)
		l.await(data, func() bool {
			for _, ln := range others {
				if _, leads := ln.g.Leader(); leads {
					_, _, err := ln.g.Propose([]byte(data)).Result()
					return err == nil
				}
			}
			return false
		})
	}
	end := odd.g.LastIndex()
	l.await("the log to begin behind what the other has", func() bool {
		for _, ln := range others {
			if err := ln.g.Flushed(topics.Index(ln.g.applied.Load())); err != nil {
				t.Fatal(err)
			}
			first, err := ln.g.logs.FirstIndex()
			if err != nil {
				t.Fatal(err)
			}
			if topics.Index(first) <= end+1 {
				l.propose("more")
				return false
			}
		}
		return true
	})
	l.net.HealAll()
	began := time.Now()
	l.propose("after")
	l.awaitSame("after")
	took := time.Since(began)
	t.Logf("together again in %s", took)
	if took > 10*time.Second {
		t.Error("that is too long")
	}
	if odd.list.restores == 0 {
		t.Error("it got everything from the log")
	}
	for _, data := range odd.list.all() {
		if strings.HasPrefix(data, "lost") {
			t.Errorf("%q was applied", data)
		}
	}
	last := odd.g.LastIndex()
	for i := range 20 {
		l.propose(fmt.Sprint("finally ", i))
	}
	l.awaitSame("finally 19")
	if odd.g.LastIndex() > last+40 {
		t.Errorf("the log grows from %d to %d", last, odd.g.LastIndex())
	}
}
