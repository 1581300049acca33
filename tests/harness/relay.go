package harness

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// relay is the proxies between the nodes of a cluster. What a cut direction
// carries waits for the cut's end, as TCP would retransmit it; connections stay.
type relay struct {
	mu     sync.Mutex
	change *sync.Cond
	blocks map[[2]int]bool
	least  time.Duration
	jitter time.Duration
	ends   []io.Closer
	closed bool
	work   sync.WaitGroup
}

func newRelay(t testing.TB) *relay {
	r := &relay{blocks: map[[2]int]bool{}}
	r.change = sync.NewCond(&r.mu)
	t.Cleanup(func() {
		r.mu.Lock()
		r.closed = true
		for _, c := range r.ends {
			c.Close()
		}
		r.change.Broadcast()
		r.mu.Unlock()
		r.work.Wait()
	})
	return r
}

// keep closes c at the end; false when the end was before.
func (r *relay) keep(c io.Closer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		c.Close()
		return false
	}
	r.ends = append(r.ends, c)
	return true
}

// path returns an address at which node from reaches node to.
func (r *relay) path(from, to int, target string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	r.keep(l)
	r.work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			if !r.keep(in) {
				return
			}
			r.work.Go(func() { r.serve(in, from, to, target) })
		}
	})
	return l.Addr().String(), nil
}

func (r *relay) serve(in net.Conn, from, to int, target string) {
	out, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		_ = in.(*net.TCPConn).SetLinger(0) // refused there: reset here
		in.Close()
		return
	}
	if !r.keep(out) {
		in.Close()
		return
	}
	r.work.Go(func() { r.carry(in, out, [2]int{to, from}) })
	r.carry(out, in, [2]int{from, to})
}

// piece is some bytes on their way and when they arrive.
type piece struct {
	data []byte
	due  time.Time
}

// carry moves bytes one way until either end is gone. The other end learns of
// that when the way is open.
func (r *relay) carry(dst, src net.Conn, way [2]int) {
	pieces := make(chan piece, 256)
	r.work.Go(func() {
		for p := range pieces {
			<-time.After(time.Until(p.due))
			if !r.open(way) {
				break
			}
			if _, err := dst.Write(p.data); err != nil {
				break
			}
		}
		r.open(way)
		dst.Close()
		src.Close()
		for range pieces { // until the reader has noticed
		}
	})
	defer close(pieces)
	for {
		b := make([]byte, 32<<10)
		n, err := src.Read(b)
		if n > 0 {
			pieces <- piece{b[:n], time.Now().Add(r.late())}
		}
		if err != nil {
			return
		}
	}
}

// open waits until the way isn't cut; false when all is over.
func (r *relay) open(way [2]int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.blocks[way] && !r.closed {
		r.change.Wait()
	}
	return !r.closed
}

func (r *relay) late() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.jitter <= 0 {
		return r.least
	}
	return r.least + rand.N(r.jitter)
}

func (r *relay) cut(from, to int, cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blocks[[2]int{from, to}] = cut
	r.change.Broadcast()
}

func (r *relay) delay(least, jitter time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.least, r.jitter = least, jitter
}
