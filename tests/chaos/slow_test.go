package chaos

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/heraldmq/herald/tests/harness"
)

// Test25StuckConsumer has many subscribers, then one more that reads nothing: the
// others don't notice, it is cut, and memory stays bounded.
func Test25StuckConsumer(t *testing.T) {
	w := begin(t, 25, harness.ClusterOptions{})
	many := pick(300, 1000)
	var mu sync.Mutex
	var times []time.Duration
	arrived := func(m *nats.Msg) {
		ns, err := strconv.ParseInt(string(m.Data[:20]), 10, 64)
		if err != nil {
			w.broken("damaged", "live message %.30q", m.Data)
			return
		}
		mu.Lock()
		times = append(times, time.Since(w.began)-time.Duration(ns))
		mu.Unlock()
	}
	for i := range 20 {
		nc := w.connect(fmt.Sprintf("reader%d", i), w.Nodes[i%3])
		for range many / 20 {
			_, err := nc.Subscribe("live.x", arrived)
			w.must(err)
		}
		w.must(nc.FlushTimeout(10 * time.Second))
	}
	victim := w.Nodes[0]
	pub := w.connect("live", w.Nodes[1])
	measure := func(d time.Duration) []time.Duration {
		mu.Lock()
		times = nil
		mu.Unlock()
		pad, bulk := strings.Repeat("x", 200), make([]byte, 64<<10)
		for end := time.Now().Add(d); time.Now().Before(end); pause(20 * time.Millisecond) {
			_ = pub.Publish("live.x", fmt.Appendf(nil, "%020d%s", time.Since(w.began).Nanoseconds(), pad))
			for range 3 {
				_ = pub.Publish("bulk.x", bulk)
			}
		}
		pause(500 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(times)
	}
	measure(time.Second)
	calm := measure(pick(3*time.Second, 15*time.Second))
	before := memory(victim)
	stuck, err := net.Dial("tcp", strings.TrimPrefix(victim.URL(), "nats://"))
	w.must(err)
	defer stuck.Close()
	_, err = bufio.NewReader(stuck).ReadString('\n') // INFO
	w.must(err)
	_, err = stuck.Write([]byte("CONNECT {\"verbose\":false}\r\nSUB bulk.> 1\r\nPING\r\n"))
	w.must(err)
	began, cut := time.Now(), time.Duration(0)
	highest := int64(0)
	watched, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			highest = max(highest, memory(victim))
			if cut == 0 {
				if _, err := stuck.Write([]byte("PING\r\n")); err != nil {
					cut = time.Since(began)
				}
			}
			select {
			case <-over:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	busy := measure(pick(16*time.Second, 40*time.Second))
	close(over)
	<-watched
	w.figure("%d readers: p99 %s, with a stuck one %s; it was cut after %s; memory grew by at most %d MiB", many, p99(calm), p99(busy), cut.Round(100*time.Millisecond), (highest-before)>>20)
	switch {
	case len(busy) == 0:
		w.broken("stuck", "the others received nothing")
	case w.target == herald && p99(busy) > 3*p99(calm)+100*time.Millisecond:
		w.broken("slow", "p99 of the others went from %s to %s", p99(calm), p99(busy))
	}
	if cut == 0 {
		w.broken("not cut", "the stuck subscriber was still there after %s", time.Since(began).Round(time.Second))
	}
	if grown := highest - before; grown > 200<<20 {
		w.broken("memory", "%s grew by %d MiB", victim.Name, grown>>20)
	}
}

// memory returns how much a node's process has in memory.
func memory(n *harness.Node) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", n.PID()))
	f := strings.Fields(string(text))
	if len(f) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(f[1], 10, 64)
	return pages * int64(os.Getpagesize())
}
