package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestMain lets the test binary be the daemon: run as brokerd or nats-server it
// is Main. It is also a program that begins as brokerd does and says what it then is.
func TestMain(m *testing.M) {
	if os.Getenv("HERALD_TEST_TIMERS") != "" {
		CoarseTimers()
		slack, err := os.ReadFile("/proc/self/timerslack_ns") // every thread's is the main one's
		fmt.Print(strings.TrimSpace(string(slack)), " ", os.Getpid(), " ", strings.Join(os.Args[1:], " "))
		if err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv("HERALD_TEST_DAEMON") != "" {
		CoarseTimers()
		os.Exit(Main(os.Args, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

const patience = 10 * time.Second

// program makes a file of that name that is the daemon.
func program(t *testing.T, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// daemon is a running process.
type daemon struct {
	t     *testing.T
	cmd   *exec.Cmd
	log   string // file that stderr goes to
	ended chan error
}

// launch starts the program in a directory of its own and waits until it is
// ready.
func launch(t *testing.T, path string, args ...string) *daemon {
	t.Helper()
	d := begin(t, path, args...)
	d.wait("Server is ready")
	return d
}

func begin(t *testing.T, path string, args ...string) *daemon {
	t.Helper()
	dir := t.TempDir()
	d := &daemon{t: t, log: filepath.Join(dir, "stderr"), ended: make(chan error, 1)}
	out, err := os.Create(d.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	d.cmd = exec.Command(path, args...)
	d.cmd.Dir, d.cmd.Stdout, d.cmd.Stderr = dir, out, out
	d.cmd.Env = append(os.Environ(), "HERALD_TEST_DAEMON=1")
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.ended <- d.cmd.Wait() }()
	t.Cleanup(func() {
		if d.cmd.ProcessState == nil {
			_ = d.cmd.Process.Kill() // it may just have ended
			<-d.ended
		}
	})
	return d
}

func (d *daemon) text() string {
	d.t.Helper()
	b, err := os.ReadFile(d.log)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(b)
}

// wait waits until the log holds a text.
func (d *daemon) wait(want string) {
	d.t.Helper()
	waitFor(d.t, func() bool { return strings.Contains(d.text(), want) }, func() string { return fmt.Sprintf("%q in the log:\n%s", want, d.text()) })
}

// waitFor polls a condition outside this process.
func waitFor(t *testing.T, ok func() bool, what func() string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("waited in vain for %s", what())
		}
	}
}

func (d *daemon) signal(s syscall.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.t.Fatal(err)
	}
}

// exit waits for the end and returns the exit code.
func (d *daemon) exit() int {
	d.t.Helper()
	select {
	case err := <-d.ended:
		d.ended <- err
		var e *exec.ExitError
		if errors.As(err, &e) {
			return e.ExitCode()
		}
		if err != nil {
			d.t.Fatal(err)
		}
		return 0
	case <-time.After(patience):
		d.t.Fatalf("the daemon goes on:\n%s", d.text())
		return -1
	}
}

var clientAddr = regexp.MustCompile(`Listening for client connections on (\S+)`)

func (d *daemon) url() string {
	d.t.Helper()
	m := clientAddr.FindStringSubmatch(d.text())
	if m == nil {
		d.t.Fatalf("no client address in the log:\n%s", d.text())
	}
	return "nats://" + m[1]
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// call runs Main in this process, for what ends at once.
func call(args ...string) (code int, stdout, stderr string) {
	var out, bad bytes.Buffer
	code = Main(args, &out, &bad)
	return code, out.String(), bad.String()
}

func TestVersionHelpAndFaults(t *testing.T) {
	code, out, _ := call("brokerd", "-v")
	if first, _, _ := strings.Cut(out, "\n"); code != 0 || first != "nats-server: v2.15.2" || !strings.Contains(out, "herald: v") {
		t.Errorf("-v: %d %q", code, out)
	}
	if code, out, _ := call("brokerd", "-h"); code != 0 || !strings.Contains(out, "--ports_file_dir") {
		t.Errorf("-h: %d %q", code, out)
	}
	if code, out, _ := call("brokerd", "--help_tls"); code != 0 || !strings.Contains(out, "cert_file") {
		t.Errorf("--help_tls: %d %q", code, out)
	}
	if code, _, bad := call("brokerd", "--nope"); code != exitUsage || strings.Count(bad, "\n") != 1 {
		t.Errorf("--nope: %d %q", code, bad)
	}
	if code, _, _ := call("nats-server", "--nope"); code != exitError {
		t.Errorf("--nope as nats-server: %d", code)
	}
	if code, _, bad := call("brokerd", "--signal", "wave=1"); code != exitError || !strings.Contains(bad, "unknown signal") {
		t.Errorf("--signal wave: %d %q", code, bad)
	}
}

func TestCheck(t *testing.T) {
	good := write(t, filepath.Join(t.TempDir(), "good.conf"), "port: 4222\n")
	code, _, bad := call("nats-server", "-t", "-c", good)
	if want := regexp.MustCompile(`^nats-server: configuration file ` + regexp.QuoteMeta(good) + ` is valid \(sha256:[0-9a-f]{64}\)\n$`); code != 0 || !want.MatchString(bad) {
		t.Errorf("%d %q", code, bad)
	}
	if code, _, bad := call("brokerd", "config", "check", good); code != 0 || !strings.Contains(bad, "is valid (sha256:") {
		t.Errorf("config check: %d %q", code, bad)
	}
	if code, out, _ := call("brokerd", "-m", "8333", "config", "show", good); code != 0 || !strings.Contains(out, `"http": "127.0.0.1:8333"`) {
		t.Errorf("config show with a flag: %d %q", code, out)
	}
	if code, out, _ := call("brokerd", "config", "show"); code != 0 || !strings.Contains(out, `"store_dir": "herald-data"`) {
		t.Errorf("config show without a file: %d %q", code, out)
	}
	if code, _, bad := call("brokerd", "config", "shwo", good); code != exitUsage || !strings.Contains(bad, `did you mean "show"?`) {
		t.Errorf("config shwo: %d %q", code, bad)
	}
	wrong := write(t, filepath.Join(t.TempDir(), "wrong.conf"), "port: x\nhots: y\n")
	code, _, bad = call("brokerd", "-t", "-c", wrong)
	if code != exitUsage || !strings.Contains(bad, wrong+":1:1: port wants a number") || !strings.Contains(bad, wrong+`:2:1: unknown key "hots" (did you mean "host"?)`) {
		t.Errorf("%d %q", code, bad)
	}
}

// TestLogLines checks what foreign test suites wait for, and its order.
func TestLogLines(t *testing.T) {
	d := launch(t, program(t, "nats-server"), "-p", "-1", "-js", "-sd", t.TempDir(), "-c",
		write(t, filepath.Join(t.TempDir(), "c.conf"), "websocket { port: -1, no_tls: true }\nhttp: -1\n"))
	d.signal(syscall.SIGTERM)
	if code := d.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	text := d.text()
	line := regexp.MustCompile(`^\[` + strconv.Itoa(d.cmd.Process.Pid) + `\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[(INF|WRN|ERR|FTL|DBG|TRC)\] .*$`)
	for l := range strings.Lines(text) {
		if !line.MatchString(strings.TrimSuffix(l, "\n")) {
			t.Errorf("line %q", l)
		}
	}
	at := 0
	for _, want := range []string{
		"[INF] Starting nats-server\n", "[INF]   Version:  2.15.2", `[INF]   Store Directory: "/`, "[INF] Listening for websocket clients on ws://127.0.0.1:",
		"[INF] Listening for client connections on 127.0.0.1:", "[INF] Server is ready\n", "[INF] Initiating Shutdown", "[INF] Server Exiting..\n",
	} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("no %q after %q in\n%s", want, text[:at], text)
		}
		at += i
	}
}

func TestPidAndPortsFiles(t *testing.T) {
	dir := t.TempDir()
	pid := filepath.Join(dir, "pid")
	path := program(t, "nats-server-x")
	d := launch(t, path, "-p", "-1", "-m", "-1", "-P", pid, "--ports_file_dir", dir)
	if b, err := os.ReadFile(pid); err != nil || string(b) != strconv.Itoa(d.cmd.Process.Pid) {
		t.Errorf("pid file %q, %v", b, err)
	}
	name := filepath.Join(dir, fmt.Sprintf("nats-server-x_%d.ports", d.cmd.Process.Pid))
	var p ports
	waitFor(t, func() bool {
		b, err := os.ReadFile(name)
		return err == nil && json.Unmarshal(b, &p) == nil
	}, func() string { return name })
	if len(p.Nats) != 1 || p.Nats[0] != d.url() || len(p.Monitoring) != 1 || len(p.Websocket) != 0 {
		t.Errorf("ports %+v, clients at %s", p, d.url())
	}
	client := http.Client{Timeout: patience}
	r, err := client.Get(p.Monitoring[0] + "/varz")
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("varz: %v %v", r, err)
	}
	r.Body.Close()
	d.signal(syscall.SIGINT)
	if code := d.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, f := range []string{pid, name} {
		if _, err := os.Stat(f); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there (%v)", f, err)
		}
	}
}

