package operate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/store"
)

// Why a step's records can't be read again decides what becomes of the replica: it waits for
// them, it needs another one's state, or, where all were read and something else came of them,
// its own state is withheld.
func TestWhyAStepCannotBeRunAgain(t *testing.T) {
	p := open(t, t.TempDir(), nil)
	defer p.close()
	p.topics(1)
	o := p.deploy(fmt.Sprintf(counting, "replay"))
	for i := range 10 {
		p.publish(fmt.Sprintf(`{"k":"a","v":%d}`, 3+i))
	}
	p.lines(10)
	in, _ := p.Topic("A", "IN")
	// One that nothing runs: what it is asked is the test's.
	fresh := func() *unit {
		g, err := compile("", o.Spec, o.IDs)
		if err != nil {
			t.Fatal(err)
		}
		u := &unit{unitKey: unitKey{id: o.ID}, e: p.ops, g: g, epoch: 1, spec: 1}
		c := *o
		u.op.Store(&c)
		return u
	}
	check := func(what string, u *unit, r engine.Read, want string, plights ...plight) {
		t.Helper()
		got, err := u.readAgain(r)
		if len(plights) == 0 {
			if err != nil || len(got) != r.Count || got[len(got)-1].Sequence != r.To {
				t.Errorf("%s: %d records, %v", what, len(got), err)
			}
			return
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%s: %v, wanted %q", what, err, want)
		}
		if k := u.judge(fmt.Errorf("run it again: %w", err)); k != plights[0] {
			t.Errorf("%s (%v) is %d, not %d", what, err, k, plights[0])
		}
	}
	check("what is there", fresh(), engine.Read{From: 3, To: 7, Count: 5}, "")
	check("what isn't there yet", fresh(), engine.Read{From: 11, To: 12, Count: 2}, "has come to sequence 10", waits)
	check("what is there in part", fresh(), engine.Read{From: 9, To: 12, Count: 4}, "has come to sequence 10", waits)

	u := fresh()
	check("what was passed over, before the catalogue says so", u, engine.Read{From: 3, To: 7, Count: 4}, "passed a record", waits)
	c := *u.op.Load()
	c.Skip = &catalogue.Skipped{Sequence: 5}
	u.op.Store(&c)
	check("what was passed over", u, engine.Read{From: 3, To: 7, Count: 4}, "")

	if err := p.DeleteMessages(t.Context(), in, []topics.Sequence{4}); err != nil {
		t.Fatal(err)
	}
	check("a record that was deleted", fresh(), engine.Read{From: 3, To: 7, Count: 5}, "has 4 of the 5 records", lacks)
	check("the last record that was deleted", fresh(), engine.Read{From: 4, To: 4, Count: 1}, "has 0 of the 1 records", lacks)

	renewed := fresh()
	c = *renewed.op.Load()
	c.Epoch = 2
	c.Renew([]int{0})
	renewed.op.Store(&c)
	check("another topic's records", renewed, engine.Read{From: 5, To: 7, Count: 3}, "made anew", lacks)

	if err := p.DeleteTopic(t.Context(), "A", "IN"); err != nil {
		t.Fatal(err)
	}
	check("a topic that was deleted", fresh(), engine.Read{From: 5, To: 7, Count: 3}, "was deleted", lacks)

	u = fresh()
	for err, want := range map[error]plight{
		&rereadError{errors.New("nobody leads the origin")}: waits,
		errGraph:                 waits,
		engine.ErrDiverged:       differs,
		errors.New("disk error"): differs,
	} {
		if k := u.judge(fmt.Errorf("run it again: %w", err)); k != want {
			t.Errorf("%v is %d, not %d", err, k, want)
		}
	}
	u.epoch = 2 // the graph is another version's
	if k := u.judge(engine.ErrDiverged); k != lacks {
		t.Errorf("what another version gave is %d, not %d", k, lacks)
	}
}

// origin is an input that is on one node only, as the others read it: some can't.
type farInput struct {
	mu     sync.Mutex
	places map[string]*place
	away   map[string]bool
}

func (x *farInput) set(away bool, nodes ...string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, n := range nodes {
		x.away[n] = away
	}
}

func (x *farInput) fetch(by string, t *state.Topic, from topics.Sequence) ([]topics.Message, topics.Sequence, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.places {
		if there, ok := p.Topic("A", t.Name()); ok && there.Data() != nil && !x.away[by] {
			return there.Data().Read(nil, from, 100, 0, nil)
		}
	}
	return nil, from, errors.New("nobody leads the origin")
}

