package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heraldmq/herald/client"
)

// TestDamage flips a byte of one node's messages: scrubbing finds it, the node refills
// its replica from the others, and the operator is told.
func TestDamage(t *testing.T) {
	t.Parallel()
	w := form(t, 3)
	js := w.js(w.connect(w.Nodes[0]))
	w.stream(js, "S", 3)
	for i := range 300 {
		if _, err := js.Publish(w.within(), fmt.Sprintf("S.%d", i), []byte(strings.Repeat("x", 2000))); err != nil {
			t.Fatal(err)
		}
	}
	hurt := w.Nodes[1]
	hurt.Stop() // what it holds goes to files
	var file string
	var size int64
	err := filepath.WalkDir(hurt.Store, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".run" {
			return err
		}
		if i, err := d.Info(); err == nil && i.Size() > size {
			file, size = path, i.Size()
		}
		return nil
	})
	if err != nil || size < 2000 {
		t.Fatalf("no file of messages below %s: %v", hurt.Store, err)
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	if _, err := f.ReadAt(one, size/2); err != nil {
		t.Fatal(err)
	}
	one[0] ^= 0x40
	if _, err := f.WriteAt(one, size/2); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	w.start(hurt)
	ops := w.ops(w.Nodes[0])
	if _, err := ops.Scrub(w.within(), nil); err != nil {
		t.Fatal(err)
	}
	st := w.status(w.Nodes[0], "the damage to be told and repaired", func(s *client.ClusterStatus) bool { return s.Healthy && len(s.Damage) > 0 })
	if d := st.Damage[0]; d.Node != hurt.Name || d.Action == "" || d.What == "" {
		t.Errorf("damage %+v", d)
	}
	all, err := ops.Scrub(w.within(), nil)
	if err != nil {
		t.Fatal(err)
	}
	groups := map[uint32]int{}
	for _, r := range all {
		groups[r.Group]++
		if r.Fault != "" {
			t.Errorf("after the repair: %+v", r)
		}
	}
	if groups[0] != 3 {
		t.Errorf("scrubbed %+v", all)
	}
	if _, text, _ := get(hurt, "/metrics"); !strings.Contains(text, "herald_scrub_bytes_total") {
		t.Error("metrics tell nothing of scrubbing")
	}
}
