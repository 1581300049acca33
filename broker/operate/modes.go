package operate

import (
	"fmt"
	"strings"
	"time"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/graph"
	opstate "github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
)

// The recovery modes differ in what a step brings the other replicas, and in what the
// next primary does before it runs:
//
//	          step has                        who takes over
//	active    delta, or input positions       nothing
//	passive   input positions                 runs the steps behind its checkpoint again
//	upstream  how far it has come             begins with nothing where what matters begins
//	amnesia   how far it has come             begins with nothing where the other was

func forgetful(g *graph.Graph) bool {
	return g.Recovery == graph.Upstream || g.Recovery == graph.Amnesia
}

// logged returns the step as it goes into the log.
func (u *unit) logged(s *engine.Step) []byte {
	l := *s
	switch {
	case forgetful(u.g):
		l.Delta, l.Progress = engine.Progress(s.Delta), true
	case u.g.Recovery == graph.Passive, u.p.replays:
		l.Delta = nil
	}
	if st := u.store.Load(); !forgetful(u.g) {
		l.SumOf, l.Sum = st.Seq(), st.Sum()
	}
	return l.Append(nil)
}

// given returns what is given of a state to another replica.
func (u *unit) given(s opstate.Snapshot) opstate.Snapshot {
	if g := u.recovery.Load(); g == uint32(graph.Upstream) || g == uint32(graph.Amnesia) {
		return hollow{s, engine.Hollow(s)}
	}
	return s
}

type hollow struct {
	opstate.Snapshot
	less opstate.Reader
}

func (h hollow) Scan(from, to []byte, f func(key, v []byte) bool) error {
	return h.less.Scan(from, to, f)
}

// reached returns the last step that is taken in, or kept.
func (u *unit) reached() uint64 {
	return u.kept().Last(u.store.Load().Seq())
}

// takeOver gets the replica ready to run, where it leads; ready is false when it isn't
// yet.
func (u *unit) takeOver(runs bool) (ready bool, err error) {
	if p := u.behind.Load(); !runs && (p != nil || forgetful(u.g)) {
		n := 0
		if p != nil {
			n, _ = p.log.Size()
		}
		return n == 0 && !forgetful(u.g), nil
	}
	if p := u.behind.Load(); p != nil {
		return u.runBehind(p)
	}
	if n, _ := u.kept().Size(); n > 0 {
		return false, nil
	}
	if !forgetful(u.g) || u.inst.Open() > 0 {
		return true, nil
	}
	began := time.Now()
	w, err := u.inst.Rewind()
	if err != nil || w == nil {
		return err == nil, err
	}
	u.p.reset()
	lost := w.Lost + u.missing(w.From)
	u.count(func(st *Stats) {
		st.Recovered++
		st.RecoveryTime = time.Since(began)
		st.Again += w.Again
		st.Lost += lost
	})
	switch {
	case lost > 0:
		u.note("warn", "took over with recovery %s: up to %d records whose effect was remembered are lost; what they would have been part of is missing or incomplete", u.g.Recovery, lost)
	case w.Again > 0:
		u.note("info", "took over with recovery %s: %d records are read again; what comes again has the header %s", u.g.Recovery, w.Again, headerDuplicate)
	default:
		u.note("info", "took over with recovery %s: nothing was remembered that matters", u.g.Recovery)
	}
	return true, nil
}

// missing counts what the inputs no longer have of what is to be read behind positions.
func (u *unit) missing(from []topics.Sequence) (n uint64) {
	for i := range u.g.Inputs {
		t, ok := u.e.state.Topic(u.op.Load().Account, u.g.Inputs[i].Topic)
		if !ok || t.Data() == nil {
			continue
		}
		at := max(from[i], start(u.op.Load(), i)) + 1
		if first, _ := t.Data().Bounds(); first > at {
			n += uint64(first - at)
		}
	}
	return n
}

// keepable tells why a recovery mode can't be had with the inputs as they are.
func keepable(st *state.State, account string, g *graph.Graph) error {
	if g.Recovery != graph.Passive && g.Recovery != graph.Upstream {
		return nil
	}
	for i := range g.Inputs {
		t, ok := st.Topic(account, g.Inputs[i].Topic)
		if !ok {
			continue
		}
		cfg := t.Config()
		var why []string
		if cfg.Retention != topics.RetainLimits {
			why = append(why, "records go once consumers have them (retention)")
		}
		if cfg.MaxMsgsPer > 0 {
			why = append(why, "newer records replace older ones of their subject (max_msgs_per_subject)")
		}
		if g.Recovery == graph.Passive && cfg.MaxAge > 0 && cfg.MaxAge < 4*g.Checkpoint {
			why = append(why, fmt.Sprintf("records are kept for %s (max_age), less than four times the checkpoint interval of %s", cfg.MaxAge, g.Checkpoint))
		}
		if why != nil {
			return refuse(400, "recovery %s reads records of input %s again after a failure, and topic %s need not have them any more: %s; use recovery active, or another topic", g.Recovery, g.Inputs[i].Name, g.Inputs[i].Topic, strings.Join(why, "; "))
		}
	}
	return nil
}
