package state

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/heraldmq/herald/topics"
)

// steps hears of the steps and epochs of all nodes that it is given to.
type steps struct {
	mu  sync.Mutex
	all []string
}

func (s *steps) hooks() Hooks {
	add := func(what string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, what)
	}
	return Hooks{
		OnStep:     func(_ *Group, x Step) { add(fmt.Sprintf("%d/%d %s", x.Guard.Epoch, x.Guard.Seq, x.Head)) },
		OnProducer: func(_ *Group, e Epoch) { add(fmt.Sprintf("epoch %d", e.Epoch)) },
	}
}

func (s *steps) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.all, ", ")
}

func guardedStep(t *Topic, epoch, seq uint64, bodies ...string) *Guarded {
	x := &Guarded{Guard: topics.Guard{Producer: 7, Epoch: epoch, Seq: seq}, Step: fmt.Appendf(nil, "s%d", seq)}
	for _, b := range bodies {
		x.Publishes = append(x.Publishes, topics.Publish{Topic: t.ID(), Subject: []byte(t.Name() + ".x"), Payload: []byte(b)})
	}
	return x
}

func TestGuardedRecordsAreAppliedOnce(t *testing.T) {
	dir := t.TempDir()
	var heard steps
	n := openOnly(t, dir)
	if err := n.Start(heard.hooks()); err != nil {
		t.Fatal(err)
	}
	cfg := conf("T", "T.>")
	cfg.MaxMsgSize = 10
	top := n.create(cfg)
	other := n.create(conf("U", "U.>"))
	g := top.Group()
	ask := func(x *Guarded, want topics.Verdict, seq uint64) topics.GuardResult {
		t.Helper()
		r, err := g.AskGuarded(t.Context(), x)
		if err != nil || r.Verdict != want || r.At.Seq != seq {
			t.Fatalf("%+v: %+v, %v, wanted %d at %d", x.Guard, r, err, want, seq)
		}
		return r
	}
	ask(guardedStep(top, 1, 1, "too early"), topics.GuardRefused, 0)
	if e, err := g.DeclareProducer(t.Context(), 7, 1); e != 1 || err != nil {
		t.Fatal(e, err)
	}
	first := guardedStep(top, 1, 1, "a", "b")
	first.Publishes = append(first.Publishes, topics.Publish{Topic: other.ID(), Subject: []byte("U.x"), Payload: []byte("c")})
	ask(first, topics.GuardNext, 1)
	ask(first, topics.GuardDone, 1)
	ask(guardedStep(top, 1, 3, "gap"), topics.GuardRefused, 1)
	if r := ask(guardedStep(top, 1, 2, "fits", "is much too long"), topics.GuardRefused, 1); r.Fault == nil {
		t.Error("no fault is given for a message that is too large")
	}
	ask(guardedStep(top, 1, 2), topics.GuardNext, 2)
	if e, err := g.DeclareProducer(t.Context(), 7, 3); e != 3 || err != nil {
		t.Fatal(e, err)
	}
	ask(guardedStep(top, 1, 3, "zombie"), topics.GuardRefused, 0)
	ask(guardedStep(top, 3, 1, "d"), topics.GuardNext, 1)
	// A plain publish behind it gets its own ack.
	n.publish(top, "T.x", "", "e")
	if a := n.ack(); a.payload != `{"stream":"T","seq":4}` {
		t.Errorf("ack %+v", a)
	}
	bad := first.append(nil)
	if _, err := g.ask(t.Context(), topics.RecordGuard, bad[:len(bad)-1]); !errors.Is(err, topics.ErrBadEntry) {
		t.Errorf("records that are cut short: %v", err)
	}
	want := "epoch 1, 1/1 s1, 1/2 s2, epoch 3, 3/1 s1"
	if got := heard.String(); got != want {
		t.Errorf("told %s, wanted %s", got, want)
	}
	digest := n.digest()
	n.close()

	// What the log still has is told again, before anything else.
	var again steps
	n = openOnly(t, dir)
	if err := n.Start(again.hooks()); err != nil {
		t.Fatal(err)
	}
	if got := n.digest(); got != digest {
		t.Errorf("after a restart %s, before %s", got, digest)
	}
	top, _ = n.Topic("A", "T")
	if got := top.Group().Store().Place(7, 0); got != (topics.Place{Epoch: 3, Seq: 1}) {
		t.Errorf("after a restart the producer is at %+v", got)
	}
	if got := again.String(); !strings.HasSuffix(want, got) {
		t.Errorf("told again %s", got)
	}
	if e, err := top.Group().DeclareProducer(t.Context(), 7, 0); e != 0 || err != nil {
		t.Fatal(e, err)
	}
	r, err := top.Group().AskGuarded(t.Context(), guardedStep(top, 3, 2))
	if err != nil || r.Verdict != topics.GuardRefused {
		t.Errorf("after the producer's removal: %+v, %v", r, err)
	}
	if err := top.Group().Store().Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestGuardedRecordsInACluster(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	f.create("a", replicated(3, "T", "T.>"))
	f.notLeading("T")
	for i, on := range f.names() {
		f.wait(on+" knows T", func() (bool, string) { _, ok := f.nodes[on].Topic("A", "T"); return ok, "" })
		top, _ := f.nodes[on].Topic("A", "T")
		if _, err := top.Group().DeclareProducer(timed(t), 7, 1); err != nil {
			t.Fatal(err)
		}
		x := guardedStep(top, 1, uint64(i+1), on)
		for want := range 2 {
			r, err := top.Group().AskGuarded(timed(t), x)
			if err != nil || int(r.Verdict) != want {
				t.Fatalf("from %s: %+v, %v", on, r, err)
			}
		}
	}
	f.same("T")
	for _, on := range f.names() {
		top, _ := f.nodes[on].Topic("A", "T")
		if got := top.Group().Store().Place(7, 0); got.Seq != 3 {
			t.Errorf("%s has %+v", on, got)
		}
	}
}