func TestBareBrokerdKeepsTopicsHere(t *testing.T) {
	d := launch(t, program(t, "brokerd"), "-p", "-1")
	if _, err := os.Stat(filepath.Join(d.cmd.Dir, "herald-data", "herald")); err != nil {
		t.Error(err)
	}
	d.signal(syscall.SIGTERM)
	d.exit()
}

func TestReloadSignal(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "r.conf")
	write(t, conf, "port: -1\nauthorization { user: u, password: one }\n")
	d := launch(t, program(t, "brokerd"), "-c", conf)
	write(t, conf, "port: -1\nauthorization { user: u, password: two }\ndebug: true\n")
	d.signal(syscall.SIGHUP)
	d.wait("[INF] Reloaded server configuration")
	if text := d.text(); !strings.Contains(text, "Reloaded: auth changed\n") || !strings.Contains(text, "Reloaded: log.debug changed from false to true") || strings.Contains(text, "two") {
		t.Errorf("log:\n%s", text)
	}
	nc, err := nats.Connect(d.url(), nats.UserInfo("u", "two"))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	write(t, conf, "port: 1\nauthorization { user: u, password: two }\ndebug: true\n")
	if err := sendSignal("reload="+strconv.Itoa(d.cmd.Process.Pid), "brokerd"); err != nil {
		t.Fatal(err)
	}
	d.wait("[ERR] Failed to reload server configuration: these changes need a restart: port changed from -1 to 1")
	write(t, conf, "prot: 1\n")
	d.signal(syscall.SIGHUP)
	d.wait(`r.conf:1:1: unknown key "prot"`)
	d.wait("1 faults in the configuration, nothing was changed")
	d.signal(syscall.SIGTERM)
	if code := d.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestReopenSignal(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	pid := filepath.Join(t.TempDir(), "pid")
	d := begin(t, program(t, "brokerd"), "-p", "-1", "-l", log, "-P", pid)
	holds := func(path, want string) {
		t.Helper()
		waitFor(t, func() bool { b, err := os.ReadFile(path); return err == nil && strings.Contains(string(b), want) }, func() string { return want })
	}
	holds(log, "Server is ready")
	if err := os.Rename(log, log+".1"); err != nil {
		t.Fatal(err)
	}
	if err := sendSignal("reopen="+pid, "brokerd"); err != nil {
		t.Fatal(err)
	}
	holds(log, "File log re-opened")
	if err := sendSignal("term="+pid, "brokerd"); err != nil {
		t.Fatal(err)
	}
	if code := d.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	holds(log, "Server Exiting..")
}

