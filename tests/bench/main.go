// Command bench holds Herald against nats-server in one run on one machine:
// each row is done by both in turn, several times, and the ratio of each pair
// counts, since absolute figures drift with what else the machine does.
//
//	go run ./tests/bench                  everything, into docs/benchmarks.md
//	go run ./tests/bench -only durable    rows whose name holds the word
//	go run ./tests/bench -reps 3 -out -   to standard output
//	go run ./tests/bench -nodes 3 -only NONE -facts "1,000 topics" -out -   that alone
//
// Rows are driven twice: by nats.go, whose own cost is most of what is
// measured, and by a raw client that costs next to nothing, so that the server
// is the bottleneck.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const peerVersion = "v2.15.2"

// row is one piece of work, done against a running server.
type row struct {
	name   string
	driver string  // "raw" or "nats.go"
	target float64 // wanted ratio to the peer; 0 when none is set
	peer   string  // which peer: "default" or "always"
	unit   string
	work   func(url string) (float64, error)
}

func rows() []row {
	var out []row
	add := func(name, driver string, target float64, work func(string) (float64, error)) {
		out = append(out, row{name, driver, target, "default", "msg/s", work})
	}
	shapes := []struct {
		pubs, subs int
		total      int
		raw        float64
	}{{1, 1, 1_000_000, 3.5}, {1, 8, 400_000, 6}, {8, 8, 60_000, 5}}
	for _, size := range []int{16, 128, 1024, 65536} {
		for _, s := range shapes {
			total := s.total
			switch {
			case size == 1024:
				total /= 4
			case size > 1024:
				total /= 100
			}
			raw, goTarget := 0.0, 0.0
			if size == 128 {
				raw, goTarget = s.raw, 1.2
			}
			name := fmt.Sprintf("live %d→%d, %d B", s.pubs, s.subs, size)
			add(name, "raw", raw, func(url string) (float64, error) { return rawLive(url, s.pubs, s.subs, size, total) })
			add(name, "nats.go", goTarget, func(url string) (float64, error) {
				return goLive(url, s.pubs, s.subs, size, max(total/4, 100))
			})
		}
	}
	durable := func(f func(url string) (float64, error)) func(string) (float64, error) {
		return func(url string) (float64, error) {
			if err := setup(url); err != nil {
				return 0, err
			}
			return f(url)
		}
	}
	for _, size := range []int{16, 128, 1024, 65536} {
		total := 300_000
		switch {
		case size == 1024:
			total = 100_000
		case size > 1024:
			total = 4_000
		}
		w500, w5000, goTarget := 0.0, 0.0, 0.0
		if size == 128 {
			w500, w5000, goTarget = 3, 8, 1.8
		}
		add(fmt.Sprintf("durable, window 500, %d B", size), "raw", w500, durable(func(u string) (float64, error) { return rawDurable(u, "bench.js", size, 500, total) }))
		add(fmt.Sprintf("durable, window 5000, %d B", size), "raw", w5000, durable(func(u string) (float64, error) { return rawDurable(u, "bench.js", size, 5000, total) }))
		add(fmt.Sprintf("durable async, window 500, %d B", size), "nats.go", goTarget, durable(func(u string) (float64, error) { return goDurable(u, size, 500, total/3) }))
		add(fmt.Sprintf("durable batches of 500, %d B", size), "nats.go", 0, durable(func(u string) (float64, error) { return goBatch(u, size, total/3/500*500) }))
		add(fmt.Sprintf("durable, one at a time, %d B", size), "nats.go", 0, durable(func(u string) (float64, error) { return goDurable(u, size, 1, 1500) }))
	}
	always := func(name, driver string, target float64, work func(string) (float64, error)) {
		out = append(out, row{name + ", against sync always", driver, target, "always", "msg/s", durable(work)})
	}
	always("durable, window 500, 128 B", "raw", 100, func(u string) (float64, error) { return rawDurable(u, "bench.js", 128, 500, 10_000) })
	always("durable async, window 500, 128 B", "nats.go", 40, func(u string) (float64, error) { return goDurable(u, 128, 500, 5_000) })
	always("durable, one at a time, 128 B", "nats.go", 0, func(u string) (float64, error) { return goDurable(u, 128, 1, 1500) })

	for _, size := range []int{16, 128, 1024, 65536} {
		total := 200_000
		switch {
		case size == 1024:
			total = 60_000
		case size > 1024:
			total = 4_000
		}
		filled := func(ack jetstream.AckPolicy, f func(string) (float64, error)) func(string) (float64, error) {
			return durable(func(u string) (float64, error) {
				if _, err := rawDurable(u, "bench.js", size, 1000, total); err != nil {
					return 0, err
				}
				if err := addConsumer(u, "c", ack); err != nil {
					return 0, err
				}
				return f(u)
			})
		}
		raw, goTarget := 0.0, 0.0
		if size == 128 {
			raw, goTarget = 4, 1.5
		}
		add(fmt.Sprintf("consume, explicit ack, %d B", size), "raw", raw, filled(jetstream.AckExplicitPolicy, func(u string) (float64, error) { return rawConsume(u, stream, "c", true, size, total) }))
		add(fmt.Sprintf("consume, no ack, %d B", size), "raw", raw, filled(jetstream.AckNonePolicy, func(u string) (float64, error) { return rawConsume(u, stream, "c", false, size, total) }))
		add(fmt.Sprintf("consume, explicit ack, %d B", size), "nats.go", goTarget, filled(jetstream.AckExplicitPolicy, func(u string) (float64, error) { return goConsume(u, "c", size, total) }))
		add(fmt.Sprintf("fetch, explicit ack, %d B", size), "nats.go", goTarget, filled(jetstream.AckExplicitPolicy, func(u string) (float64, error) { return goFetch(u, size, total) }))
		add(fmt.Sprintf("ordered, %d B", size), "nats.go", goTarget, filled(jetstream.AckNonePolicy, func(u string) (float64, error) { return goConsume(u, "ordered", size, total) }))
	}
	return out
}

