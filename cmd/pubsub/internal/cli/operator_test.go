package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const operatorFile = `operator: big
time: {event: time, unit: ms, max_future: 0s}
inputs: [{name: quakes, topic: QUAKES}]
steps: [{filter: mag >= 4.5}]
outputs: [{topic: BIG}]
tests:
  - name: one of two
    input: [{quakes: {mag: 5, time: 1}}, {quakes: {mag: 1, time: 2}}]
    expect: {BIG: [{mag: 5, time: 1}]}
`

// The commands for operators' files need no broker.
func TestOperatorFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good.yaml", operatorFile)
	bad := file("bad.yaml", strings.Replace(operatorFile, "filter: mag >= 4.5", "filtre: mag >= 4.5", 1))
	failing := file("failing.yaml", strings.Replace(operatorFile, "expect: {BIG: [{mag: 5", "expect: {BIG: [{mag: 6", 1))
	records := file("quakes.ndjson", "{\"mag\":5,\"time\":1}\n\n{\"mag\":2,\"time\":2}\n")
	want := file("big.ndjson", "{\"mag\":5.0,\"time\":1}\n")
	other := file("other.ndjson", "{\"mag\":2,\"time\":2}\n")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"operator lint " + good, exitOK, "repeatable"},
		{"operator lint -o json " + good, exitOK, `"operator": "big"`},
		{"operator lint " + bad, exitUsage, `bad.yaml:4:10: a step has no "filtre" (did you mean "filter"?)`},
		{"operator lint", exitUsage, "needs FILE"},
		{"operator lint " + filepath.Join(dir, "none.yaml"), exitError, "no such file"},
		{"operator graph " + good, exitOK, "filter filter_1"},
		{"operator graph --format mermaid " + good, exitOK, "flowchart LR"},
		{"operator graph --format mermade " + good, exitUsage, `did you mean "mermaid"`},
		{"operator test " + good, exitOK, "ok      one of two"},
		{"operator test " + failing, exitError, `- {"mag":6,"time":1}`},
		{"operator test " + good + " --input quakes=" + records, exitOK, `{"mag":5,"time":1}`},
		{"operator test " + good + " --input quakes=" + records + " --expect BIG=" + want, exitOK, ""},
		{"operator test " + good + " --input quakes=" + records + " --expect BIG=" + other, exitError, `+ {"mag":5,"time":1}`},
		{"operator test " + good + " --input quake=" + records, exitError, "no input of operator big"},
		{"operator rescale big", exitUsage, "needs the operator's name and a number"},
		{"operator rescale big 121", exitUsage, "1 to 120"},
		{"operator lnit", exitUsage, `did you mean "lint"`},
	} {
		var out bytes.Buffer
		code := Main(context.Background(), Env{
			Args: strings.Fields(c.args), In: strings.NewReader(""), Out: &out, Err: &out,
			Getenv: func(name string) string {
				if name == "HOME" || name == "XDG_CONFIG_HOME" {
					return dir
				}
				return ""
			},
			Now: func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) },
		})
		if code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("pubsub %s: code %d, wanted %d with %q:\n%s", c.args, code, c.code, c.says, out.String())
		}
	}
}
