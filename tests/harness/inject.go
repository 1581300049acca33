package harness

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Injection is a tracer that makes some system calls of a process fail or wait.
type Injection struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// CanInject tells why system calls can't be made to fail here, nil if they can.
func CanInject() error {
	if _, err := exec.LookPath("strace"); err != nil {
		return fmt.Errorf("no strace on this machine")
	}
	// Where tracing is forbidden, tracing something harmless is too.
	if out, err := exec.Command("strace", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		return fmt.Errorf("strace can't trace here: %w: %s", err, out)
	}
	return nil
}

// Inject makes system calls of a node's process fail or wait until End, by
// rules in strace's words, such as "fdatasync,fsync:error=EIO:when=5+". It
// returns when the tracer is attached.
func (n *Node) Inject(rules ...string) (*Injection, error) {
	pid := n.PID()
	if pid == 0 {
		return nil, fmt.Errorf("%s isn't running", n.Name)
	}
	in := &Injection{log: filepath.Join(n.Dir, fmt.Sprintf("strace%d", time.Now().UnixNano())), done: make(chan struct{})}
	calls := ""
	args := []string{"-f", "-qq", "-ttt", "-o", in.log}
	for _, r := range rules {
		name, _, _ := bytes.Cut([]byte(r), []byte(":"))
		calls += "," + string(name)
		args = append(args, "-e", "inject="+r)
	}
	args = append(args, "-e", "trace="+calls[1:], "-p", strconv.Itoa(pid))
	in.cmd = exec.Command("strace", args...)
	if err := in.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = in.cmd.Wait(); close(in.done) }()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		if traced(pid) {
			return in, nil
		}
	}
	in.End()
	return nil, fmt.Errorf("strace did not attach to %s", n.Name)
}

// traced tells whether all threads of a process have a tracer.
func traced(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err == nil && bytes.Contains(text, []byte("TracerPid:\t0\n")) {
			return false
		}
	}
	return true
}

// First returns when the first system call was made to fail or wait; false if
// none was so far.
func (in *Injection) First() (time.Time, bool) {
	text, _ := os.ReadFile(in.log)
	for line := range bytes.Lines(text) {
		if !bytes.Contains(line, []byte("(INJECTED)")) && !bytes.Contains(line, []byte("(DELAYED)")) {
			continue
		}
		if f := bytes.Fields(line); len(f) > 1 {
			if s, err := strconv.ParseFloat(string(f[1]), 64); err == nil {
				return time.UnixMicro(int64(s * 1e6)), true
			}
		}
	}
	return time.Time{}, false
}

// End detaches the tracer.
func (in *Injection) End() {
	_ = in.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-in.done:
	case <-time.After(5 * time.Second):
		_ = in.cmd.Process.Kill()
		<-in.done
	}
}
