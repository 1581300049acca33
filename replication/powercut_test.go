package replication

import (
	"bufio"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
	"golang.org/x/sys/unix"
)

// The power cut test runs a node in a process of its own on an ext4 of its own (a
// loop device), and cuts the power: the file system is told to shut down without
// flushing its journal, which loses exactly what was not synced. Then the process
// is killed, the file system mounted again, and the node opened: every answered
// proposal must be there.
//
//	HERALD_POWERCUT=20 go test -run TestPowerCut -v ./replication    (as root; 20 cuts)

const (
	cutEnv   = "HERALD_POWERCUT"
	childEnv = "HERALD_POWERCUT_CHILD"
)

// TestPowerCutChild is the process that is cut off: it proposes and prints what was
// answered. It is no test.
func TestPowerCutChild(t *testing.T) {
	dir := os.Getenv(childEnv)
	if dir == "" {
		t.Skip("only run by TestPowerCut")
	}
	cfg := tiny(dir)
	cfg.SegmentBytes, cfg.Fatal = 256<<10, func(error) { os.Exit(3) }
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []topics.GroupID{0, 1} {
		sm := &list{}
		g, err := n.Start(id, sm)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for i := len(sm.all()); ; i++ {
				if _, _, err := g.Propose([]byte(text(i))).Result(); err != nil {
					return
				}
				fmt.Printf("acked %d %d\n", id, i)
			}
		}()
	}
	select {} // until the end
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestPowerCut(t *testing.T) {
	cuts, _ := strconv.Atoi(os.Getenv(cutEnv))
	if cuts == 0 {
		t.Skipf("POWER CUTS ARE NOT TESTED: set %s to a number of cuts, as root", cutEnv)
	}
	if os.Getuid() != 0 {
		t.Skip("POWER CUTS ARE NOT TESTED: mounting needs root")
	}
	base := t.TempDir()
	image, mount := filepath.Join(base, "image"), filepath.Join(base, "mount")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 256<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs.ext4", "-q", image)
	t.Cleanup(func() { _ = exec.Command("umount", "-l", mount).Run() }) // if a cut failed
	acked := map[topics.GroupID]int{0: -1, 1: -1}
	for cut := range cuts {
		run(t, "mount", "-o", "loop", image, mount)
		cutOnce(t, mount, acked)
		run(t, "umount", mount)
		run(t, "mount", "-o", "loop", image, mount)
		checkAfterCut(t, mount, acked)
		run(t, "umount", mount)
		if t.Failed() {
			t.Fatalf("after cut %d", cut+1)
		}
	}
	t.Logf("%d power cuts, the last acknowledged entries were %v", cuts, acked)
}

// cutOnce lets a node work for a moment and cuts its power.
func cutOnce(t *testing.T, mount string, acked map[topics.GroupID]int) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^TestPowerCutChild$")
	child.Env = append(os.Environ(), childEnv+"="+filepath.Join(mount, "node"), cutEnv+"=")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	child.Stderr = child.Stdout
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	other := []string{}
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var id, i int
			if _, err := fmt.Sscanf(lines.Text(), "acked %d %d", &id, &i); err == nil {
				acked[topics.GroupID(id)] = i
			} else {
				other = append(other, lines.Text())
			}
		}
	}()
	before := acked[0] + acked[1]
	<-time.After(time.Duration(50+rand.IntN(400)) * time.Millisecond)
	f, err := os.Open(mount)
	if err != nil {
		t.Fatal(err)
	}
	const shutdown, noLogFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noLogFlush); err != nil {
		t.Errorf("shut the file system down: %v", err)
	}
	f.Close()
	child.Process.Kill()
	<-read
	child.Wait() // it was killed
	if acked[0]+acked[1] == before {
		t.Logf("nothing was acknowledged before this cut: %q", other)
	}
}

// checkAfterCut opens the node and looks for everything that was acknowledged.
func checkAfterCut(t *testing.T, mount string, acked map[topics.GroupID]int) {
	t.Helper()
	cfg := tiny(filepath.Join(mount, "node"))
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg.SegmentBytes = 256 << 10
	cfg.Fatal = func(err error) { t.Errorf("fatal: %v", err) }
	n, err := Open(cfg)
	if err != nil {
		t.Errorf("open: %v", err)
		return
	}
	defer closeNode(t, n)
	for id, last := range acked {
		sm := &list{}
		if _, err := n.Start(id, sm); err != nil {
			t.Errorf("start: %v", err)
			continue
		}
		all := sm.all()
		if len(all) <= last {
			t.Errorf("group %d: %d entries, but %d were acknowledged", id, len(all), last+1)
		}
		for i, e := range all {
			if e != text(i) {
				t.Errorf("group %d: entry %d is %.20q", id, i, e)
				break
			}
		}
		acked[id] = len(all) - 1
	}
}
