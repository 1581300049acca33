package replication

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/heraldmq/herald/topics"
)

// Marked is a StateMachine whose log can carry markers: entries that change nothing,
// and at which every replica says in a few bytes what it holds. The leader proposes
// one when something was applied since the last, compares what the replicas say, and
// the one that holds something else than the majority is reset.
type Marked interface {
	// Marker returns an entry to propose. A full marker makes the replicas look at all
	// they hold, not only at what changed since the last one.
	Marker(full bool) []byte
	// OnMark says whom to tell. Apply calls f at each marker; f doesn't block.
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

// markEvery is how long after the last marker the next one comes, if there was
// anything else meanwhile.
const markEvery = 10 * time.Second

// DigestStats is what comparing replicas came to.
type DigestStats struct {
	// Index is the last marker at which this node said what it holds; Agreed, on the
	// leader, the last on which a majority agreed.
	Index, Agreed topics.Index
	Digest        uint64 // at Index
	Divergences   int64  // replicas found out to hold something else, since the start
}

// digests is a group's comparing; careMu guards it.
type digests struct {
	stats   DigestStats
	compare comparer
	full    bool         // the next marker is a full one
	last    topics.Index // of the last marker that was applied
	said    []Mark       // the last few
}

// Digests returns what comparing came to.
func (g *Group) Digests() DigestStats {
	g.careMu.Lock()
	defer g.careMu.Unlock()
	return g.digests.stats
}

func (g *Group) wantFullMark() {
	g.careMu.Lock()
	defer g.careMu.Unlock()
	g.digests.full = true
}

const methodDigest = "replication.digest"

// digestReport is what a replica says to the leader; or, with Odd, the leader to a
// replica: that it holds something else than the majority.
type digestReport struct {
	Group   topics.GroupID `json:"group"`
	Replica string         `json:"replica"`
	Index   topics.Index   `json:"index"`
	Digest  uint64         `json:"digest"`
	Odd     bool           `json:"odd,omitempty"`
	Theirs  uint64         `json:"theirs,omitempty"`
}

// tend proposes markers, and says what this replica holds at those it has applied. It
// is a goroutine.
func (g *Group) tend() {
	g.running.Go(g.keepScrubbing)
	sm, ok := g.machine.sm.(Marked)
	if !ok || g.node.links == nil {
		return
	}
	marks := make(chan Mark, 16)
	sm.OnMark(func(m Mark) {
		select {
		case marks <- m:
		default: // the next one will do
		}
	})
	every := time.NewTicker(g.node.markEvery())
	defer every.Stop()
	for {
		select {
		case m := <-marks:
			g.sayMark(m)
		case <-every.C:
			g.proposeMark(sm)
		case <-g.stop:
			return
		}
	}
}

// markEvery returns how often markers are proposed.
func (n *Node) markEvery() time.Duration {
	if n.cfg.DigestInterval > 0 {
		return n.cfg.DigestInterval
	}
	return markEvery
}

// proposeMark proposes a marker if this node leads, there is somebody to compare with,
// and something was applied since the last one.
func (g *Group) proposeMark(sm Marked) {
	if _, leads := g.Leader(); !leads || len(g.servers()) < 2 {
		return
	}
	g.careMu.Lock()
	idle := topics.Index(g.applied.Load()) <= g.digests.last
	full := g.digests.full
	if !idle {
		g.digests.full = false
	}
	g.careMu.Unlock()
	if !idle {
		g.Propose(sm.Marker(full)) // if it gets lost, the next will do
	}
}

// sayMark tells the leader what this replica holds.
func (g *Group) sayMark(m Mark) {
	g.careMu.Lock()
	d := &g.digests
	d.last = max(d.last, m.Index)
	if m.Known {
		d.stats.Index, d.stats.Digest = m.Index, m.Digest
		if d.said = append(d.said, m); len(d.said) > roundsMax {
			d.said = d.said[1:]
		}
	}
	g.careMu.Unlock()
	if !m.Known {
		return
	}
	r := digestReport{Group: g.id, Replica: g.replica, Index: m.Index, Digest: m.Digest}
	leader, leads := g.Leader()
	switch {
	case leads:
		g.heardMark(&r)
	case leader != "":
		g.send(leader, &r)
	}
}

// send calls another node, which may be away.
func (g *Group) send(to string, r *digestReport) {
	body, err := json.Marshal(r)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(g.ctx, 5*time.Second)
	defer cancel()
	if _, err := g.node.links.Call(ctx, to, methodDigest, body); err != nil {
		g.node.cfg.Log.Debug("a digest was not passed on", "group", g.id, "to", to, "error", err)
	}
}

// answerDigest is told what a replica holds, or that this one holds something else.
func (n *Node) answerDigest(_ context.Context, from string, body []byte) ([]byte, error) {
	var r digestReport
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, fmt.Errorf("a digest from %s: %w", from, err)
	}
	g := n.group(r.Group)
	if g == nil {
		return nil, fmt.Errorf("a digest from %s: group %d doesn't run here", from, r.Group)
	}
	if r.Odd {
		g.foundOut(&r)
		return nil, nil
	}
	if node, _, _ := strings.Cut(r.Replica, "/"); node != from {
		return nil, fmt.Errorf("a digest from %s: it is of %s", from, r.Replica)
	}
	if _, leads := g.Leader(); leads {
		g.heardMark(&r)
	}
	return nil, nil
}

// heardMark compares, on the leader.
func (g *Group) heardMark(r *digestReport) {
	var voters []string
	nodes := map[string]string{}
	for _, s := range g.servers() {
		nodes[string(s.ID)] = string(s.Address)
		if s.Suffrage == raft.Voter {
			voters = append(voters, string(s.ID))
		}
	}
	if nodes[r.Replica] == "" {
		return // it has left
	}
	g.careMu.Lock()
	v := g.digests.compare.say(r.Index, r.Replica, r.Digest, voters)
	g.digests.stats.Agreed = g.digests.compare.agreed
	said := map[string]uint64{}
	for _, id := range v.odd {
		said[id] = g.digests.compare.rounds[r.Index].said[id]
	}
	g.digests.stats.Divergences += int64(len(v.odd))
	if v.split {
		g.digests.stats.Divergences++
	}
	g.careMu.Unlock()
	if v.split {
		g.node.cfg.Log.Error("the replicas of a group hold different things, and no majority the same: find out which is right, and remove the other replicas' nodes from the group",
			"group", g.id, "entry", r.Index)
	}
	for _, id := range v.odd {
		g.node.cfg.Log.Error("a replica holds something else than the majority", "group", g.id, "entry", r.Index, "replica", id,
			"digest", fmt.Sprintf("%016x", said[id]), "theirs", fmt.Sprintf("%016x", v.theirs))
		odd := digestReport{Group: g.id, Replica: id, Index: r.Index, Digest: said[id], Odd: true, Theirs: v.theirs}
		if id == g.replica {
			g.foundOut(&odd)
			continue
		}
		g.spawn(func() { g.send(nodes[id], &odd) })
	}
}

// foundOut is told that this replica holds something else than the majority.
func (g *Group) foundOut(r *digestReport) {
	g.careMu.Lock()
	mine := false
	for _, m := range g.digests.said {
		mine = mine || m.Index == r.Index && m.Digest == r.Digest
	}
	_, leads := g.Leader()
	if mine && !leads {
		g.digests.stats.Divergences++ // the leader has counted it
	}
	g.careMu.Unlock()
	if mine && r.Replica == g.replica {
		g.ReportDamage(&DivergedError{Group: g.id, At: r.Index, Mine: r.Digest, Theirs: r.Theirs})
	}
}
