package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/broker/front"
)

// The defaults of Options.
const (
	DefaultMaxConnections = 4096
	DefaultMaxPending     = 8 << 20
	DefaultHeartbeat      = 15 * time.Second
	DefaultWriteDeadline  = 10 * time.Second

	idleLinksMax = 64 // connections kept for the next publisher with the same credentials
	idleLinkTime = 30 * time.Second
)

// Options configure a Server. Front is required; for the rest the zero value works.
type Options struct {
	Front *front.Server
	// BasePath is before /subscribe and /publish: "" or "/x".
	BasePath string
	// API is the prefix of the JetStream API, default "$JS.API".
	API string

	// AllowedOrigins are the web pages that may use it beside those of its own host
	// ("https://example.com"); AnyOrigin lets in all, without credentials of cookies.
	AllowedOrigins []string
	AnyOrigin      bool
	// AnyHost lets in requests that name the server by a name that isn't an address,
	// localhost or of an allowed origin, although it listens on loopback: a foreign
	// page may have made that name mean this machine.
	AnyHost bool
	// Names of cookies that stand in for credentials; "" for none.
	UserCookie, PassCookie, TokenCookie string

	MaxConnections int           // subscribers at once; default 4096
	MaxPending     int64         // bytes that wait for one subscriber; default 8 MiB
	Heartbeat      time.Duration // between signs of life; default 15 s
	WriteDeadline  time.Duration // for one write to a socket; default 10 s

	// Closed turns /subscribe and /publish off: the console is all there is.
	Closed  bool
	Console Console

	Log *slog.Logger // default: discards
}

// Server serves web subscribers and publishers. Its methods may be called by any
// number of goroutines.
type Server struct {
	o      Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // requests under way

	mu     sync.Mutex
	closed bool
	idle   map[credentials][]*idleLink
	idleN  int

	stats counters
}

// counters are what the server counts.
type counters struct {
	open                      [kinds]atomic.Int64
	opened, slow, unavailable [kinds]atomic.Uint64
	refused                   atomic.Uint64
	messages, bytes           atomic.Uint64
	published, publishFailed  atomic.Uint64
}

// kind is a way to subscribe.
type kind int

const (
	kindWebsocket kind = iota
	kindSSE
	kinds
)

func (k kind) String() string { return [...]string{"websocket", "sse"}[k] }

// idleLink is a publisher's connection that waits for another one.
type idleLink struct {
	*link
	client func() *front.ClientInfo
	timer  *time.Timer
}

// New makes a server. It starts nothing; Handler serves.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.API = cmp.Or(o.API, "$JS.API")
	o.MaxConnections = cmp.Or(o.MaxConnections, DefaultMaxConnections)
	o.MaxPending = cmp.Or(o.MaxPending, DefaultMaxPending)
	o.Heartbeat = cmp.Or(o.Heartbeat, DefaultHeartbeat)
	o.WriteDeadline = cmp.Or(o.WriteDeadline, DefaultWriteDeadline)
	s := &Server{o: o, idle: map[credentials][]*idleLink{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Handler serves /subscribe, /publish and /console, as far as they are on, and answers
// others with 404.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	if s.o.Console.Enabled {
		s.consoleRoutes(mux)
	}
	if s.o.Closed {
		return mux
	}
	for _, path := range []string{"/subscribe", "/subscribe/{subject}"} {
		mux.HandleFunc("GET "+s.o.BasePath+path, s.guarded(s.subscribe))
	}
	for _, path := range []string{"/publish", "/publish/{subject}"} {
		mux.HandleFunc("POST "+s.o.BasePath+path, s.guarded(s.publish))
	}
	for _, path := range []string{"/subscribe", "/subscribe/{subject}", "/publish", "/publish/{subject}"} {
		mux.HandleFunc("OPTIONS "+s.o.BasePath+path, s.preflight)
	}
	return mux
}

// Close ends every subscriber, as going away, and waits for all requests.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	var idle []*idleLink
	for _, list := range s.idle {
		idle = append(idle, list...)
	}
	s.idle, s.idleN = map[credentials][]*idleLink{}, 0
	s.mu.Unlock()
	s.cancel()
	for _, l := range idle {
		l.timer.Stop()
		l.close()
	}
	s.wg.Wait()
}

