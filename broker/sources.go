package broker

import (
	"net"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/monitor"
)

// sources is what the monitoring pages are made of.
func (b *Broker) sources() monitor.Sources {
	s := monitor.Sources{
		ServerID: b.id, ServerName: b.name(b.options.Load()), Version: NATSVersion, Herald: Version, Started: b.start,
		Front: b.front, Options: b.options.Load, Pending: b.pending,
		Durable: func() monitor.Durable {
			if d := b.durable.Load(); d != nil {
				return d
			}
			return nil
		},
		ClientPort:    b.port(func() net.Addr { return b.front.Addr() }),
		WebsocketPort: b.port(func() net.Addr { return b.front.WebsocketAddr() }),
		HTTPPort: func() int {
			if b.http == nil {
				return 0
			}
			return portOf(b.http.Addr())
		},
		Opened: func() bool {
			select {
			case <-b.ready:
				return true
			default:
				return false
			}
		},
		Cluster: func() monitor.Cluster {
			if b.links != nil {
				return monitored{b.links}
			}
			return nil
		},
		Loaded:     func() time.Time { return time.Unix(0, b.loaded.Load()) },
		Collectors: []prometheus.Collector{logMetrics{b}, filterMetrics{b}, operatorMetrics{b}},
	}
	if b.storeDir != "" {
		s.StoreDir = filepath.Join(b.storeDir, "herald")
	}
	return s
}

func (b *Broker) port(addr func() net.Addr) func() int {
	return func() int {
		select {
		case <-b.ready:
			return portOf(addr())
		default:
			return 0
		}
	}
}

// pending tells why the broker doesn't serve everything.
func (b *Broker) pending() []string {
	switch {
	case b.closing.Load():
		return []string{"the broker is stopping"}
	case b.lame.Load():
		return []string{"the broker is in lame duck mode"}
	case b.removed.Load():
		return []string{"the node has been removed from the cluster: add it again, or stop it"}
	}
	select {
	case <-b.ready:
		return nil
	default:
		return []string{"the broker is starting"}
	}
}

// The front tells of its clients here; the system account hears of them.

func (b *Broker) onConnect(c *front.ClientInfo) {
	if s := b.sys.Load(); s != nil {
		s.Connected(c)
	}
}

func (b *Broker) onDisconnect(c *front.ClientInfo, i front.ConnInfo) {
	if s := b.sys.Load(); s != nil {
		s.Disconnected(c, i)
	}
	if d := b.durable.Load(); d != nil {
		d.adverts.Disconnected(c)
	}
}

func (b *Broker) onAuthError(c *front.ClientInfo, i front.ConnInfo) {
	if s := b.sys.Load(); s != nil {
		s.AuthFailed(c, i)
	}
}

// logMetrics is what the logs measure, once the durable side is open.
type logMetrics struct{ b *Broker }

// Describe sends nothing: the set of series depends on what is open.
func (m logMetrics) Describe(chan<- *prometheus.Desc) {}

func (m logMetrics) Collect(ch chan<- prometheus.Metric) {
	if d := m.b.durable.Load(); d != nil {
		d.state.Metrics().Collect(ch)
	}
}
