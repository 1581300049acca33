package front

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestSlowConsumerIsCutOff(t *testing.T) {
	s := startServer(t, Options{MaxPending: 1 << 20})
	slow := connect(t, s, "")
	slow.send("SUB foo 1\r\n")
	slow.sync()
	good := connect(t, s, "")
	good.send("SUB foo 1\r\n")
	good.sync()
	received := make(chan int)
	go func() {
		n := 0
		for {
			l, err := good.r.ReadString('\n')
			if err != nil || l == "PONG\r\n" {
				received <- n
				return
			}
			if strings.HasPrefix(l, "MSG") {
				n++
			}
		}
	}()
	pub := connect(t, s, "")
	msg := []byte("PUB foo 10000\r\n" + strings.Repeat("x", 10000) + "\r\n")
	const n = 3000
	start := time.Now()
	for range n {
		if _, err := pub.Write(msg); err != nil {
			t.Fatal(err)
		}
	}
	pub.sync()
	good.send("PING\r\n")
	if got := <-received; got != n {
		t.Fatalf("the good receiver got %d of %d", got, n)
	}
	if d := time.Since(start); d > testTimeout {
		t.Fatalf("the slow one held the publisher for %v", d)
	}
	eventually(t, "the cut", func() bool { return s.Stats().SlowConsumers == 1 })
	eventually(t, "the cut in the books", func() bool {
		closed := s.Connections(ConnClosed, false)
		return len(closed) == 1 && closed[0].Reason == ReasonSlowPending
	})
}

func TestWriteDeadlineCutsOff(t *testing.T) {
	s := startServer(t, Options{WriteDeadline: 50 * time.Millisecond, NoFastProducerStall: true})
	slow := connect(t, s, "")
	slow.send("SUB foo 1\r\n")
	slow.sync()
	p := s.GlobalAccount().NewPublisher()
	body := bytes.Repeat([]byte("x"), 1<<20)
	for range 16 {
		p.Publish("foo", "", nil, body)
	}
	p.Flush()
	eventually(t, "the cut", func() bool {
		closed := s.Connections(ConnClosed, false)
		return len(closed) == 1 && closed[0].Reason == ReasonSlowDeadline
	})
}

