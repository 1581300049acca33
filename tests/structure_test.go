package tests

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/heraldmq/herald"

// arrows says which rooms a room may import: cmd → broker → {operators,
// replication} → topics. A room may always import its own packages.
var arrows = map[string][]string{
	"topics":      {},
	"replication": {"topics"},
	"operators":   {"topics"},
	"broker":      {"operators", "replication", "topics"},
	"client":      {},
	"cmd/brokerd": {"broker"},
	// The CLI is a client; its demo runs an embedded broker, and it checks and tries
	// operators' files by itself.
	"cmd/pubsub": {"broker", "client", "operators", "topics"},
	"tests":      {"broker", "client", "cmd/brokerd", "cmd/pubsub", "operators", "replication", "topics"},
}

// pure lists packages whose results must be the same on every replica: no clock,
// no randomness, no goroutine.
var pure = []string{"topics", "topics/subject", "topics/consumer", "topics/catalogue", "topics/interest", "topics/value", "topics/expr", "topics/filter", "topics/schema"}

type source struct {
	path string // from the root of the module, with slashes
	dir  string
	file *ast.File
	fset *token.FileSet
	test bool
}

func (s source) at(p token.Pos) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(p).Line)
}

func (s source) imports(path string) bool {
	return slices.ContainsFunc(s.file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == strconv.Quote(path) })
}

func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	fset := token.NewFileSet()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			name := d.Name()
			if path != ".." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
		out = append(out, source{path: rel, dir: filepath.ToSlash(filepath.Dir(rel)), file: file, fset: fset, test: strings.HasSuffix(rel, "_test.go")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 10 {
		t.Fatalf("only %d Go files found: is this run from the tests folder?", len(out))
	}
	return out
}

func room(dir string) string {
	parts := strings.Split(dir, "/")
	if parts[0] == "cmd" && len(parts) > 1 {
		return "cmd/" + parts[1]
	}
	return parts[0]
}

func TestImportArrows(t *testing.T) {
	for _, s := range sources(t) {
		from := room(s.dir)
		allowed, known := arrows[from]
		if !known {
			t.Errorf("%s: %q is not one of the rooms; put the code into one of them", s.path, from)
			continue
		}
		for _, imp := range s.file.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			rest, ours := strings.CutPrefix(path, module+"/")
			if !ours {
				continue
			}
			to := room(rest)
			if to == from || slices.Contains(allowed, to) {
				continue
			}
			// Tests of a client may run against a real broker.
			if s.test && (from == "client" || from == "cmd/brokerd") {
				continue
			}
			t.Errorf("%s: %s may not import %s (allowed: %v); pass the dependency in through an interface", s.at(imp.Pos()), from, to, allowed)
		}
	}
}

func TestEveryPackageHasADocComment(t *testing.T) {
	has := map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		has[s.dir] = has[s.dir] || s.file.Doc != nil && len(s.file.Doc.Text()) > 40
	}
	for dir, ok := range has {
		if !ok {
			t.Errorf("%s: no package comment a newcomer could start from", dir)
		}
	}
}

func TestPurePackagesReadNoClockAndStartNothing(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || !slices.Contains(pure, s.dir) {
			continue
		}
		for _, imp := range s.file.Imports {
			switch path, _ := strconv.Unquote(imp.Path.Value); path {
			case "math/rand", "math/rand/v2", "crypto/rand", "net", "os", "net/http":
				t.Errorf("%s: %s is pure and may not import %s: time and randomness come in with the log entry", s.at(imp.Pos()), s.dir, path)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: a pure package starts no goroutine", s.at(n.Pos()))
			case *ast.SelectorExpr:
				if id, ok := n.X.(*ast.Ident); ok && id.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}, n.Sel.Name) {
					t.Errorf("%s: a pure package may not call time.%s: take the entry's time as an argument", s.at(n.Pos()), n.Sel.Name)
				}
			}
			return true
		})
	}
}

func TestNoInitAndNoSleepInTests(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" {
					t.Errorf("%s: no init functions; pass dependencies in", s.at(n.Pos()))
				}
			case *ast.SelectorExpr:
				if id, ok := n.X.(*ast.Ident); ok && s.test && !s.imports("testing/synctest") && id.Name == "time" && n.Sel.Name == "Sleep" {
					t.Errorf("%s: tests wait for a condition, or let a synctest bubble's clock pass, but don't wait for real time", s.at(n.Pos()))
				}
			}
			return true
		})
	}
}

// Sizes are a ratchet: what is over the ceiling stands in a list that may only
// shrink (sizes_allowed.txt), so that nothing new grows past it.
const (
	fileLinesMax     = 600
	testFileLinesMax = 1000
	funcLinesMax     = 120
)

func TestSizes(t *testing.T) {
	allowed := map[string]int{}
	text, err := os.ReadFile("sizes_allowed.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, size, ok := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.Atoi(strings.TrimSpace(size)); ok && err == nil {
			allowed[name] = n
		}
	}
	used := map[string]bool{}
	check := func(name string, lines, limit int) {
		if lines <= limit {
			return
		}
		used[name] = true
		switch was := allowed[name]; {
		case was == 0:
			t.Errorf("%s has %d lines, the ceiling is %d: split it by idea", name, lines, limit)
		case lines > was:
			t.Errorf("%s grew from %d to %d lines, over the ceiling of %d: split it by idea", name, was, lines, limit)
		}
	}
	for _, s := range sources(t) {
		limit := fileLinesMax
		if s.test {
			limit = testFileLinesMax
		}
		check(s.path, s.fset.Position(s.file.End()).Line, limit)
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				lines := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1
				check(s.path+":"+f.Name.Name, lines, funcLinesMax)
			}
		}
	}
	for name := range allowed {
		if !used[name] {
			t.Errorf("%s no longer needs its exception: remove it from sizes_allowed.txt", name)
		}
	}
}
