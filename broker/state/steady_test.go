package state

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/replication/placement"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// TestALeadThatWasAskedForStays: whoever steers the cluster has no reason to give it
// back, nor to prefer another node.
func TestALeadThatWasAskedForStays(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	topic := f.create("a", replicated(3, "T", "t.>"))
	f.notLeading("T")
	f.calm()
	for _, to := range []string{"c", "b", ""} {
		before := topic.Group().Leader()
		if err := topic.Group().Transfer(timed(t), to); err != nil {
			t.Fatal(err)
		}
		f.wait("the group's lead and preference are where they should be", func() (bool, string) {
			who, nodes := topic.Group().Leader(), topic.Group().Nodes()
			ok := who == to || to == "" && who != "" && who != before
			return ok && nodes[0] == who, fmt.Sprint(who, nodes)
		})
		f.calm()
		for _, n := range f.names() {
			m := f.nodes[n]
			if !m.IsCatalogueLeader() {
				continue
			}
			tables := m.tables()
			nodes, groups := m.cl.planInput(&tables)
			for _, c := range placement.Plan(nodes, groups, nil) {
				if c.Group == topic.Group().ID() {
					t.Errorf("after the lead was asked to be at %q: %v", to, c)
				}
			}
		}
	}
}

func TestTimeIsAgreedOn(t *testing.T) {
	const s, h = topics.Nanos(time.Second), topics.Nanos(time.Hour)
	for name, c := range map[string]struct {
		own            topics.Nanos
		clocks, agreed []topics.Nanos
		since, want    topics.Nanos
	}{
		"a new cluster takes the median":          {h, []topics.Nanos{h, 0, -h}, nil, 0, s},
		"and is its own clock if that is near":    {s / 2, []topics.Nanos{s / 2, 0, -h}, nil, 0, s / 2},
		"a node that starts takes what others do": {h, []topics.Nanos{h, h, 0}, []topics.Nanos{0, 0}, 0, 0},
		"which follow their clocks slowly":        {h, []topics.Nanos{h, h, 0}, []topics.Nanos{0, 0, 0}, 20 * s, s},
		"back too":                                {-h, []topics.Nanos{-h, -h, 0}, []topics.Nanos{0, 0, 0}, 20 * s, -s},
		"of two the earlier one counts":           {0, []topics.Nanos{0, h}, []topics.Nanos{0, h}, 0, 0},
		"where all clocks agree it is theirs":     {h, []topics.Nanos{h, h + 1, h - 1}, []topics.Nanos{0, 0, 0}, 0, h},
		"a lone node follows its clock slowly":    {h, []topics.Nanos{h}, []topics.Nanos{0}, 20 * s, s},
	} {
		if got := agreeOnTime(c.own, c.clocks, c.agreed, c.since); got != c.want {
			t.Errorf("%s: %s, want %s", name, time.Duration(got), time.Duration(c.want))
		}
	}
}

// TestANodeThatRestartsWithAnotherClockDecidesNothing restarts each node with another
// clock and has it lead: entries are as far apart as they should be, and a retry is
// still one.
func TestANodeThatRestartsWithAnotherClockDecidesNothing(t *testing.T) {
	t.Parallel()
	offsets := map[string]time.Duration{"b": time.Hour, "c": -time.Hour}
	f := &fleet{TB: t, dir: t.TempDir(), nodes: map[string]*member{}, acks: map[string]chan string{}, offset: offsets}
	t.Cleanup(f.stopAll)
	f.startMany(3)
	cfg := replicated(3, "T", "t.>")
	cfg.Duplicates = 10 * time.Minute
	f.create("a", cfg)
	f.notLeading("T")
	const id = "NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n"
	if a := f.publish("a", "T", "t.x", id, "x"); a != `{"stream":"T","seq":1}` {
		t.Fatal(a)
	}
	at := time.Now()
	topic, _ := f.nodes["a"].Topic("A", "T")
	first := topic.Data().State().LastTime
	for i, n := range []string{"b", "c", "a"} {
		f.kill(n)
		offsets[n] = []time.Duration{-50, 55, 40}[i] * time.Minute
		f.join(n)
		topic, _ := f.nodes[n].Topic("A", "T")
		f.wait(n+" leads", func() (bool, string) {
			if topic.Group().Leader() == n {
				return true, ""
			}
			return false, fmt.Sprint(topic.Group().Transfer(timed(t), n))
		})
		if a := f.publish(n, "T", "t.x", id, "x"); !strings.Contains(a, `"duplicate":true`) {
			t.Errorf("under %s the id is forgotten: %q", n, a)
		}
		if a := f.publish(n, "T", "t.y", "", "y"); !strings.Contains(a, `"seq":`) {
			t.Errorf("under %s: %q", n, a)
		}
		f.wait("it is there", func() (bool, string) { return topic.Data().State().Last == topics.Sequence(i+2), "" })
		passed := time.Duration(topic.Data().State().LastTime - first)
		if off := passed - time.Since(at); off.Abs() > 3*time.Second+time.Since(at)/10 {
			t.Errorf("under %s entries jump by %s", n, off)
		}
	}
}

// TestTheCatalogueHealsWhileItRuns has damage found in group 0, where it is led and
// where it isn't: nothing ends, the replica is filled again, and what it holds serves.
func TestTheCatalogueHealsWhileItRuns(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	f.create("a", replicated(3, "T", "t.>"))
	f.notLeading("T")
	f.calm()
	for i, leads := range []bool{false, true} {
		var hit *member
		f.wait("somebody leads the catalogue", func() (bool, string) {
			for _, n := range f.names() {
				if m := f.nodes[n]; f.nodes["a"].CatalogueLeader() != "" && m.IsCatalogueLeader() == leads {
					hit = m
				}
			}
			return hit != nil, ""
		})
		before := hit.meta.Load()
		before.ReportDamage(&replication.CorruptError{File: "meta", Offset: -1, Reason: "a test says so"})
		f.wait("it is filled again", func() (bool, string) {
			ok, why := hit.Ready()
			healed := slices.ContainsFunc(hit.Damage(), func(d Damage) bool { return d.Group == 0 && d.Files != "" })
			voter := false
			for _, m := range hit.meta.Load().Members() {
				voter = voter || m.Node == hit.name && m.Voter
			}
			hit.catalogue.mu.RLock()
			served := hit.catalogue.next == nil
			hit.catalogue.mu.RUnlock()
			return ok && healed && served && voter && hit.meta.Load() != before, fmt.Sprint(ok, why, healed, served, voter)
		})
		name := fmt.Sprintf("U%d", i)
		f.create(hit.name, replicated(3, name, name))
		f.wait("the catalogues are the same", func() (bool, string) {
			var all []string
			for _, n := range f.names() {
				var digest string
				f.nodes[n].catalogue.read(func(c *catalogue.Catalogue) {
					digest = fmt.Sprint(c.Revision(), len(c.Topics()), len(c.Groups()), len(c.Nodes()))
				})
				all = append(all, digest)
			}
			return len(slices.Compact(slices.Clone(all))) == 1, fmt.Sprint(all)
		})
		if a := f.publish(hit.name, "T", "t.x", "", "x"); !strings.Contains(a, `"seq":`) {
			t.Errorf("a message afterwards: %q", a)
		}
	}
}
