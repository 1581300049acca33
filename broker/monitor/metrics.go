package monitor

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/heraldmq/herald/topics"
)

// topicSeriesMax bounds how many topics have series of their own; the sums over
// all topics are always there.
const topicSeriesMax = 200

// registry returns a registry of its own with everything the broker measures.
func (m *Monitor) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(newSampler(m))
	r.MustRegister(m.s.Collectors...)
	return r
}

// sampler turns the rooms' counters into metrics when they are scraped.
type sampler struct {
	m *Monitor

	info, up, conns, totalConns, subs, slow, stale, stalled *prometheus.Desc
	msgs, bytes                                             *prometheus.Desc
	topicCount, consumerCount, stored, storedBytes          *prometheus.Desc
	topicMsgs, topicBytes, topicLast, topicConsumers        *prometheus.Desc
	apiTotal, apiErrors                                     *prometheus.Desc
	groupIndex, groupTerm, groupLeads, groupPending         *prometheus.Desc
	groupNoSpace, logBytes                                  *prometheus.Desc
	groupUnapplied, groupVoters                             *prometheus.Desc
	linkUp, linkRTT, linkPending, linkMsgs, linkBytes       *prometheus.Desc
}

func newSampler(m *Monitor) *sampler {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("herald_"+name, help, labels, nil)
	}
	return &sampler{
		m:              m,
		info:           d("info", "Always 1; names the server and its versions.", "server", "herald", "version"),
		up:             d("ready", "1 when the broker serves everything, else 0."),
		conns:          d("connections", "Open client connections."),
		totalConns:     d("connections_total", "Client connections since the start."),
		subs:           d("subscriptions", "Subscriptions of clients."),
		slow:           d("slow_consumers_total", "Connections cut because they did not read."),
		stale:          d("stale_connections_total", "Connections cut because they did not answer pings."),
		stalled:        d("stalled_clients_total", "Times a publisher was slowed down for a receiver."),
		msgs:           d("messages_total", "Messages received from (in) and sent to (out) clients.", "direction"),
		bytes:          d("bytes_total", "Bytes of those messages.", "direction"),
		topicCount:     d("topics", "Durable topics."),
		consumerCount:  d("consumers", "Consumers of durable topics."),
		stored:         d("stored_messages", "Messages in durable topics."),
		storedBytes:    d("stored_bytes", "Bytes of those messages."),
		topicMsgs:      d("topic_messages", "Messages in a topic (the first 200 topics).", "account", "topic"),
		topicBytes:     d("topic_bytes", "Bytes in a topic (the first 200 topics).", "account", "topic"),
		topicLast:      d("topic_last_sequence", "Last sequence of a topic (the first 200 topics).", "account", "topic"),
		topicConsumers: d("topic_consumers", "Consumers of a topic (the first 200 topics).", "account", "topic"),
		apiTotal:       d("api_requests_total", "JetStream API requests."),
		apiErrors:      d("api_errors_total", "JetStream API requests answered with an error."),
		groupIndex:     d("group_index", "Positions in a group's log.", "group", "position"),
		groupTerm:      d("group_term", "A group's term.", "group"),
		groupLeads:     d("group_leads", "1 when this node leads the group, else 0.", "group"),
		groupPending:   d("group_pending_proposals", "Proposals of a group without outcome.", "group"),
		groupNoSpace:   d("group_no_space", "1 when writes are refused for want of disk space.", "group"),
		logBytes:       d("log_bytes", "Bytes of the write-ahead log."),
		groupUnapplied: d("group_unapplied_entries", "Entries that are committed and not applied on this node.", "group"),
		groupVoters:    d("group_voters", "Voters of a group that are online, as far as this node knows.", "group"),
		linkUp:         d("link_up", "1 for each connected node.", "peer"),
		linkRTT:        d("link_rtt_seconds", "Round trip to another node.", "peer"),
		linkPending:    d("link_pending_bytes", "Bytes that wait to be sent to another node.", "peer"),
		linkMsgs:       d("link_messages_total", "Live messages received from (in) and sent to (out) another node.", "peer", "direction"),
		linkBytes:      d("link_bytes_total", "Bytes of those messages.", "peer", "direction"),
	}
}

