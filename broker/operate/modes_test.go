package operate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/heraldmq/herald/topics"
)

// recovering is windowing with a recovery mode.
func recovering(recovery, more string) string {
	text := strings.Replace(fmt.Sprintf(windowing, "auto"), "standby: auto", "recovery: "+recovery+"\n"+more, 1)
	return strings.Replace(text, "disorder: 5s", "disorder: 5s, max_future: 0s, idle_after: 0s", 1)
}

// given is an output with what tells that it came again.
type given struct {
	row, id string
	again   bool
}

func header(b []byte, name string) string {
	for _, line := range strings.Split(string(b), "\r\n") {
		if v, ok := strings.CutPrefix(line, name+": "); ok {
			return v
		}
	}
	return ""
}

func (p *place) given() (all []given) {
	t, ok := p.Topic("A", "OUT")
	if !ok || t.Data() == nil {
		return nil
	}
	messages, _, err := t.Data().Read(nil, 1, 1<<20, 0, nil)
	if err != nil {
		p.Fatal(err)
	}
	for _, m := range messages {
		all = append(all, given{m.Subject + " " + string(m.Payload), header(m.Header, headerID), header(m.Header, headerDuplicate) != ""})
	}
	return all
}

// input is what the input topic holds.
func (p *place) input() (bodies []string) {
	t, ok := p.Topic("A", "IN")
	if !ok || t.Data() == nil {
		return nil
	}
	messages, _, err := t.Data().Read(nil, 1, 1<<20, 0, nil)
	if err != nil {
		p.Fatal(err)
	}
	for _, m := range messages {
		bodies = append(bodies, string(m.Payload))
	}
	return bodies
}

// reportOf is what a node has of an operator, nothing where it doesn't know it yet.
func (p *place) reportOf(id uint64) *Report {
	if u := p.ops.unit(unitKey{id: id}, nil); u != nil {
		return u.report()
	}
	return &Report{}
}

func (f *fleet) withTopics() {
	f.Helper()
	f.any().topics(3)
	for name, p := range f.nodes {
		wait(f, name+" knows the topics", func() (bool, string) {
			a, _ := p.Topic("A", "IN")
			b, _ := p.Topic("A", "OUT")
			return a != nil && b != nil && a.Data() != nil && b.Data() != nil, ""
		})
	}
}

// stats sums up what the units of all nodes have counted since they were started.
func (f *fleet) stats(id uint64) (all Stats) {
	for _, p := range f.nodes {
		if u := p.ops.unit(unitKey{id: id}, nil); u != nil {
			s := u.report().Stats
			all.Checkpoints += s.Checkpoints
			all.Recovered += s.Recovered
			all.Again += s.Again
			all.Lost += s.Lost
		}
	}
	return all
}

// killing publishes records and kills the primary again and again, and returns what the
// units had counted before their nodes were killed, at the end.
func (f *fleet) killing(id uint64, rng *rand.Rand, kills int, settled func()) (all Stats) {
	sent := 0
	for range kills {
		for range 200 {
			f.any().publish(record(rng, sent))
			sent++
		}
		settled()
		wait(f, "a leader", func() (bool, string) { return f.leader() != nil, "" })
		dead := f.leader().net.Name()
		f.kill(dead)
		for range 50 {
			f.any().publish(record(rng, sent))
			sent++
		}
		wait(f, "another leader", func() (bool, string) { return f.leader() != nil, "" })
		wait(f, "its first step", func() (bool, string) {
			l := f.leader()
			return l != nil && l.reportOf(id).Stats.Steps > 0, ""
		})
		s := f.stats(id)
		all.Again, all.Recovered, all.Lost, all.Checkpoints = all.Again+s.Again, all.Recovered+s.Recovered, all.Lost+s.Lost, all.Checkpoints+s.Checkpoints
		f.join(dead)
		f.ready()
	}
	return all
}