type result struct {
	row
	herald, peer, ratio []float64
	err                 error
}

func main() {
	only := flag.String("only", "", "run only rows whose name or driver holds this word")
	reps := flag.Int("reps", 3, "times each row is done by each server")
	out := flag.String("out", "docs/benchmarks.md", "file to write the table to; - for standard output")
	scale := flag.Bool("scale", true, "also measure restart, many topics, failover and one publish against a raw fdatasync")
	facts := flag.String("facts", "", "of what is measured on three nodes beside the rows, only what has this in its name")
	nodes := flag.String("nodes", "1,3", "which to run: on one node, on three, or both")
	flag.Parse()
	if err := run(*only, *facts, *reps, *out, *scale, *nodes); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(only, wanted string, reps int, out string, scale bool, nodes string) error {
	dir, err := os.MkdirTemp("", "herald-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	herald, peer, err := tools(dir)
	if err != nil {
		return err
	}
	var results []*result
	var facts []string
	if strings.Contains(nodes, "1") {
		r, f, err := runSingle(herald, peer, dir, only, reps, scale)
		if err != nil {
			return err
		}
		results, facts = append(results, r...), append(facts, f...)
	}
	if strings.Contains(nodes, "3") {
		r, f, err := runCluster(herald, peer, dir, only, wanted, reps, scale)
		if err != nil {
			return err
		}
		results, facts = append(results, r...), append(facts, f...)
	}
	text := report(results, facts, reps)
	if out == "-" {
		fmt.Print(text)
		return nil
	}
	return os.WriteFile(filepath.Clean(out), []byte(text+notes(out)), 0o644)
}

// runSingle does the rows of one node.
func runSingle(herald, peer, dir, only string, reps int, scale bool) (results []*result, facts []string, err error) {
	var servers []*server
	defer func() {
		for _, s := range servers {
			s.stop()
		}
	}()
	byName := map[string]*server{}
	for _, p := range []program{{"herald", herald, ""}, {"default", peer, ""}, {"always", peer, "sync_interval: always"}} {
		s, err := p.start(dir)
		if err != nil {
			return nil, nil, err
		}
		servers = append(servers, s)
		byName[p.name] = s
	}
	for _, r := range rows() {
		if only != "" && !strings.Contains(r.name, only) && !strings.Contains(r.driver, only) {
			continue
		}
		res := &result{row: r}
		results = append(results, res)
		for range reps {
			a, err := r.work(byName["herald"].url)
			if err != nil {
				res.err = fmt.Errorf("herald: %w", err)
				break
			}
			b, err := r.work(byName[r.peer].url)
			if err != nil {
				res.err = fmt.Errorf("nats-server: %w", err)
				break
			}
			res.herald, res.peer, res.ratio = append(res.herald, a), append(res.peer, b), append(res.ratio, a/b)
		}
		fmt.Fprintln(os.Stderr, res)
	}
	if scale {
		for _, s := range servers {
			s.stop()
		}
		servers = nil
		facts = measureScale(herald, dir)
	}
	return results, facts, nil
}

// notes returns the part of the file that people write: from notesHeading on.
func notes(path string) string {
	old, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return ""
	}
	if i := strings.Index(string(old), notesHeading); i >= 0 {
		return string(old[i:])
	}
	return ""
}

const notesHeading = "\n## What limits the rest\n"

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func (r *result) String() string {
	if r.err != nil {
		return fmt.Sprintf("%s (%s): %v", r.name, r.driver, r.err)
	}
	return fmt.Sprintf("%s (%s): %s against %s, %.2f×", r.name, r.driver, short(median(r.herald)), short(median(r.peer)), median(r.ratio))
}

func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2f M", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.0f k", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}

func report(results []*result, facts []string, reps int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Benchmarks

Written by `+"`make bench`"+` on %s: Herald and nats-server %s in one run, each row
done by both in turn, %d times; the ratio is the median of the pairs, with the
lowest and highest in brackets. %d processors, %s, %s/%s. Herald syncs a
message to disk before it acknowledges it; "nats-server" is its default, which
syncs every two minutes, unless the row says otherwise. The clients run on the
same processors, so a ratio says more than a rate.

| work | driven by | Herald msg/s | nats-server msg/s | ratio | target |
|---|---|---|---|---|---|
`, time.Now().UTC().Format("2006-01-02"), peerVersion, reps, runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, r := range results {
		if r.err != nil {
			fmt.Fprintf(&b, "| %s | %s | | | failed: %v | |\n", r.name, r.driver, r.err)
			continue
		}
		target := ""
		if r.target > 0 {
			mark := "missed"
			if median(r.ratio) >= r.target {
				mark = "reached"
			}
			target = fmt.Sprintf("≥ %g×, %s", r.target, mark)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | **%.2f×** [%.2f..%.2f] | %s |\n", r.name, r.driver, short(median(r.herald)), short(median(r.peer)), median(r.ratio), slices.Min(r.ratio), slices.Max(r.ratio), target)
	}
	if len(facts) > 0 {
		b.WriteString("\n## Against the machine's own limits\n\n")
		for _, f := range facts {
			fmt.Fprintf(&b, "- %s\n", f)
		}
	}
	return b.String()
}
