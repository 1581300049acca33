package replication

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldmq/herald/topics"
)

// meters are what a node measures while it works. Observing takes some ten
// nanoseconds, and happens once per write or committed entry, not per message.
type meters struct {
	sync    prometheus.Histogram // of the shared write-ahead log
	written prometheus.Histogram // bytes made durable by one sync
	records prometheus.Histogram // entries made durable by one sync
	append  prometheus.Histogram // of the catalogue's log
	commit  *prometheus.HistogramVec
	size    *prometheus.HistogramVec
	entries *prometheus.CounterVec

	transfers prometheus.Counter
}

func newMeters() meters {
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Namespace: "herald", Name: name, Help: help, Buckets: buckets}
	}
	seconds := prometheus.ExponentialBuckets(50e-6, 2, 16) // 50 µs to 1.6 s
	bytes := prometheus.ExponentialBuckets(64, 4, 11)      // 64 B to 64 MiB
	group := []string{"group"}
	return meters{
		sync:    prometheus.NewHistogram(histogram("log_sync_seconds", "Time a sync of the write-ahead log takes.", seconds)),
		written: prometheus.NewHistogram(histogram("log_batch_bytes", "Bytes made durable by one sync of the write-ahead log.", bytes)),
		records: prometheus.NewHistogram(histogram("log_batch_entries", "Entries made durable by one sync of the write-ahead log.", prometheus.ExponentialBuckets(1, 2, 8))),
		append:  prometheus.NewHistogram(histogram("catalogue_append_seconds", "Time an append to the catalogue's log takes, with its syncs.", seconds)),
		commit:  prometheus.NewHistogramVec(histogram("group_commit_seconds", "Time from a proposal until it is committed and applied, on the leader.", seconds), group),
		size:    prometheus.NewHistogramVec(histogram("group_entry_bytes", "Bytes of an entry: what one proposal batches.", bytes), group),
		entries: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "herald", Name: "group_entries_total", Help: "Entries applied since the start."}, group),

		transfers: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "herald", Name: "group_transfers_total", Help: "Leads that this node handed over."}),
	}
}

func (m *meters) collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.sync, m.written, m.records, m.append, m.commit, m.size, m.entries, m.transfers} {
		c.Collect(ch)
	}
}

// groupMeters are a group's share of them.
type groupMeters struct {
	commit, size prometheus.Observer
	entries      prometheus.Counter
}

func (m *meters) group(id topics.GroupID) groupMeters {
	l := strconv.FormatUint(uint64(id), 10)
	return groupMeters{m.commit.WithLabelValues(l), m.size.WithLabelValues(l), m.entries.WithLabelValues(l)}
}

var (
	leaderDesc = prometheus.NewDesc("herald_group_leader", "1 for the node that leads the group, as far as this node knows.",
		[]string{"group", "leader"}, nil)
	snapshotIndexDesc = prometheus.NewDesc("herald_group_snapshot_index", "Index of the group's newest snapshot, 0 without one.",
		[]string{"group"}, nil)
	snapshotAgeDesc = prometheus.NewDesc("herald_group_snapshot_age_seconds", "Age of the group's newest snapshot; missing without one.",
		[]string{"group"}, nil)
)

var _ prometheus.Collector = (*Node)(nil)

// Describe implements prometheus.Collector. It sends nothing: the series depend on
// which groups run.
func (n *Node) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector: how long the disk and the groups take,
// how much a batch holds, who leads, and how old snapshots are. Positions and terms
// are in Group.Stats. It may be called at any time, also after Close.
func (n *Node) Collect(ch chan<- prometheus.Metric) {
	n.meters.collect(ch)
	for _, g := range n.running() {
		id := strconv.FormatUint(uint64(g.id), 10)
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
		}
		s := g.Stats()
		if s.Leader != "" {
			gauge(leaderDesc, 1, id, s.Leader)
		}
		g.collectCare(ch, id)
		g.collectMembers(ch, id)
		gauge(snapshotIndexDesc, float64(s.Snapshot), id)
		if !s.SnapshotTaken.IsZero() {
			gauge(snapshotAgeDesc, time.Since(s.SnapshotTaken).Seconds(), id)
		}
	}
}

var (
	electionsDesc = prometheus.NewDesc("herald_group_elections_total", "Times this node began to lead the group.",
		[]string{"group"}, nil)
	memberDesc = prometheus.NewDesc("herald_group_member", "1 for each replica of the group.",
		[]string{"group", "node", "votes"}, nil)
	lagDesc = prometheus.NewDesc("herald_group_lag_entries", "Entries that a replica lacks, on the leader.",
		[]string{"group", "node"}, nil)
	contactDesc = prometheus.NewDesc("herald_group_contact_seconds", "Time since a replica reported to the leader, on the leader.",
		[]string{"group", "node"}, nil)
)

// collectMembers sends what is known of the group's replicas.
func (g *Group) collectMembers(ch chan<- prometheus.Metric, id string) {
	g.mu.Lock()
	elections, leads := g.elections, g.leading
	g.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(electionsDesc, prometheus.CounterValue, float64(elections), id)
	for _, m := range g.Members() {
		ch <- prometheus.MustNewConstMetric(memberDesc, prometheus.GaugeValue, 1, id, m.Node, strconv.FormatBool(m.Voter))
		if !leads || m.LastContact.IsZero() {
			continue
		}
		ch <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, float64(m.Lag), id, m.Node)
		ch <- prometheus.MustNewConstMetric(contactDesc, prometheus.GaugeValue, time.Since(m.LastContact).Seconds(), id, m.Node)
	}
}
