package mesh

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func TestQueueGroupsAreFair(t *testing.T) {
	for _, members := range [][]int{{1, 1, 1}, {1, 10, 100}, {0, 1, 3}, {10, 0, 0}} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			c := newCluster(t, 3, nil)
			var got [3]atomic.Int64
			total := 0
			for i, n := range members {
				nc := c.dial(i)
				for range n {
					_, err := nc.QueueSubscribe("work.*", "w", func(*nats.Msg) { got[i].Add(1) })
					must(t, err)
				}
				total += n
				flush(t, nc)
			}
			eventually(t, "all members are known", func() bool { return queueWeight(c.mesh[0], "w") == total-members[0] })
			const count = 20000
			pub := c.dial(0)
			for k := range count {
				must(t, pub.Publish(fmt.Sprintf("work.%d", k%3), []byte("x")))
			}
			flush(t, pub)
			eventually(t, "all is delivered", func() bool { return got[0].Load()+got[1].Load()+got[2].Load() == count })
			for i, n := range members {
				want := float64(count) * float64(n) / float64(total)
				if g := float64(got[i].Load()); g < want*0.8-100 || g > want*1.2+100 {
					t.Errorf("node %s with %d of %d members got %.0f of %d, not about %.0f", name(i), n, total, g, count, want)
				}
			}
		})
	}
}

func queueWeight(m *Mesh, queue string) (n int) {
	for _, l := range m.links() {
		l.receiving.Lock()
		for key, h := range l.heard {
			if key.queue == queue {
				n += h.weight
			}
		}
		l.receiving.Unlock()
	}
	return n
}

func TestQueueAndPlainOnceEach(t *testing.T) {
	c := newCluster(t, 5, nil)
	var plain, queue [5]atomic.Int64
	for i := range 5 {
		nc := c.dial(i)
		_, err := nc.Subscribe("s", func(*nats.Msg) { plain[i].Add(1) })
		must(t, err)
		_, err = nc.Subscribe("*", func(*nats.Msg) { plain[i].Add(1) })
		must(t, err)
		_, err = nc.QueueSubscribe("s", "q1", func(*nats.Msg) { queue[i].Add(1) })
		must(t, err)
		_, err = nc.QueueSubscribe(">", "q2", func(*nats.Msg) { queue[i].Add(1) })
		must(t, err)
		flush(t, nc)
	}
	eventually(t, "all is known", func() bool {
		for _, m := range c.mesh {
			for _, l := range m.links() {
				if l.remoteSubs() != 4 {
					return false
				}
			}
		}
		return true
	})
	const count = 1000
	for i := range 5 {
		pub := c.dial(i)
		for range count {
			must(t, pub.Publish("s", nil))
		}
		flush(t, pub)
	}
	sum := func() (p, q int64) {
		for i := range 5 {
			p, q = p+plain[i].Load(), q+queue[i].Load()
		}
		return p, q
	}
	eventually(t, "all is delivered", func() bool { p, q := sum(); return p >= 5*5*2*count && q >= 5*2*count })
	<-time.After(50 * time.Millisecond)
	if p, q := sum(); p != 5*5*2*count || q != 5*2*count {
		t.Errorf("plain %d, queues %d", p, q)
	}
}

// Members that drain while others stay: nothing is delivered twice, and what is
// lost is only what was on its way to a node whose last member left.
func TestQueueMembersComeAndGo(t *testing.T) {
	c := newCluster(t, 3, nil)
	var got atomic.Int64
	stay := c.dial(2)
	_, err := stay.QueueSubscribe("q", "w", func(*nats.Msg) { got.Add(1) })
	must(t, err)
	flush(t, stay)
	c.knows(0, "q", true)
	var stop atomic.Bool
	var sent atomic.Int64
	done := make(chan struct{})
	pub := c.dial(0)
	go func() {
		defer close(done)
		for !stop.Load() {
			must(t, pub.Publish("q", nil))
			sent.Add(1)
			if sent.Load()%100 == 0 {
				<-time.After(time.Millisecond)
			}
		}
		flush(t, pub)
	}()
	nc := c.dial(1)
	for range 50 {
		s, err := nc.QueueSubscribe("q", "w", func(*nats.Msg) { got.Add(1) })
		must(t, err)
		flush(t, nc)
		<-time.After(5 * time.Millisecond)
		must(t, s.Drain())
		eventually(t, "drained", func() bool { return !s.IsValid() })
	}
	stop.Store(true)
	<-done
	eventually(t, "nothing more comes", func() bool {
		n := got.Load()
		<-time.After(50 * time.Millisecond)
		return n == got.Load()
	})
	lost := sent.Load() - got.Load()
	t.Logf("%d sent, %d lost", sent.Load(), lost)
	if lost < 0 || lost > sent.Load()/10 {
		t.Errorf("%d of %d lost", lost, sent.Load())
	}
}
