package soak

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
)

// restart starts the broker again after a stop and after a kill, with nobody
// doing anything in between: what can be asked stays the same, and so do the
// digests of what is stored.
func (w *world) restart(store string) {
	if !filepath.IsAbs(store) {
		store = filepath.Join(w.broker.Dir, store)
	}
	nc, js := w.connect("restart")
	before := w.picture(nc, js)
	again := func(what string) {
		if err := w.broker.Run(); err != nil {
			w.t.Fatal(err)
		}
		w.same(what, before, w.picture(nc, js))
	}
	w.broker.Stop()
	again("a stop")
	w.broker.Kill()
	killed := digests(w.t, store)
	again("a kill")
	w.broker.Stop()
	stopped := digests(w.t, store)
	for id, d := range killed {
		if stopped[id] != d {
			w.bad("changed digest", "topic %s: %x after a kill, %x after a stop", id, d, stopped[id])
		}
	}
	if len(stopped) != len(killed) || len(killed) != len(topicNames) {
		w.bad("changed digest", "%d topics after a kill, %d after a stop", len(killed), len(stopped))
	}
}

// digests opens a copy of the store and returns the digests of the topics.
func digests(t *testing.T, store string) map[string]uint64 {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(store, "herald"))); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := state.Open(state.Options{Dir: dir, Fatal: func(err error) { t.Errorf("fatal: %v", err) }, Now: func() topics.Nanos { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]uint64{}
	s.Topics("", func(top *state.Topic) bool {
		d, err := top.Data().Digest()
		if err != nil {
			t.Error(err)
		}
		all[top.Name()] = d
		return true
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return all
}