func (x *farInput) track(name string, p *place) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.places[name] = p; p == nil {
		delete(x.places, name)
	}
}

// withFarInput is a fleet whose input is on one node, which leads the operator.
func withFarInput(t *testing.T, patience time.Duration) (f *fleet, x *farInput, home string, others []string) {
	return withFarInputs(t, patience, func(*state.Options, *Options) {})
}

func withFarInputs(t *testing.T, patience time.Duration, change func(*state.Options, *Options)) (f *fleet, x *farInput, home string, others []string) {
	x = &farInput{places: map[string]*place{}, away: map[string]bool{}}
	f = startFleetWith(t, func(so *state.Options, oo *Options) {
		by := filepath.Base(filepath.Dir(so.Dir))
		oo.Patience = patience
		change(so, oo)
		oo.Fetch = func(_ context.Context, t *state.Topic, _ []string, from topics.Sequence) ([]topics.Message, topics.Sequence, error) {
			return x.fetch(by, t, from)
		}
	})
	for name, p := range f.nodes {
		x.track(name, p)
	}
	for _, c := range []topics.Config{conf(1, "IN", "in.>"), conf(3, "OUT", "out.>")} {
		if _, _, err := f.any().CreateTopic(t.Context(), "A", c); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, "the topics", func() (bool, string) {
		home, others = "", nil
		for name, p := range f.nodes {
			in, _ := p.Topic("A", "IN")
			out, _ := p.Topic("A", "OUT")
			if in == nil || out == nil || out.Data() == nil {
				return false, name
			}
			if in.Data() != nil {
				home = name
			} else {
				others = append(others, name)
			}
		}
		return home != "" && len(others) == 2, fmt.Sprint(home, others)
	})
	wait(t, home+" to lead", func() (bool, string) {
		l := f.leader()
		if l == nil {
			return false, "nobody leads"
		}
		if l.net.Name() == home {
			return true, ""
		}
		top, _ := l.Topic("A", "OUT")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return false, fmt.Sprint(top.Group().Transfer(ctx, home))
	})
	return f, x, home, others
}

// stands waits until a node's replica stands still, and returns what it says.
func (f *fleet) stands(name string, id uint64, with string) (r *Report) {
	f.Helper()
	wait(f, name+" to stand still", func() (bool, string) {
		r = f.nodes[name].reportOf(id)
		return r.Kept > 0 && strings.Contains(r.Blocked, with), fmt.Sprintf("%d steps kept, blocked %q, withheld: %v", r.Kept, r.Blocked, r.Faulty)
	})
	return r
}

// While no standby can read the input, all of them keep the steps that come. Once the primary
// is gone and nobody has the state, the operator waits; and goes on with the right output when
// the records can be read, or the state can be got.
func TestStandbysThatCannotReadTheInputGoOn(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"records", "state", "restarted", "updated"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f, x, home, others := withFarInput(t, 500*time.Millisecond)
			text := fmt.Sprintf(counting, "replay")
			o := f.nodes[home].deploy(text)
			publish := func(from, to int) {
				for i := from; i < to; i++ {
					f.nodes[home].publish(fmt.Sprintf(`{"k":"k%d","v":%d}`, i%3, 3+i))
				}
				f.nodes[home].lines(to)
			}
			publish(0, 20)
			f.level(o.ID)
			x.set(true, others...)
			publish(20, 60)
			for _, name := range others {
				if r := f.stands(name, o.ID, "nobody leads the origin"); r.Faulty || !r.Waits {
					t.Errorf("%s: withheld %v, waits %v: it only can't read", name, r.Faulty, r.Waits)
				}
			}
			sent := 60
			if how == "updated" { // the next epoch waits for what ends the one before
				for _, name := range others {
					f.nodes[name].deaf.Store(true)
				}
				f.nodes[home].must(f.nodes[home].ops.service.update(t.Context(), "A", &Request{Spec: strings.Replace(text, "v > 2", "v > 1", 1)}))
				publish(60, 70)
				sent = 70
				for _, name := range others {
					f.stands(name, o.ID, "epoch 2 begins with what comes of steps")
				}
			}
			x.track(home, nil)
			f.kill(home)
			if how == "restarted" { // what is kept outlives the process, and the log's release
				for _, name := range others {
					out, _ := f.nodes[name].Topic("A", "OUT")
					if err := out.Group().Store().Flush(); err != nil {
						t.Fatal(err)
					}
				}
				for _, name := range others {
					x.track(name, nil)
					f.kill(name)
				}
				for _, name := range others {
					x.track(name, f.join(name))
				}
			}
			wait(t, "another leader", func() (bool, string) { return f.leader() != nil, "" })
			leader := f.leader().net.Name()
			if r := f.stands(leader, o.ID, "nobody leads the origin"); r.Faulty {
				t.Errorf("the primary's state is withheld: %s", r.Blocked)
			}
			<-time.After(time.Second) // twice its patience
			if now := f.nodes[leader].Operator("A", "counts"); now.State != catalogue.Running {
				t.Fatalf("it is %s: %s", now.State, now.Error)
			}
			if how != "state" {
				x.set(false, others...)
			}
			for _, name := range others {
				f.nodes[name].deaf.Store(false)
			}
			x.track(home, f.join(home))
			f.ready()
			if how == "state" {
				wait(t, "the state of "+home, func() (bool, string) {
					rebuilt := uint64(0)
					for _, name := range others {
						rebuilt += f.nodes[name].reportOf(o.ID).Stats.Rebuilt
					}
					return rebuilt == 2, fmt.Sprint(rebuilt)
				})
				x.set(false, others...)
			}
			publish(sent, 80)
			wait(t, "the output", func() (bool, string) {
				return same(f.nodes[home].output(), batch(t, text, f.nodes[home].input()))
			})
			f.level(o.ID)
			for name, p := range f.nodes {
				if r := p.reportOf(o.ID); r.Faulty || r.Kept > 0 || r.Stats.Diverged > 0 {
					t.Errorf("%s: %+v", name, r)
				}
			}
		})
	}
}

