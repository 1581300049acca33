package operate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/heraldmq/herald/topics/catalogue"
)

// An input's topic that is deleted stops the operator, which says so; the one that is made
// anew under its name is read from its beginning, with the state that there is, once the
// operator is resumed or updated, and nothing of it is taken for what had been read.
func TestAnInputThatIsDeletedStopsItsOperator(t *testing.T) {
	for _, kind := range []string{"memory", "pebble"} {
		for _, how := range []string{"resume", "update"} {
			t.Run(kind+how, func(t *testing.T) {
				dir := t.TempDir()
				p := open(t, dir, nil)
				defer func() { p.close() }()
				p.topics(1)
				text := fmt.Sprintf(counting, "delta\nstate: {backend: "+kind+"}")
				p.deploy(text)
				for range 5 {
					p.publish(`{"k":"a","v":5}`)
				}
				p.lines(5)
				gone := func(want string) {
					t.Helper()
					wait(t, "the operator to stop", func() (bool, string) {
						o := p.Operator("A", "counts")
						return o.State == catalogue.Failed && strings.Contains(o.Error, want), string(o.State) + " " + o.Error
					})
				}
				if err := p.DeleteTopic(t.Context(), "A", "IN"); err != nil {
					t.Fatal(err)
				}
				p.poked()
				gone("input IN: topic IN was deleted; the operator has read it up to sequence 5")
				told := false
				for _, l := range p.reportOf(p.Operator("A", "counts").ID).Log {
					told = told || strings.Contains(l.Text, "was deleted")
				}
				if !told {
					t.Error("its log doesn't say so")
				}
				if _, err := p.ops.service.resume(t.Context(), "A", &Request{Name: "counts"}); err == nil || !strings.Contains(err.Error(), "there is no topic IN; make it anew") {
					t.Errorf("resumed without its input: %v", err)
				}
				p.close()
				p = open(t, dir, nil)
				p.topic(conf(1, "IN", "in.>"))
				goOn := func(i int) {
					t.Helper()
					if how == "resume" {
						p.must(p.ops.service.resume(t.Context(), "A", &Request{Name: "counts"}))
						return
					}
					p.must(p.ops.service.update(t.Context(), "A", &Request{Spec: strings.Replace(text, "inputs:", fmt.Sprintf("version: %d.0.0\ninputs:", i), 1)}))
				}
				for range 3 {
					p.publish(`{"k":"a","v":5}`)
				}
				goOn(2)
				if got := p.lines(8)[7]; got != `out.a {"k":"a","n":8,"total":40}` {
					t.Errorf("behind the topic that was made anew comes %s", got)
				}

				// Deleted and made anew before the operator looks: it isn't the same topic.
				if err := p.DeleteTopic(t.Context(), "A", "IN"); err != nil {
					t.Fatal(err)
				}
				p.topic(conf(1, "IN", "in.>"))
				for range 7 {
					p.publish(`{"k":"a","v":3}`)
				}
				p.poked()
				gone("topic IN was deleted")
				goOn(3)
				if got := p.lines(15)[14]; got != `out.a {"k":"a","n":15,"total":61}` {
					t.Errorf("behind the next one comes %s", got)
				}
				p.close()
				p = open(t, dir, nil)
				p.publish(`{"k":"a","v":3}`)
				if got := p.lines(16)[15]; got != `out.a {"k":"a","n":16,"total":64}` {
					t.Errorf("after a restart comes %s", got)
				}
			})
		}
	}
}

// poked has the units look at their inputs.
func (p *place) poked() {
	for _, u := range p.ops.all() {
		u.poke()
	}
}

// Recovery other than active has one instance: it is refused where it is checked, deployed,
// updated and rescaled.
func TestPartitionsAreRefusedWithoutRecoveryActive(t *testing.T) {
	p := open(t, t.TempDir(), nil)
	defer p.close()
	p.topics(1)
	for _, recovery := range []string{"passive", "upstream", "amnesia"} {
		text := fmt.Sprintf(windowing, "auto\nrecovery: "+recovery)
		several := strings.Replace(text, "inputs:", "partitions: 3\ninputs:", 1)
		want := "with recovery " + recovery + " there is one instance; use recovery active"
		if _, err := compile("A", []byte(several), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("lint says of %s: %v", recovery, err)
		}
		s := &p.ops.service
		if _, err := s.deploy(t.Context(), "A", &Request{Spec: several}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is deployed: %v", recovery, err)
		}
		p.deploy(text)
		if _, err := s.update(t.Context(), "A", &Request{Spec: several}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("updated to %s: %v", recovery, err)
		}
		if _, err := s.rescale(t.Context(), "A", &Request{Name: "windows", Partitions: 3}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is rescaled: %v", recovery, err)
		}
		p.must(s.remove(t.Context(), "A", &Request{Name: "windows"}))
	}
}
