package operate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

const dividing = `
operator: %s
partitions: %d
inputs: [{topic: IN}]
steps:
  - key: k
  - aggregate: { n: count(), total: sum(v) }
outputs: [{topic: OUT, subject: 'out.{k}'}]
`

// A savepoint is of one place in the inputs, whatever each instance was doing, so that more or
// fewer can go on from it.
func TestASavepointIsRestoredWithAnotherNumberOfPartitions(t *testing.T) {
	p := openWith(t, t.TempDir(), nil, compile, groupsOf(4, 0))
	defer p.close()
	p.spread(1, 1, 1, 1)
	text := fmt.Sprintf(dividing, "parted", 3)
	p.deploy(text)
	s := &p.ops.service
	sent := 0
	publish := func(n int) {
		for range n {
			p.publish(fmt.Sprintf(`{"k":"k%d","v":%d}`, sent%17, sent%5))
			sent++
		}
	}
	publish(200)
	p.lines(200)
	var made *Savepoint
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { // records come while it is made
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
				publish(5)
			}
		}
	}()
	wait(t, "a savepoint", func() (bool, string) {
		v, err := s.savepointCreate(t.Context(), "A", &Request{Name: "parted", Savepoint: "sp"})
		if err == nil {
			made, _ = v.(*Savepoint)
		}
		return made != nil, fmt.Sprint(err)
	})
	close(stop)
	<-done
	publish(50)
	for _, c := range made.Instances {
		if !slices.Equal(c.Ends, made.Instances[0].Ends) || len(c.Ends) != 1 || c.Ends[0] < 1 {
			t.Errorf("the instances' places are %+v", made.Instances)
		}
	}
	p.arrived(sent)
	one := fmt.Sprintf(dividing, "parted", 1)
	p.parted(one, "OUT")
	before := len(p.output())
	at := int(made.Instances[0].Ends[0])

	// What comes behind it, of however many instances, is what came behind it.
	want := sorted(batchOf(t, one, "OUT", p.bodies())[at:])
	for i, n := range []int{5, 1} {
		copied := fmt.Sprintf(dividing, fmt.Sprint("copy", i), n)
		p.must(s.deploy(t.Context(), "A", &Request{Spec: copied, Savepoint: "parted/sp"}))
		wait(t, fmt.Sprint("the results of ", n), func() (bool, string) {
			lines := p.output()
			return same(sorted(lines[before:]), want)
		})
		p.must(s.remove(t.Context(), "A", &Request{Name: fmt.Sprint("copy", i)}))
		before = len(p.output())
	}

	// The operator itself goes back to it with the partitions that it has meanwhile.
	p.rescale(5)
	p.rescaledTo(5)
	d := p.must(s.restore(t.Context(), "A", &Request{Name: "parted", Savepoint: "sp"})).(Deployed)
	if len(d.Operator.Homes()) != 5 || d.Operator.From.Resend != nil {
		t.Errorf("restored: %+v", d.Operator)
	}
	wait(t, "the results of the restored", func() (bool, string) {
		ok, why := same(sorted(p.output()[before:]), want)
		return ok, why + p.standing()
	})
	if _, err := s.update(t.Context(), "A", &Request{Spec: fmt.Sprintf(dividing, "parted", 2), Savepoint: "sp"}); err == nil || !strings.Contains(err.Error(), "rescale it first") {
		t.Errorf("with other partitions than it has: %v", err)
	}
}

// An epoch may be over before it has begun where the state is: what all versions since have
// kept is kept, of an operator that is paused as well as of instances that have just come.
func TestEpochsThatFollowAtOnceKeepTheState(t *testing.T) {
	p := openWith(t, t.TempDir(), nil, compile, groupsOf(4, 0))
	defer p.close()
	p.spread(1, 1, 1, 1)
	text := fmt.Sprintf(dividing, "parted", 1)
	p.deploy(text)
	s := &p.ops.service
	sent := 0
	publish := func(n int) {
		for range n {
			p.publish(fmt.Sprintf(`{"k":"k%d","v":1}`, sent%9))
			sent++
		}
	}
	publish(50)
	p.lines(50)
	p.must(s.pause(t.Context(), "A", &Request{Name: "parted"}))
	for i := range 3 {
		spec := strings.Replace(text, "inputs:", fmt.Sprintf("version: %d.0.0\ninputs:", i+2), 1)
		p.must(s.update(t.Context(), "A", &Request{Spec: spec}))
		if i < 2 {
			p.must(s.pause(t.Context(), "A", &Request{Name: "parted"}))
		}
	}
	publish(50)
	p.parted(text, "OUT")
	for i, n := range []int{3, 5, 2} {
		p.rescale(n)
		p.rescaledTo(n)
		spec := strings.Replace(fmt.Sprintf(dividing, "parted", n), "inputs:", fmt.Sprintf("version: %d.0.0\ninputs:", i+5), 1)
		p.must(s.update(t.Context(), "A", &Request{Spec: spec})) // before all of them have begun
		publish(50)
		p.parted(text, "OUT")
	}
	if o := p.Operator("A", "parted"); o.Epoch < 10 || o.State != catalogue.Running {
		t.Errorf("in the end it is in epoch %d, %s %s%s", o.Epoch, o.State, o.Error, p.standing())
	}
}

// standing says how the units are, for what a test has waited for in vain.
func (p *place) standing() string {
	var b strings.Builder
	for _, u := range p.ops.all() {
		r := u.report()
		fmt.Fprintf(&b, "\n%d: %s %s epoch %d step %d lag %d %s", u.slot, u.op.Load().State, u.op.Load().Error, r.Epoch, r.Seq, r.Lag, r.Blocked)
		for _, l := range r.Log {
			fmt.Fprintf(&b, "\n   %s %s %s", l.Time.Format("05.000000"), l.Level, l.Text)
		}
	}
	return b.String()
}

