package operate

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/heraldmq/herald/topics/catalogue"
)

// compared waits until the shadow has followed the operator to so many rows of it.
func (p *place) compared(id uint64, rows uint64) (s ShadowReport) {
	p.Helper()
	wait(p, "the comparison", func() (bool, string) {
		r := p.reportOf(id).Shadow
		if r == nil {
			return false, "there is none"
		}
		s = *r
		return s.Same+s.OnlyOld == rows || s.Error != "", fmt.Sprintf("%+v", s)
	})
	return s
}

func TestAShadowSaysWhatWouldDiffer(t *testing.T) {
	p := open(t, t.TempDir(), nil)
	defer p.close()
	p.topics(1)
	text := fmt.Sprintf(counting, "delta")
	o := p.deploy(text)
	s := &p.ops.service
	publish := func(values ...int) {
		for _, v := range values {
			p.publish(fmt.Sprintf(`{"k":"a","v":%d}`, v))
		}
	}
	publish(3, 4, 5)
	p.lines(3)

	// The same but for its name: all rows are the same, with the state that it had.
	same := strings.Replace(text, "operator: counts", "operator: counts\nversion: same", 1)
	p.must(s.update(t.Context(), "A", &Request{Spec: same, Shadow: true}))
	wait(t, "the shadow", func() (bool, string) { return p.reportOf(o.ID).Shadow != nil, "" })
	publish(6, 7)
	if r := p.compared(o.ID, 2); r.Same != 2 || r.OnlyNew != 0 || r.Error != "" || r.Version != "same" {
		t.Errorf("the same version: %+v", r)
	}

	// One that takes another record too: it gives a row more, and others.
	more := strings.Replace(text, "v > 2", "v > 1", 1)
	p.must(s.update(t.Context(), "A", &Request{Spec: more, Shadow: true}))
	wait(t, "the other shadow", func() (bool, string) {
		r := p.reportOf(o.ID).Shadow
		return r != nil && r.Version == "", ""
	})
	publish(8, 2, 9)
	r := p.compared(o.ID, 2)
	if r.Same != 1 || r.OnlyOld != 1 || r.OnlyNew != 2 || len(r.Old) != 1 || len(r.New) != 2 || !strings.Contains(r.Old[0], `OUT out.a {"k":"a","n":7`) {
		t.Errorf("the other version: %+v", r)
	}
	if n := len(p.output()); n != 7 {
		t.Errorf("the shadow gives outputs: %d", n)
	}

	// One that fails says so, and the operator goes on.
	second := r.Since
	p.must(s.update(t.Context(), "A", &Request{Spec: strings.Replace(text, "v > 2", "nothing > 2", 1), Shadow: true}))
	wait(t, "the third shadow", func() (bool, string) {
		r := p.reportOf(o.ID).Shadow
		return r != nil && r.Since.After(second), ""
	})
	publish(3)
	p.lines(8)
	if r := p.compared(o.ID, 1); !strings.Contains(r.Error, "nothing") {
		t.Errorf("a version that fails: %+v", r)
	}
	p.must(s.discard(t.Context(), "A", &Request{Name: "counts"}))
	wait(t, "the end of the shadow", func() (bool, string) { return p.reportOf(o.ID).Shadow == nil, "" })
	if _, err := os.Stat(p.ops.unit(unitKey{id: o.ID}, nil).shadowDir()); !os.IsNotExist(err) {
		t.Errorf("its state is left: %v", err)
	}
	if _, err := s.promote(t.Context(), "A", &Request{Name: "counts"}); err == nil {
		t.Error("what isn't there is promoted")
	}

	// Promoted, it takes over at one step.
	p.must(s.update(t.Context(), "A", &Request{Spec: more, Shadow: true}))
	d := p.must(s.promote(t.Context(), "A", &Request{Name: "counts"})).(Deployed)
	if d.Operator.Next == nil || d.Steps["aggregate_1"] != stepShadow {
		t.Errorf("to be promoted: %+v %v", d.Operator, d.Steps)
	}
	if o := p.promoted("counts"); o.Epoch != 2 || o.Shadow != nil {
		t.Errorf("promoted: %+v", o)
	}
	publish(2)
	if got := p.lines(9)[8]; got != `out.a {"k":"a","n":9,"total":47}` {
		t.Errorf("after the promotion comes %s", got)
	}
}

// arrived waits until the input has so many records.
func (p *place) arrived(n int) {
	p.Helper()
	wait(p, "the input", func() (bool, string) { have := len(p.bodies()); return have == n, fmt.Sprint(have, " of ", n) })
}

// promoted waits until a promotion is over.
func (p *place) promoted(name string) (o *catalogue.Operator) {
	p.Helper()
	wait(p, "the promotion", func() (bool, string) {
		o = p.Operator("A", name)
		return o.Next == nil && o.Shadow == nil, fmt.Sprintf("%+v", o)
	})
	return o
}

const tallying = `
operator: parted
partitions: %d
state: {backend: %s}
inputs: [{topic: IN}]
steps:
  - {name: some, filter: v > 2}
  - key: k
  - aggregate: { n: count(), total: sum(v) }
outputs: [{topic: OUT, subject: 'out.{k}', from: aggregate_1}]
`

