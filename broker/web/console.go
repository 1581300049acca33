package web

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nuid"
)

// The console is a page that shows what is on the bus. It has no powers of its own:
// every figure is the answer to a request that a NATS client could make, made with the
// credentials that the page was given, so that permissions, accounts and the choice of
// the node that answers are the broker's. The requests go through here, one by one,
// instead of a websocket that carries the NATS protocol: then this list is the whole
// of what the console can do, whatever a script in the page tries.

//go:embed console
var consoleFiles embed.FS

// Console are the settings of the console.
type Console struct {
	Enabled bool
	// Open tells whether somebody without credentials is let in. Then the console is
	// served to this machine only, as it reads everything that an account holds.
	Open func() bool
	// About is shown in the page's head: what the server is.
	About map[string]any
}

// consoleAsks are the requests that the console may make, * for one token. None changes
// anything.
var consoleAsks = []string{
	"$JS.API.INFO", "$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO.*", "$JS.API.CONSUMER.LIST.*",
	"$HERALD.ADV.LIST", "$HERALD.ADV.GET",
	"$HERALD.OP.LIST", "$HERALD.OP.INFO", "$HERALD.OP.GRAPH",
	"$HERALD.CLUSTER.STATUS", "$SYS.REQ.USER.INFO", askNodes,
}

// askNodes is answered by every node; the answers are given as a list.
const askNodes = "$SYS.REQ.ACCOUNT.PING.CONNZ"

const (
	askMax     = 16 << 10 // bytes of a question
	askTime    = 5 * time.Second
	nodesPause = 250 * time.Millisecond // nodes' answers are not further apart
)

// consolePolicy lets the page use nothing but its own files and this server.
const consolePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// consoleTypes are those of its files: the machine's own table of types may say otherwise.
var consoleTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// consoleRoutes adds the console's paths.
func (s *Server) consoleRoutes(mux *http.ServeMux) {
	base := s.o.BasePath + "/console"
	mux.HandleFunc("GET "+base, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, base+"/", http.StatusMovedPermanently)
	})
	mux.HandleFunc("GET "+base+"/{file...}", s.guarded(s.local(s.consoleFile)))
	mux.HandleFunc("GET "+base+"/about", s.guarded(s.local(s.consoleAbout)))
	mux.HandleFunc("POST "+base+"/ask/{subject}", s.guarded(s.local(s.consoleAsk)))
	mux.HandleFunc("GET "+base+"/subscribe", s.guarded(s.local(s.subscribe)))
}

// local keeps others than this machine out where nobody has to show credentials.
func (s *Server) local(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.o.Console.Open != nil && s.o.Console.Open() && !reachedByLoopback(r) {
			s.refuse(w, r, failure{http.StatusForbidden, "the console shows everything, and this broker lets everybody in: " +
				"it is served on loopback only. Give the broker users (authorization or accounts), or come through a tunnel"})
			return
		}
		next(w, r)
	}
}

func reachedByLoopback(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	host, _, err := net.SplitHostPort(local.String())
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}

// inConsole tells whether a request is the console's. Its page asks for credentials by
// itself, so the browser must not.
func (s *Server) inConsole(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, s.o.BasePath+"/console/")
}

func (s *Server) consoleFile(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	if name == "" {
		name = "index.html"
	}
	b, err := consoleFiles.ReadFile("console/" + name)
	if err != nil || name != path.Base(name) {
		http.NotFound(w, r)
		return
	}
	sum := sha256.Sum256(b)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	h := w.Header()
	h.Set("Content-Type", consoleTypes[path.Ext(name)])
	h.Set("Content-Security-Policy", consolePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache") // a new broker has new files; an unchanged one answers 304
	h.Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(b) // the asker has gone: nothing to do
}

func (s *Server) consoleAbout(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, s.o.Console.About)
}

// consoleAsk makes a request of the broker as the user who asks, and gives the answer
// as it is.
func (s *Server) consoleAsk(w http.ResponseWriter, r *http.Request) {
	b, err := s.consoleAnswer(w, r)
	if err != nil {
		s.refuse(w, r, *failed(err))
		return
	}
	answer(w, http.StatusOK, json.RawMessage(b))
}

func (s *Server) consoleAnswer(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	subject := r.PathValue("subject")
	if !slices.ContainsFunc(consoleAsks, func(p string) bool { return allows(p, subject) }) {
		return nil, &failure{http.StatusForbidden, "the console only reads: it may not ask " + subject}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, askMax))
	if err != nil {
		return nil, &failure{http.StatusRequestEntityTooLarge, fmt.Sprintf("a question has at most %d bytes", askMax)}
	}
	l, err := s.publisher(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	var b []byte
	if subject == askNodes {
		b, err = l.all(ctx, subject, body, nodesPause)
	} else {
		var m *message
		if m, err = l.request(ctx, subject, nil, body); err == nil {
			b = m.payload
		}
	}
	if err == nil && !json.Valid(b) {
		err = &failure{http.StatusBadGateway, "the answer to " + subject + " is no JSON: somebody else than the broker gave it"}
	}
	if err != nil && !errors.Is(err, errRefused) && !errors.Is(err, errNobody) {
		l.close() // an answer may still be on its way
		return nil, err
	}
	s.release(s.credentials(r), l)
	return b, err
}

// allows tells whether a literal subject is of a pattern of consoleAsks.
func allows(pattern, subject string) bool {
	p, t := strings.Split(pattern, "."), strings.Split(subject, ".")
	if len(p) != len(t) {
		return false
	}
	for i := range p {
		if t[i] == "" || strings.ContainsAny(t[i], "*> \t\r\n") || p[i] != "*" && p[i] != t[i] {
			return false
		}
	}
	return true
}

// all makes a request that many answer, and returns a list of the answers: those that
// come until none has come for pause.
func (l *link) all(ctx context.Context, subject string, payload []byte, pause time.Duration) ([]byte, error) {
	inbox, answers := "_INBOX."+nuid.Next(), make(chan *message, 256)
	sid, err := l.listen(ctx, inbox, func(m *message) {
		select {
		case answers <- m:
		default: // more nodes than anybody has
		}
	})
	if err != nil {
		return nil, err
	}
	defer l.unsubscribe(sid)
	if err := l.publish(subject, inbox, nil, payload); err != nil {
		return nil, err
	}
	if err := l.flush(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	refused := l.refused
	l.mu.Unlock()
	if refused != "" {
		return nil, fmt.Errorf("%w: %s", errRefused, refused)
	}
	list := []json.RawMessage{}
	var quiet <-chan time.Time
	for {
		select {
		case m := <-answers:
			if code, _ := m.status(); code == http.StatusServiceUnavailable {
				return nil, fmt.Errorf("%w: %s", errNobody, subject)
			}
			if json.Valid(m.payload) {
				list = append(list, m.payload)
			}
			quiet = time.After(pause)
		case <-quiet:
			return json.Marshal(list)
		case <-l.done:
			return nil, errGone
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
