package monitor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Server serves a Monitor's pages over HTTP.
type Server struct {
	http *http.Server
	ln   net.Listener
	done chan error
}

// Listener says where pages are served.
type Listener struct {
	Host     string
	Port     int         // 0 is any free one
	BasePath string      // "" or "/x", before every page
	TLS      *tls.Config // nil is plain HTTP
	// Web, when set, serves /subscribe, /publish and /console below BasePath.
	Web     http.Handler
	Console bool // it does serve the last: the start page has a link to it
	Log     *slog.Logger
}

// Listen opens the listener and serves. Until the broker is ready only health
// checks and metrics are answered.
func (m *Monitor) Listen(l Listener) (*Server, error) {
	addr := net.JoinHostPort(l.Host, strconv.Itoa(max(l.Port, 0)))
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for monitoring on %s: %w", addr, err)
	}
	s := &Server{
		ln:   ln,
		done: make(chan error, 1),
		http: &http.Server{
			Handler: l.handler(m), TLSConfig: l.TLS, ErrorLog: slog.NewLogLogger(l.Log.Handler(), slog.LevelDebug),
			ReadHeaderTimeout: 2 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second,
			IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		},
	}
	serve := ln
	if l.TLS != nil {
		serve = tls.NewListener(ln, l.TLS)
	}
	go func() { s.done <- s.http.Serve(serve) }() // ends by Close, which waits
	return s, nil
}

// handler serves the pages and, where asked for, the web's subscribers.
func (l *Listener) handler(m *Monitor) http.Handler {
	pages := m.handler(l.BasePath, l.Console)
	if l.Web == nil {
		return pages
	}
	base := strings.TrimSuffix("/"+strings.Trim(l.BasePath, "/"), "/")
	mux := http.NewServeMux()
	for _, path := range []string{"/subscribe", "/subscribe/", "/publish", "/publish/", "/console", "/console/"} {
		mux.Handle(base+path, l.Web)
	}
	mux.Handle("/", pages)
	return mux
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Close ends the listener and, after at most half a second of grace, the
// requests under way, and waits.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	if e := <-s.done; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// Handler serves the pages below basePath.
func (m *Monitor) Handler(basePath string) http.Handler { return m.handler(basePath, false) }

func (m *Monitor) handler(basePath string, console bool) http.Handler {
	base := "/" + strings.Trim(basePath, "/")
	if base == "/" {
		base = ""
	}
	mux := http.NewServeMux()
	for name, make := range m.pages() {
		mux.HandleFunc(base+"/"+name, m.serve(base+"/"+name, make))
	}
	mux.HandleFunc(base+"/livez", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{\"status\":\"ok\"}\n")) // the asker has gone: nothing to do
	})
	mux.HandleFunc(base+"/readyz", m.serveReadyz)
	mux.HandleFunc(base+"/startupz", m.serveStartupz)
	mux.Handle(base+"/metrics", promhttp.HandlerFor(m.registry(), promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc(base+"/{$}", m.serveIndex(base, console))
	if base != "" {
		mux.HandleFunc(base, m.serveIndex(base, console))
	}
	return methods(mux)
}

// methods lets only reading requests through.
func methods(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this port only reads", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// pageMaker makes a page from a query; the status is 0 for 200.
type pageMaker func(q query) (page any, status int, err error)

// pages lists what is served, by name.
func (m *Monitor) pages() map[string]pageMaker {
	ok := func(v any, err error) (any, int, error) { return v, 0, err }
	subsz := func(q query) (any, int, error) {
		return ok(m.Subsz(SubszOptions{
			Offset: q.number("offset"), Limit: q.number("limit"), Subscriptions: q.flag("subs"),
			Account: q.text("acc"), Test: q.text("test"),
		}))
	}
	return map[string]pageMaker{
		"varz":           func(query) (any, int, error) { return m.Varz(), 0, nil },
		"subsz":          subsz,
		"subscriptionsz": subsz,
		"connz":          m.connzPage,
		"routez":         func(query) (any, int, error) { return m.Routez(), 0, nil },
		"gatewayz":       func(query) (any, int, error) { return m.Gatewayz(), 0, nil },
		"leafz":          func(query) (any, int, error) { return m.Leafz(), 0, nil },
		"accountz":       func(q query) (any, int, error) { return ok(m.Accountz(AccountzOptions{Account: q.text("acc")})) },
		"accstatz": func(q query) (any, int, error) {
			return m.Accstatz(AccstatzOptions{IncludeUnused: q.flag("unused")}), 0, nil
		},
		"jsz":     m.jszPage,
		"healthz": m.healthzPage,
	}
}

func (m *Monitor) connzPage(q query) (any, int, error) {
	state, err := parseConnState(q.text("state"))
	if err != nil {
		return nil, 0, err
	}
	v, err := m.Connz(ConnzOptions{
		Sort: q.text("sort"), Username: q.flag("auth"), Subscriptions: q.flag("subs"),
		SubscriptionsDetail: q.text("subs") == "detail", Offset: q.number("offset"), Limit: q.number("limit"),
		CID: uint64(q.number("cid")), State: state, User: q.text("user"), Account: q.text("acc"),
		MQTTClient: q.text("mqtt_client"), FilterSubject: q.text("filter_subject"),
	})
	return v, 0, err
}

func (m *Monitor) jszPage(q query) (any, int, error) {
	v, err := m.Jsz(JszOptions{
		Account: q.text("acc"), Accounts: q.flag("accounts"), Streams: q.flag("streams"), Consumer: q.flag("consumers"),
		DirectConsumer: q.flag("direct-consumers"), Config: q.flag("config"), LeaderOnly: q.flag("leader-only"),
		StreamLeaderOnly: q.flag("stream-leader-only"), RaftGroups: q.flag("raft"),
		Offset: q.number("offset"), Limit: q.number("limit"),
	})
	return v, 0, err
}

func (m *Monitor) healthzPage(q query) (any, int, error) {
	h := m.Healthz(HealthzOptions{
		JSEnabledOnly: q.flag("js-enabled-only"), JSEnabled: q.flag("js-enabled"), JSServerOnly: q.flag("js-server-only"),
		JSMetaOnly: q.flag("js-meta-only"), Account: q.text("account"), Stream: q.text("stream"),
		Consumer: q.text("consumer"), Details: q.flag("details"),
	})
	status := h.StatusCode
	if !q.flag("details") {
		h.StatusCode = 0 // the short form tells it in the HTTP status only
	}
	return h, status, nil
}

// query reads a request's parameters and remembers the first that is wrong.
type query struct {
	v   url.Values
	err *error
}

func (q query) text(name string) string { return q.v.Get(name) }

func (q query) flag(name string) bool {
	s := q.v.Get(name)
	if s == "" {
		return false
	}
	if name == "subs" && s == "detail" {
		return true
	}
	b, err := strconv.ParseBool(s)
	if err != nil && *q.err == nil {
		*q.err = fmt.Errorf("error decoding boolean for '%s': %q is neither true nor false", name, s)
	}
	return b
}

func (q query) number(name string) int {
	s := q.v.Get(name)
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		if *q.err == nil {
			*q.err = fmt.Errorf("error decoding integer for '%s': %q is not a number from 0", name, s)
		}
		return 0
	}
	return n
}

// callbackName is what a JSONP callback may be called.
var callbackName = regexp.MustCompile(`^[A-Za-z_$][\w$.]{0,63}$`)

// serve answers with one page, as JSON or, with ?callback=, as JSONP.
func (m *Monitor) serve(path string, make pageMaker) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m.counted(path)
		if !m.s.Opened() && !strings.HasSuffix(path, "/healthz") {
			http.Error(w, "the broker is starting", http.StatusServiceUnavailable)
			return
		}
		var bad error
		v, status, err := make(query{r.URL.Query(), &bad})
		if err = errors.Join(bad, err); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		m.write(w, r, b, status)
	}
}