func TestProducerIsHeldBackForAMovingReceiver(t *testing.T) {
	s := startServer(t, Options{MaxPending: 4 << 20})
	sub := connect(t, s, "")
	sub.send("SUB foo 1\r\n")
	sub.sync()
	const n, size = 400, 100_000 // 40 MB through a bound of 4
	done := make(chan error, 1)
	go func() {
		// Slower than the publisher, but moving.
		buf := make([]byte, 256<<10)
		pace := time.NewTicker(200 * time.Microsecond)
		defer pace.Stop()
		total := 0
		for total < n*size {
			sub.SetReadDeadline(time.Now().Add(testTimeout))
			k, err := sub.r.Read(buf)
			if err != nil {
				done <- fmt.Errorf("after %d bytes: %w", total, err)
				return
			}
			total += k
			<-pace.C
		}
		done <- nil
	}()
	pub := connect(t, s, "")
	msg := []byte(fmt.Sprintf("PUB foo %d\r\n%s\r\n", size, strings.Repeat("x", size)))
	for range n {
		if _, err := pub.Write(msg); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if s.Stats().SlowConsumers != 0 {
		t.Fatal("it was cut off")
	}
}

// TestOrderAndCountUnderLoad has publishers that mix subjects, sizes, queue
// groups and wildcards, so that shared, linked and per-receiver staging take
// turns, and checks that each receiver gets everything, in order.
func TestOrderAndCountUnderLoad(t *testing.T) {
	s := startServer(t, Options{MaxPayload: 1 << 20})
	const pubs, perPub = 4, 3000
	subjects := []string{"a.one", "a.two", "b.one", "c"}
	patterns := []string{"a.*", "a.one", "*.one", ">", "c"}
	type seen struct {
		mu    sync.Mutex
		last  map[string]int // publisher and pattern -> last number
		count map[string]int
	}
	var wg sync.WaitGroup
	groups := &seen{count: map[string]int{}}
	for i, pattern := range patterns {
		for range 2 {
			c := connect(t, s, "")
			c.send("SUB %s 1\r\nSUB %s group%d 2\r\n", pattern, pattern, i)
			c.sync()
			wg.Go(func() {
				me := seen{last: map[string]int{}, count: map[string]int{}}
				for {
					c.SetReadDeadline(time.Now().Add(10 * testTimeout))
					head, err := c.r.ReadString('\n')
					if err != nil {
						t.Error(err)
						return
					}
					f := strings.Fields(head)
					if f[0] == "PING" {
						continue
					}
					size, _ := strconv.Atoi(f[len(f)-1])
					body := make([]byte, size+2)
					if _, err := readFull(c, body); err != nil {
						t.Error(err)
						return
					}
					pub, number, _ := strings.Cut(strings.TrimSpace(string(body)), " ")
					number, pad, _ := strings.Cut(number, " ")
					n, _ := strconv.Atoi(number)
					if strings.Trim(pad, padding(n)) != "" {
						t.Errorf("%s %d came with bytes of another message", pub, n)
						return
					}
					if n == perPub {
						if f[2] == "1" {
							if me.count["ends"]++; me.count["ends"] == pubs {
								return
							}
						}
						continue
					}
					key := pub + " " + f[2]
					if last, ok := me.last[key]; ok && n <= last {
						t.Errorf("%s: %d after %d", key, n, last)
						return
					}
					me.last[key] = n
					me.count[f[2]]++
					if f[2] == "2" {
						groups.mu.Lock()
						groups.count[fmt.Sprint(i, " ", pub, " ", n)]++
						groups.mu.Unlock()
					}
				}
			})
		}
	}
	for p := range pubs {
		c := connect(t, s, "")
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(p), 1))
			var out []byte
			write := func(subj, body string) {
				out = fmt.Appendf(out, "PUB %s %d\r\n%s\r\n", subj, len(body), body)
				if len(out) > 30000 || rng.IntN(50) == 0 {
					c.Write(out)
					out = out[:0]
				}
			}
			for n := range perPub {
				pad := rng.IntN(200)
				if rng.IntN(100) == 0 {
					pad = rng.IntN(150_000) // large ones are sent from where they were read
				}
				subj := subjects[rng.IntN(len(subjects))]
				if n/500%2 == 0 {
					subj = subjects[0] // runs that are shared
				}
				write(subj, fmt.Sprint("p", p, " ", n, " ", strings.Repeat(padding(n), pad)))
			}
			for _, subj := range []string{"a.one", "c"} {
				write(subj, fmt.Sprint("p", p, " ", perPub))
			}
			c.Write(out)
			c.sync()
		})
	}
	wg.Wait()
	for k, n := range groups.count {
		if n != 1 {
			t.Fatalf("group %s got %d copies", k, n)
		}
	}
}

func padding(n int) string { return string(rune('a' + n%26)) }

func readFull(c *rawConn, b []byte) (int, error) {
	n := 0
	for n < len(b) {
		k, err := c.r.Read(b[n:])
		if err != nil {
			return n, err
		}
		n += k
	}
	return n, nil
}

// TestGarbageHurtsNobody sends random bytes in several states.
func TestGarbageHurtsNobody(t *testing.T) {
	s := startServer(t, Options{})
	rng := rand.New(rand.NewPCG(1, 2))
	words := []string{"PUB ", "HPUB ", "SUB ", "UNSUB ", "CONNECT ", "{}", "\r\n", "PING", "a", " ", "5", "0", "NATS/1.0\r\n\r\n", ">", "*", ".", "\x00", "\xff", "-ERR "}
	for i := range 200 {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			fmt.Fprint(c, "CONNECT {\"headers\":true,\"no_responders\":true,\"verbose\":false}\r\n")
		}
		var b []byte
		for range rng.IntN(100) {
			b = append(b, words[rng.IntN(len(words))]...)
		}
		c.Write(b)
		c.Close()
	}
	eventually(t, "everybody to be gone", func() bool { return len(s.Connections(ConnOpen, false)) == 0 })
	connect(t, s, "").sync()
}
