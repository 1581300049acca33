package replication

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldmq/herald/topics"
)

// care is what a group does to notice that its replica is not what it should be:
// scrubbing (scrub.go), comparing digests (digest.go), and what came of it.
type care struct {
	damaged chan error // capacity 1

	careMu  sync.Mutex
	damage  error // the first, nil while all is well
	found   time.Time
	scrubs  scrubs
	digests digests
}

// DivergedError says that a replica holds something else than the others at an index
// all of them have applied.
type DivergedError struct {
	Group        topics.GroupID
	At           topics.Index
	Mine, Theirs uint64 // digests
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf("group %d: this replica holds something else than the majority at entry %d (digest %016x, theirs is %016x)",
		e.Group, e.At, e.Mine, e.Theirs)
}

// Damage carries why this node's replica can't be used as it is: a *CorruptError of
// this package or of the machine's own kind that a read or a scrub met, or a
// *DivergedError. Whoever runs the group then hands over the lead, resets the replica
// (Node.ResetGroup) and starts it anew; with ErrOnlyReplica it leaves it as it is.
// Only the first reason is told. For one reader.
func (g *Group) Damage() <-chan error { return g.damaged }

// ReportDamage is told of damage by whoever meets it. It never blocks.
func (g *Group) ReportDamage(why error) {
	g.careMu.Lock()
	first := g.damage == nil
	if first {
		g.damage, g.found = why, time.Now()
	}
	g.careMu.Unlock()
	if !first {
		return
	}
	g.node.cfg.Log.Error("a replica is damaged", "group", g.id, "error", why)
	select {
	case g.damaged <- why:
	default:
	}
}

// Damaged returns the first damage that was reported, and when; nil while all is
// well.
func (g *Group) Damaged() (found time.Time, why error) {
	g.careMu.Lock()
	defer g.careMu.Unlock()
	return g.found, g.damage
}

var (
	damagedDesc = prometheus.NewDesc("herald_replica_damaged", "1 when damage was found in this node's replica of the group.",
		[]string{"group"}, nil)
	divergenceDesc = prometheus.NewDesc("herald_replica_divergence_total", "Times that replicas of the group held something else than the majority at the same entry.",
		[]string{"group"}, nil)
	digestDesc = prometheus.NewDesc("herald_replica_digest", "The lower 48 bits of a digest of what this node's replica of the group held at herald_replica_digest_index; missing before the first.",
		[]string{"group"}, nil)
	digestIndexDesc = prometheus.NewDesc("herald_replica_digest_index", "The entry at which the replica's digest was taken: replicas with the same one have the same digest.",
		[]string{"group"}, nil)
	scrubBytesDesc = prometheus.NewDesc("herald_scrub_bytes_total", "Bytes that scrubbing has read and checked.",
		[]string{"group"}, nil)
	scrubDamageDesc = prometheus.NewDesc("herald_scrub_damage_total", "Damaged places that scrubbing has found.",
		[]string{"group"}, nil)
	scrubAgeDesc = prometheus.NewDesc("herald_scrub_age_seconds", "Time since the last whole scrub of the group ended; missing before the first.",
		[]string{"group"}, nil)
)

// collectCare sends the metrics of a group's care.
func (g *Group) collectCare(ch chan<- prometheus.Metric, id string) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, id)
	}
	_, why := g.Damaged()
	damaged := 0.0
	if why != nil {
		damaged = 1
	}
	send(damagedDesc, prometheus.GaugeValue, damaged)
	d := g.Digests()
	send(divergenceDesc, prometheus.CounterValue, float64(d.Divergences))
	if d.Index > 0 {
		send(digestIndexDesc, prometheus.GaugeValue, float64(d.Index))
		send(digestDesc, prometheus.GaugeValue, float64(d.Digest&(1<<48-1))) // as many as the number holds exactly
	}
	s := g.Scrubs()
	send(scrubBytesDesc, prometheus.CounterValue, float64(s.Bytes))
	send(scrubDamageDesc, prometheus.CounterValue, float64(s.Damage))
	if !s.Last.Ended.IsZero() {
		send(scrubAgeDesc, prometheus.GaugeValue, time.Since(s.Last.Ended).Seconds())
	}
}
