package operate

import (
	"fmt"
	"os"
	"strings"
	"testing"
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
	if d.Operator.Epoch != 2 || d.Operator.Shadow != nil || d.Steps["aggregate_1"] != stepKept {
		t.Errorf("promoted: %+v %v", d.Operator, d.Steps)
	}
	publish(2)
	if got := p.lines(9)[8]; got != `out.a {"k":"a","n":9,"total":47}` {
		t.Errorf("after the promotion comes %s", got)
	}
}
