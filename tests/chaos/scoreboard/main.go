// Command scoreboard runs the checks of tests/chaos against several servers and
// prints one table of what each made of them, for docs/reliability.md.
//
//	go run ./tests/chaos/scoreboard                      short forms, all targets
//	HERALD_LONG=1 go run ./tests/chaos/scoreboard        in full (hours)
//	go run ./tests/chaos/scoreboard -run Test19 -targets brokerd
//	go run ./tests/chaos/scoreboard -only-print -results results.jsonl
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// result is a line of the results file, as tests/chaos writes it.
type result struct {
	Check  int     `json:"check"`
	Test   string  `json:"test"`
	Target string  `json:"target"`
	Sync   string  `json:"sync"`
	Long   bool    `json:"long"`
	Share  float64 `json:"share"`
	OK     bool    `json:"ok"`
	Skip   bool    `json:"skip"`
	Figure string  `json:"figure"`
	Seed   uint64  `json:"seed"`
}

// column is the target as it heads the table.
func (r result) column() string {
	if r.Sync != "" {
		return r.Target + " " + r.Sync
	}
	return r.Target
}

// form says whether it was a full run, and how much of one.
func (r result) form() string {
	switch {
	case !r.Long:
		return ""
	case r.Share > 0:
		return fmt.Sprintf("%.0f %% of full, ", 100*r.Share)
	default:
		return "full, "
	}
}

func main() {
	results := flag.String("results", "chaos-results.jsonl", "`file` the checks append to")
	targets := flag.String("targets", "brokerd,nats-server,nats-server/always", "`servers`, each with its sync_interval after a slash")
	only := flag.Bool("only-print", false, "print what is in the results file, and run nothing")
	run := flag.String("run", ".", "`expression` for the names of the checks")
	seed := flag.Uint64("seed", 0, "`seed` of all checks")
	flag.Parse()
	path, err := filepath.Abs(*results)
	if err != nil {
		fail(err)
	}
	if !*only {
		for _, t := range strings.Split(*targets, ",") {
			target, sync, _ := strings.Cut(t, "/")
			cmd := exec.Command("go", "test", "-count=1", "-v", "-timeout", "12h", "-run", *run, "github.com/heraldmq/herald/tests/chaos",
				"-target", target, "-sync", cmp.Or(sync, "default"), "-seed", fmt.Sprint(*seed), "-results", path)
			cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
			if err := cmd.Run(); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", t, err) // a broken promise is a result
			}
		}
	}
	all, err := read(path)
	if err != nil {
		fail(err)
	}
	print(os.Stdout, all)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// read returns the newest result of every check and column; a full run counts
// more than a short one.
func read(path string) ([]result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	best := map[string]result{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		key := r.Test + " " + r.column()
		if r.Skip || best[key].Long && !r.Long {
			continue
		}
		best[key] = r
	}
	var out []result
	for _, r := range best {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.Check, b.Check), cmp.Compare(a.Test, b.Test), cmp.Compare(a.column(), b.column()))
	})
	return out, lines.Err()
}

// print writes the table in Markdown: a row a check, a column a server.
func print(w io.Writer, all []result) {
	var columns, tests []string
	cells := map[string]string{}
	for _, r := range all {
		if !slices.Contains(columns, r.column()) {
			columns = append(columns, r.column())
		}
		if !slices.Contains(tests, r.Test) {
			tests = append(tests, r.Test)
		}
		verdict := "held"
		if !r.OK {
			verdict = "**broken**"
		}
		if r.Figure != "" {
			verdict += ": " + r.Figure
		}
		cells[r.Test+" "+r.column()] = fmt.Sprintf("%s (%sseed %d)", verdict, r.form(), r.Seed)
	}
	slices.Sort(columns)
	fmt.Fprintf(w, "| check | %s |\n|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, t := range tests {
		row := []string{strings.TrimPrefix(t, "Test")}
		for _, c := range columns {
			row = append(row, cmp.Or(cells[t+" "+c], "not run"))
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
}
