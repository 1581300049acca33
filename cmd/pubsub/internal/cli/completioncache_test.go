package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/cmd/pubsub/internal/profile"
)

func TestCompletionAsksNoMoreThanItMust(t *testing.T) {
	w := newWorld(t)
	w.store(1)
	complete := func(w *world) string { return w.must("__complete", "topic", "info", "") }
	if got := complete(w); !strings.Contains(got, "orders") {
		t.Fatal(got)
	}
	files, err := filepath.Glob(filepath.Join(w.home, ".cache", "herald", "completion", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	keep := func(names string, age time.Duration) {
		t.Helper()
		at := time.Now().Add(-age)
		if err := os.WriteFile(files[0], []byte(names), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(files[0], at, at); err != nil {
			t.Fatal(err)
		}
	}
	// Young names are given without asking (of a moment ahead, so that a busy machine has time
	// to look), older ones are asked for again, and so is what can't be read.
	keep(`["kept"]`, -namesFresh*3/4)
	if got := complete(w); !strings.Contains(got, "kept") {
		t.Error(got)
	}
	for _, names := range []string{`["kept"]`, `[`} {
		keep(names, time.Minute)
		if got := complete(w); strings.Contains(got, "kept") || !strings.Contains(got, "orders") {
			t.Error(names, got)
		}
	}
	// A broker that does not answer leaves what was kept of it, for an hour.
	gone := nowhere(t)
	gone.home = w.home
	if got := complete(gone); strings.Contains(got, "orders") {
		t.Errorf("the names of another broker: %s", got)
	}
	store := profile.Open(gone.getenv)
	r, err := store.Resolve(nil, "", gone.getenv)
	if err != nil {
		t.Fatal(err)
	}
	a := &app{env: Env{Getenv: gone.getenv}}
	a.keptNames(&r, "topics").write([]string{"kept"})
	files = []string{string(a.keptNames(&r, "topics"))}
	keep(`["kept"]`, namesStale/2)
	if got := complete(gone); !strings.Contains(got, "kept") {
		t.Errorf("no answer, and nothing kept: %s", got)
	}
	keep(`["kept"]`, 2*namesStale)
	if got := complete(gone); strings.Contains(got, "kept") {
		t.Errorf("names of two hours ago: %s", got)
	}
}

func TestCompletionOfOperators(t *testing.T) {
	w := newWorld(t)
	w.must("topic", "create", "QUAKES")
	w.must("topic", "create", "BIG")
	file := filepath.Join(t.TempDir(), "op.yaml")
	if err := os.WriteFile(file, []byte(operatorFile), 0o600); err != nil {
		t.Fatal(err)
	}
	w.must("operator", "deploy", file)
	for _, args := range []string{"info", "pause", "rm", "savepoint create", "logs"} {
		if got := w.must(append(append([]string{"__complete", "operator"}, strings.Fields(args)...), "")...); !strings.HasPrefix(got, "big\n") {
			t.Errorf("operator %s: %q", args, got)
		}
	}
	if got := w.must("__complete", "operator", "deploy", ""); strings.Contains(got, "big") {
		t.Errorf("deploy takes a file: %q", got)
	}
}
