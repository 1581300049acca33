package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Disk is an ext4 file system on a loop device whose power can be cut: what was
// not synced is gone, exactly as after pulling the plug.
type Disk struct {
	Dir  string // where it is mounted
	loop string
}

// NewDisk makes a disk of a size in MiB, unmounted when the test ends. The error
// says why this machine or user can't have one.
func NewDisk(t testing.TB, megabytes int) (*Disk, error) {
	t.Helper()
	if os.Getuid() != 0 {
		return nil, fmt.Errorf("mounting a loop device needs root")
	}
	dir := t.TempDir()
	image := filepath.Join(dir, "disk.img")
	d := &Disk{Dir: filepath.Join(dir, "mnt")}
	if err := os.Mkdir(d.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(image, int64(megabytes)<<20); err != nil {
		return nil, err
	}
	if _, err := run("mkfs.ext4", "-q", "-F", image); err != nil {
		return nil, err
	}
	var err error
	if d.loop, err = run("losetup", "-f", "--show", image); err != nil {
		return nil, err
	}
	t.Cleanup(func() { _, _ = run("losetup", "-d", d.loop) })
	if _, err := run("mount", d.loop, d.Dir); err != nil {
		return nil, err
	}
	t.Cleanup(func() { _, _ = run("umount", "-l", d.Dir) })
	return d, nil
}

func run(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w %s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// Cut takes the power away: the file system stops at once, without writing its
// journal out. Whoever has files open in it gets errors from now on.
func (d *Disk) Cut() error {
	f, err := os.Open(d.Dir)
	if err != nil {
		return fmt.Errorf("cut the power: %w", err)
	}
	defer f.Close()
	const ext4Shutdown, noLogFlush = 0x8004587d, 2
	flag := uint32(noLogFlush)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), ext4Shutdown, uintptr(unsafe.Pointer(&flag))); errno != 0 {
		return fmt.Errorf("cut the power: this kernel can't shut an ext4 down: %w", errno)
	}
	return nil
}

// Restore mounts the file system again, which replays its journal. Nobody may
// have files open in it.
func (d *Disk) Restore() error {
	if _, err := run("umount", d.Dir); err != nil {
		return err
	}
	_, err := run("mount", d.loop, d.Dir)
	return err
}