// diverge changes the state on a node behind its back, and returns what puts it right.
func (f *fleet) diverge(name string, id uint64) (repair func()) {
	f.Helper()
	s := f.nodes[name].ops.unit(unitKey{id: id}, nil).store.Load()
	var key, value []byte
	if err := s.Scan([]byte("s"), []byte("t"), func(k, v []byte) bool { key, value = k, append([]byte(nil), v...); return false }); err != nil || key == nil {
		f.Fatal("no state", err)
	}
	bad := append([]byte(nil), value...)
	bad[len(bad)-1] ^= 1
	set := func(v []byte) {
		if err := s.Apply(change(key, v), s.Seq()); err != nil {
			f.Fatal(err)
		}
	}
	set(bad)
	return func() { set(value) }
}

// reset begins an operator anew, and waits for its output, behind what there is.
func (f *fleet) reset(text string) {
	f.Helper()
	if o := f.any().reset(text); len(f.nodes) == 3 {
		f.level(o.ID)
	}
}

func (p *place) reset(text string) *catalogue.Operator {
	p.Helper()
	all := append(p.output(), batch(p, text, p.input())...)
	o := p.must(p.ops.service.update(p.Context(), "A", &Request{Spec: text, Reset: true})).(Deployed).Operator
	wait(p, "the output from the beginning", func() (bool, string) { return same(p.output(), all) })
	return o
}

// A passive primary's input is purged, and it is killed: who takes over can't run the steps
// behind its checkpoint. It goes on with the state of the one that was killed, or fails where
// that is lost.
func TestAPassiveStandbyWhoseRecordsAreDeleted(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"back", "lost"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := startFleetWith(t, func(_ *state.Options, oo *Options) { oo.Patience = 500 * time.Millisecond })
			f.withTopics()
			text := fmt.Sprintf(counting, "auto\nrecovery: passive\ncheckpoint: 1h")
			o := f.any().deploy(text)
			for range 20 {
				f.any().publish(`{"k":"a","v":5}`)
			}
			f.any().lines(20)
			wait(t, "the steps at the standbys", func() (bool, string) {
				n := 0
				for _, p := range f.nodes {
					if r := p.reportOf(o.ID); r.Leads || r.Kept > 0 && r.Behind == 0 {
						n++
					}
				}
				return n == 3 && f.leader() != nil, fmt.Sprint(n)
			})
			primary := f.leader().net.Name()
			for _, p := range f.nodes { // a standby gets a checkpoint once it sees that records go
				p.deaf.Store(true)
			}
			in, _ := f.any().Topic("A", "IN")
			if _, err := f.leader().Purge(t.Context(), in, store.Purge{}); err != nil {
				t.Fatal(err)
			}
			wait(t, "the purge", func() (bool, string) {
				for _, p := range f.nodes {
					if len(p.input()) > 0 {
						return false, p.net.Name()
					}
				}
				return true, ""
			})
			f.kill(primary)
			wait(t, "another leader", func() (bool, string) { return f.leader() != nil, "" })
			f.stands(f.leader().net.Name(), o.ID, "records are deleted")
			for _, p := range f.nodes {
				p.deaf.Store(false)
			}
			if how == "lost" {
				if err := os.RemoveAll(filepath.Join(f.dir, primary, "operators")); err != nil {
					t.Fatal(err)
				}
			}
			f.join(primary)
			f.ready()
			if how == "lost" {
				wait(t, "the failure", func() (bool, string) {
					now := f.any().Operator("A", "counts")
					return now.State == catalogue.Failed && now.Lost, fmt.Sprintf("%s: %s", now.State, now.Error)
				})
				f.any().publish(`{"k":"a","v":6}`)
				wait(t, "the record", func() (bool, string) { return len(f.any().input()) == 1, "" })
				f.reset(text)
				return
			}
			f.any().publish(`{"k":"a","v":6}`)
			if last := f.any().lines(21)[20]; !strings.HasSuffix(last, `"n":21,"total":106}`) {
				t.Errorf("it goes on with %s", last)
			}
		})
	}
}