// Describe sends nothing: the set of series depends on what there is.
func (s *sampler) Describe(chan<- *prometheus.Desc) {}

// Collect samples the counters.
func (s *sampler) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	src := s.m.s
	st := src.Front.Stats()
	gauge(s.info, 1, src.ServerName, src.Herald, src.Version)
	gauge(s.up, one(len(src.Pending()) == 0))
	gauge(s.conns, float64(st.Connections))
	counter(s.totalConns, float64(st.TotalConnections))
	gauge(s.subs, float64(st.Subscriptions))
	counter(s.slow, float64(st.SlowConsumers))
	counter(s.stale, float64(st.StaleConnections))
	counter(s.stalled, float64(st.StalledClients))
	counter(s.msgs, float64(st.InMsgs), "in")
	counter(s.msgs, float64(st.OutMsgs), "out")
	counter(s.bytes, float64(st.InBytes), "in")
	counter(s.bytes, float64(st.OutBytes), "out")
	if durable := src.Durable(); durable != nil {
		s.collectDurable(durable, gauge, counter)
	}
	if c := s.m.cluster(); c != nil {
		for _, l := range c.Links() {
			gauge(s.linkUp, 1, l.Name)
			gauge(s.linkRTT, l.RTT.Seconds(), l.Name)
			gauge(s.linkPending, float64(l.Pending), l.Name)
			counter(s.linkMsgs, float64(l.InMsgs), l.Name, "in")
			counter(s.linkMsgs, float64(l.OutMsgs), l.Name, "out")
			counter(s.linkBytes, float64(l.InBytes), l.Name, "in")
			counter(s.linkBytes, float64(l.OutBytes), l.Name, "out")
		}
	}
}

type emit func(d *prometheus.Desc, v float64, labels ...string)

func (s *sampler) collectDurable(durable Durable, gauge, counter emit) {
	api := durable.API("")
	counter(s.apiTotal, float64(api.Total))
	counter(s.apiErrors, float64(api.Errors))
	var sum topics.State
	count := 0
	durable.Topics("", func(t Topic) bool {
		count++
		sum.Messages += t.State.Messages
		sum.Bytes += t.State.Bytes
		sum.Consumers += t.State.Consumers
		if count <= topicSeriesMax {
			gauge(s.topicMsgs, float64(t.State.Messages), t.Account, t.Name)
			gauge(s.topicBytes, float64(t.State.Bytes), t.Account, t.Name)
			counter(s.topicLast, float64(t.State.Last), t.Account, t.Name)
			gauge(s.topicConsumers, float64(t.State.Consumers), t.Account, t.Name)
		}
		return true
	})
	gauge(s.topicCount, float64(count))
	gauge(s.consumerCount, float64(sum.Consumers))
	gauge(s.stored, float64(sum.Messages))
	gauge(s.storedBytes, float64(sum.Bytes))
	var log int64
	for _, g := range durable.Groups() {
		id := strconv.FormatUint(uint64(g.ID), 10)
		for position, i := range map[string]topics.Index{
			"first": g.FirstIndex, "last": g.Last, "committed": g.Committed, "applied": g.Applied, "flushed": g.Flushed,
		} {
			gauge(s.groupIndex, float64(i), id, position)
		}
		gauge(s.groupTerm, float64(g.Term), id)
		gauge(s.groupLeads, one(g.Leads), id)
		gauge(s.groupPending, float64(g.Pending), id)
		gauge(s.groupNoSpace, one(g.NoSpace), id)
		log = max(log, g.LogBytes)
		s.collectMembers(g, id, gauge)
	}
	gauge(s.logBytes, float64(log))
}

func (s *sampler) collectMembers(g Group, id string, gauge emit) {
	gauge(s.groupUnapplied, float64(g.Committed-min(g.Committed, g.Applied)), id)
	voters := 0
	for _, p := range g.Members {
		if p.Voter && p.Online {
			voters++
		}
	}
	if len(g.Members) > 0 {
		gauge(s.groupVoters, float64(voters), id)
	}
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
