package operate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// ledger knows what a running count by key has given, and what it should have given.
type ledger struct {
	p     *place
	rng   *rand.Rand
	sent  map[string][]int64 // by key: the totals that are to come, in order
	given map[string]int     // by key: how many have
	all   int
	read  topics.Sequence
}

const summing = `
operator: parted
partitions: %d
inputs: [{topic: IN}]
steps:
  - key: k
  - aggregate: { n: count(), total: sum(v) }
outputs: [{topic: OUT, subject: out.x}, {topic: FAR, subject: far.x}]
`

func (l *ledger) publish(n int) {
	for range n {
		k, v := fmt.Sprint("k", l.rng.IntN(40)), l.rng.Int64N(1000)
		l.p.publish(fmt.Sprintf(`{"k":%q,"v":%d}`, k, v))
		total := v
		if old := l.sent[k]; len(old) > 0 {
			total += old[len(old)-1]
		}
		l.sent[k] = append(l.sent[k], total)
		l.all++
	}
}

// holds waits until everything has been given, and holds it against what was computed: each
// sum once, those of a key in order.
func (l *ledger) holds() {
	l.p.Helper()
	wait(l.p, "the sums", func() (bool, string) {
		t, ok := l.p.Topic("A", "OUT")
		if !ok || t.Data() == nil {
			return false, "no output"
		}
		messages, _, err := t.Data().Read(nil, l.read+1, 1<<20, 0, nil)
		if err != nil {
			return false, err.Error()
		}
		for _, m := range messages {
			var r struct {
				K     string
				N     int
				Total int64
			}
			if err := json.Unmarshal(m.Payload, &r); err != nil {
				l.p.Fatal(err)
			}
			at := l.given[r.K]
			if at >= len(l.sent[r.K]) || r.N != at+1 || r.Total != l.sent[r.K][at] {
				l.p.Fatalf("after %d results of %s comes %s", at, r.K, m.Payload)
			}
			l.given[r.K]++
			l.read = m.Sequence
		}
		far, ok := l.p.Topic("A", "FAR")
		n := uint64(0)
		if ok && far.Data() != nil {
			n = far.Data().Count(nil, 1)
		}
		return l.read == topics.Sequence(l.all) && n == uint64(l.all), fmt.Sprintf("%d and %d of %d", l.read, n, l.all)
	})
}

// TestManyRescalings rescales again and again while records come, calls some off at any
// stage, and restarts the node in the middle of some: in full a thousand times.
func TestManyRescalings(t *testing.T) {
	runs := 30
	switch {
	case os.Getenv("HERALD_LONG") != "":
		runs = 1000
	case testing.Short():
		runs = 8
	}
	dir := t.TempDir()
	start := func() *place { return openWith(t, dir, nil, compile, groupsOf(4, 0)) }
	p := start()
	defer func() { p.close() }()
	p.spread(1, 1, 1, 1)
	p.deploy(fmt.Sprintf(summing, 3))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	l := &ledger{p: p, rng: rand.New(rand.NewPCG(seed, 1)), sent: map[string][]int64{}, given: map[string]int{}}
	done, revoked, restarts := 0, 0, 0
	for range runs {
		l.publish(20)
		n := 1 + l.rng.IntN(8)
		p.rescale(n)
		l.publish(10)
		if l.rng.IntN(20) == 0 {
			p.close()
			p = start()
			l.p, restarts = p, restarts+1
			l.publish(10)
		}
		if l.rng.IntN(3) == 0 {
			if p.cancelAt(l.rng.IntN(4)) {
				revoked++
			}
		}
		wait(t, "nothing to be under way", func() (bool, string) {
			o := p.Operator("A", "parted")
			return o.Next == nil, fmt.Sprintf("%+v", o.Next)
		})
		if len(p.Operator("A", "parted").Homes()) == n {
			done++
		}
		l.publish(10)
		l.holds()
	}
	t.Logf("%d runs with %d records: %d times rescaled, %d times called off, %d restarts", runs, l.all, done, revoked, restarts)
	if done == 0 || !testing.Short() && revoked == 0 {
		t.Errorf("%d of %d runs rescaled, %d were called off", done, runs, revoked)
	}
}

// cancelAt calls the succession off once it has come to a stage, unless it is over then.
func (p *place) cancelAt(stage int) (revoked bool) {
	p.Helper()
	wait(p, "the stage", func() (bool, string) {
		o := p.Operator("A", "parted")
		switch {
		case o.Next == nil, stage == 0:
			return true, ""
		case stage == 1: // the instances have noted it
			for _, s := range p.ops.stands(o) {
				if s.At.Halted == o.Next.Layout {
					return true, ""
				}
			}
			return false, "none has halted"
		case stage == 2:
			return o.Next.Cut != nil, "no cut"
		}
		for _, s := range p.ops.stands(o) {
			if s.Ready {
				return true, ""
			}
		}
		return false, "none is ready"
	})
	before := p.Operator("A", "parted")
	_, err := p.ops.service.cancel(p.Context(), "A", &Request{Name: "parted"})
	if before.Next == nil && err == nil || err != nil && !strings.Contains(err.Error(), "nothing is under way") {
		p.Errorf("called off at stage %d of %+v: %v", stage, before.Next, err)
	}
	return err == nil
}

