//go:build linux

package front

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The benchmark's servers are processes of their own, so that the load
// generator's work isn't counted as theirs: this test binary, run again, and
// nats-server where there is one.

const (
	peerBinary  = "/work/bin/nats-server"
	peerEnv     = "NATS_SERVER"
	benchBody   = 128
	benchWindow = 64 << 10
)

// benchServer is one server process.
type benchServer struct {
	addr string
	cmd  *exec.Cmd
}

func (p *benchServer) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// cpu is the user and system time the process has used.
func (p *benchServer) cpu(b *testing.B) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, _ := strconv.ParseInt(f[11], 10, 64)
	sys, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+sys) * time.Second / 100
}

func startHerald(b *testing.B) *benchServer {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), serveEnv+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	p := &benchServer{addr: strings.TrimSpace(line), cmd: cmd}
	b.Cleanup(p.stop)
	return p
}

func startPeer(b *testing.B) *benchServer {
	path := os.Getenv(peerEnv)
	if path == "" {
		path = peerBinary
	}
	if _, err := os.Stat(path); err != nil {
		b.Skipf("SKIPPED: no nats-server to compare with at %s; set %s", path, peerEnv)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(path, "-a", "127.0.0.1", "-p", port)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	p := &benchServer{addr: addr, cmd: cmd}
	b.Cleanup(p.stop)
	eventually(b, "nats-server to listen", func() bool {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
	return p
}

func benchDial(b *testing.B, addr, extra string) *net.TCPConn {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	r := bufio.NewReader(c)
	fmt.Fprintf(c, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\n%sPING\r\n", extra)
	for {
		l, err := r.ReadString('\n')
		if err != nil {
			b.Fatal(err)
		}
		if l == "PONG\r\n" {
			return c.(*net.TCPConn)
		}
	}
}

// discard reads at least n bytes without copying them out of the kernel.
func discard(c *net.TCPConn, n int) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for n > 0 {
			got, _, e := syscall.Syscall6(syscall.SYS_RECVFROM, fd, 0, 1<<20, syscall.MSG_TRUNC, 0, 0)
			if e == syscall.EAGAIN {
				return false
			}
			if e != 0 || got == 0 {
				failed = fmt.Errorf("recv: %v, %d bytes missing", e, n)
				return true
			}
			n -= int(got)
		}
		return true
	})
	if failed != nil {
		return failed
	}
	return err
}

// fanout sends messages from pubs publishers to subs subscribers and reports
// deliveries per second and the server's CPU per delivery. With subjects > 1
// publishers go round them and subscribers use a wildcard.
func fanout(b *testing.B, p *benchServer, pubs, subs, subjects int) {
	pattern := "bench.sub"
	if subjects > 1 {
		pattern = "bench.*"
	}
	body := strings.Repeat("x", benchBody)
	perPub := max(b.N/pubs/subs, 1)
	var wg sync.WaitGroup
	var lines [][]byte
	delivered := 0
	for i := range subjects {
		s := "bench.sub"
		if subjects > 1 {
			s = fmt.Sprintf("bench.%03d", i)
		}
		lines = append(lines, fmt.Appendf(nil, "PUB %s %d\r\n%s\r\n", s, benchBody, body))
	}
	// MSG has one letter that PUB has not, and the sid.
	perMsg := len(lines[0]) + 2
	errs := make(chan error, pubs+subs)
	for range subs {
		c := benchDial(b, p.addr, "SUB "+pattern+" 1\r\n")
		defer c.Close()
		wg.Go(func() {
			if err := discard(c, perMsg*perPub*pubs); err != nil {
				errs <- err
			}
		})
	}
	conns := make([]*net.TCPConn, pubs)
	for i := range conns {
		conns[i] = benchDial(b, p.addr, "")
		defer conns[i].Close()
	}
	cpu := p.cpu(b)
	b.ResetTimer()
	for _, c := range conns {
		wg.Go(func() {
			window := make([]byte, 0, benchWindow)
			for i := range perPub {
				window = append(window, lines[i%len(lines)]...)
				if len(window)+len(lines[0]) > benchWindow || i == perPub-1 {
					if _, err := c.Write(window); err != nil {
						errs <- err
						return
					}
					window = window[:0]
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	delivered = perPub * pubs * subs
	b.ReportMetric(float64(delivered)/b.Elapsed().Seconds()/1e6, "Mdeliveries/s")
	b.ReportMetric(float64(p.cpu(b)-cpu)/float64(delivered), "cpu-ns/delivery")
	select {
	case err := <-errs:
		b.Fatal(err)
	default:
	}
}

// BenchmarkFanout is what THROUGHPUT speaks of: compare only within one run.
func BenchmarkFanout(b *testing.B) {
	shapes := []struct {
		name                 string
		pubs, subs, subjects int
	}{{"1to1", 1, 1, 1}, {"1to8", 1, 8, 1}, {"8to8", 8, 8, 1}, {"8to8x400", 8, 8, 400}}
	servers := []struct {
		name  string
		start func(*testing.B) *benchServer
	}{{"herald", startHerald}, {"nats-server", startPeer}}
	for _, sh := range shapes {
		for _, sv := range servers {
			b.Run(sh.name+"/"+sv.name, func(b *testing.B) {
				p := sv.start(b)
				fanout(b, p, sh.pubs, sh.subs, sh.subjects)
			})
		}
	}
}

// BenchmarkPublisherUniqueInbox is the way of a PubAck: each message to a
// subject of its own, below an inbox with one subscriber.
func BenchmarkPublisherUniqueInbox(b *testing.B) {
	s := startServer(b, Options{})
	c := connect(b, s, "")
	c.send("SUB _INBOX.me.* 1\r\n")
	c.sync()
	go func() {
		_ = discard(c.Conn.(*net.TCPConn), 1<<62)
	}()
	p := s.GlobalAccount().NewPublisher()
	p.SetStall(true)
	subjects := make([]string, 1<<16)
	for i := range subjects {
		subjects[i] = fmt.Sprintf("_INBOX.me.%06d", i)
	}
	ack := []byte(`{"stream":"bench","seq":1234567}`)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		p.Publish(subjects[i&(len(subjects)-1)], "", nil, ack)
		if i++; i%500 == 0 {
			p.Flush()
		}
	}
}

// BenchmarkManySubjects publishes to subjects from a set larger than the
// cache of matches.
func BenchmarkManySubjects(b *testing.B) {
	s := startServer(b, Options{})
	mustSubscribe(b, s.GlobalAccount(), "sensors.*.temperature", func(*Message) {})
	p := s.GlobalAccount().NewPublisher()
	subjects := make([]string, 20000)
	for i := range subjects {
		subjects[i] = fmt.Sprintf("sensors.%06d.temperature", i)
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		p.Publish(subjects[i%len(subjects)], "", nil, nil)
		i++
	}
}

// BenchmarkOneAtATime is the latency of a single message, from a publisher to
// a subscriber on another connection.
func BenchmarkOneAtATime(b *testing.B) {
	for name, start := range map[string]func(*testing.B) *benchServer{"herald": startHerald, "nats-server": startPeer} {
		b.Run(name, func(b *testing.B) {
			p := start(b)
			sub := benchDial(b, p.addr, "SUB one 1\r\n")
			defer sub.Close()
			pub := benchDial(b, p.addr, "")
			defer pub.Close()
			line := []byte("PUB one 128\r\n" + strings.Repeat("x", benchBody) + "\r\n")
			buf := make([]byte, 4096)
			for b.Loop() {
				if _, err := pub.Write(line); err != nil {
					b.Fatal(err)
				}
				for n := 0; n < len(line)+2; {
					k, err := sub.Read(buf)
					if err != nil {
						b.Fatal(err)
					}
					n += k
				}
			}
		})
	}
}
