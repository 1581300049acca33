package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Program stands in for a test where a program uses this package: it takes what is to be
// done at the end, and End does it. Call it in a function that Recover is deferred in.
type Program struct {
	testing.TB // nil: what isn't below isn't called
	Say        bool

	clean []func()
	dirs  []string
}

// failure is a program's way out of where a test would be ended.
type failure string

// Recover turns what would have ended a test into an error.
func Recover(err *error) {
	p := recover()
	if p == nil {
		return
	}
	f, ok := p.(failure)
	if !ok {
		panic(p)
	}
	*err = fmt.Errorf("%s", string(f))
}

// Helper implements testing.TB.
func (p *Program) Helper() {}

// Failed implements testing.TB.
func (p *Program) Failed() bool { return false }

// Cleanup implements testing.TB.
func (p *Program) Cleanup(f func()) { p.clean = append(p.clean, f) }

// Errorf implements testing.TB.
func (p *Program) Errorf(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) }

// Fatal implements testing.TB.
func (p *Program) Fatal(a ...any) { panic(failure(fmt.Sprint(a...))) }

// Fatalf implements testing.TB.
func (p *Program) Fatalf(f string, a ...any) { panic(failure(fmt.Sprintf(f, a...))) }

// Logf implements testing.TB.
func (p *Program) Logf(f string, a ...any) {
	if p.Say {
		fmt.Fprintf(os.Stderr, f+"\n", a...)
	}
}

// TempDir implements testing.TB.
func (p *Program) TempDir() string {
	dir, err := os.MkdirTemp("", "herald-program")
	if err != nil {
		p.Fatal(err)
	}
	p.dirs = append(p.dirs, dir)
	return dir
}

// End ends processes and removes folders.
func (p *Program) End() {
	for i := len(p.clean) - 1; i >= 0; i-- {
		p.clean[i]()
	}
	for _, dir := range p.dirs {
		_ = os.RemoveAll(dir) // a program's folders in the system's place for such
	}
}

// Spent is the processor time of all processes of a cluster since they were started, in
// seconds, as /proc has it.
func (c *Cluster) Spent() (all float64) {
	for _, n := range c.Nodes {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.PID()))
		if err != nil {
			continue
		}
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		for _, text := range f[11:13] {
			ticks, _ := strconv.ParseFloat(text, 64)
			all += ticks / 100
		}
	}
	return all
}
