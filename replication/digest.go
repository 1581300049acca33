package replication

import (
	"github.com/heraldmq/herald/topics"
)

// Marked is a StateMachine whose log can carry markers: entries that change nothing,
// and at which every replica says in a few bytes what it holds. The leader proposes
// one when something was applied since the last.
type Marked interface {
	// Marker returns an entry to propose. A full marker makes the replicas look at all
	// they hold, not only at what changed since the last one.
	Marker(full bool) []byte
	// OnMark is called once, before anything is applied. Apply then calls f at each
	// marker; f doesn't block.
	OnMark(f func(Mark))
}

// Mark is what a replica holds at a marker.
type Mark struct {
	Index  topics.Index
	Digest uint64
	// Known is not set when this replica can't tell yet: it has not seen all that the
	// digest is made of.
	Known bool
	Full  bool
}

// DigestStats is what comparing replicas came to.
type DigestStats struct {
	Index       topics.Index // of the last marker on which a majority agreed
	Digest      uint64
	Divergences int64 // replicas that held something else, since the start
}

// digests is a group's comparing; careMu guards it.
type digests struct {
	stats DigestStats
}

// Digests returns what comparing came to. The leader knows most.
func (g *Group) Digests() DigestStats {
	g.careMu.Lock()
	defer g.careMu.Unlock()
	return g.digests.stats
}

// tend scrubs, and proposes and compares markers. It is a goroutine.
func (g *Group) tend() { <-g.stop }
