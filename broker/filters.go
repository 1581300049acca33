package broker

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/broker/filtering"
	"github.com/heraldmq/herald/broker/service"
	"github.com/heraldmq/herald/broker/web"
	"github.com/heraldmq/herald/replication/peer"
)

// filterPeers is the cluster as broker/filtering sees it.
type filterPeers struct{ *links }

func (p filterPeers) Others() (names []string) {
	for _, o := range p.net.Peers() {
		names = append(names, o.Name)
	}
	return names
}

// OnUp has f told of nodes that come.
func (p filterPeers) OnUp(f func(node string)) {
	p.net.OnChange(func(e peer.Event) {
		if e.Kind == peer.Up {
			f(e.Peer.Name)
		}
	})
}

func (p filterPeers) Call(ctx context.Context, node, method string, body []byte) ([]byte, error) {
	return p.net.Call(ctx, node, method, body)
}

func (p filterPeers) Handle(method string, h func(ctx context.Context, from string, body []byte) ([]byte, error)) {
	p.net.Handle(method, h)
}

// openFiltering begins to answer requests for filtered live subscriptions.
func (b *Broker) openFiltering() error {
	fo := filtering.Options{Filters: b.filters, Identity: b.identity("filter", "filters", "content filters for live subscriptions"), Log: b.cfg.Log}
	if b.links != nil {
		fo.Peers = filterPeers{b.links}
	}
	b.filtering = filtering.New(fo)
	return b.serveFilters()
}

// identity is how a room presents itself to those who ask $SRV.>.
func (b *Broker) identity(room, page, what string) service.Identity {
	return service.Identity{
		Name: "herald-" + room, ID: b.id, Version: Version, Description: "Herald: " + what,
		Metadata: map[string]string{"docs": "docs/" + page + ".md"},
	}
}

// serveFilters answers all accounts, those that a reload made as well.
func (b *Broker) serveFilters() error {
	var errs []error
	for _, a := range b.front.Accounts() {
		if !a.System() {
			errs = append(errs, b.filtering.Serve(a))
		}
	}
	return errors.Join(errs...)
}

// openWeb makes what serves the web's subscribers and publishers, where it is asked for,
// and the console.
func (b *Broker) openWeb(o *config.Options) {
	w := &o.Web
	if o.HTTP.Port == 0 && o.HTTP.HTTPSPort == 0 {
		if w.Enabled {
			b.cfg.Log.Warn("web is enabled, but there is no HTTP port to serve it on: set http_port or https_port")
		}
		return
	}
	if !w.Enabled && !o.Console {
		return
	}
	base := strings.Trim(o.HTTP.BasePath, "/")
	if base != "" {
		base = "/" + base
	}
	b.web = web.New(web.Options{
		Closed: !w.Enabled,
		Console: web.Console{
			Enabled: o.Console, Open: func() bool { return b.options.Load().Anonymous() },
			About: map[string]any{
				"server": b.name(o), "version": Version, "cluster": o.Cluster.Name, "durable": o.JetStream.Enabled,
				"started": b.start.UTC(),
				// There is no other mode: sync_interval is taken for "always".
				"acknowledged": "after fsync on a majority of a topic's replicas",
			},
		},
		Front: b.front, BasePath: base, API: domainAPI(o.JetStream.Domain),
		AllowedOrigins: w.AllowedOrigins, AnyOrigin: !w.SameOrigin && len(w.AllowedOrigins) == 0, AnyHost: !w.SameOrigin,
		UserCookie: w.UserCookie, PassCookie: w.PassCookie, TokenCookie: w.TokenCookie,
		MaxConnections: w.MaxConnections, MaxPending: w.MaxPending, Heartbeat: w.Heartbeat,
		WriteDeadline: cmp.Or(w.WriteDeadline, o.WriteDeadline), Log: b.cfg.Log,
	})
}

// webHandler is what the HTTP listener serves beside its pages, nil for nothing.
func (b *Broker) webHandler() http.Handler {
	if b.web == nil {
		return nil
	}
	next := b.web.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-b.ready:
			next.ServeHTTP(w, r)
		default:
			http.Error(w, "the broker is starting", http.StatusServiceUnavailable)
		}
	})
}

// filterMetrics is what filters and the web measure, once they are open.
type filterMetrics struct{ b *Broker }

// Describe sends nothing: the set of series depends on what is open.
func (m filterMetrics) Describe(chan<- *prometheus.Desc) {}

func (m filterMetrics) Collect(ch chan<- prometheus.Metric) {
	select {
	case <-m.b.ready:
	default:
		return
	}
	m.b.filtering.Collect(ch)
	if d := m.b.durable.Load(); d != nil {
		d.adverts.Collect(ch)
	}
	if m.b.web != nil {
		m.b.web.Collect(ch)
	}
}
