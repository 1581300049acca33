package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// inSource are the ways that the sources name an error: its code, and its text where
// that is not made of its caller's.
var inSource = []*regexp.Regexp{
	regexp.MustCompile(`\b(?:fault|NewFault)\(\d{3}, (\d{5}), "((?:[^"\\]|\\.)*)"`),
	regexp.MustCompile(`\b(?:fault|NewFault)\(\d{3}, (\d{5}), ()[a-z]`),
	regexp.MustCompile(`ErrCode: (\d{5}), Text: (?:fmt\.Sprintf\()?"((?:[^"\\]|\\.)*)"`),
	regexp.MustCompile(`ErrCode: (\d{5}), Text: ()fmt\.Sprintf\([a-z]`),
	regexp.MustCompile(`\b[cC]ode[A-Z]\w* += (\d{5})()\n`),
}

func TestEveryErrorOfTheBrokerIsExplained(t *testing.T) {
	texts := map[string]bool{}
	codes, status := map[string]bool{}, map[string]string{}
	for i, line := range strings.Split(strings.TrimSuffix(errorTable, "\n"), "\n") {
		f := strings.Split(line, "\t")
		if len(f) != 3 || f[2] == "" {
			t.Fatalf("line %d of the table: %q", i+1, line)
		}
		if n, err := strconv.Atoi(f[1]); err != nil || n < 400 || n > 599 {
			t.Errorf("line %d of the table: status %q", i+1, f[1])
		}
		codes[f[0]], texts[f[0]+f[2]] = true, true
		if own := f[0] >= "20000"; own && status[f[0]] != "" && status[f[0]] != f[1] {
			t.Errorf("%s is of two kinds: status %s and %s", f[0], status[f[0]], f[1])
		}
		status[f[0]] = f[1]
	}
	seen := 0
	for _, room := range []string{"broker", "topics"} {
		err := filepath.WalkDir(filepath.Join("..", "..", "..", "..", room), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			for _, form := range inSource {
				for _, m := range form.FindAllStringSubmatch(string(b), -1) {
					seen++
					text := strings.ReplaceAll(m[2], `\"`, `"`)
					bare := strings.Trim(strings.ReplaceAll(text, "%s", ""), ": ") == ""
					if !codes[m[1]] || !bare && !texts[m[1]+text] {
						t.Errorf("%s: error %s %q is not in errors.tsv", path, m[1], text)
					}
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 200 {
		t.Errorf("only %d errors found in the sources", seen)
	}
	for code := range adviceOf {
		if !codes[strconv.Itoa(code)] {
			t.Errorf("advice for %d, which no broker gives", code)
		}
	}
}

func TestExplain(t *testing.T) {
	w := nowhere(t)
	one := w.run("explain", "10148", "-o", "json")
	got := objects(t, one.out)
	if one.code != 0 || len(got) != 1 || got[0]["what"] != "consumer already exists" || got[0]["why"] == "" || got[0]["do"] == "" {
		t.Errorf("%d %s %s", one.code, one.out, one.err)
	}
	if o := w.run("explain", "20010", "-o", "json"); o.code != 0 || len(objects(t, o.out)) < 2 {
		t.Errorf("a code of several meanings: %d %s", o.code, o.out)
	}
	if o := w.run("explain", "20006"); o.code != 0 || strings.Contains(o.out, "%") || !strings.Contains(o.out, "durable.topic") {
		t.Errorf("%d %s", o.code, o.out)
	}
	if o := w.run("explain", "10147000"); o.code != exitNotFound || !strings.Contains(o.err, "no error has the code") {
		t.Errorf("%d %s", o.code, o.err)
	}
	if o := w.run("explain", "10180"); o.code != exitNotFound || !strings.Contains(o.err, "10179") || !strings.Contains(o.err, "10181") {
		t.Errorf("%d %s", o.code, o.err)
	}
	for _, bad := range [][]string{{"explain"}, {"explain", "x"}, {"explain", "1", "2"}} {
		if o := w.run(bad...); o.code != exitUsage {
			t.Errorf("%v: %d %s", bad, o.code, o.err)
		}
	}
}
