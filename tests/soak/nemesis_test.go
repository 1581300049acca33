package soak

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"
)

// nemesis disturbs the broker.
type nemesis struct {
	w   *world
	rng *rand.Rand

	kills, stops, pauses, cuts int
	slowest                    time.Duration // start
}

func (n *nemesis) String() string {
	return fmt.Sprintf("%d kills, %d stops, %d pauses, %d power cuts, slowest start %s",
		n.kills, n.stops, n.pauses, n.cuts, n.slowest.Round(time.Millisecond))
}

// run disturbs for a while and leaves the broker running.
func (n *nemesis) run(d time.Duration) {
	for end := time.Now().Add(d); ; {
		quiet := time.Duration(200+n.rng.IntN(800)) * time.Millisecond
		if long() {
			quiet *= 3
		}
		if n.rng.IntN(20) == 0 && long() {
			quiet += 15 * time.Second // flushes have their time
		}
		left := time.Until(end)
		<-time.After(min(quiet, max(left, 0)))
		if left <= quiet {
			return
		}
		switch k := n.rng.IntN(10); {
		case k < 4:
			n.kills++
			n.w.broker.Kill()
			n.start()
		case k < 7:
			n.pause()
		case k < 9 && n.w.disk != nil:
			n.cuts++
			n.cut()
		default:
			n.stops++
			n.w.broker.Stop()
			n.start()
		}
	}
}

func (n *nemesis) start() {
	if n.rng.IntN(3) == 0 {
		<-time.After(time.Duration(n.rng.IntN(800)) * time.Millisecond)
	}
	began := time.Now()
	if err := n.w.broker.Run(); err != nil {
		n.w.t.Fatal(err)
	}
	took := time.Since(began)
	n.slowest = max(n.slowest, took)
	if took > 5*time.Second {
		n.w.t.Logf("%6.2fs a start took %s", began.Sub(n.w.began).Seconds(), took.Round(time.Millisecond))
	}
}

func (n *nemesis) pause() {
	n.pauses++
	pid := n.w.broker.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		n.w.t.Fatal(err)
	}
	<-time.After(time.Duration(50+n.rng.IntN(1500)) * time.Millisecond)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		n.w.t.Fatal(err)
	}
}

func (n *nemesis) cut() {
	if err := n.w.disk.Cut(); err != nil {
		n.w.t.Fatal(err)
	}
	n.w.broker.Kill()
	if err := n.w.disk.Restore(); err != nil {
		n.w.t.Fatal(err)
	}
	n.start()
}
