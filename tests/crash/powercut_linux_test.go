package crash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/heraldmq/herald/tests/harness"
)

// disk is an ext4 file system on a loop device whose power can be cut: what was
// not synced is gone, exactly as after pulling the plug.
type disk struct{ image, loop, mount string }

// newDisk makes a disk of the given size. Skips, loudly, where this machine or
// user can't mount loop devices.
func newDisk(t *testing.T, megabytes int) *disk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: mounting a loop device needs root")
	}
	dir := t.TempDir()
	d := &disk{image: filepath.Join(dir, "disk.img"), mount: filepath.Join(dir, "mnt")}
	must(t, os.Mkdir(d.mount, 0o700))
	must(t, os.WriteFile(d.image, nil, 0o600))
	must(t, os.Truncate(d.image, int64(megabytes)<<20))
	run := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil {
			t.Skipf("SKIPPED: %s %s: %v %s", name, strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("mkfs.ext4", "-q", "-F", d.image)
	d.loop = run("losetup", "-f", "--show", d.image)
	t.Cleanup(func() { _ = exec.Command("losetup", "-d", d.loop).Run() })
	run("mount", d.loop, d.mount)
	t.Cleanup(func() { _ = exec.Command("umount", "-l", d.mount).Run() })
	return d
}

// cut takes the power away: the file system stops at once, without writing its
// journal out.
func (d *disk) cut(t *testing.T) {
	t.Helper()
	f, err := os.Open(d.mount)
	must(t, err)
	defer f.Close()
	const ext4Shutdown, noLogFlush = 0x8004587d, 2
	flag := uint32(noLogFlush)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), ext4Shutdown, uintptr(unsafe.Pointer(&flag))); errno != 0 {
		t.Skipf("SKIPPED: this kernel can't shut an ext4 down: %v", errno)
	}
}

// restore mounts the file system again, which replays its journal.
func (d *disk) restore(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{{"umount", d.mount}, {"mount", d.loop, d.mount}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}
}

func startOn(t *testing.T, d *disk) *harness.Broker {
	t.Helper()
	b := harness.New(t, fmt.Sprintf("server_name: n1\njetstream { enabled: true, store_dir: %q }\n", filepath.Join(d.mount, "store")))
	must(t, b.Run())
	return b
}

// TestPowerCut cuts the power of the machine while messages are published:
// 20 times in the long form, 3 in the short one. Nothing acknowledged is lost.
func TestPowerCut(t *testing.T) {
	cuts := 3
	if long() {
		cuts = 20
	}
	random := seeded(t)
	d := newDisk(t, 700)
	b := startOn(t, d)
	l := &ledger{lines: quakes(t), acked: map[int]uint64{}}
	nc := connect(t, b)
	createTopic(t, nc)
	for range cuts {
		stop, done := make(chan struct{}), make(chan struct{})
		go func() { l.publish(nc, 1+random.IntN(500), stop); close(done) }()
		<-time.After(time.Duration(100+random.IntN(900)) * time.Millisecond)
		d.cut(t)
		b.Kill()
		close(stop)
		<-done
		nc.Close()
		d.restore(t)
		must(t, b.Run())
		nc = connect(t, b)
	}
	if len(l.acked) == 0 {
		t.Fatal("nothing was acknowledged between the cuts")
	}
	l.check(t, nc)
}
