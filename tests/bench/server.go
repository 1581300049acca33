package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// server is one broker process under test.
type server struct {
	name string
	url  string
	dir  string
	cmd  *exec.Cmd
	done chan struct{}
}

// program is a broker binary and the configuration that makes it comparable.
type program struct {
	name, bin, jetstream string
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

func (p program) start(dir string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s, err := p.prepare(dir, port, "")
	if err != nil {
		return nil, err
	}
	return s, s.run()
}

// prepare writes the configuration of a server that is to be run.
func (p program) prepare(dir string, port int, extra string) (*server, error) {
	s := &server{name: p.name, url: fmt.Sprintf("nats://127.0.0.1:%d", port), dir: filepath.Join(dir, p.name)}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	conf := filepath.Join(s.dir, "server.conf")
	text := fmt.Sprintf("host: \"127.0.0.1\"\nport: %d\nserver_name: %q\njetstream { enabled: true, store_dir: %q\n%s }\n", port, p.name, filepath.Join(s.dir, "store"), p.jetstream) + extra
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s.cmd = exec.Command(p.bin, "-c", conf)
	return s, nil
}

func (s *server) run() error {
	out, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer out.Close()
	s.cmd = exec.Command(s.cmd.Path, s.cmd.Args[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = out, out
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.done = make(chan struct{})
	go func() { _ = s.cmd.Wait(); close(s.done) }()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		text, _ := os.ReadFile(out.Name())
		if bytes.Contains(text, []byte("Server is ready")) {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("%s did not start:\n%s", s.name, text)
		case <-time.After(time.Millisecond):
		}
	}
	return fmt.Errorf("%s not ready within 2 minutes", s.name)
}

func (s *server) stop() {
	if s == nil || s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Signal(os.Interrupt)
	select {
	case <-s.done:
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.done
	}
}

// resident returns the process's resident memory in bytes, and the processor
// time it has used so far.
func (s *server) resident() (int64, time.Duration) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, 0
	}
	var kib int64
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			_, _ = fmt.Sscan(rest, &kib)
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return kib << 10, 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var user, system int64
	_, _ = fmt.Sscan(fields[11], &user)
	_, _ = fmt.Sscan(fields[12], &system)
	return kib << 10, time.Duration(user+system) * 10 * time.Millisecond
}

func buildBrokerd(path string) error {
	if out, err := exec.Command("go", "build", "-o", path, "github.com/heraldmq/herald/cmd/brokerd").CombinedOutput(); err != nil {
		return fmt.Errorf("building brokerd: %w\n%s", err, out)
	}
	return nil
}

// tools builds brokerd and finds or installs the peer.
func tools(dir string) (herald, peer string, err error) {
	if herald = os.Getenv("HERALD_BROKER"); herald == "" {
		herald = filepath.Join(dir, "brokerd")
		if err := buildBrokerd(herald); err != nil {
			return "", "", err
		}
	}
	if peer = os.Getenv("NATS_SERVER"); peer != "" {
		return herald, peer, nil
	}
	cmd := exec.Command("go", "install", "github.com/nats-io/nats-server/v2@"+peerVersion)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", "", errors.Join(fmt.Errorf("the peer can't be installed; name one with NATS_SERVER: %w", err), errors.New(string(out)))
	}
	return herald, filepath.Join(dir, "nats-server"), nil
}
