package main

import (
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/topics"
)

func main() {
	events := flag.Int64("events", 100_000, "how many events, of all kinds")
	rate := flag.Int64("rate", 0, "events per second of event time; 0: 10,000, and through brokers what a query's windows need to end")
	only := flag.String("queries", "", "names with commas between them; default: all")
	seed := flag.Uint64("seed", 1, "of the events")
	nodes := flag.Int("nodes", 0, "through so many broker processes instead, 1, 3 or 5, with as many replicas")
	profile := flag.String("cpuprofile", "", "a file for a profile of what runs in this process")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "nexmark:", err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	if *nodes > 0 {
		if *nodes != 1 && *nodes != 3 && *nodes != 5 {
			fmt.Fprintln(os.Stderr, "nexmark: -nodes is 1, 3 or 5")
			os.Exit(2)
		}
		if err := through(&Generator{Seed: *seed, Base: base, Rate: *rate}, *events, *only, *nodes); err != nil {
			fmt.Fprintln(os.Stderr, "nexmark:", err)
			os.Exit(1)
		}
		return
	}
	if *rate <= 0 {
		*rate = defaultRate
	}
	if err := report(&Generator{Seed: *seed, Base: base, Rate: *rate}, *events, *only); err != nil {
		fmt.Fprintln(os.Stderr, "nexmark:", err)
		os.Exit(1)
	}
}

// base is when events begin, in the benchmark and in tests: just before day time.
var base = time.Date(2015, 7, 15, 7, 59, 0, 0, time.UTC)

// report runs the queries and prints how fast they were.
func report(g *Generator, events int64, only string) error {
	messages := make([]*topics.Message, 0, events)
	g.Stripe(0, 1, events, func(e *Event) { messages = append(messages, message(e)) })
	fmt.Printf("%d events, %d per second of event time, in process, state in memory, one replica.\n", events, g.Rate)
	fmt.Printf("All events count, also those that a query doesn't read. Thousands of events per second and core:\n\n")
	fmt.Printf("| query | Herald | Flink, published | ratio | outputs | state, bytes |\n|---|---:|---:|---:|---:|---:|\n")
	names := strings.Split(only, ",")
	for _, q := range queries {
		if only != "" && !slices.Contains(names, q.name) {
			continue
		}
		r, err := measure(q, messages)
		if err != nil {
			return fmt.Errorf("query %s: %w", q.name, err)
		}
		rate := float64(events) / r.spent.Seconds() / 1e3
		flink, ratio := "–", "–"
		if q.flink > 0 {
			flink, ratio = fmt.Sprint(q.flink), fmt.Sprintf("%.2f", rate/q.flink)
		}
		fmt.Printf("| %s | %.1f | %s | %s | %d | %d |\n", q.name, rate, flink, ratio, r.outputs, r.state)
	}
	return nil
}

type result struct {
	spent   time.Duration // of the processor
	outputs int
	state   int64
}

// measure runs a query in steps of a thousand messages.
func measure(q query, messages []*topics.Message) (r result, err error) {
	g, err := compile(q.name)
	if err != nil {
		return r, err
	}
	d, err := newDriver(g, base, func(*engine.Output) { r.outputs++ })
	if err != nil {
		return r, err
	}
	if err := d.side(base.UnixMilli()); err != nil {
		return r, err
	}
	before := processorTime()
	var all []engine.Arrival
	const batch = 1000
	for at := 0; at < len(messages); at += batch {
		all = all[:0]
		for _, m := range messages[at:min(at+batch, len(messages))] {
			all = d.arrivals(all, "NEXMARK", m)
		}
		if err := d.run(all); err != nil {
			return r, err
		}
	}
	_, r.state = d.store.Size()
	if err := d.end(); err != nil {
		return r, err
	}
	r.spent = processorTime() - before
	return r, nil
}

// processorTime is what this process has had, garbage collection included.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
