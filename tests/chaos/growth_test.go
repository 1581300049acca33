package chaos

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/heraldmq/herald/tests/harness"
)

// use is what a process holds.
type use struct {
	pid               int
	goroutines, files float64
}

const (
	grownGoroutines = 300 // more than before the load: topics and their groups have some
	grownFiles      = 150
	shrinkPatience  = 30 * time.Second // connections of clients that are gone end by and by
)

// using returns what a node's process holds; false if it can't be asked.
func using(n *harness.Node) (use, bool) {
	u := use{pid: n.PID()}
	c := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get(fmt.Sprintf("http://%s:%d/metrics", n.Host, n.HTTPPort))
	if err != nil {
		return u, false
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch name {
		case "go_goroutines":
			u.goroutines = v
		case "process_open_fds":
			u.files = v
		}
	}
	return u, u.goroutines > 0 && u.files > 0
}

// weigh keeps what every node holds before there is anything to do. Only of brokerd.
func (w *world) weigh() {
	if w.target != herald {
		return
	}
	w.before = map[*harness.Node]use{}
	for _, n := range w.Nodes {
		if u, ok := using(n); ok {
			w.before[n] = u
		}
	}
}

// growth waits until the processes that have run since weigh hold about what they held
// then, and says so where they don't: after a fault nothing may be left behind.
func (w *world) growth() {
	w.t.Helper()
	if w.target != herald {
		return
	}
	said := ""
	for end := time.Now().Add(shrinkPatience); ; pause(200 * time.Millisecond) {
		var more []string
		said = ""
		for _, n := range w.Nodes {
			was, weighed := w.before[n]
			if !weighed || n.PID() != was.pid {
				continue // a new process holds nothing old
			}
			now, ok := using(n)
			if !ok {
				more = append(more, n.Name+" says nothing")
				continue
			}
			text := fmt.Sprintf("%s: goroutines %.0f to %.0f, files %.0f to %.0f", n.Name, was.goroutines, now.goroutines, was.files, now.files)
			said += text + "; "
			if now.goroutines > was.goroutines+grownGoroutines || now.files > was.files+grownFiles {
				more = append(more, text)
			}
		}
		if len(more) == 0 {
			break
		}
		if time.Now().After(end) {
			w.broken("grows", "%s", strings.Join(more, "; "))
			break
		}
	}
	if said != "" {
		w.note("%s", strings.TrimSuffix(said, "; "))
	}
}
