package web

import "github.com/prometheus/client_golang/prometheus"

var (
	descOpen      = prometheus.NewDesc("herald_web_subscribers", "Web subscribers that are connected.", []string{"kind"}, nil)
	descOpened    = prometheus.NewDesc("herald_web_subscribers_total", "Web subscribers since the start.", []string{"kind"}, nil)
	descSlow      = prometheus.NewDesc("herald_web_slow_total", "Web subscribers cut because they did not take what came.", []string{"kind"}, nil)
	descFull      = prometheus.NewDesc("herald_web_full_total", "Web subscribers refused because there were too many.", []string{"kind"}, nil)
	descRefused   = prometheus.NewDesc("herald_web_refused_total", "Web requests answered with an error.", nil, nil)
	descMessages  = prometheus.NewDesc("herald_web_messages_total", "Messages sent to web subscribers.", nil, nil)
	descBytes     = prometheus.NewDesc("herald_web_bytes_total", "Bytes of those messages, as JSON.", nil, nil)
	descPublished = prometheus.NewDesc("herald_web_published_total", "Messages published by POST.", []string{"result"}, nil)
)

// Describe implements prometheus.Collector.
func (s *Server) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descOpen, descOpened, descSlow, descFull, descRefused, descMessages, descBytes, descPublished} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	c := &s.stats
	for k := range kinds {
		ch <- prometheus.MustNewConstMetric(descOpen, prometheus.GaugeValue, float64(c.open[k].Load()), k.String())
		counter(descOpened, c.opened[k].Load(), k.String())
		counter(descSlow, c.slow[k].Load(), k.String())
		counter(descFull, c.unavailable[k].Load(), k.String())
	}
	counter(descRefused, c.refused.Load())
	counter(descMessages, c.messages.Load())
	counter(descBytes, c.bytes.Load())
	counter(descPublished, c.published.Load(), "ok")
	counter(descPublished, c.publishFailed.Load(), "error")
}