func TestPassiveIsPreciseWhilePrimariesAreKilled(t *testing.T) {
	t.Parallel()
	for _, every := range []string{"200ms", "1h"} {
		t.Run(every, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t)
			f.withTopics()
			text := recovering("passive", "checkpoint: "+every)
			o := f.any().deploy(text)
			kills := 4
			if testing.Short() {
				kills = 2
			}
			s := f.killing(o.ID, rand.New(rand.NewPCG(7, 8)), kills, func() {
				if every == "200ms" {
					wait(t, "a checkpoint on a standby", func() (bool, string) {
						s := f.stats(o.ID)
						return s.Checkpoints > 1, fmt.Sprintf("%+v", s)
					})
				}
			})
			wait(t, "the output", func() (bool, string) {
				return same(f.any().output(), batch(t, text, f.any().input()))
			})
			if len(f.any().output()) == 0 || every == "1h" && (s.Recovered == 0 || s.Again == 0 || s.Checkpoints > 0) || every != "1h" && s.Checkpoints == 0 {
				t.Errorf("the test shows nothing: %+v, %d outputs", s, len(f.any().output()))
			}
		})
	}
}

func TestUpstreamLosesNothingWhilePrimariesAreKilled(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	f.withTopics()
	text := recovering("upstream", "")
	o := f.any().deploy(text)
	kills := 4
	if testing.Short() {
		kills = 2
	}
	s := f.killing(o.ID, rand.New(rand.NewPCG(9, 8)), kills, func() {
		wait(t, "some output", func() (bool, string) { return len(f.any().given()) > 0, "" })
	})
	duplicates := 0
	wait(t, "the output", func() (bool, string) {
		want := batch(t, text, f.any().input())
		seen := map[string]string{}
		var once []string
		duplicates = 0
		for _, g := range f.any().given() {
			before, is := seen[g.id]
			switch {
			case g.id == "":
				t.Fatalf("%s has no %s", g.row, headerID)
			case is && !g.again:
				t.Fatalf("%s comes again and doesn't say so", g.row)
			case is && before != g.row:
				t.Fatalf("%s comes again as %s", before, g.row)
			case is:
				duplicates++
			default:
				seen[g.id] = g.row
				once = append(once, g.row)
			}
		}
		slices.Sort(once)
		slices.Sort(want)
		return same(once, want)
	})
	if s.Recovered == 0 || s.Again == 0 || duplicates == 0 {
		t.Errorf("the test shows nothing: %+v, %d duplicates", s, duplicates)
	}
}

func TestAmnesiaTellsWhatIsMissing(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	f.withTopics()
	text := recovering("amnesia", "")
	o := f.any().deploy(text)
	s := f.killing(o.ID, rand.New(rand.NewPCG(10, 8)), 2, func() {
		wait(t, "some output", func() (bool, string) { return len(f.any().given()) > 0, "" })
	})
	var want, got []string
	wait(t, "the last output", func() (bool, string) {
		want, got = batch(t, text, f.any().input()), f.any().output()
		return len(want) > 0 && slices.Contains(got, want[len(want)-1]), fmt.Sprint(len(got), " of ", len(want))
	})
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("%s would not have been given without a failure", line)
		}
	}
	if len(got) == len(want) || s.Lost == 0 {
		t.Errorf("%d of %d outputs, %d records told to be lost", len(got), len(want), s.Lost)
	}
}

func TestRecoveryIsRefusedWhereItCannotBeKept(t *testing.T) {
	p := open(t, t.TempDir(), nil)
	defer p.close()
	queue, latest := conf(1, "QUEUE", "q.>"), conf(1, "LATEST", "l.>")
	queue.Retention, latest.MaxMsgsPer = topics.RetainWorkQueue, 1
	for _, c := range []topics.Config{queue, latest, conf(1, "IN", "in.>"), conf(1, "OUT", "out.>")} {
		if _, _, err := p.CreateTopic(t.Context(), "A", c); err != nil {
			t.Fatal(err)
		}
	}
	counts := func(recovery, topic string) string {
		text := strings.Replace(fmt.Sprintf(counting, "auto"), "standby: auto", "recovery: "+recovery, 1)
		return strings.Replace(text, "topic: IN", "topic: "+topic, 1)
	}
	for text, want := range map[string]string{
		counts("passive", "QUEUE"):       "need not have them any more",
		counts("passive", "LATEST"):      "max_msgs_per_subject",
		counts("upstream", "IN"):         "accept_loss",
		counts("amnesia", "IN"):          "accept_loss",
		recovering("upstream", "") + " ": "",
		counts("passive", "IN"):          "",
	} {
		_, err := p.ops.service.deploy(t.Context(), "A", &Request{Spec: text, Dry: true})
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%v, wanted %q", err, want)
		}
	}
}

