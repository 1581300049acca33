package daemon

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// timerSlack is in nanoseconds. Linux may end a thread's sleep as much too late, so that
// it can end several at once; defaultSlack is what it gives a program.
const (
	timerSlack   = 1_000_000
	defaultSlack = 50_000
)

// CoarseTimers makes the kernel end the process's sleeps up to a millisecond late, and
// is what a broker's main does first: it executes the program anew, once, with the same
// arguments, process id and environment.
//
// While a thread is in a system call, Go's watchdog thread (runtime.sysmon) sleeps for 20 µs
// over and over. A broker is in system calls nearly always, each of these wake-ups costs a
// virtual machine about 13 µs, and together they were 13 to 23 % of all processor time
// under a durable load. A millisecond makes them rare; Herald's own timers and the
// network poller's are no finer. A thread inherits the slack from the one that started it, and the
// watchdog runs before main does: hence the new execution, which keeps it (prctl(2),
// PR_SET_TIMERSLACK). A slack that is not the default was chosen by somebody,
// for instance by systemd's TimerSlackNSec, and is left alone.
//
// If the kernel refuses, the process goes on as it is.
func CoarseTimers() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || slack != defaultSlack {
		return
	}
	program, err := self()
	if err != nil {
		return
	}
	if unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0) != nil {
		return
	}
	if syscall.Exec(program, os.Args, os.Environ()) != nil {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, defaultSlack, 0, 0, 0)
	}
}

// self returns the program's file, by the name it was called by where that is possible: the
// kernel takes the process's name from it, and --signal finds the process by its name.
func self() (string, error) {
	file, err := os.Executable()
	if err != nil {
		return "", err
	}
	if called, err := exec.LookPath(os.Args[0]); err == nil {
		a, errA := os.Stat(called)
		b, errB := os.Stat(file)
		if errA == nil && errB == nil && os.SameFile(a, b) {
			return called, nil
		}
	}
	return file, nil
}
