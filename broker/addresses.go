package broker

import (
	"net"
	"strconv"

	"github.com/heraldmq/herald/broker/config"
)

// ClientURL is where clients connect, "" until the broker is ready.
func (b *Broker) ClientURL() string {
	o := b.options.Load()
	scheme := "nats"
	if o.TLS != nil {
		scheme = "tls"
	}
	return b.url(scheme, func() net.Addr { return b.front.Addr() })
}

// WebsocketURL is where websocket clients connect, "" without that listener.
func (b *Broker) WebsocketURL() string {
	return b.url(websocketScheme(b.options.Load()), func() net.Addr { return b.front.WebsocketAddr() })
}

// ClusterURL is where other nodes connect, "" without a cluster.
func (b *Broker) ClusterURL() string {
	return b.url("nats-route", func() net.Addr {
		if b.links == nil {
			return nil
		}
		return b.links.net.Addr()
	})
}

func websocketScheme(o *config.Options) string {
	if o.Websocket.TLS != nil {
		return "wss"
	}
	return "ws"
}

// MonitorURL is where the monitoring pages are, "" without them.
func (b *Broker) MonitorURL() string {
	o := b.options.Load()
	scheme := "http"
	if o.HTTP.HTTPSPort != 0 {
		scheme = "https"
	}
	u := b.url(scheme, func() net.Addr {
		if b.http == nil {
			return nil
		}
		return b.http.Addr()
	})
	if u != "" {
		u += o.HTTP.BasePath
	}
	return u
}

func (b *Broker) url(scheme string, addr func() net.Addr) string {
	select {
	case <-b.ready:
	default:
		return ""
	}
	a := addr()
	if a == nil {
		return ""
	}
	return scheme + "://" + dialable(a)
}

// dialable is an address one can connect to: a listener on every interface is
// reached on loopback.
func dialable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// listenAddr is an address as the log tells it: the host as configured.
func (b *Broker) listenAddr(host string, a net.Addr) string {
	return net.JoinHostPort(host, strconv.Itoa(portOf(a)))
}

func portOf(a net.Addr) int {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.Port
	}
	return 0
}
