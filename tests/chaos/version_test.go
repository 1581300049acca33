package chaos

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// Test28Downgrade puts all nodes back to a program that doesn't know the format of their
// logs: the headers of the log's segments say that a later version wrote them. None may
// start, serve nothing, or move the log away; the later version goes on from there.
func Test28Downgrade(t *testing.T) {
	w := begin(t, 28, harness.ClusterOptions{})
	if w.target != herald {
		t.Skip("SKIPPED: it writes what a later version of Herald would have")
	}
	w.create("T", 3, nil)
	w.load("T")
	w.progress(30 * time.Second)
	w.halt()
	for _, n := range w.Nodes {
		n.Stop()
	}
	segments := 0
	for _, n := range w.Nodes {
		segments += w.formats(n, +1)
	}
	for _, n := range w.Nodes {
		w.must(n.Start())
		select {
		case <-n.Exited():
		case <-time.After(30 * time.Second):
			w.broken("started", "%s runs on a log of a later format", n.Name)
			n.Kill()
		}
		if text, _ := os.ReadFile(n.Log); !strings.Contains(string(text), "newer version") {
			w.broken("unclear", "%s does not say that its log is of a newer version", n.Name)
		}
	}
	for _, n := range w.Nodes {
		if got := w.formats(n, -1); got == 0 {
			w.broken("moved", "%s has no segments left", n.Name)
		}
	}
	w.must(w.Start())
	w.waitJetStream()
	w.weigh()
	w.figure("%d segments of a later format, refused by each node", segments)
	w.audit("T")
}

// formats changes the format that a node's log segments are of, as its program would have
// written it, and returns how many there are.
func (w *world) formats(n *harness.Node, by int) int {
	w.t.Helper()
	files := filesOf(n, func(rel string, _ int64) bool { return strings.HasSuffix(rel, ".seg") })
	count := 0
	for _, path := range files {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		w.must(err)
		b := make([]byte, 64)
		if _, err := f.ReadAt(b, 0); err == nil && bytes.HasPrefix(b, []byte("HERALWAL")) {
			binary.LittleEndian.PutUint32(b[8:], uint32(int(binary.LittleEndian.Uint32(b[8:]))+by))
			binary.LittleEndian.PutUint32(b[12:], 0)
			binary.LittleEndian.PutUint32(b[12:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
			_, err = f.WriteAt(b, 0)
			w.must(err)
			count++
		}
		w.must(f.Close())
	}
	return count
}
