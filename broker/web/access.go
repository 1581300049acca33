package web

import (
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// credentials reads who a request says it is: the Authorization header, else the
// token of the query, else cookies.
func (s *Server) credentials(r *http.Request) (c credentials) {
	if user, pass, ok := r.BasicAuth(); ok {
		return credentials{User: user, Pass: pass}
	}
	if kind, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(kind, "Bearer") {
		return credentials{Token: strings.TrimSpace(token)}
	}
	if token := r.URL.Query().Get("token"); token != "" {
		return credentials{Token: token}
	}
	cookie := func(name string) string {
		if name == "" {
			return ""
		}
		if k, err := r.Cookie(name); err == nil {
			if v, err := url.QueryUnescape(k.Value); err == nil {
				return v
			}
		}
		return ""
	}
	if s.o.AnyOrigin && r.Header.Get("Origin") != "" {
		return c // a cookie says nothing of which page asks
	}
	return credentials{User: cookie(s.o.UserCookie), Pass: cookie(s.o.PassCookie), Token: cookie(s.o.TokenCookie)}
}

// checkOrigin keeps out requests of web pages that are neither this server's nor
// allowed, and tells browsers that an allowed one may read the answer.
func (s *Server) checkOrigin(w http.ResponseWriter, r *http.Request) *failure {
	if !s.hostAllowed(r) {
		return &failure{http.StatusForbidden, "the host " + strconv.Quote(r.Host) + " is not a name of this server: use its address or localhost, or allow the origin in the configuration"}
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil // not a browser, or the page's own GET
	}
	w.Header().Add("Vary", "Origin")
	switch {
	case s.o.AnyOrigin:
		w.Header().Set("Access-Control-Allow-Origin", "*")
	case s.originAllowed(origin, r):
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Allow-Credentials", "true")
	default:
		return &failure{http.StatusForbidden, "pages of " + strconv.Quote(origin) + " may not use this server: add it to allowed_origins"}
	}
	return nil
}

// preflight answers what a browser asks before it sends.
func (s *Server) preflight(w http.ResponseWriter, r *http.Request) {
	if f := s.checkOrigin(w, r); f != nil {
		s.refuse(w, r, *f)
		return
	}
	w.Header().Set("Access-Control-Allow-Methods", "GET, POST")
	w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-ID, Nats-Msg-Id, Nats-Expected-Stream, "+
		"Nats-Expected-Last-Sequence, Nats-Expected-Last-Subject-Sequence, Nats-Expected-Last-Msg-Id, Nats-TTL, Herald-Key")
	w.Header().Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// originAllowed tells whether a page may: one of this very host, or of the list.
func (s *Server) originAllowed(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	if strings.EqualFold(u.Scheme, scheme) && sameHost(u, r.Host, scheme) {
		return true
	}
	for _, allowed := range s.o.AllowedOrigins {
		a, err := url.Parse(allowed)
		if err == nil && strings.EqualFold(a.Scheme, u.Scheme) && sameHost(u, a.Host, a.Scheme) {
			return true
		}
	}
	return false
}

// hostAllowed keeps out requests to loopback by a foreign name: some page's own name,
// that was made to mean this machine.
func (s *Server) hostAllowed(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if s.o.AnyHost || !ok {
		return true
	}
	at, _, err := net.SplitHostPort(local.String())
	if ip := net.ParseIP(at); err != nil || ip == nil || !ip.IsLoopback() {
		return true
	}
	host := (&url.URL{Host: r.Host}).Hostname()
	if net.ParseIP(host) != nil || strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") {
		return true
	}
	for _, allowed := range s.o.AllowedOrigins {
		if a, err := url.Parse(allowed); err == nil && strings.EqualFold(a.Hostname(), host) {
			return true
		}
	}
	return false
}

// sameHost compares host and port, where the port may be the scheme's own.
func sameHost(u *url.URL, host, scheme string) bool {
	other := &url.URL{Host: host}
	return strings.EqualFold(u.Hostname(), other.Hostname()) && portOr(u.Port(), u.Scheme) == portOr(other.Port(), scheme)
}

func portOr(port, scheme string) string {
	switch {
	case port != "":
		return port
	case strings.EqualFold(scheme, "https"):
		return "443"
	}
	return "80"
}
