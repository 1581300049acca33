package filtering

import "github.com/prometheus/client_golang/prometheus"

var (
	descFilters   = prometheus.NewDesc("herald_filters", "Distinct content filters in use.", nil, nil)
	descLive      = prometheus.NewDesc("herald_filtered_subscriptions", "Live filtered subscriptions known to this node.", nil, nil)
	descScanned   = prometheus.NewDesc("herald_filter_scanned_total", "Messages that live filtered subscriptions looked at, on this node.", nil, nil)
	descDelivered = prometheus.NewDesc("herald_filter_delivered_total", "Of those: matched and taken by somebody.", nil, nil)
	descErrors    = prometheus.NewDesc("herald_filter_errors_total", "Of those: the condition could not be evaluated.", []string{"reason"}, nil)
)

// Describe implements prometheus.Collector.
func (s *Service) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descFilters, descLive, descScanned, descDelivered, descErrors} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. The counters are those of the
// registrations there are: they fall when one ends.
func (s *Service) Collect(ch chan<- prometheus.Metric) {
	n, sum := s.Totals()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descFilters, float64(s.o.Filters.Len()))
	gauge(descLive, float64(n))
	gauge(descScanned, float64(sum.Scanned))
	gauge(descDelivered, float64(sum.Delivered))
	for reason, n := range sum.ByReason {
		gauge(descErrors, float64(n), string(reason))
	}
}