// Both standbys' states differ from the primary's, neither can get another one, and the primary
// is killed: all that is left is withheld. The operator says so, gives nothing wrong, and goes
// on where the primary's state is back, or where a state comes to what the log says after all;
// where nobody has the state any more it fails, and says what to do.
func TestAllStandbysWithheldAndThePrimaryKilled(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"back", "repaired", "lost", "given up"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := startFleetWith(t, func(_ *state.Options, oo *Options) { oo.Patience = 500 * time.Millisecond })
			f.withTopics()
			text := fmt.Sprintf(counting, "replay")
			o := f.any().deploy(text)
			publish := func(from, to int) {
				for i := from; i < to; i++ {
					f.any().publish(`{"k":"a","v":5}`)
				}
				f.any().lines(to)
			}
			publish(0, 5)
			f.level(o.ID)
			wait(t, "a leader", func() (bool, string) { return f.leader() != nil, "" })
			primary := f.leader().net.Name()
			var repairs []func()
			var others []string
			for name, p := range f.nodes {
				if name != primary {
					p.deaf.Store(true)
					repairs, others = append(repairs, f.diverge(name, o.ID)), append(others, name)
				}
			}
			publish(5, 30)
			for _, name := range others {
				if r := f.stands(name, o.ID, "diverged"); !r.Faulty {
					t.Errorf("%s is not withheld", name)
				}
			}
			f.kill(primary)
			wait(t, "another leader", func() (bool, string) { return f.leader() != nil, "" })
			leader := f.leader().net.Name()
			f.stands(leader, o.ID, "of "+primary+" nothing is known now")
			f.any().publish(`{"k":"a","v":6}`)
			wait(t, "the record", func() (bool, string) { n := len(f.any().input()); return n == 31, fmt.Sprint(n) })
			if now := f.any().Operator("A", "counts"); now.State != catalogue.Running || len(f.any().output()) != 30 {
				t.Fatalf("it is %s with %d outputs: %s", now.State, len(f.any().output()), now.Error)
			}
			hear := func() {
				for _, name := range others {
					f.nodes[name].deaf.Store(false)
				}
			}
			switch how {
			case "back":
				hear()
				f.join(primary)
			case "repaired":
				for _, repair := range repairs {
					repair()
				}
				f.any().lines(31)
				f.join(primary)
			case "lost":
				hear()
				if err := os.RemoveAll(filepath.Join(f.dir, primary, "operators")); err != nil {
					t.Fatal(err)
				}
				f.join(primary)
				f.ready()
				wait(t, leader+" to lead", func() (bool, string) {
					l := f.leader()
					if l == nil || l.net.Name() == leader {
						return l != nil, "nobody leads"
					}
					top, _ := l.Topic("A", "OUT")
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					return false, fmt.Sprint(top.Group().Transfer(ctx, leader))
				})
				wait(t, "the failure", func() (bool, string) {
					now := f.any().Operator("A", "counts")
					return now.State == catalogue.Failed && now.Lost && strings.Contains(now.Error, "update it with reset"), fmt.Sprintf("%s: %s", now.State, now.Error)
				})
				f.reset(text)
				return
			case "given up":
				f.reset(text)
				f.join(primary)
				f.level(o.ID)
				return
			}
			f.ready()
			publish(31, 40)
			wait(t, "the output", func() (bool, string) { return same(f.any().output(), batch(t, text, f.any().input())) })
			f.level(o.ID)
			for name, p := range f.nodes {
				if r := p.reportOf(o.ID); r.Faulty || r.Kept > 0 || r.Blocked != "" {
					t.Errorf("%s: %+v", name, r)
				}
			}
		})
	}
}
