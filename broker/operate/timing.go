package operate

import (
	"time"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/stream"
)

// How the time of a primary goes: busy running steps, blocked by steps that are under way
// and not committed, by a full outbox or an output that is refused, else idle. Records by
// busy time is the true rate of the operator (Kalavri et al., OSDI 2018), whatever it
// waits for.

// waited notes how long the unit slept, at the beginning of a turn.
func (u *unit) waited(since time.Time) {
	if since.IsZero() || u.inst == nil || !u.group.IsLeader() {
		return
	}
	d := time.Since(since)
	blocked := u.p.blocked != "" || u.inst.Open() >= max(u.inst.Graph().Limits.InFlight, 1)
	u.count(func(st *Stats) {
		if blocked {
			st.Blocked += d
		} else {
			st.Idle += d
		}
	})
}

// stopwatch measures the steps of an operator.
func stopwatch() int64 { return int64(time.Since(began)) }

var began = time.Now()

// failover notes when a replica began to lead, was ready to run, and gave its first output.
type failover struct {
	lost                 time.Time // no leader was known any more
	leads, ready, output time.Time
}

// led is called when the group here is led, or not any more.
func (u *unit) led(leads bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	lost := u.over.lost
	u.over = failover{}
	if !leads {
		return
	}
	u.over.leads = time.Now()
	u.stats.Elect, u.stats.Apply, u.stats.FirstOutput = 0, 0, 0 // of this lead, not of one before
	if !lost.IsZero() {
		u.stats.Elect = u.over.leads.Sub(lost)
	}
}

// leaderKnown is called when another node is found to lead the group, or none ("").
func (u *unit) leaderKnown(leader string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case leader != "":
		u.over.lost = time.Time{}
	case u.over.lost.IsZero():
		u.over.lost = time.Now()
	}
}

func (u *unit) isReady() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over.ready.IsZero() && !u.over.leads.IsZero() {
		u.over.ready = time.Now()
		u.stats.Apply = u.over.ready.Sub(u.over.leads)
		u.stats.Since = u.over.leads
	}
}

// gave is told of committed outputs; mu is held.
func (u *unit) gaveLocked(outputs int) {
	if outputs > 0 && u.over.output.IsZero() && !u.over.ready.IsZero() {
		u.over.output = time.Now()
		u.stats.FirstOutput = u.over.output.Sub(u.over.ready)
	}
}

// The choice of `standby: auto`: what is replicated of a step is its change of state, or,
// where that is much more than what was read, nothing: standbys read and run it too.
const (
	autoWindow = 32 // steps that the averages are over, about
	autoUp     = 2.0
	autoDown   = 1.0
)

// choose decides for the next step, by the averages of those before. Records that may go
// soon (fleeting) are not to be read again.
func (p *primary) choose(g *graph.Graph, s *engine.Step, input int, fleeting func() bool) {
	p.deltas += (float64(len(s.Delta)) - p.deltas) / autoWindow
	p.inputs += (float64(input) - p.inputs) / autoWindow
	switch {
	case g.Standby != graph.Auto || g.Recovery != graph.Active || g.Class > stream.Deterministic:
		p.replays = g.Standby == graph.Replay
	case p.deltas > autoUp*p.inputs:
		p.replays = true
	case p.deltas < autoDown*p.inputs:
		p.replays = false
	}
	p.replays = p.replays && g.Recovery == graph.Active && !fleeting()
}

// sums are the figures of the states after the last steps.
type sums [32]struct{ seq, sum uint64 }

func (x *sums) note(seq, sum uint64) { x[seq%uint64(len(x))] = struct{ seq, sum uint64 }{seq, sum} }

// differs tells whether the state after a step, which is known here, is another one than
// the primary says.
func (x *sums) differs(s *engine.Step) bool {
	at := x[s.SumOf%uint64(len(x))]
	return s.SumOf > 0 && at.seq == s.SumOf && at.sum != s.Sum
}
