package ui

import (
	"fmt"
	"time"
)

// Progress shows how far a long command is, on a terminal only. It is used by
// one goroutine.
type Progress struct {
	p     *Printer
	what  string
	total int
	start time.Time
	drawn time.Time
	on    bool
}

// Progress starts a progress line; total 0 or 1 shows none.
func (p *Printer) Progress(what string, total int) *Progress {
	return &Progress{p: p, what: what, total: total, start: time.Now(), on: p.ErrTTY() && total > 1}
}

// Set draws the line, at most ten times a second.
func (g *Progress) Set(n int) {
	if !g.on || time.Since(g.drawn) < 100*time.Millisecond {
		return
	}
	g.drawn = time.Now()
	rate := float64(n) / max(time.Since(g.start).Seconds(), 1e-3)
	fmt.Fprintf(g.p.Err, "\r\x1b[K%s %s of %s, %s/s", g.what, Count(n), Count(g.total), Count(int64(rate)))
}

// Done removes the line.
func (g *Progress) Done() {
	if g.on {
		fmt.Fprint(g.p.Err, "\r\x1b[K")
		g.on = false
	}
}
