package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// hosts are network namespaces on a bridge, each with an address of its own. The
// test itself reaches them from the bridge.
type hosts struct {
	bridge string   // hb<pid>-<number>
	subnet string   // 10.213.7
	spaces []string // and the interfaces outside of them: hb<pid>-<number>
}

// named counts the names given: what is deleted stays around for a moment.
var named atomic.Int32

// making is held while a bridge is made: two must not choose the same subnet.
var making sync.Mutex

func nextName() string { return fmt.Sprintf("hb%d-%d", os.Getpid(), named.Add(1)) }

// newHosts makes the bridge. The error says why this machine can't have one.
func newHosts(t testing.TB) (*hosts, error) {
	if os.Getuid() != 0 {
		return nil, fmt.Errorf("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, err
	}
	making.Lock()
	defer making.Unlock()
	sweepHosts()
	h := &hosts{bridge: nextName()}
	taken, err := run("ip", "-o", "-4", "addr")
	if err != nil {
		return nil, err
	}
	for k := (os.Getpid() + int(named.Load())) % 250; h.subnet == ""; k = (k + 1) % 250 {
		if s := fmt.Sprintf("10.213.%d", k); !strings.Contains(taken, " "+s+".") {
			h.subnet = s
		}
	}
	if _, err := run("ip", "link", "add", h.bridge, "type", "bridge"); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		for _, s := range h.spaces {
			_, _ = run("ip", "netns", "del", s)
		}
		_, _ = run("ip", "link", "del", h.bridge)
	})
	if _, err := run("ip", "addr", "add", h.subnet+".254/24", "dev", h.bridge); err != nil {
		return nil, err
	}
	_, err = run("ip", "link", "set", h.bridge, "up")
	return h, err
}

// sweepHosts removes what test processes that were killed left behind.
func sweepHosts() {
	left, _ := filepath.Glob("/run/netns/hb*")
	links, _ := filepath.Glob("/sys/class/net/hb*")
	for _, path := range append(left, links...) {
		name := filepath.Base(path)
		pid, err := strconv.Atoi(strings.TrimPrefix(strings.Split(name, "-")[0], "hb"))
		if err != nil || syscall.Kill(pid, 0) == nil {
			continue
		}
		if strings.HasPrefix(path, "/run") {
			_, _ = run("ip", "netns", "del", name)
		} else {
			_, _ = run("ip", "link", "del", name)
		}
	}
}

func (h *hosts) address(i int) string { return fmt.Sprintf("%s.%d", h.subnet, i+1) }

// add makes the next host and returns its address.
func (h *hosts) add() (string, error) {
	i, space := len(h.spaces), nextName()
	outer := space
	h.spaces = append(h.spaces, space)
	for _, line := range []string{
		"ip netns add " + space,
		"ip link add " + outer + " type veth peer name eth0 netns " + space,
		"ip link set " + outer + " master " + h.bridge + " up",
		"ip -n " + space + " addr add " + h.address(i) + "/24 dev eth0",
		"ip -n " + space + " link set lo up",
		"ip -n " + space + " link set eth0 up",
	} {
		words := strings.Fields(line)
		if _, err := run(words[0], words[1:]...); err != nil {
			return "", err
		}
	}
	return h.address(i), nil
}

// start starts a command on a host: the thread that forks is in its namespace.
func (h *hosts) start(i int, cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	other, err := os.Open("/run/netns/" + h.spaces[i])
	if err != nil {
		return err
	}
	defer other.Close()
	if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	err = cmd.Start()
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		panic(fmt.Sprintf("a thread is stuck in namespace %s: %v", h.spaces[i], back))
	}
	return err
}

// withParent makes a process end with the test's.
func withParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// cut makes packets from one host to another go to a hardware address that
// nobody has, which loses them without a word, or undoes that.
func (h *hosts) cut(from, to int, cut bool) error {
	args := []string{"-n", h.spaces[from], "neigh", "del", h.address(to), "dev", "eth0"}
	if cut {
		args = []string{"-n", h.spaces[from], "neigh", "replace", h.address(to), "lladdr", "02:00:00:00:ff:ff", "nud", "permanent", "dev", "eth0"}
	}
	_, err := run("ip", args...)
	return err
}
