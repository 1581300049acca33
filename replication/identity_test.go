package replication

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Whatever bit of the node's name is damaged, the error names the file and says
// that it is damaged, not that the directory belongs to somebody else.
func TestDamagedIdentityIsNamed(t *testing.T) {
	dir := t.TempDir()
	n, err := Open(Config{Dir: dir, NodeID: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "NODE")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, b []byte) {
		t.Helper()
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := Open(Config{Dir: dir})
		var damage *CorruptError
		if !errors.As(err, &damage) || damage.File != name {
			t.Errorf("%s: %v, want a CorruptError about %s", what, err, name)
		}
		if err == nil {
			_ = n.Close()
		}
	}
	for i := range len(whole) * 8 {
		b := append([]byte(nil), whole...)
		b[i/8] ^= 1 << (i % 8)
		check("flipped", b)
	}
	for i := range whole {
		check("cut", whole[:i])
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir}); err == nil {
		t.Error("a node with a log and no name was opened")
	} else if damage := (*CorruptError)(nil); !errors.As(err, &damage) {
		t.Errorf("missing: %v, want a CorruptError", err)
	}
	if err := os.WriteFile(name, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err = Open(Config{Dir: dir}); err != nil {
		t.Fatalf("the file is whole again: %v", err)
	}
	if n.ID() != "n1" {
		t.Errorf("the node is called %q", n.ID())
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
}
