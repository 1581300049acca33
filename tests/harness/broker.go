// Package harness starts real broker processes for the black-box tests: builds
// brokerd once per test binary, gives it a configuration, waits until it is
// ready, and kills or stops it.
package harness

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Brokerd returns the path of a freshly built brokerd, or of the program named
// by HERALD_BROKER (to hold a test against another broker).
func Brokerd(t testing.TB) string {
	t.Helper()
	if p := os.Getenv("HERALD_BROKER"); p != "" {
		return p
	}
	return Build(t, "cmd/brokerd")
}

// Pubsub returns the path of a freshly built pubsub.
func Pubsub(t testing.TB) string {
	t.Helper()
	return Build(t, "cmd/pubsub")
}

// Broker is one brokerd process that can be killed and started again on the
// same configuration, ports and files.
type Broker struct {
	URL  string // nats://127.0.0.1:port
	Dir  string // working folder: configuration, log, store
	Port int
	Conf string // path of the configuration file
	Log  string // path of what it prints

	bin  string
	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

// Start runs a broker with durable topics and a system account (user "system",
// password "password"; everybody else is user1 of account USERS1). extra is
// appended to the configuration. It is killed when the test ends.
func Start(t testing.TB, extra string) *Broker {
	t.Helper()
	b := New(t, fmt.Sprintf(`
server_name: "herald-test"
jetstream { enabled: true, store_dir: %q }
accounts {
  USERS1 { users = [ { user: "user1", pass: "password" } ], jetstream: true }
  $SYS { users = [ { user: "system", pass: "password" } ] }
}
system_account: "$SYS"
no_auth_user: user1
`, "store")+extra)
	if err := b.Run(); err != nil {
		t.Fatal(err)
	}
	return b
}

// New prepares a broker with a configuration of one's own (host and port are
// added) and does not start it.
func New(t testing.TB, conf string) *Broker {
	t.Helper()
	b := &Broker{bin: Brokerd(t), Dir: t.TempDir(), Port: FreePort(t)}
	b.URL = fmt.Sprintf("nats://127.0.0.1:%d", b.Port)
	b.Conf = filepath.Join(b.Dir, "server.conf")
	b.Log = filepath.Join(b.Dir, "broker.log")
	text := fmt.Sprintf("host: \"127.0.0.1\"\nport: %d\n%s\n", b.Port, conf)
	if err := os.WriteFile(b.Conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Kill()
		if t.Failed() {
			if text, err := os.ReadFile(b.Log); err == nil {
				t.Logf("broker log, last lines:\n%s", lastLines(text, 30))
			}
		}
	})
	return b
}

// Run starts the process and waits until it says that it is ready.
func (b *Broker) Run() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	out, err := os.OpenFile(b.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	info, err := out.Stat()
	if err != nil {
		return err
	}
	cmd := exec.Command(b.bin, "-c", b.Conf)
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.Dir, out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	b.cmd, b.done = cmd, done
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		text, _ := os.ReadFile(b.Log)
		if int64(len(text)) > info.Size() && bytes.Contains(text[info.Size():], []byte("Server is ready")) {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("broker exited at start: %v\n%s", cmd.ProcessState, lastLines(text, 10))
		case <-time.After(5 * time.Millisecond):
		}
	}
	_ = cmd.Process.Kill()
	<-done
	return fmt.Errorf("broker not ready within 30 s; see %s", b.Log)
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (b *Broker) Kill() { b.signal(syscall.SIGKILL) }

// Stop ends the process with SIGTERM and waits until it is gone.
func (b *Broker) Stop() { b.signal(syscall.SIGTERM) }

// PID returns the process id of the running process, 0 if there is none.
func (b *Broker) PID() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil {
		return 0
	}
	return b.cmd.Process.Pid
}

// Exited is closed when the current process is gone.
func (b *Broker) Exited() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.done
}

// Output returns what the broker has printed so far.
func (b *Broker) Output() string {
	text, _ := os.ReadFile(b.Log)
	return string(text)
}

func (b *Broker) signal(s syscall.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Signal(s)
	<-b.done
	b.cmd = nil
}

// The ports that FreePort hands out: below those that kernels give to connections and to who
// asks for any port, which many do at the same time.
const (
	portsFrom = 15000
	portsTo   = 32000
)

// handed are the ports that this process was given: what asks for two at once, and listens
// later, needs different ones.
var handed sync.Map

// FreePort returns a TCP port of the loopback address that nobody listens on, and no other
// call of this process is given.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := portsFrom + rand.IntN(portsTo-portsFrom)
		if _, was := handed.LoadOrStore(port, nil); was {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return port
	}
	t.Fatal("no TCP port is free")
	return 0
}

// Tool returns the path of a Go program, installed by `go install module@version`
// into a folder that later runs find again. The test is skipped, loudly, where
// the module can't be had.
func Tool(t testing.TB, name, pkg string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "herald-tools", strings.NewReplacer("/", "_", "@", "_").Replace(pkg))
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	cmd := exec.Command("go", "install", pkg)
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: %s can't be installed here: %v\n%s", pkg, err, out)
	}
	return path
}

func lastLines(b []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}

// firstErrors returns the first n lines of a log that are errors or speak of a quarantine: what
// comes at a log's end is often only what follows from them.
func firstErrors(log string, n int) string {
	var lines []string
	for line := range strings.Lines(log) {
		if len(lines) < n && (strings.Contains(line, "[ERR]") && !strings.Contains(line, "raft:") || strings.Contains(line, "quarantined")) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}
