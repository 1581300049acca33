package optest_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/optest"
	"github.com/heraldmq/herald/operators/spec"
	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
)

// What is said once whatever the number of instances: errors in front of the key and behind
// it, late records, suspects, what has no key, several keys of one record, joins.
const shared = `
operator: shared
time: {event: at, unit: ms, disorder: 3s, max_future: 1h}
errors: {policy: dead-letter, to: dead}
inputs:
  - {topic: IN, where: v != 3}
  - {topic: ROWS, table: true, key: k}
steps:
  - {name: good, from: IN, assert: v != 5}
  - {name: many, from: good, flatmap: '[{"k": k, "v": v, "w": 1}, {"k": "x" + k, "v": v, "w": 2}]'}
  - {name: keyed, from: many, key: k}
  - {name: kept, from: keyed, assert: v != 7}
  - {name: windows, from: kept, window: {tumble: 5s, late: {to: late}}}
  - {name: sums, from: windows, aggregate: {n: count(), total: sum(v)}}
  - {name: running, from: kept, aggregate: {n: count()}}
  - {name: named, from: good, join: {with: ROWS, on: {left: k, right: k}, table: true, kind: left, as: {k: left.k, v: left.v, name: 'right == null ? "none" : right.name'}}}
outputs:
  - {topic: SUMS, from: sums, key: k}
  - {topic: COUNTS, from: running, key: k}
  - {topic: NAMED, from: named}
  - {topic: RAW, from: good}
  - {topic: KEYED, from: kept}
`

func compileText(t *testing.T, text string) *graph.Graph {
	t.Helper()
	s, err := spec.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g, _, err := spec.Compile(s, spec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func sharedRecords(rng *rand.Rand, n int) (all []optest.Record) {
	const at = 1_893_456_000_000 // the beginning of 2030
	for i := range n {
		if i%10 == 0 {
			all = append(all, optest.Record{Input: "ROWS", Payload: fmt.Appendf(nil, `{"k":"k%d","name":"n%d","at":%d}`, rng.IntN(40), i, at+i*100)})
			continue
		}
		when := int64(at + i*100 - rng.IntN(3000))
		switch rng.IntN(40) {
		case 0:
			when -= 60_000 // late
		case 1:
			when += 7_200_000 // suspect
		}
		all = append(all, optest.Record{Input: "IN", Payload: fmt.Appendf(nil, `{"k":"k%d","v":%d,"at":%d}`, rng.IntN(40), rng.IntN(10), when)})
	}
	return all
}

func lines(r *optest.Result) (all []string) {
	for _, m := range r.Messages {
		all = append(all, fmt.Sprintf("%s %s %s %s", m.Sink, m.Subject, strings.ReplaceAll(string(m.Header), "\r\n", "|"), m.Payload))
	}
	slices.Sort(all)
	return all
}

func counted(all []engine.Count) map[string]uint64 {
	sums := map[string]uint64{}
	for _, c := range all {
		sums[c.Step+"."+c.Name] += c.N
	}
	return sums
}

func first[T any](a, b []T, same func(x, y T) bool) string {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || !same(a[i], b[i]) {
			return fmt.Sprintf("%d and %d; the first that differ: %v and %v", len(a), len(b), a[min(i, len(a)):min(i+1, len(a))], b[min(i, len(b)):min(i+1, len(b))])
		}
	}
	return ""
}

// TestInstancesTogetherGiveWhatOneGives runs an operator in one instance and in several, the
// number of which changes on the way.
func TestInstancesTogetherGiveWhatOneGives(t *testing.T) {
	for _, numbers := range [][]int{{3}, {1, 3, 7, 2}, {40, 1, 5}} {
		t.Run(fmt.Sprint(numbers), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(len(numbers)), 3))
			var parts [][]optest.Record
			for range numbers {
				parts = append(parts, sharedRecords(rng, 400))
			}
			want, err := optest.Run(compileText(t, shared), optest.Options{}, slices.Concat(parts...)...)
			if err != nil {
				t.Fatal(err)
			}
			got := &optest.Result{}
			var before []state.Reader
			var at [2]topics.Sequence
			for round, of := range numbers {
				var now []state.Reader
				got.Counts = nil
				for index := range of {
					share := engine.Share{Index: index, Of: of}
					var st state.Store = state.NewMemory()
					if round > 0 {
						var mine []state.Reader
						for _, b := range before {
							mine = append(mine, engine.Part(b, share))
						}
						if st, err = engine.Inherit(compileText(t, shared), mine...); err != nil {
							t.Fatal(err)
						}
					}
					o := optest.Options{Share: share, Store: st, Open: round < len(numbers)-1, Begin: at[:], Cut: func() int { return 1 + rng.IntN(200) }}
					r, err := optest.Run(compileText(t, shared), o, parts[round]...)
					if err != nil {
						t.Fatal(err)
					}
					got.Messages = append(got.Messages, r.Messages...)
					got.Counts = append(got.Counts, r.Counts...)
					now = append(now, st)
				}
				for _, r := range parts[round] {
					at[map[string]int{"IN": 0, "ROWS": 1}[r.Input]]++
				}
				before = now
			}
			if why := first(lines(got), lines(want), func(x, y string) bool { return x == y }); why != "" {
				t.Errorf("outputs: %s", why)
			}
			for name, n := range counted(want.Counts) {
				if g := counted(got.Counts)[name]; g != n {
					t.Errorf("%s is counted %d times, wanted %d", name, g, n)
				}
			}
			// Within an output, the records of a key are in the same order.
			for _, sink := range []string{"SUMS", "COUNTS", "NAMED"} {
				if of(got, sink) == "" || of(got, sink) != of(want, sink) {
					t.Errorf("the order of %s differs", sink)
				}
			}
			for _, sink := range []string{"dead", "late", "RAW", "KEYED"} {
				if !slices.ContainsFunc(want.Messages, func(m optest.Message) bool { return strings.Contains(m.Sink, sink) || m.Subject == sink }) {
					t.Errorf("nothing is wanted of %s", sink)
				}
			}
		})
	}
}

// of is what came out of an output, by key, each key's in its order.
func of(r *optest.Result, sink string) string {
	by := map[string][]string{}
	for _, m := range r.Of(sink) {
		k := strings.SplitN(string(m.Payload), ",", 2)[0]
		by[k] = append(by[k], string(m.Payload))
	}
	return fmt.Sprint(by)
}

func TestWhatCanNotBeSpreadIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"steps: [{filter: v > 1}]\noutputs: [{topic: OUT}]":                                                                        "nothing to spread",
		"steps: [{window: {tumble: 1s}}, {aggregate: {n: count()}}]\noutputs: [{topic: OUT}]":                                      "put a key step in front",
		"steps: [{key: k}, {aggregate: {n: count()}}, {key: n}, {top: {n: 3, by: n, row: k}}]\noutputs: [{topic: OUT, key: rank}]": "another key",
		"recovery: amnesia\nsteps: [{key: k}, {window: {tumble: 1s}}, {aggregate: {n: count()}}]\noutputs: [{topic: OUT}]":         "recovery amnesia",
	} {
		s, err := spec.Parse("test", []byte("operator: no\npartitions: 3\ninputs: [{topic: IN}]\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := spec.Compile(s, spec.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, wanted %s", text, err, want)
		}
	}
}
