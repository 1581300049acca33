package chaos

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/heraldmq/herald/tests/harness"
)

// A check is worth what it can see. These hold the checkers against histories that are
// made up: whole ones, and ones with a single thing wrong.

// made is a world without a cluster, in which a publisher sent messages on one
// connection and was told that they stand at their number plus one.
func made(t *testing.T, count int) (*world, *publisher, *reading) {
	w := &world{t: t, seed: 7, began: time.Now(), faults: map[string]int{}, counts: true, target: herald}
	p := &publisher{w: w, name: "p", stream: "T", size: 50}
	w.publishers = append(w.publishers, p)
	r := &reading{from: "n1", first: 1, last: uint64(count), msgs: map[uint64]stored{}, unreadable: map[uint64]error{}}
	for n := range count {
		p.msgs = append(p.msgs, sent{conn: 1, seq: uint64(n + 1)})
		r.msgs[uint64(n+1)] = stored{name: "p", n: n}
	}
	return w, p, r
}

func TestJudgeSeesEveryBrokenPromise(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(p *publisher, r *reading)
		want map[string]int
	}{
		{"whole", func(*publisher, *reading) {}, nil},
		{"without an answer and not stored", func(p *publisher, r *reading) { p.msgs[4].seq = 0; delete(r.msgs, 5) }, nil},
		{"without an answer and stored", func(p *publisher, _ *reading) { p.msgs[4].seq = 0 }, nil},
		{"lost in the middle", func(_ *publisher, r *reading) { delete(r.msgs, 5) }, map[string]int{"lost": 1}},
		{"lost at the end", func(_ *publisher, r *reading) { delete(r.msgs, 10); r.last = 9 }, map[string]int{"lost": 1}},
		{"all lost", func(_ *publisher, r *reading) { clear(r.msgs); r.first, r.last = 0, 0 }, map[string]int{"lost": 10}},
		{"unreadable", func(_ *publisher, r *reading) { delete(r.msgs, 5); r.unreadable[5] = fmt.Errorf("503") }, map[string]int{"unreadable": 1}},
		{"false duplicate", func(p *publisher, r *reading) { delete(r.msgs, 5); p.msgs[4].duplicate = true }, map[string]int{"false duplicate": 1}},
		{"twice", func(_ *publisher, r *reading) { r.msgs[11] = stored{name: "p", n: 9}; r.last = 11 }, map[string]int{"dup": 1, "moved": 1}},
		{"stored twice, told of none", func(p *publisher, r *reading) { p.msgs[9].seq = 0; r.msgs[11] = stored{name: "p", n: 9}; r.last = 11 }, map[string]int{"dup": 1}},
		{"overtaken", func(p *publisher, r *reading) {
			r.msgs[5], r.msgs[6] = r.msgs[6], r.msgs[5]
			p.msgs[4].seq, p.msgs[5].seq = 6, 5
		}, map[string]int{"reorder": 1}},
		{"overtaken on another connection", func(p *publisher, r *reading) {
			r.msgs[5], r.msgs[6] = r.msgs[6], r.msgs[5]
			p.msgs[4].seq, p.msgs[5].seq, p.msgs[4].conn = 6, 5, 2
		}, nil},
		{"another's sequence", func(_ *publisher, r *reading) { r.msgs[5] = r.msgs[6]; delete(r.msgs, 6) }, map[string]int{"lost": 1, "moved": 1}},
		{"never sent", func(_ *publisher, r *reading) { r.msgs[11] = stored{name: "p", n: 10}; r.last = 11 }, map[string]int{"phantom": 1}},
		{"of nobody", func(_ *publisher, r *reading) { r.msgs[11] = stored{name: "q"}; r.last = 11 }, map[string]int{"phantom": 1}},
		{"damaged", func(_ *publisher, r *reading) { r.msgs[5] = stored{name: "p", n: 4, bad: true} }, map[string]int{"damaged": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, p, r := made(t, 10)
			c.do(p, r)
			v := w.judge("T", r)
			if !maps.Equal(w.faults, c.want) {
				t.Errorf("found %v, want %v (%s)", w.faults, c.want, v)
			}
		})
	}
}

func TestCompareSeesReplicasThatDiffer(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(r *reading)
		want int
	}{
		{"same", func(*reading) {}, 0},
		{"a hole", func(r *reading) { delete(r.msgs, 5) }, 1},
		{"another message", func(r *reading) { r.msgs[5] = stored{name: "p", n: 7} }, 1},
		{"shorter", func(r *reading) { delete(r.msgs, 10); r.last = 9 }, 1},
		{"begins later", func(r *reading) { delete(r.msgs, 1); r.first = 2 }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _, a := made(t, 10)
			_, _, b := made(t, 10)
			c.do(b)
			w.compare(a, b)
			if w.faults["divergence"] != c.want {
				t.Errorf("found %v, want %d", w.faults, c.want)
			}
		})
	}
}