func (m *Monitor) write(w http.ResponseWriter, r *http.Request, b []byte, status int) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if name := r.URL.Query().Get("callback"); name != "" {
		if !callbackName.MatchString(name) {
			http.Error(w, "callback wants a name", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/javascript")
		b = fmt.Appendf(nil, "%s(%s)", name, b)
	} else {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Access-Control-Allow-Origin", "*")
	}
	if status != 0 && status != http.StatusOK {
		w.WriteHeader(status)
	}
	_, _ = w.Write(b) // the asker has gone: nothing to do
}

func (m *Monitor) serveReadyz(w http.ResponseWriter, _ *http.Request) {
	r := m.Readyz()
	w.Header().Set("Content-Type", "application/json")
	if !r.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(r) // the asker has gone: nothing to do
}

func (m *Monitor) serveStartupz(w http.ResponseWriter, _ *http.Request) {
	s := m.Startupz()
	w.Header().Set("Content-Type", "application/json")
	if !s.Started {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(s) // the asker has gone: nothing to do
}

// indexPages are the links of the start page.
var indexPages = []struct{ path, text string }{
	{"varz", "General"},
	{"jsz", "JetStream"},
	{"connz", "Connections"},
	{"accountz", "Accounts"},
	{"accstatz", "Account stats"},
	{"subsz", "Subscriptions"},
	{"routez", "Routes"},
	{"gatewayz", "Gateways"},
	{"leafz", "Leaf nodes"},
	{"healthz", "Health"},
	{"startupz", "Start"},
	{"readyz", "Readiness"},
	{"metrics", "Metrics"},
}

func (m *Monitor) serveIndex(base string, console bool) http.HandlerFunc {
	var b strings.Builder
	b.WriteString("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Herald</title></head><body>\n<h1>Herald</h1>\n<ul>\n")
	if console {
		fmt.Fprintf(&b, "<li><a href=\"%s/console/\">Console</a></li>\n", base)
	}
	for _, p := range indexPages {
		fmt.Fprintf(&b, "<li><a href=\"%s/%s\">%s</a></li>\n", base, p.path, p.text)
	}
	b.WriteString("</ul>\n</body></html>\n")
	page := []byte(b.String())
	return func(w http.ResponseWriter, _ *http.Request) {
		m.counted(base + "/")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page) // the asker has gone: nothing to do
	}
}
