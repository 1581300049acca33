package security

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/broker/config"
)

const patience = 10 * time.Second

// tb is what testing.T and rapid.T share.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// server is an embedded broker whose configuration can be changed.
type server struct {
	*broker.Broker
	path string
}

// start runs a broker with a configuration until the test ends.
func start(t *testing.T, text string) *server {
	t.Helper()
	s := &server{path: filepath.Join(t.TempDir(), "server.conf")}
	store := t.TempDir()
	read := func() (*config.Options, error) {
		o, err := config.ParseFile(s.path)
		if err == nil {
			o.JetStream.StoreDir = store
		}
		return o, err
	}
	s.write(t, text)
	o, err := read()
	if err != nil {
		t.Fatal(err)
	}
	if s.Broker, err = broker.New(broker.Config{Options: o, Reload: read}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatalf("run: %v", err)
	case <-time.After(patience):
		t.Fatal("the broker did not get ready")
	}
	return s
}

func (s *server) write(t tb, text string) {
	t.Helper()
	text = "port: -1\nhttp: \"127.0.0.1:-1\"\njetstream: enabled\n" + text
	if err := os.WriteFile(s.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reload puts another configuration in force.
func (s *server) reload(t tb, text string) {
	t.Helper()
	s.write(t, text)
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
}

// connect is a client of a user whose password is its name.
func (s *server) connect(t tb, user string, o ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), append([]nats.Option{
		nats.UserInfo(user, user), nats.NoReconnect(), nats.Timeout(patience), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := t.(interface{ Cleanup(func()) }); ok {
		c.Cleanup(nc.Close)
	}
	return nc
}

// page gets a monitoring page.
func (s *server) page(t *testing.T, path string) string {
	t.Helper()
	text, _ := s.fetch(t, path)
	return text
}

// fetch gets a monitoring page and its type.
func (s *server) fetch(t *testing.T, path string) (text, kind string) {
	t.Helper()
	client := http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	r, err := client.Get(s.MonitorURL() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), r.Header.Get("Content-Type")
}

// answers sends requests and returns the answers by request; a request with no
// answer within the patience given, or that nobody takes, has none. A question's
// answers after the first are left out.
func answers(t *testing.T, nc *nats.Conn, wait time.Duration, asked ...request) map[request]string {
	t.Helper()
	prefix := nats.NewInbox()
	var mu sync.Mutex
	got := map[request]string{}
	all := make(chan struct{})
	sub, err := nc.Subscribe(prefix+".*", func(m *nats.Msg) {
		var i int
		if _, err := fmt.Sscanf(m.Subject[len(prefix)+1:], "%d", &i); err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if _, twice := got[asked[i]]; !twice {
			got[asked[i]] = m.Header.Get("Status") + string(m.Data)
			if len(got) == len(asked) {
				close(all)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection goes anyway
	for i, r := range asked {
		if err := nc.PublishRequest(r.subject, fmt.Sprintf("%s.%d", prefix, i), []byte(r.body)); err != nil {
			t.Fatalf("%s: %v", r.subject, err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-all:
	case <-time.After(wait):
	}
	mu.Lock()
	defer mu.Unlock()
	out := map[request]string{}
	for r, a := range got {
		if a != "503" {
			out[r] = a
		}
	}
	return out
}

type request struct{ subject, body string }

// ask is one request that must be answered.
func ask(t *testing.T, nc *nats.Conn, subject, body string) string {
	t.Helper()
	m, err := nc.Request(subject, []byte(body), patience)
	if err != nil {
		t.Fatalf("%s %s: %v", subject, body, err)
	}
	return string(m.Data)
}

// must is ask for an API request that must succeed.
func must(t *testing.T, nc *nats.Conn, subject, body string) string {
	t.Helper()
	a := ask(t, nc, subject, body)
	if strings.Contains(a, `"error"`) {
		t.Fatalf("%s %s: %s", subject, body, a)
	}
	return a
}

// errCode is the err_code of an answer, 0 for success.
func errCode(t *testing.T, answer string) int {
	t.Helper()
	var r struct {
		Error *struct {
			ErrCode int `json:"err_code"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(answer), &r); err != nil {
		t.Fatalf("%q: %v", answer, err)
	}
	if r.Error == nil {
		return 0
	}
	return r.Error.ErrCode
}

// raw is a client that speaks the protocol itself.
type raw struct {
	net.Conn
	t tb
	r *bufio.Reader
}

// dial connects as a user, "" for one who hasn't logged in.
func (s *server) dial(t tb, user string) *raw {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.ClientURL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := t.(interface{ Cleanup(func()) }); ok {
		c.Cleanup(func() { _ = conn.Close() })
	}
	c := &raw{Conn: conn, t: t, r: bufio.NewReader(conn)}
	c.line()
	if user != "" {
		c.send("CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true,\"user\":%q,\"pass\":%q}\r\n", user, user)
		c.sync()
	}
	return c
}

func (c *raw) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.Conn, format, args...); err != nil {
		c.t.Fatal(err)
	}
}

// line returns the next line but PING.
func (c *raw) line() string {
	c.t.Helper()
	for {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			c.t.Fatal(err)
		}
		l, err := c.r.ReadString('\n')
		if err != nil {
			c.t.Fatalf("read: %v, after %q", err, l)
		}
		if l = strings.TrimRight(l, "\r\n"); l != "PING" {
			return l
		}
	}
}

// sync returns the lines until the server has handled what was sent.
func (c *raw) sync() (lines []string) {
	c.t.Helper()
	c.send("PING\r\n")
	for {
		l := c.line()
		if l == "PONG" {
			return lines
		}
		lines = append(lines, l)
	}
}

var noDeadline time.Time

func queryEscape(s string) string { return url.QueryEscape(s) }
