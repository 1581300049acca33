// Recovery compares the ways an operator can recover, as Hwang et al. did (ICDE 2005): the
// same graph and load under each of them, on three broker processes of which the primary
// is killed again and again.
//
//	go run ./tests/recovery                                  the tables of docs/recovery.md
//	go run ./tests/recovery -modes active-delta,upstream -sizes 1,128 -kills 10
//
// The graph counts and sums up the records of an input by key in windows of a tenth of a
// second of event time, so that results come all the time, and holds a state of a given
// size beside it: windows of a day, which stay open; not under amnesia, which withholds
// results for as long as the longest window is. A trial kills the primary with
// SIGKILL and measures the longest time without a result after it, by the times at which results
// were stored, and what the next primary says of its phases. In the end all results are held against
// those that were computed from the records of the input.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are what is asked for.
type options struct {
	kills int
	rate  int // records a second
	value int // bytes of a key's state
	class string
	log   bool
}

// mode is a way to recover, as a spec says it.
type mode struct{ name, spec string }

var modes = []mode{
	{"active-delta", "recovery: active\nstandby: delta"},
	{"active-replay", "recovery: active\nstandby: replay"},
	{"passive-1s", "recovery: passive\ncheckpoint: 1s"},
	{"passive-10s", "recovery: passive\ncheckpoint: 10s"},
	{"upstream", "recovery: upstream"},
	{"amnesia", "recovery: amnesia"},
}

func main() {
	var o options
	flag.IntVar(&o.kills, "kills", 3, "how often the primary is killed, in each cell")
	flag.IntVar(&o.rate, "rate", 1000, "records per second")
	flag.IntVar(&o.value, "value", 0, "bytes of state that a key holds; 0: 1000 up to 64 MiB of state, 16000 above")
	flag.StringVar(&o.class, "class", "convergent", "convergent (windows by event time) or deterministic (running aggregates)")
	flag.BoolVar(&o.log, "log", false, "say what is being done")
	only := flag.String("modes", "", "names with commas between them; default: all")
	sizes := flag.String("sizes", "1,16,128", "of the state, in MiB, with commas between them")
	flag.Parse()
	if err := run(o, *only, *sizes); err != nil {
		fmt.Fprintln(os.Stderr, "recovery:", err)
		os.Exit(1)
	}
}

func run(o options, only, sizes string) error {
	names := strings.Split(only, ",")
	if o.class != "convergent" && o.class != "deterministic" {
		return fmt.Errorf("there is no class %q: convergent or deterministic", o.class)
	}
	if o.value < 0 || o.value > 256<<10 || o.rate < 1 || o.kills < 1 {
		return fmt.Errorf("-value is up to 262144, -rate and -kills at least 1")
	}
	fmt.Printf("%s, load average %s. %d records/s, %s, %d kills a cell, three processes; times in ms, median and worst.\n\n",
		time.Now().UTC().Format("2006-01-02 15:04"), load(), o.rate, o.class, o.kills)
	fmt.Println("| recovery | state, MiB | silence | elect | apply | first result | log and checkpoint bytes per byte read | processor, µs per record | results |")
	fmt.Println("|---|---:|---:|---:|---:|---:|---:|---:|---|")
	faults := 0
	for _, text := range strings.Split(sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil || size < 1 {
			return fmt.Errorf("size %q is no number of MiB", text)
		}
		for _, m := range modes {
			if only != "" && !slices.Contains(names, m.name) {
				continue
			}
			if o.class == "deterministic" && (m.name == "upstream" || m.name == "amnesia") {
				continue // refused for it
			}
			r, err := measure(o, m, size)
			if err != nil {
				return fmt.Errorf("%s, %d MiB: %w", m.name, size, err)
			}
			if m.name == "amnesia" {
				m.name += ", without the state"
			}
			fmt.Printf("| %s | %d | %s | %s | %s | %s | %.2f | %.0f | %s |\n", m.name, size, spread(r.silence), spread(r.elect), spread(r.apply), spread(r.first),
				r.overhead, r.processor, r.verdict)
			if r.broken {
				faults++
			}
		}
	}
	if faults > 0 {
		return fmt.Errorf("%d cells did not keep what their recovery promises", faults)
	}
	return nil
}

// load is the machine's load average of a minute.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(b), " ")
	return one
}

// spread is the median and the worst of some times.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "–"
	}
	slices.Sort(all)
	ms := func(d time.Duration) string {
		if d < 10*time.Millisecond {
			return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000)
		}
		return fmt.Sprint(d.Milliseconds())
	}
	return ms(all[len(all)/2]) + ", " + ms(all[len(all)-1])
}
