package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// commands are what --signal can ask for.
var commands = map[string]syscall.Signal{
	"stop":   syscall.SIGKILL,
	"quit":   syscall.SIGINT,
	"term":   syscall.SIGTERM,
	"reopen": syscall.SIGUSR1,
	"ldm":    syscall.SIGUSR2,
	"reload": syscall.SIGHUP,
}

// sendSignal does what --signal CMD[=PID|PIDFILE] asks for. Without a pid the
// one other process of the same program is meant.
func sendSignal(arg, program string) error {
	name, target, _ := strings.Cut(arg, "=")
	s, ok := commands[name]
	if !ok {
		return fmt.Errorf("unknown signal %q: ldm, stop, quit, term, reopen or reload", name)
	}
	pid, err := findPid(target, program)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, s); err != nil {
		return fmt.Errorf("send %s to process %d: %w", name, pid, err)
	}
	return nil
}

func findPid(target, program string) (int, error) {
	if target != "" {
		return readPid(target)
	}
	var found []int
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return 0, fmt.Errorf("find processes: %w", err)
	}
	for _, f := range names {
		b, err := os.ReadFile(f)
		if err != nil || strings.TrimSpace(string(b)) != program[:min(len(program), 15)] {
			continue // it has ended, or is another program
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && pid != os.Getpid() {
			found = append(found, pid)
		}
	}
	slices.Sort(found)
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("no %s process is running", program)
	case 1:
		return found[0], nil
	}
	return 0, fmt.Errorf("%d %s processes are running (%v): say which with --signal CMD=PID", len(found), program, found)
}