// At each stage before those that come have taken over, it can be called off: the operator
// goes on as it was, and can be rescaled again.
func TestARescalingIsCalledOffAtEachStage(t *testing.T) {
	dir := t.TempDir()
	start := func() *place { return openWith(t, dir, nil, compile, groupsOf(4, 0)) }
	p := start()
	defer func() { p.close() }()
	p.spread(1, 1, 1, 1)
	p.deploy(fmt.Sprintf(summing, 3))
	l := &ledger{p: p, rng: rand.New(rand.NewPCG(1, 2)), sent: map[string][]int64{}, given: map[string]int{}}
	s := &p.ops.service
	if _, err := s.cancel(t.Context(), "A", &Request{Name: "parted"}); err == nil || !strings.Contains(err.Error(), "not being replaced") {
		t.Errorf("nothing is called off: %v", err)
	}
	for stage := range 4 {
		l.publish(100)
		epoch := p.Operator("A", "parted").Epoch
		for tries := 0; ; tries++ {
			p.rescale(5)
			if p.cancelAt(stage) {
				break
			}
			if tries > 20 {
				t.Fatalf("it was never called off in time at stage %d", stage)
			}
			p.rescaledTo(5) // it was over before
			p.rescale(3)
			p.rescaledTo(3)
			epoch = p.Operator("A", "parted").Epoch
		}
		if o := p.Operator("A", "parted"); o.Next != nil || o.Epoch != epoch || len(o.Homes()) != 3 || o.Revoked == 0 {
			t.Errorf("called off at stage %d: %+v", stage, o)
		}
		if stage%2 == 1 {
			p.close()
			p = start()
			l.p = p
		}
		l.publish(50)
		l.holds()
		wait(t, "those that were to come are gone", func() (bool, string) {
			left := 0
			for _, u := range p.ops.all() {
				if u.coming() {
					left++
				}
			}
			list, err := os.ReadDir(p.ops.o.Dir)
			return left == 0 && len(list) == 3, fmt.Sprint(left, " units, ", len(list), " folders, ", err)
		})
	}
	p.rescale(2)
	p.rescaledTo(2)
	_, err := p.ops.service.cancel(t.Context(), "A", &Request{Name: "parted"})
	var f *topics.Fault
	if !errors.As(err, &f) || f.Status != 409 || !strings.Contains(f.Text, "have taken over already") {
		t.Errorf("what is over is called off: %v", err)
	}
	l.publish(50)
	l.holds()
}

// One that follows its first output to another group, and is called off, stays where it is
// until it is told otherwise; its outputs come all the same.
func TestAMoveIsCalledOff(t *testing.T) {
	p := openWith(t, t.TempDir(), nil, compile, groupsOf(4, 0))
	defer p.close()
	p.spread(1, 1, 1, 1)
	p.deploy(fmt.Sprintf(summing, 1))
	l := &ledger{p: p, rng: rand.New(rand.NewPCG(3, 4)), sent: map[string][]int64{}, given: map[string]int{}}
	l.publish(50)
	l.holds()
	// The topic moves: told to the operator by hand, for one node has topics of one replica only.
	far, _ := p.Topic("A", "FAR")
	out, _ := p.Topic("A", "OUT")
	var o *catalogue.Operator
	wait(t, "a move to be called off before it is over", func() (bool, string) {
		before := p.Operator("A", "parted")
		if before.Next == nil && before.Group == out.Group().ID() {
			before = p.ops.replaced(before, far.Group().ID(), 1)
			before.Next.Follows = "OUT"
			if _, err := p.PutOperator(t.Context(), before); err != nil {
				return false, err.Error()
			}
		}
		l.publish(20)
		v, err := p.ops.service.cancel(t.Context(), "A", &Request{Name: "parted"})
		if err != nil {
			return false, err.Error()
		}
		o = v.(Deployed).Operator
		return o.Group == before.Group, ""
	})
	if o.Stays != out.Group().ID() || o.Next != nil {
		t.Errorf("called off: %+v", o)
	}
	l.publish(20)
	l.holds()
	if _, err := p.ops.service.rescale(t.Context(), "A", &Request{Name: "parted", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	if o := p.Operator("A", "parted"); o.Stays != 0 || o.State != catalogue.Running {
		t.Errorf("it is to follow again: %+v", o)
	}
}
