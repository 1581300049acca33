package spec_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heraldmq/herald/operators/spec"
	"github.com/heraldmq/herald/operators/stream"
)

var rewrite = flag.Bool("rewrite", false, "write what is found into testdata")

// lint returns everything that is said of a file.
func lint(text string) string {
	s, err := spec.Parse("op.yaml", []byte(text))
	var warnings spec.Problems
	if err == nil {
		_, warnings, err = spec.Compile(s, spec.Options{})
	}
	if errors.As(err, &warnings) {
		err = nil
	}
	if err != nil {
		return err.Error()
	}
	return warnings.Error()
}

// testdata/problems.txt holds files and what is said of them; -rewrite writes it anew.
func TestProblems(t *testing.T) {
	path := filepath.Join("testdata", "problems.txt")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, part := range strings.Split(string(text), "=== ")[1:] {
		title, rest, _ := strings.Cut(part, "\n")
		file, want, _ := strings.Cut(rest, "--- ")
		want = strings.TrimSpace(strings.TrimPrefix(want, "said\n"))
		got := strings.TrimSpace(lint(file))
		if got != want && !*rewrite {
			t.Errorf("%s:\n%s\nsays\n%s\nwanted\n%s", title, file, got, want)
		}
		out.WriteString("=== " + title + "\n" + file + "--- said\n" + got + "\n\n")
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const base = "operator: o\ninputs: [{topic: T}]\n"

func TestClasses(t *testing.T) {
	for steps, want := range map[string]stream.Class{
		"[{filter: x > 1}]": stream.Repeatable,
		"[{key: k}, {window: {tumble: 1h}}, {aggregate: {n: count()}}]":                   stream.Convergent,
		"[{key: k}, {aggregate: {n: count()}}]":                                           stream.Deterministic,
		"[{key: k}, {window: {tumble: 1h, time: processing}}, {aggregate: {n: count()}}]": stream.Arbitrary,
		"[{map: {at: now}}]": stream.Arbitrary,
	} {
		s, err := spec.Parse("op.yaml", []byte(base+"steps: "+steps+"\noutputs: [{topic: O}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		g, _, err := spec.Compile(s, spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if g.Class != want {
			t.Errorf("%s is %s, wanted %s", steps, g.Class, want)
		}
	}
}

// The place of a step's state follows from its name, and is kept over versions.
func TestPlacesStay(t *testing.T) {
	ids := func(steps string, kept map[string]uint16) map[string]uint16 {
		s, err := spec.Parse("op.yaml", []byte(base+"steps: "+steps+"\noutputs: [{topic: O}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		g, _, err := spec.Compile(s, spec.Options{IDs: kept})
		if err != nil {
			t.Fatal(err)
		}
		all, taken := map[string]uint16{}, map[uint16]bool{}
		for _, n := range g.Nodes {
			if taken[n.ID] || n.ID == 0 {
				t.Fatalf("%s has place %d", n.Name, n.ID)
			}
			all[n.Name], taken[n.ID] = n.ID, true
		}
		return all
	}
	first := ids("[{key: k}, {name: n, aggregate: {n: count()}}]", nil)
	second := ids("[{filter: x > 1}, {key: k}, {filter: x > 2}, {name: n, aggregate: {n: count()}}]", nil)
	if first["n"] != second["n"] || first["key_1"] != second["key_1"] {
		t.Errorf("%v became %v", first, second)
	}
	third := ids("[{key: k}, {name: n, aggregate: {n: count()}}]", map[string]uint16{"n": 7, "gone": first["key_1"]})
	if third["n"] != 7 || third["key_1"] == first["key_1"] {
		t.Errorf("with kept places: %v", third)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(base + "steps: [{filter: x > 1}]\noutputs: [{topic: O}]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := spec.Parse("op.yaml", text)
		if err != nil {
			return
		}
		if _, _, err := spec.Compile(s, spec.Options{}); err != nil {
			return
		}
		again, err := spec.Parse("op.yaml", s.JSON())
		if err != nil || again.Digest() != s.Digest() {
			t.Fatalf("%s isn't read as it was: %v", s.JSON(), err)
		}
	})
}