// enter counts a request in; false when the server is closing.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Add(1)
	return true
}

// guarded keeps foreign pages out, and requests that come while the server closes.
func (s *Server) guarded(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.enter() {
			s.refuse(w, r, failure{http.StatusServiceUnavailable, "the server stops"})
			return
		}
		defer s.wg.Done()
		if f := s.checkOrigin(w, r); f != nil {
			s.refuse(w, r, *f)
			return
		}
		next(w, r)
	}
}

// failure is why a request isn't served: an HTTP status and a reason. As a close
// code it is the status and 4000.
type failure struct {
	Status int    `json:"code"`
	Reason string `json:"reason"`
}

func (f *failure) Error() string { return f.Reason }

// failed says an error of the package as a failure.
func failed(err error) *failure {
	var f *failure
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, errAuth):
		return &failure{http.StatusUnauthorized, err.Error()}
	case errors.Is(err, errRefused):
		return &failure{http.StatusForbidden, err.Error()}
	case errors.Is(err, errNobody), errors.Is(err, errGone):
		return &failure{http.StatusServiceUnavailable, err.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		return &failure{http.StatusGatewayTimeout, "the broker did not answer in time"}
	case errors.Is(err, context.Canceled):
		return &failure{http.StatusServiceUnavailable, "the server stops"}
	}
	return &failure{http.StatusInternalServerError, err.Error()}
}

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, f failure) {
	s.stats.refused.Add(1)
	if f.Status == http.StatusUnauthorized && !s.inConsole(r) {
		w.Header().Set("WWW-Authenticate", `Basic realm="herald", Bearer`)
	}
	answer(w, f.Status, map[string]failure{"error": f})
}

// answer writes JSON.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the asker has gone: nothing to do
}

// dial opens a connection to the broker for a request.
func (s *Server) dial(r *http.Request, what string) (*link, func() *front.ClientInfo, error) {
	host, port, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host, port = r.RemoteAddr, "0"
	}
	n, _ := strconv.Atoi(port) // 0 where there is no port
	conn, client, err := s.o.Front.Invite(front.Guest{Host: host, Port: n})
	if err != nil {
		return nil, nil, errGone
	}
	l, err := open(conn, s.credentials(r), what)
	if err != nil {
		return nil, nil, err
	}
	return l, client, nil
}

// publisher returns a connection for one publish, perhaps one that another used.
func (s *Server) publisher(r *http.Request) (*idleLink, error) {
	c := s.credentials(r)
	s.mu.Lock()
	for list := s.idle[c]; len(list) > 0; list = s.idle[c] {
		l := list[len(list)-1]
		s.idle[c] = list[:len(list)-1]
		if len(s.idle[c]) == 0 {
			delete(s.idle, c)
		}
		s.idleN--
		if l.timer.Stop() {
			select {
			case <-l.done: // kicked meanwhile
				continue
			default:
			}
			s.mu.Unlock()
			return l, nil
		}
	}
	s.mu.Unlock()
	l, client, err := s.dial(r, "web publisher")
	if err != nil {
		return nil, err
	}
	return &idleLink{link: l, client: client}, nil
}

// release keeps a publisher's connection for a while.
func (s *Server) release(c credentials, l *idleLink) {
	s.mu.Lock()
	if s.closed || s.idleN >= idleLinksMax {
		s.mu.Unlock()
		l.close()
		return
	}
	s.idleN++
	s.idle[c] = append(s.idle[c], l)
	l.timer = time.AfterFunc(idleLinkTime, func() {
		s.mu.Lock()
		for i, o := range s.idle[c] {
			if o == l {
				s.idle[c] = append(s.idle[c][:i:i], s.idle[c][i+1:]...)
				s.idleN--
				break
			}
		}
		if len(s.idle[c]) == 0 {
			delete(s.idle, c)
		}
		s.mu.Unlock()
		l.close()
	})
	s.mu.Unlock()
}