// Whoever takes over has the state open, whatever its size: nothing is loaded, and nothing
// is fetched.
func TestTakingOverLoadsNothing(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	f.withTopics()
	text := fmt.Sprintf(counting, "delta\nstate: {backend: pebble}")
	o := f.any().deploy(text)
	const keys = 3000
	for i := range keys {
		f.any().publish(fmt.Sprintf(`{"k":"key%d","v":5}`, i))
	}
	wait(t, "the output", func() (bool, string) { n := len(f.any().output()); return n == keys, fmt.Sprint(n) })
	f.level(o.ID)
	stores := map[string]any{}
	for name, p := range f.nodes {
		u := p.ops.unit(unitKey{id: o.ID}, nil)
		if !u.store.Load().InFiles() {
			t.Errorf("the state on %s is not in files", name)
		}
		stores[name] = u.store.Load()
	}
	f.kill(f.leader().net.Name())
	f.any().publish(`{"k":"key7","v":6}`)
	wait(t, "the output after the failure", func() (bool, string) {
		lines := f.any().output()
		return len(lines) == keys+1 && strings.HasSuffix(lines[keys], `"n":2,"total":11}`), lines[len(lines)-1]
	})
	l := f.leader()
	u := l.ops.unit(unitKey{id: o.ID}, nil)
	if r := u.report(); stores[l.net.Name()] != any(u.store.Load()) || r.Stats.Rebuilt > 0 {
		t.Errorf("the state was opened or fetched: %+v", r.Stats)
	}
}

// auto has standbys run the steps where the changes of state are much more than the input,
// and what is given is the same.
func TestAutoChoosesWhatIsLess(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	f.withTopics()
	text := strings.Replace(fmt.Sprintf(windowing, "auto"), "{ tumble: 10s }", "{ hop: 100s, every: 1s }", 1)
	o := f.any().deploy(text)
	rng := rand.New(rand.NewPCG(11, 8))
	mode := func() string {
		l := f.leader()
		if l == nil {
			return "nobody leads"
		}
		return l.reportOf(o.ID).Standby
	}
	sent := 0
	wait(t, "the change to replay", func() (bool, string) {
		f.any().publish(record(rng, sent))
		sent++
		m := mode()
		return m == "replay", m
	})
	for range 100 {
		f.any().publish(record(rng, sent))
		sent++
	}
	wait(t, "the output", func() (bool, string) { return same(f.any().output(), batch(t, text, f.any().input())) })
	f.level(o.ID)
	// They are those of the node that leads, from when it began to.
	wait(t, "the figures", func() (bool, string) {
		f.any().publish(record(rng, sent))
		sent++
		l := f.leader()
		if l == nil {
			return false, "nobody leads"
		}
		r := l.reportOf(o.ID)
		calls := uint64(0)
		for _, l := range r.Loads {
			calls += l.Calls
		}
		s := r.Stats
		return s.DeltaBytes > s.LogBytes && s.InBytes > 0 && s.Busy > 0 && s.Idle+s.Blocked > 0 && calls > 0 && !s.Since.IsZero(),
			fmt.Sprintf("%+v, %+v", s, r.Loads)
	})
}

// Who takes over says how long it took.
func TestTakingOverIsTimed(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	f.withTopics()
	o := f.any().deploy(fmt.Sprintf(counting, "delta"))
	f.any().publish(`{"k":"a","v":5}`)
	f.any().lines(1)
	f.kill(f.leader().net.Name())
	f.any().publish(`{"k":"a","v":6}`)
	f.any().lines(2)
	wait(t, "the times", func() (bool, string) {
		l := f.leader()
		if l == nil {
			return false, "nobody leads"
		}
		s := l.reportOf(o.ID).Stats
		return !s.Since.IsZero() && s.FirstOutput > 0 && s.Apply > 0, fmt.Sprintf("%+v", s)
	})
}