// tallied is a version with another step, which counts all records.
func tallied(text string) string {
	return strings.NewReplacer("outputs: [", "  - {name: every, from: IN, key: k}\n  - {name: tally, aggregate: {m: count()}}\noutputs: [{topic: FAR, subject: 'far.{k}', from: tally}, ").Replace(text)
}

// What a step that only the shadow has gathered is there once it is promoted, and what the
// operator reads meanwhile is worked on once.
func TestAPromotedShadowKeepsWhatItHasGathered(t *testing.T) {
	for _, parts := range []int{1, 3} {
		for _, backend := range []string{"memory", "pebble"} {
			t.Run(fmt.Sprint(parts, backend), func(t *testing.T) {
				p := openWith(t, t.TempDir(), nil, compile, groupsOf(4, 0))
				defer p.close()
				p.spread(1, 1, 1, 1)
				text := fmt.Sprintf(tallying, parts, backend)
				p.deploy(text)
				s := &p.ops.service
				rng := rand.New(rand.NewPCG(5, uint64(parts)))
				publish := func(n int) {
					for range n {
						p.publish(fmt.Sprintf(`{"k":"k%d","v":%d}`, rng.IntN(9), rng.IntN(10)))
					}
				}
				publish(60)
				p.arrived(60)
				p.parted(text, "OUT")
				p.must(s.update(t.Context(), "A", &Request{Spec: tallied(text), Shadow: true}))
				wait(t, "the shadows", func() (bool, string) {
					n := 0
					for _, u := range p.ops.all() {
						if u.report().Shadow != nil {
							n++
						}
					}
					return n == parts, fmt.Sprint(n)
				})
				publish(100)
				p.arrived(160)
				p.parted(text, "OUT")
				p.must(s.promote(t.Context(), "A", &Request{Name: "parted"}))
				publish(100)
				p.promoted("parted")
				publish(30)
				for k := range 9 { // each key comes out behind the promotion
					p.publish(fmt.Sprintf(`{"k":"k%d","v":5}`, k))
				}
				p.arrived(299)
				p.parted(text, "OUT")
				// The tally is of all records behind the first 60: what came before the promotion is
				// counted, and comes out behind it only.
				m := map[string]int{}
				want := map[string]int{}
				for _, b := range p.bodies()[60:] {
					want[b[6:8]]++
				}
				last := map[string]int{}
				wait(t, "the tallies", func() (bool, string) {
					clear(m)
					clear(last)
					for _, line := range p.outputOf("FAR") {
						k, n := "", 0
						if _, err := fmt.Sscanf(line[strings.Index(line, "{"):], `{"k":"k%1s","m":%d}`, &k, &n); err != nil {
							return false, err.Error() + ": " + line
						}
						if k = "k" + k; m[k] > 0 && n != last[k]+1 {
							t.Fatalf("%s comes after %d", line, last[k])
						}
						m[k]++
						last[k] = n
					}
					return fmt.Sprint(last) == fmt.Sprint(want), fmt.Sprint(last, " instead of ", want)
				})
				before := 0
				for k := range want {
					before += want[k] - m[k]
				}
				if before < 100 || before > 200 {
					t.Errorf("%d records were gathered before the promotion", before)
				}
			})
		}
	}
}

// An operator with a shadow is rescaled with it: the shadow begins again beside the new
// instances.
func TestAnOperatorIsRescaledWithItsShadow(t *testing.T) {
	p := openWith(t, t.TempDir(), nil, compile, groupsOf(4, 0))
	defer p.close()
	p.spread(1, 1, 1, 1)
	text := fmt.Sprintf(tallying, 1, "auto")
	p.deploy(text)
	s := &p.ops.service
	publish := func(n int) {
		for i := range n {
			p.publish(fmt.Sprintf(`{"k":"k%d","v":%d}`, i%9, i%10))
		}
	}
	publish(40)
	p.must(s.update(t.Context(), "A", &Request{Spec: tallied(text), Shadow: true}))
	p.rescale(3)
	publish(40)
	p.rescaledTo(3)
	o := p.Operator("A", "parted")
	if o.Shadow == nil || !strings.Contains(string(o.Shadow.Spec), `"partitions":3`) {
		t.Fatalf("the shadow is %+v", o.Shadow)
	}
	shadows := func() (n int, same uint64) {
		for _, u := range p.ops.all() {
			if r := u.report().Shadow; r != nil && r.Error == "" {
				n, same = n+1, same+r.Same
			}
		}
		return n, same
	}
	wait(t, "three shadows", func() (bool, string) { n, _ := shadows(); return n == 3, fmt.Sprint(n) })
	publish(40)
	wait(t, "rows that are compared", func() (bool, string) { _, same := shadows(); return same >= 20, fmt.Sprint(same) })
	if _, err := s.promote(t.Context(), "A", &Request{Name: "parted"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.discard(t.Context(), "A", &Request{Name: "parted"}); err != nil && !strings.Contains(err.Error(), "is being promoted") && !strings.Contains(err.Error(), "no shadow") {
		t.Errorf("discarded while it is promoted: %v", err)
	}
	p.promoted("parted")
	publish(20)
	p.parted(strings.Replace(text, "partitions: 3", "partitions: 1", 1), "OUT")
}
