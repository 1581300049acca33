package harness

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Node is one server process of a cluster: killed, stopped, paused and started
// again on the same configuration and files.
type Node struct {
	Name                              string
	Index                             int
	Host                              string
	ClientPort, ClusterPort, HTTPPort int
	Dir, Store, Conf, Log             string
	Disk                              *Disk    // nil without a disk of its own
	Env                               []string // added to the environment at the next start

	cluster *Cluster
	program string
	mu      sync.Mutex
	cmd     *exec.Cmd
	done    chan struct{}
}

// URL is where clients find it.
func (n *Node) URL() string {
	return "nats://" + net.JoinHostPort(n.Host, strconv.Itoa(n.ClientPort))
}

// Start starts the process and waits for nothing.
func (n *Node) Start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		select {
		case <-n.done:
		default:
			return fmt.Errorf("%s is running", n.Name)
		}
	}
	out, err := os.OpenFile(n.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(n.program, "-c", n.Conf)
	cmd.Dir, cmd.Stdout, cmd.Stderr = n.Dir, out, out
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), n.Env...), withParent()
	start := cmd.Start
	if h := n.cluster.hosts; h != nil {
		start = func() error { return h.start(n.Index, cmd) }
	}
	if err := start(); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	n.cmd, n.done = cmd, done
	return nil
}

// Ready waits until the process takes clients.
func (n *Node) Ready(patience time.Duration) error {
	address := net.JoinHostPort(n.Host, strconv.Itoa(n.ClientPort))
	for deadline := time.Now().Add(patience); ; {
		if !n.Running() {
			return fmt.Errorf("%s ended at start:\n%s", n.Name, lastLines([]byte(n.Output()), 10))
		}
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			c.Close()
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s takes no clients within %s: %w", n.Name, patience, err)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// PID returns the process id, 0 when there is none.
func (n *Node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return 0
	}
	return n.cmd.Process.Pid
}

// Running tells whether the process is there, paused or not.
func (n *Node) Running() bool {
	select {
	case <-n.Exited():
		return false
	default:
		return true
	}
}

// Exited is closed when the process is gone.
func (n *Node) Exited() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		gone := make(chan struct{})
		close(gone)
		return gone
	}
	return n.done
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (n *Node) Kill() { n.end(syscall.SIGKILL, 0) }

// Stop ends the process with SIGTERM, and with SIGKILL if it is still there a
// minute later; then it returns false.
func (n *Node) Stop() bool { return n.end(syscall.SIGTERM, time.Minute) }

func (n *Node) end(s syscall.Signal, patience time.Duration) bool {
	n.mu.Lock()
	cmd, done := n.cmd, n.done
	n.mu.Unlock()
	if cmd == nil {
		return true
	}
	_ = cmd.Process.Signal(s)
	clean := true
	if patience > 0 {
		select {
		case <-done:
		case <-time.After(patience):
			clean = false
			_ = cmd.Process.Kill()
		}
	}
	<-done
	n.mu.Lock()
	if n.cmd == cmd {
		n.cmd = nil
	}
	n.mu.Unlock()
	return clean
}

// Pause halts the process where it is.
func (n *Node) Pause() { n.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (n *Node) Resume() { n.signal(syscall.SIGCONT) }

func (n *Node) signal(s syscall.Signal) {
	if pid := n.PID(); pid != 0 {
		_ = syscall.Kill(pid, s)
	}
}

// Output returns what the node has printed so far.
func (n *Node) Output() string {
	text, _ := os.ReadFile(n.Log)
	return string(text)
}

// PowerCut takes the power of several nodes away in one moment: the processes
// stop where they are, their disks keep what was synced and nothing else. They
// are down afterwards, with their disks mounted again.
func PowerCut(nodes ...*Node) error {
	for _, n := range nodes {
		if n.Disk == nil {
			return fmt.Errorf("%s has no disk of its own", n.Name)
		}
		n.Pause()
	}
	for _, n := range nodes {
		if err := n.Disk.Cut(); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		n.Kill()
		if err := n.Disk.Restore(); err != nil {
			return err
		}
	}
	return nil
}

// Fill takes all space of the node's disk; free gives it back.
func (n *Node) Fill() (free func() error, err error) {
	if n.Disk == nil {
		return nil, fmt.Errorf("%s has no disk of its own", n.Name)
	}
	var names []string
	for _, block := range []int{1 << 20, 4 << 10, 512} {
		name := filepath.Join(n.Disk.Dir, fmt.Sprintf("filler%d", block))
		names = append(names, name)
		f, err := os.Create(name)
		if err != nil {
			continue // not even an inode is left
		}
		zeros := make([]byte, block)
		for {
			if _, err := f.Write(zeros); err != nil {
				break
			}
		}
		_ = f.Sync()
		f.Close()
	}
	return func() error {
		for _, name := range names {
			if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
		return nil
	}, nil
}
