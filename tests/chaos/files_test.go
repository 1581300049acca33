package chaos

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// filesOf returns the files of a node's store that match, relative to it.
func filesOf(n *harness.Node, match func(rel string, size int64) bool) []string {
	var out []string
	_ = filepath.WalkDir(n.Store, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // files come and go under a running server
		}
		info, err := d.Info()
		rel, _ := filepath.Rel(n.Store, path)
		if err == nil && info.Size() > 0 && !strings.Contains(filepath.ToSlash(rel), "/damaged/") && match(filepath.ToSlash(rel), info.Size()) {
			out = append(out, path)
		}
		return nil
	})
	slices.Sort(out)
	return out
}

// holding returns the files of a node that hold messages of the load: the first
// half of the payload's mark is in them.
func holding(n *harness.Node) []string {
	return filesOf(n, func(rel string, _ int64) bool {
		text, err := os.ReadFile(filepath.Join(n.Store, rel))
		return err == nil && bytes.Contains(text, []byte("chaos/"))
	})
}

// isCatalogue tells whether a file holds what streams there are: group 0's log,
// markers and snapshots, or the meta layer's.
func isCatalogue(target string) func(string, int64) bool {
	return func(rel string, _ int64) bool {
		if target == natsServer {
			return strings.Contains(rel, "_meta_")
		}
		return strings.Contains(rel, "/meta/") || strings.Contains(rel, "/0/") || strings.Contains(rel, "snapshots")
	}
}

// isVote tells whether a file holds terms and votes.
func isVote(target string) func(string, int64) bool {
	return func(rel string, _ int64) bool {
		if target == natsServer {
			return strings.HasSuffix(rel, "tav.idx")
		}
		return strings.Contains(rel, "/stable/")
	}
}

// isLocal tells a lock or an identity from data.
func isLocal(path string) bool {
	base := filepath.Base(path)
	return strings.Contains(base, "LOCK") || base == "NODE" || strings.HasSuffix(base, ".free")
}

// flipNear changes one bit of a file, in a message chosen by where (0: first to
// 1: last that it holds), at a distance from the payload's mark: in the payload,
// or before it in what describes it. It returns what it did.
func flipNear(path string, rng *rand.Rand, where float64, distance int) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var marks []int
	for at := 0; ; {
		i := bytes.Index(text[at:], []byte("chaos/"))
		if i < 0 {
			break
		}
		marks = append(marks, at+i)
		at += i + 1
	}
	if len(marks) == 0 {
		return "", fmt.Errorf("%s holds no messages", path)
	}
	at := marks[min(int(where*float64(len(marks))), len(marks)-1)] + distance
	return flipAt(path, min(max(at, 0), len(text)-1), rng.IntN(8))
}

// flipAt changes one bit in place.
func flipAt(path string, at, bit int) (string, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, int64(at)); err != nil {
		return "", err
	}
	b[0] ^= 1 << bit
	if _, err := f.WriteAt(b, int64(at)); err != nil {
		return "", err
	}
	return fmt.Sprintf("bit %d of byte %d of %s", bit, at, filepath.Base(path)), f.Sync()
}

// flipSomewhere changes a bit of a byte that isn't zero.
func flipSomewhere(path string, rng *rand.Rand) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for range 10000 {
		if at := rng.IntN(len(text)); text[at] != 0 {
			return flipAt(path, at, rng.IntN(8))
		}
	}
	return "", fmt.Errorf("%s is all zeros", path)
}

// copyFiles returns the contents of files by path.
func copyFiles(paths []string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		out[p] = text
	}
	return out, nil
}

// watcher reads acknowledged messages at random while things break. A message
// that was acknowledged is there, from that moment on, whoever leads: "no such
// message" is a hole that was served.
type watcher struct {
	w     *world
	stop  chan struct{}
	work  sync.WaitGroup
	mu    sync.Mutex
	reads int
	holes int
	wrong int
}

// watch starts a watcher of a stream.
func (w *world) watch(stream string) *watcher {
	x := &watcher{w: w, stop: make(chan struct{})}
	nc := w.connect("watch")
	rng := w.random("watch")
	x.work.Go(func() {
		defer nc.Close()
		for {
			select {
			case <-x.stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			p := w.publishers[rng.IntN(len(w.publishers))]
			n, seq := p.anyAcked(rng)
			if p.stream != stream || seq == 0 {
				continue
			}
			f, notFound, err := get(nc, stream, seq, 0)
			x.mu.Lock()
			switch {
			case notFound:
				x.holes++
				w.broken("hole", "%s %d was acknowledged at %d, and a read says there is no such message", p.name, n, seq)
			case err != nil:
			case !bytes.Equal(f.Message.Data, p.payload(n)):
				x.wrong++
				w.broken("damaged", "%s %d at %d was read as %.60q", p.name, n, seq, f.Message.Data)
			default:
				x.reads++
			}
			x.mu.Unlock()
		}
	})
	return x
}

// end stops the watcher and says what it saw.
func (x *watcher) end() {
	close(x.stop)
	x.work.Wait()
	x.w.figure("%d reads meanwhile, %d holes, %d damaged", x.reads, x.holes, x.wrong)
}

// anyAcked returns an acknowledged message, sequence 0 if there is none.
func (p *publisher) anyAcked(rng *rand.Rand) (n int, seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 20 {
		if len(p.msgs) == 0 {
			break
		}
		if n = rng.IntN(len(p.msgs)); p.msgs[n].seq != 0 {
			return n, p.msgs[n].seq
		}
	}
	return 0, 0
}
