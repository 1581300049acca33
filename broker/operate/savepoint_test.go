package operate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/heraldmq/herald/topics/catalogue"
)

func (p *place) must(v any, err error) any {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
	return v
}

// lines waits for so many lines of output.
func (p *place) lines(n int) (lines []string) {
	p.Helper()
	wait(p, fmt.Sprintf("%d outputs", n), func() (bool, string) {
		lines = p.output()
		return len(lines) == n, fmt.Sprint(len(lines))
	})
	return lines
}

func TestASavepointIsGoneBackTo(t *testing.T) {
	for _, kind := range []string{"memory", "pebble", "memory}\npartitions: 3\nlimits: {in_flight: 2"} {
		t.Run(strings.Fields(kind)[0], func(t *testing.T) {
			dir := t.TempDir()
			p := open(t, dir, nil)
			defer func() { p.close() }()
			p.topics(1)
			text := fmt.Sprintf(counting, "delta\nstate: {backend: "+kind+"}")
			o := p.deploy(text)
			for i := range 40 {
				p.publish(fmt.Sprintf(`{"k":"k%d","v":5}`, i%7))
			}
			p.lines(40)
			p.sized("counts", "aggregate_1")
			s := &p.ops.service
			made := p.must(s.savepointCreate(t.Context(), "A", &Request{Name: "counts", Savepoint: "before"})).(*Savepoint)
			if made.Epoch != 1 || len(made.Instances) != len(o.Homes()) || made.Instances[0].Keys == 0 {
				t.Errorf("made: %+v", made)
			}
			if _, err := s.savepointCreate(t.Context(), "A", &Request{Name: "counts", Savepoint: "before"}); err == nil {
				t.Error("a savepoint is made twice")
			}
			for i := range 10 {
				p.publish(fmt.Sprintf(`{"k":"k%d","v":6}`, i%7))
			}
			after := slices.Sorted(slices.Values(p.lines(50)[40:]))

			// What came after it comes again, and is the same.
			d := p.must(s.restore(t.Context(), "A", &Request{Name: "counts", Savepoint: "before"})).(Deployed)
			if d.Operator.Epoch != 2 || d.Steps["aggregate_1"] != stepKept {
				t.Errorf("restored: %+v, %v", d.Operator, d.Steps)
			}
			again := slices.Sorted(slices.Values(p.lines(60)[50:]))
			if !slices.Equal(after, again) {
				t.Errorf("after the savepoint comes %v, and came %v", again, after)
			}
			p.sized("counts", "aggregate_1")
			p.close()
			p = open(t, dir, nil)
			p.sized("counts", "aggregate_1")
			s = &p.ops.service
			p.publish(`{"k":"k0","v":7}`)
			if got := p.lines(61)[60]; got != `out.k0 {"k":"k0","n":9,"total":49}` {
				t.Errorf("after a restart comes %s", got)
			}

			// Another operator begins with it.
			copied := strings.Replace(text, "operator: counts", "operator: copy", 1)
			p.must(s.deploy(t.Context(), "A", &Request{Spec: copied, Savepoint: "counts/before"}))
			if got := slices.Sorted(slices.Values(p.lines(72)[61:71])); len(o.Homes()) == 1 && !slices.Equal(after, got) {
				t.Errorf("the copy gives %v instead of %v", got, after)
			}
			list := p.must(s.savepointList(t.Context(), "A", &Request{})).(map[string]any)["savepoints"].([]Savepoint)
			if len(list) != 1 || list[0].Name != "before" || list[0].Object != made.Object {
				t.Errorf("listed: %+v", list)
			}
			p.must(s.savepointInfo(t.Context(), "A", &Request{Name: "counts", Savepoint: "before"}))
			wait(t, "the removal, once all instances have run a step", func() (bool, string) {
				_, err := s.savepointRemove(t.Context(), "A", &Request{Name: "counts", Savepoint: "before"})
				return err == nil, fmt.Sprint(err)
			})
			if _, err := s.restore(t.Context(), "A", &Request{Name: "counts", Savepoint: "before"}); err == nil || !strings.Contains(err.Error(), "no savepoint") {
				t.Errorf("a savepoint that is gone: %v", err)
			}
			if top, ok := p.Topic("A", savepointTopic); !ok || top.Data().Count(nil, 1) != 0 {
				t.Error("something is left of it")
			}
		})
	}
}

// All replicas begin with the savepoint, whoever led when it was made, and whoever leads
// then.
func TestASavepointOutlivesItsPrimary(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	f.withTopics()
	text := fmt.Sprintf(counting, "delta")
	o := f.any().deploy(text)
	for i := range 30 {
		f.any().publish(fmt.Sprintf(`{"k":"k%d","v":5}`, i%3))
	}
	f.any().lines(30)
	for name, p := range f.nodes { // any node makes one
		wait(t, "a savepoint by "+name, func() (bool, string) {
			_, err := p.ops.service.savepointCreate(t.Context(), "A", &Request{Name: "counts", Savepoint: "by-" + name})
			return err == nil, fmt.Sprint(err)
		})
	}
	f.any().publish(`{"k":"k0","v":6}`)
	after := f.any().lines(31)[30]
	dead := f.leader().net.Name()
	f.kill(dead)
	wait(t, "another leader", func() (bool, string) { return f.leader() != nil, "" })
	var d Deployed
	wait(t, "the way back", func() (bool, string) {
		v, err := f.any().ops.service.restore(t.Context(), "A", &Request{Name: "counts", Savepoint: "by-" + dead})
		if err == nil {
			d = v.(Deployed)
		}
		return err == nil, fmt.Sprint(err)
	})
	if got := f.any().lines(32)[31]; got != after {
		t.Errorf("after the savepoint comes %s instead of %s", got, after)
	}
	f.join(dead)
	f.ready()
	wait(t, "the epoch on all nodes", func() (bool, string) {
		for name, p := range f.nodes {
			if r := p.reportOf(o.ID); r.Epoch != d.Operator.Epoch {
				return false, fmt.Sprint(name, " is in epoch ", r.Epoch)
			}
		}
		return true, ""
	})
	f.level(o.ID)
	if got := f.any().Operator("A", "counts"); got.From == nil || got.From.Savepoint != "by-"+dead || got.State != catalogue.Running {
		t.Errorf("the catalogue says %+v", got)
	}
}
