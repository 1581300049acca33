// Package peertest runs the networks of several nodes in one process and disturbs
// what they say to each other.
//
//	c := peertest.New(t, "a", "b", "c")  // opened, with each other as routes
//	c.Net("a").Handle(…)
//	c.Start()                             // returns when all are connected
//	c.Cut("a", "b")                       // as if the cable were out: nobody is told
//	c.Heal("a", "b")
//
// Who opens networks by other means takes Options from it.
package peertest

import (
	"net"
	"os"
	"sync"
	"time"
)

// Faults is what is wrong between named nodes. Bytes are held back, not lost, as TCP
// would repeat them.
type Faults struct {
	mu    sync.Mutex
	cut   map[[2]string]bool
	delay map[[2]string]time.Duration
	conns map[*conn]bool
}

// NewFaults returns a network without any.
func NewFaults() *Faults {
	return &Faults{cut: map[[2]string]bool{}, delay: map[[2]string]time.Duration{}, conns: map[*conn]bool{}}
}

// Wrap is for peer.Options.Wrap of the node self.
func (f *Faults) Wrap(self string) func(peer string, c net.Conn) net.Conn {
	return func(peer string, inner net.Conn) net.Conn {
		c := &conn{Conn: inner, f: f, way: [2]string{peer, self}, done: make(chan struct{})}
		c.wake.L = &c.mu
		f.mu.Lock()
		f.conns[c] = true
		f.mu.Unlock()
		go c.pump()
		return c
	}
}

func (f *Faults) change(set func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set()
	for c := range f.conns {
		c.wake.Broadcast()
	}
}

// CutOneWay holds back what from says to to.
func (f *Faults) CutOneWay(from, to string) { f.change(func() { f.cut[[2]string{from, to}] = true }) }

// Cut holds back what two nodes say to each other.
func (f *Faults) Cut(a, b string) {
	f.change(func() { f.cut[[2]string{a, b}], f.cut[[2]string{b, a}] = true, true })
}

// Heal undoes Cut, CutOneWay and Delay of two nodes.
func (f *Faults) Heal(a, b string) {
	f.change(func() {
		for _, way := range [][2]string{{a, b}, {b, a}} {
			delete(f.cut, way)
			delete(f.delay, way)
		}
	})
}

// HealAll undoes everything.
func (f *Faults) HealAll() {
	f.change(func() {
		clear(f.cut)
		clear(f.delay)
	})
}

// Delay lets what two nodes say to each other arrive later, each way.
func (f *Faults) Delay(a, b string, d time.Duration) {
	f.change(func() { f.delay[[2]string{a, b}], f.delay[[2]string{b, a}] = d, d })
}

// state says what is wrong one way.
func (f *Faults) state(way [2]string) (cut bool, delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cut[way], f.delay[way]
}

// held is what has arrived and hasn't been read.
type held struct {
	bytes []byte
	due   time.Time
}

// conn is a connection whose reading end is disturbed.
type conn struct {
	net.Conn
	f    *Faults
	way  [2]string
	done chan struct{}

	mu       sync.Mutex
	wake     sync.Cond
	queue    []held
	size     int
	err      error
	closed   bool
	deadline time.Time
	timer    *time.Timer
}

const heldMax = 1 << 20

// pump reads whatever comes, until the connection ends. Close waits for it.
func (c *conn) pump() {
	defer close(c.done)
	for {
		b := make([]byte, 64<<10)
		n, err := c.Conn.Read(b)
		_, delay := c.f.state(c.way)
		c.mu.Lock()
		if n > 0 {
			c.queue = append(c.queue, held{b[:n], time.Now().Add(delay)})
			c.size += n
		}
		if err != nil {
			// Also a deadline of the connection underneath: it is set only to end a
			// handshake, when a network closes.
			c.err = err
		}
		if delay > 0 {
			time.AfterFunc(delay, c.wake.Broadcast)
		}
		c.wake.Broadcast()
		for c.size > heldMax && !c.closed {
			c.wake.Wait()
		}
		over := c.closed || c.err != nil
		c.mu.Unlock()
		if over {
			return
		}
	}
}

func (c *conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		cut, _ := c.f.state(c.way)
		switch now := time.Now(); {
		case c.closed:
			return 0, net.ErrClosed
		case !c.deadline.IsZero() && !now.Before(c.deadline):
			return 0, os.ErrDeadlineExceeded
		case cut:
		case len(c.queue) > 0 && !now.Before(c.queue[0].due):
			n := copy(p, c.queue[0].bytes)
			if c.queue[0].bytes = c.queue[0].bytes[n:]; len(c.queue[0].bytes) == 0 {
				c.queue = c.queue[1:]
			}
			c.size -= n
			c.wake.Broadcast()
			return n, nil
		case len(c.queue) == 0 && c.err != nil:
			return 0, c.err
		}
		c.wake.Wait()
	}
}

// Write doesn't fail while the other side can't say that it has left.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if cut, _ := c.f.state(c.way); cut && err != nil && !os.IsTimeout(err) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.closed {
			return len(p), nil
		}
	}
	return n, err
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	if c.timer != nil {
		c.timer.Stop()
	}
	if !t.IsZero() {
		c.timer = time.AfterFunc(time.Until(t)+time.Millisecond, c.wake.Broadcast)
	}
	c.wake.Broadcast()
	return nil
}

// SetDeadline leaves the reading of the connection underneath without one.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.Conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if err := c.Conn.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}

func (c *conn) Close() error {
	c.mu.Lock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.wake.Broadcast()
	c.mu.Unlock()
	err := c.Conn.Close()
	<-c.done
	c.f.mu.Lock()
	delete(c.f.conns, c)
	c.f.mu.Unlock()
	return err
}
