package chaos

import (
	"bufio"
	"fmt"
	"maps"
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

// Test25StuckConsumer has many subscribers, and again and again one more that reads
// nothing: the others don't notice, it is cut, and memory stays bounded.
//
// What is compared is one that reads nothing with one that reads: the traffic is the same.
// The two take turns, and of each the median of the messages' p99s counts:
// the p99 of all deliveries is that of the few messages that came when the machine was
// busiest, and one time after the other compares two moments of the machine. What is chance
// is shown by the messages without a stuck one, every other one against the rest.
func Test25StuckConsumer(t *testing.T) {
	w := begin(t, 25, harness.ClusterOptions{})
	c := newCrowd(w, pick(300, 1000))
	victim := w.Nodes[0]
	c.measure(time.Second, nil)
	before := memory(victim)
	var calm, busy []time.Duration
	cut, highest := time.Duration(0), int64(0)
	rounds := pick(2, some(4))
	for range rounds {
		reads := w.connect("reads", victim)
		_, err := reads.Subscribe("bulk.>", func(*nats.Msg) {})
		w.must(err)
		w.must(reads.FlushTimeout(10 * time.Second))
		calm = append(calm, c.measure(pick(4*time.Second, 10*time.Second), nil)...)
		reads.Close()
		s := w.stick(victim)
		busy = append(busy, c.measure(pick(16*time.Second, 20*time.Second), s.gone)...)
		s.end()
		cut, highest = max(cut, s.cut), max(highest, s.highest)
		if s.cut == 0 {
			w.broken("not cut", "the stuck subscriber was still there after %s", time.Since(s.began).Round(time.Second))
		}
	}
	half := func(which int) (of []time.Duration) {
		for i := which; i < len(calm); i += 2 {
			of = append(of, calm[i])
		}
		return of
	}
	with, without := median(busy), median(calm)
	chance := float64(median(half(0))) / float64(max(1, median(half(1))))
	w.figure("%d readers, %d times with a stuck one: p99 of a message %s without, %s with it (%.2f times; %.2f is chance); it was cut after at most %s; memory grew by at most %d MiB",
		c.many, rounds, without.Round(100*time.Microsecond), with.Round(100*time.Microsecond), float64(with)/float64(max(1, without)), chance,
		cut.Round(100*time.Millisecond), (highest-before)>>20)
	switch {
	case len(busy) == 0:
		w.broken("stuck", "the others received nothing")
	case w.target == herald && with > 2*without+50*time.Millisecond:
		w.broken("slow", "p99 of the others went from %s to %s", without, with)
	}
	if grown := highest - before; grown > 200<<20 {
		w.broken("memory", "%s grew by %d MiB", victim.Name, grown>>20)
	}
}

// crowd is many subscribers of one subject, and who publishes to it.
type crowd struct {
	w    *world
	many int
	pub  *nats.Conn

	mu    sync.Mutex
	times map[int64][]time.Duration // by when a message was sent
}

func newCrowd(w *world, many int) *crowd {
	c := &crowd{w: w, many: many, times: map[int64][]time.Duration{}}
	for i := range 20 {
		nc := w.connect(fmt.Sprintf("reader%d", i), w.Nodes[i%3])
		for range many / 20 {
			_, err := nc.Subscribe("live.x", c.arrived)
			w.must(err)
		}
		w.must(nc.FlushTimeout(10 * time.Second))
	}
	c.pub = w.connect("live", w.Nodes[1])
	return c
}

func (c *crowd) arrived(m *nats.Msg) {
	now := time.Since(c.w.began)
	ns, err := strconv.ParseInt(string(m.Data[:20]), 10, 64)
	if err != nil {
		c.w.broken("damaged", "live message %.30q", m.Data)
		return
	}
	c.mu.Lock()
	c.times[ns] = append(c.times[ns], now-time.Duration(ns))
	c.mu.Unlock()
}

// measure publishes for some time, or until something is over, and returns the p99 of the
// deliveries of each message.
func (c *crowd) measure(d time.Duration, over <-chan struct{}) (all []time.Duration) {
	c.mu.Lock()
	clear(c.times)
	c.mu.Unlock()
	pad, bulk := strings.Repeat("x", 200), make([]byte, 64<<10)
	for end := time.Now().Add(d); time.Now().Before(end); pause(20 * time.Millisecond) {
		select {
		case <-over:
			end = time.Now()
		default:
		}
		_ = c.pub.Publish("live.x", fmt.Appendf(nil, "%020d%s", time.Since(c.w.began).Nanoseconds(), pad))
		for range 3 {
			_ = c.pub.Publish("bulk.x", bulk)
		}
	}
	pause(500 * time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sent := range slices.Sorted(maps.Keys(c.times)) {
		if took := c.times[sent]; len(took) == c.many {
			slices.Sort(took)
			all = append(all, took[len(took)*99/100])
		}
	}
	return all
}

// stuck is a subscriber of bulk.> that reads nothing.
type stuck struct {
	began   time.Time
	cut     time.Duration // after which it was cut; 0: it was not
	highest int64         // what its server had in memory at most
	gone    chan struct{} // closed when it is cut
	over    chan struct{}
	done    sync.WaitGroup
	conn    net.Conn
}

func (w *world) stick(victim *harness.Node) *stuck {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(victim.URL(), "nats://"))
	w.must(err)
	_, err = bufio.NewReader(conn).ReadString('\n') // INFO
	w.must(err)
	_, err = conn.Write([]byte("CONNECT {\"verbose\":false}\r\nSUB bulk.> 1\r\nPING\r\n"))
	w.must(err)
	s := &stuck{began: time.Now(), gone: make(chan struct{}), over: make(chan struct{}), conn: conn}
	s.done.Go(func() {
		for {
			s.highest = max(s.highest, memory(victim))
			if s.cut == 0 {
				if _, err := conn.Write([]byte("PING\r\n")); err != nil {
					s.cut = time.Since(s.began)
					close(s.gone)
				}
			}
			select {
			case <-s.over:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	})
	return s
}

func (s *stuck) end() {
	close(s.over)
	s.done.Wait()
	_ = s.conn.Close()
}

func median(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	s := slices.Clone(times)
	slices.Sort(s)
	return s[len(s)/2]
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