func TestLameDuckSignal(t *testing.T) {
	conf := write(t, filepath.Join(t.TempDir(), "l.conf"), "port: -1\nlame_duck_duration: 100ms\nlame_duck_grace_period: 10ms\n")
	d := launch(t, program(t, "brokerd"), "-c", conf)
	told := make(chan struct{})
	nc, err := nats.Connect(d.url(), nats.NoReconnect(), nats.LameDuckModeHandler(func(*nats.Conn) { close(told) }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := sendSignal("ldm="+strconv.Itoa(d.cmd.Process.Pid), "brokerd"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-told:
	case <-time.After(patience):
		t.Error("the client was not told")
	}
	if code := d.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// What stops containers sends TERM behind a request to leave.
func TestTermDoesNotCutLameDuckShort(t *testing.T) {
	for last, says := range map[syscall.Signal]string{syscall.SIGTERM: "Already leaving in lame duck mode", syscall.SIGINT: "Initiating Shutdown"} {
		conf := write(t, filepath.Join(t.TempDir(), "l.conf"), "port: -1\nlame_duck_duration: 1500ms\nlame_duck_grace_period: 10ms\n")
		d := launch(t, program(t, "brokerd"), "-c", conf)
		told := make(chan struct{})
		nc, err := nats.Connect(d.url(), nats.NoReconnect(), nats.LameDuckModeHandler(func(*nats.Conn) { close(told) }))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		d.signal(syscall.SIGUSR2)
		select {
		case <-told:
		case <-time.After(patience):
			t.Fatal("the client was not told")
		}
		d.signal(last)
		if code := d.exit(); code != 0 || !strings.Contains(d.text(), says) {
			t.Errorf("%v: exit code %d\n%s", last, code, d.text())
		}
		if last == syscall.SIGTERM && strings.Contains(d.text(), "Initiating Shutdown") {
			t.Errorf("TERM cut it short:\n%s", d.text())
		}
	}
}

func TestQuitDumpsStacks(t *testing.T) {
	d := launch(t, program(t, "brokerd"), "-p", "-1")
	d.signal(syscall.SIGQUIT)
	if code := d.exit(); code != exitUsage || !strings.Contains(d.text(), "goroutine ") {
		t.Errorf("exit code %d", code)
	}
}

func TestFatalStarts(t *testing.T) {
	first := launch(t, program(t, "brokerd"), "-p", "-1", "-sd", "shared")
	d := begin(t, program(t, "brokerd"), "-p", "-1", "-sd", filepath.Join(first.cmd.Dir, "shared"))
	if code := d.exit(); code != exitError || !strings.Contains(d.text(), "[FTL] ") || !strings.Contains(d.text(), "lock") {
		t.Errorf("a second daemon on one directory: %d\n%s", code, d.text())
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(first.url(), "nats://"), ":")
	d = begin(t, program(t, "brokerd"), "-p", port)
	if code := d.exit(); code != exitError || !strings.Contains(d.text(), "[FTL] ") {
		t.Errorf("a second daemon on one port: %d\n%s", code, d.text())
	}
	first.signal(syscall.SIGTERM)
	first.exit()
}

func TestJSONLog(t *testing.T) {
	d := launch(t, program(t, "brokerd"), "-p", "-1", "--log-format", "json")
	d.signal(syscall.SIGTERM)
	d.exit()
	for l := range strings.Lines(d.text()) {
		var v map[string]any
		if err := json.Unmarshal([]byte(l), &v); err != nil || v["level"] == nil || v["msg"] == nil {
			t.Errorf("line %q: %v", l, err)
		}
	}
}

// TestFailedWriteEndsTheProcess lets the log run into a limit on the size of
// files: the daemon must not go on with less on disk than it promises.
func TestFailedWriteEndsTheProcess(t *testing.T) {
	d := launch(t, "/bin/sh", "-c", `ulimit -f 9000; exec "$0" "$@"`, program(t, "brokerd"), "-p", "-1", "-sd", t.TempDir())
	nc, err := nats.Connect(d.url(), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, 512<<10)
	for range 64 { // 32 MiB, far more than any file may hold
		if _, err := js.Publish("s", payload); err != nil {
			break
		}
	}
	if code := d.exit(); code != exitError || !strings.Contains(d.text(), "[FTL] ") {
		t.Errorf("exit code %d\n%s", code, d.text())
	}
}

func TestDevKeepsNothingAndShowsTheConsole(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	d := launch(t, program(t, "brokerd"), "--dev", "-p", "-1", "-m", "-1")
	at := regexp.MustCompile(`Console at (http://127\.0\.0\.1:\d+/console/)`).FindStringSubmatch(d.text())
	if at == nil {
		t.Fatalf("the log does not say where the console is:\n%s", d.text())
	}
	resp, err := http.Get(at[1])
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the console: %s", resp.Status)
	}
	dirs := func() []string {
		found, err := filepath.Glob(filepath.Join(temp, "herald-*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if len(dirs()) != 1 {
		t.Errorf("temporary directories: %v", dirs())
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-d.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if len(dirs()) != 0 {
		t.Errorf("left behind: %v", dirs())
	}
}

func TestConfigExplain(t *testing.T) {
	for args, want := range map[string]struct {
		code     int
		out, err string
	}{
		"config explain jetstream.max_mem": {0, "jetstream.max_memory_store", ""},
		"config explain":                   {0, "max_payload", ""},
		"config explain max_paylod":        {2, "", `did you mean "max_payload"?`},
		"config explain a b":               {2, "", "config explain [OPTION]"},
	} {
		var out, errs bytes.Buffer
		code := Main(append([]string{"brokerd"}, strings.Fields(args)...), &out, &errs)
		if code != want.code || !strings.Contains(out.String(), want.out) || !strings.Contains(errs.String(), want.err) || want.code != 0 && out.Len() > 0 {
			t.Errorf("%s: code %d, out %.200s, err %s", args, code, &out, &errs)
		}
	}
}
