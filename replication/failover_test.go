package replication

import (
	"testing"
	"time"
)

// TestADeadLeaderIsReplacedThoughTheWrongOneStood: who lacks an entry that was committed stands
// first and can't be elected; the other one then is, and not only after the heartbeat
// timeout, which is long here.
func TestADeadLeaderIsReplacedThoughTheWrongOneStood(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, func(_ string, c *Config) { c.HeartbeatTimeout = 10 * time.Second }, "a", "b", "c")
	l.propose("before")
	l.awaitSame("before")
	dead := l.leader()
	var lacks, has *labNode
	for _, ln := range l.running() {
		switch {
		case ln == dead:
		case lacks == nil:
			lacks = ln
		default:
			has = ln
		}
	}
	l.net.Cut(dead.name, lacks.name)
	l.propose("of a majority")
	l.await("the entry", func() bool { return has.g.LastIndex() > lacks.g.LastIndex() })
	began := time.Now()
	lacks.g.Campaign()
	l.stop(dead.name)
	if leader := l.leader(); leader != has {
		t.Errorf("%s leads", leader.name)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("%s was replaced after %v", dead.name, took)
	}
}
