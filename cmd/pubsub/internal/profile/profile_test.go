package profile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func env(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

func TestTheNearestSourceWins(t *testing.T) {
	dir := t.TempDir()
	s := Open(env(map[string]string{"XDG_CONFIG_HOME": dir}))
	if err := s.Save("prod", Settings{URL: "nats://prod:1", User: "context-user", Password: "secret"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		flags map[string]string
		flag  string
		env   map[string]string
		url   string
		from  string
	}{
		{name: "default", url: DefaultURL, from: "default"},
		{name: "context over default", flag: "prod", url: "nats://prod:1", from: "context prod"},
		{name: "context by environment", env: map[string]string{"NATS_CONTEXT": "prod"}, url: "nats://prod:1", from: "context prod"},
		{name: "environment over context", flag: "prod", env: map[string]string{"NATS_URL": "nats://env:1"}, url: "nats://env:1", from: "NATS_URL"},
		{name: "flag over all", flag: "prod", flags: map[string]string{"server": "nats://flag:1"}, env: map[string]string{"NATS_URL": "nats://env:1"}, url: "nats://flag:1", from: "flag --server"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := s.Resolve(c.flags, c.flag, env(c.env))
			if err != nil {
				t.Fatal(err)
			}
			if r.URL != c.url {
				t.Errorf("url %q, want %q", r.URL, c.url)
			}
			for _, src := range r.Sources {
				if src.Name == "url" && src.From != c.from {
					t.Errorf("from %q, want %q", src.From, c.from)
				}
				if src.Value == "secret" {
					t.Error("the password is shown")
				}
			}
		})
	}
}

func TestContextsOfTheNatsCLIAreReadButNotRemoved(t *testing.T) {
	dir := t.TempDir()
	s := Open(env(map[string]string{"XDG_CONFIG_HOME": dir}))
	path := filepath.Join(dir, "nats", "context")
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "old.json"), []byte(`{"url":"nats://old:1","unknown":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	set, tool, err := s.Load("old")
	if err != nil || tool != "nats" || set.URL != "nats://old:1" {
		t.Fatalf("%+v %q %v", set, tool, err)
	}
	if err := s.Remove("old"); err == nil {
		t.Error("removed a file of another tool")
	}
	if err := s.Select("old"); err != nil {
		t.Fatal(err)
	}
	if name, _ := s.Selected(); name != "old" {
		t.Errorf("selected %q", name)
	}
}

func TestUnknownAndImpossibleNames(t *testing.T) {
	s := Open(env(map[string]string{"HOME": t.TempDir()}))
	if _, _, err := s.Load("nope"); !errors.Is(err, ErrNoContext) {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"", "../x", ".x", `a\b`} {
		if err := s.Save(name, Settings{}); err == nil {
			t.Errorf("saved %q", name)
		}
	}
	if _, err := s.Resolve(nil, "nope", env(nil)); !errors.Is(err, ErrNoContext) {
		t.Errorf("got %v", err)
	}
}

func TestRemovingTheSelectedContextUnselectsIt(t *testing.T) {
	s := Open(env(map[string]string{"XDG_CONFIG_HOME": t.TempDir()}))
	if err := errors.Join(s.Save("a", Settings{URL: "x"}), s.Select("a"), s.Remove("a")); err != nil {
		t.Fatal(err)
	}
	if name, _ := s.Selected(); name != "" {
		t.Errorf("still selected: %q", name)
	}
}
