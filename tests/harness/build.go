package harness

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// built is a program of this module that was built for the tests.
type built struct {
	once sync.Once
	path string
	err  error
}

var (
	programs sync.Map // package path → *built
	module   = "github.com/heraldmq/herald/"
)

// Build returns the path of a program of this module, as its source is now. Each process
// builds it once, into a folder of the user's cache that all share who test this working
// copy: where nothing has changed, nothing is linked. What it returns stays as it is while
// this process lives.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	v, _ := programs.LoadOrStore(pkg, &built{})
	b := v.(*built)
	b.once.Do(func() { b.path, b.err = build(pkg) })
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.path
}

func build(pkg string) (string, error) {
	dir, err := shelf()
	if err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close() // and unlock it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	sweepShelf(dir)
	name := filepath.Base(pkg)
	shared := filepath.Join(dir, filepath.Base(filepath.Dir(pkg))+"-"+name)
	if out, err := exec.Command("go", "build", "-o", shared, module+pkg).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	// A name of this process's own: the next build puts another file in the shared place.
	own := filepath.Join(dir, strconv.Itoa(os.Getpid()), filepath.Base(shared), name)
	if err := os.MkdirAll(filepath.Dir(own), 0o700); err != nil {
		return "", err
	}
	if err := os.Remove(own); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return own, os.Link(shared, own)
}

// shelf is the folder for the programs of this working copy.
func shelf() (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for up := root; ; up = filepath.Dir(up) {
		if _, err := os.Stat(filepath.Join(up, "go.mod")); err == nil {
			root = up
			break
		}
		if up == filepath.Dir(up) {
			break
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	h := fnv.New64a()
	fmt.Fprint(h, root, os.Getenv("GOFLAGS"))
	dir := filepath.Join(cache, "herald-tools", fmt.Sprintf("built-%x", h.Sum64()))
	return dir, os.MkdirAll(dir, 0o700)
}

// sweepShelf removes the names of processes that are gone.
func sweepShelf(dir string) {
	names, _ := os.ReadDir(dir)
	for _, n := range names {
		if pid, err := strconv.Atoi(n.Name()); err == nil && syscall.Kill(pid, 0) != nil {
			_ = os.RemoveAll(filepath.Join(dir, n.Name())) // the next one tries again
		}
	}
}
