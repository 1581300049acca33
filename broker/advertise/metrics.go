package advertise

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldmq/herald/topics/catalogue"
)

// metrics are what the service measures.
type metrics struct {
	n      atomic.Uint64 // checks begun
	untold atomic.Uint64 // notes that found no place
	missed atomic.Uint64 // samples that found none

	checks *prometheus.CounterVec
	time   prometheus.Histogram
}

func newMetrics() *metrics {
	return &metrics{
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "herald_advertise_checked_total", Help: "Messages held against the schema of an advertisement that is enforced.",
		}, []string{"enforce", "result"}),
		time: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "herald_advertise_check_seconds", Help: "Time to check one message against advertisements (one in 64 is measured).",
			Buckets: prometheus.ExponentialBuckets(250e-9, 4, 9),
		}),
	}
}

func (m *metrics) took(since time.Time) { m.time.Observe(time.Since(since).Seconds()) }

func (m *metrics) checked(a *catalogue.Advertisement, ok bool) {
	result := "ok"
	if !ok {
		result = "violation"
	}
	m.checks.WithLabelValues(string(a.Enforce), result).Inc()
}

var (
	advertisementsDesc = prometheus.NewDesc("herald_advertisements", "Advertisements by account.", []string{"account"}, nil)
	untoldDesc         = prometheus.NewDesc("herald_advertise_events_dropped_total", "Events about advertisements that were not published because too many waited.", nil, nil)
)

// Describe implements prometheus.Collector: it sends nothing, the accounts change.
func (s *Service) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *Service) Collect(ch chan<- prometheus.Metric) {
	s.metrics.checks.Collect(ch)
	s.metrics.time.Collect(ch)
	ch <- prometheus.MustNewConstMetric(untoldDesc, prometheus.CounterValue, float64(s.metrics.untold.Load()))
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.accounts {
		if n := len(s.history.of(name)); n > 0 {
			ch <- prometheus.MustNewConstMetric(advertisementsDesc, prometheus.GaugeValue, float64(n), name)
		}
	}
}
