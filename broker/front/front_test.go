package front

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// serveEnv makes this test binary a server for the benchmarks.
const serveEnv = "HERALD_FRONT_BENCH_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serveEnv) != "" {
		serveForBenchmarks()
	}
	goleak.VerifyTestMain(m)
}

// serveForBenchmarks prints the address and serves until killed.
func serveForBenchmarks() {
	s, err := New(Options{})
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.Addr())
	select {}
}

// startServer runs a server on a free port until the test ends.
func startServer(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// rawConn is a client that shows every byte.
type rawConn struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

const testTimeout = 5 * time.Second

// dial connects and reads INFO.
func dial(t testing.TB, s *Server) *rawConn {
	t.Helper()
	c := dialQuiet(t, s)
	c.expect("INFO {")
	return c
}

func dialQuiet(t testing.TB, s *Server) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &rawConn{Conn: conn, t: t, r: bufio.NewReaderSize(conn, 64<<10)}
}

// connect dials and sends CONNECT with the options, quietly.
func connect(t testing.TB, s *Server, options string) *rawConn {
	t.Helper()
	c := dial(t, s)
	if options != "" {
		options = "," + options
	}
	c.send("CONNECT {\"verbose\":false,\"pedantic\":false%s}\r\nPING\r\n", options)
	c.expect("PONG")
	return c
}

func (c *rawConn) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.Conn, format, args...); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// line returns the next line that isn't a PING.
func (c *rawConn) line() string {
	c.t.Helper()
	for {
		c.SetReadDeadline(time.Now().Add(testTimeout))
		l, err := c.r.ReadString('\n')
		if err != nil {
			c.t.Fatalf("read a line: %v (have %q)", err, l)
		}
		if l != "PING\r\n" {
			return strings.TrimRight(l, "\r\n")
		}
	}
}

// expect reads lines that must begin so.
func (c *rawConn) expect(prefixes ...string) {
	c.t.Helper()
	for _, p := range prefixes {
		if l := c.line(); !strings.HasPrefix(l, p) {
			c.t.Fatalf("got %q, want %q", l, p)
		}
	}
}

// expectClosed reads until the server closes, and returns what came.
func (c *rawConn) expectClosed() string {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(testTimeout))
	b, err := io.ReadAll(c.r)
	if n, ok := err.(net.Error); ok && n.Timeout() {
		c.t.Fatalf("the connection stays open; got %q", b)
	}
	return string(b)
}

// sync waits until the server has handled everything sent.
func (c *rawConn) sync() {
	c.t.Helper()
	c.send("PING\r\n")
	c.expect("PONG")
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(testTimeout)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-look.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