// One whose instances stand at different places can't be spread, and says so.
func TestASavepointOfInstancesThatStandStillElsewhere(t *testing.T) {
	p := openWith(t, t.TempDir(), nil, compile, groupsOf(4, 0))
	defer p.close()
	p.spread(1, 1, 1, 1)
	p.deploy(fmt.Sprintf(dividing, "parted", 3))
	s := &p.ops.service
	for i := range 30 {
		p.publish(fmt.Sprintf(`{"k":"k%d","v":1}`, i))
	}
	p.lines(30)
	p.publish(`{"k":"k1","v":"no number"}`) // one instance stops in front of it
	wait(t, "the failure", func() (bool, string) {
		o := p.Operator("A", "parted")
		return o.State == catalogue.Failed, string(o.State)
	})
	made := p.must(s.savepointCreate(t.Context(), "A", &Request{Name: "parted", Savepoint: "failed"})).(*Savepoint)
	differs := false
	for _, c := range made.Instances {
		differs = differs || !slices.Equal(c.Ends, made.Instances[0].Ends)
	}
	other := fmt.Sprintf(dividing, "other", 2)
	_, err := s.deploy(t.Context(), "A", &Request{Spec: other, Savepoint: "parted/failed", Dry: true})
	if differs != (err != nil && strings.Contains(err.Error(), "not read up to the same place")) {
		t.Errorf("places differ: %t, and it says %v", differs, err)
	}
	if _, err := s.deploy(t.Context(), "A", &Request{Spec: fmt.Sprintf(dividing, "other", 3), Savepoint: "parted/failed", Dry: true}); err != nil {
		t.Errorf("with as many as it has: %v", err)
	}
}

const sending = `
operator: sends
inputs: [{topic: IN}]
steps: [{map: {v: v}}]
outputs: [{topic: OUT, subject: out.x}, {topic: FAR, subject: far.x}]
`

// far makes FAR have room for so many messages.
func (p *place) far(room int64) {
	p.Helper()
	cfg := conf(1, "FAR", "far.>")
	cfg.MaxMsgs, cfg.Discard = room, topics.DiscardNew
	wait(p, "FAR has other bounds", func() (bool, string) {
		_, err := p.UpdateTopic(p.Context(), "A", cfg)
		return err == nil, fmt.Sprint(err)
	})
}

// waits waits until so many of an operator's parcels wait.
func (p *place) waits(name string) {
	p.Helper()
	wait(p, "parcels wait", func() (bool, string) {
		for _, u := range p.ops.all() {
			if u.op.Load().Name == name {
				for _, l := range u.report().Outbox {
					if l.Parcels > 0 && l.Blocked != "" {
						return true, ""
					}
				}
			}
		}
		return false, ""
	})
}

// What waits in the outbox when a savepoint is made is sent in any case: by the operator, and
// where that has lost its state, or is gone, by whoever goes on from the savepoint; by nobody
// twice.
func TestWhatWaitsInASavepointIsSentOnce(t *testing.T) {
	for _, how := range []string{"restored", "lost", "gone"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			start := func() *place { return openWith(t, dir, nil, compile, groupsOf(4, 0)) }
			p := start()
			defer func() { p.close() }()
			p.spread(1, 1, 1, 1)
			p.deploy(sending)
			p.far(3)
			publish := func(from, to int) {
				for i := from; i < to; i++ {
					p.publish(fmt.Sprintf(`{"v":%d}`, i))
					p.lines(i + 1) // a step, and a parcel, each
				}
			}
			publish(0, 8)
			p.waits("sends")
			made := p.must(p.ops.service.savepointCreate(t.Context(), "A", &Request{Name: "sends", Savepoint: "sp"})).(*Savepoint)
			if made.Instances[0].Waits == 0 {
				t.Fatalf("nothing waits: %+v", made)
			}
			publish(8, 10)
			extra := 2 // what came behind the savepoint comes again
			switch how {
			case "lost":
				o := p.Operator("A", "sends")
				top, _ := p.Topic("A", "OUT")
				if err := top.Group().Store().Flush(); err != nil {
					t.Fatal(err)
				}
				p.close()
				if err := os.RemoveAll(filepath.Join(dir, "operators", fmt.Sprint(o.ID))); err != nil {
					t.Fatal(err)
				}
				p = start()
				wait(t, "the loss", func() (bool, string) {
					o := p.Operator("A", "sends")
					return o.Lost && o.State == catalogue.Failed, o.Error
				})
				p.must(p.ops.service.restore(t.Context(), "A", &Request{Name: "sends", Savepoint: "sp"}))
			case "gone":
				p.must(p.ops.service.remove(t.Context(), "A", &Request{Name: "sends"}))
				p.must(p.ops.service.deploy(t.Context(), "A", &Request{Spec: strings.Replace(sending, "sends", "other", 1), Savepoint: "sends/sp"}))
			case "restored":
				p.must(p.ops.service.restore(t.Context(), "A", &Request{Name: "sends", Savepoint: "sp"}))
			}
			p.lines(10 + extra)
			p.far(-1)
			want := []string{}
			for i := range 10 {
				want = append(want, fmt.Sprintf(`far.x {"v":%d}`, i))
			}
			again := []string{`far.x {"v":8}`, `far.x {"v":9}`}
			if how == "restored" { // the outbox has them, and they come again
				want = append(want, again...)
			}
			wait(t, "what waited", func() (bool, string) { return same(p.outputOf("FAR"), want) })
			p.publish(`{"v":10}`)
			want = append(want, `far.x {"v":10}`)
			wait(t, "what comes then", func() (bool, string) { return same(p.outputOf("FAR"), want) })
		})
	}
}