func TestDigestsThatDifferAreSeen(t *testing.T) {
	for _, c := range []struct {
		name             string
		a, b             held
		groups, replicas int
		broken           int
	}{
		{"same", held{9, 4}, held{9, 4}, 1, 2, 0},
		{"different", held{9, 4}, held{9, 5}, 1, 2, 1},
		{"of other entries", held{9, 4}, held{8, 5}, 0, 0, 0},
		{"one has none", held{9, 4}, held{}, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _, _ := made(t, 1)
			groups, replicas := w.sameDigests(map[string]map[string]held{"1": {"n1": c.a, "n2": c.b}})
			if groups != c.groups || replicas != c.replicas || w.faults["divergence"] != c.broken {
				t.Errorf("%d groups, %d replicas, %v", groups, replicas, w.faults)
			}
		})
	}
}

// told is an operation that ended well within a second of its own.
func told(at int, write bool, expected, seq uint64) operation {
	from := time.Duration(at) * time.Second
	return operation{write: write, expected: expected, seq: seq, ok: true, value: fmt.Sprint("v", seq), node: "n1", from: from, to: from + time.Second/2}
}

func TestRegisterSeesWhatIsNotLinearizable(t *testing.T) {
	refused := func(at int, expected, was uint64) operation {
		o := told(at, true, expected, was)
		o.ok, o.refused, o.value = false, true, "refused"
		return o
	}
	lateRead := told(1, false, 0, 0) // it began before the write and ended after it: both answers are right
	lateRead.to += 5 * time.Second
	unknown := told(2, true, 1, 2) // no answer, and stored
	unknown.ok, unknown.seq = false, 0
	unknown.value = "v2"
	for _, c := range []struct {
		name   string
		ops    []operation
		at     map[string]uint64
		broken string
		want   porcupine.CheckResult
	}{
		{"in order", []operation{told(1, true, 0, 1), told(2, false, 0, 1), told(3, true, 1, 2), refused(4, 1, 2), told(5, false, 0, 2)}, map[string]uint64{"v1": 1, "v2": 2}, "", porcupine.Ok},
		{"a read meanwhile", []operation{lateRead, told(2, true, 0, 1), told(3, false, 0, 1)}, map[string]uint64{"v1": 1}, "", porcupine.Ok},
		{"a stale read", []operation{told(1, true, 0, 1), told(2, true, 1, 2), told(3, false, 0, 1)}, map[string]uint64{"v1": 1, "v2": 2}, "", porcupine.Illegal},
		{"a read of nothing", []operation{told(1, true, 0, 1), told(2, false, 0, 0)}, map[string]uint64{"v1": 1}, "", porcupine.Illegal},
		{"an expectation not kept", []operation{told(1, true, 0, 1), told(2, true, 0, 2)}, map[string]uint64{"v1": 1, "v2": 2}, "", porcupine.Illegal},
		{"refused though right", []operation{told(1, true, 0, 1), refused(2, 1, 0)}, map[string]uint64{"v1": 1}, "", porcupine.Illegal},
		{"unknown, seen, then not", []operation{told(1, true, 0, 1), unknown, told(4, false, 0, 2), told(5, false, 0, 1)}, map[string]uint64{"v1": 1, "v2": 2}, "", porcupine.Illegal},
		{"unknown, seen late", []operation{told(1, true, 0, 1), unknown, told(4, false, 0, 1), told(5, false, 0, 2)}, map[string]uint64{"v1": 1, "v2": 2}, "", porcupine.Ok},
		{"acknowledged and gone", []operation{told(1, true, 0, 1)}, map[string]uint64{}, "lost", porcupine.Ok},
		{"refused and stored", []operation{told(1, true, 0, 1), refused(2, 0, 1)}, map[string]uint64{"v1": 1, "refused": 2}, "refused and stored", porcupine.Ok},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _, _ := made(t, 1)
			h := &history{w: w, stream: "L", keys: 1, ops: c.ops}
			for i := range h.ops {
				h.ops[i].client = i
			}
			ops, _, sum := h.explained(c.at)
			if got := porcupine.CheckOperationsTimeout(register(), ops, time.Minute); got != c.want {
				t.Errorf("%s, want %s (%s)", got, c.want, sum)
			}
			if c.broken == "" && len(w.faults) > 0 || c.broken != "" && w.faults[c.broken] != 1 {
				t.Errorf("found %v, want %q", w.faults, c.broken)
			}
		})
	}
}

func TestAcksWithoutAMajorityAreSeen(t *testing.T) {
	nodes := []*harness.Node{{Name: "n1"}, {Name: "n2"}}
	for _, c := range []struct {
		name string
		do   func(o *operation)
		want int
	}{
		{"an ack", func(*operation) {}, 1},
		{"of the other side", func(o *operation) { o.node = "n2" }, 0},
		{"a refusal", func(o *operation) { o.ok, o.refused = false, true }, 0},
		{"begun before", func(o *operation) { o.from = 0 }, 0},
		{"ended after", func(o *operation) { o.to = time.Minute }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _, _ := made(t, 1)
			o := told(5, true, 0, 1)
			c.do(&o)
			w.noAcks(&history{w: w, ops: []operation{o}}, nodes[:1], time.Second, 30*time.Second)
			if w.faults["minority acks"] != c.want {
				t.Errorf("found %v, want %d", w.faults, c.want)
			}
		})
	}
}
